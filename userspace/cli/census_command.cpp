#include "cli/census_command.hpp"

#include "cli/collected_census.hpp"
#include "cli/ending_signals.hpp"
#include "cli/malloc_census.hpp"
#include "cli/output.hpp"
#include "processes/process.hpp"

namespace memtrace {
namespace {

/// Of every heap of the process that can be read; at least one.
Result<std::vector<Record>> take_censuses(const Census& options, MallocCensusTaker& malloc_taker) {
    std::vector<Record> records;
    auto collected = take_collected_census(options);
    if (collected) records.emplace_back(std::move(*collected));
    if (!collected && collected.error().status != ExitStatus::no_allocator) return std::move(collected).error();
    auto malloc = malloc_taker.take();
    if (malloc) records.emplace_back(std::move(*malloc));
    if (malloc || (collected && malloc.error().status == ExitStatus::no_allocator)) return records;
    Error error = std::move(malloc).error();
    if (error.status == ExitStatus::no_allocator)
        error.hint =
            "a census is of programs on glibc's malloc, libgc or Go; memtrace -p PID traces other allocators too";
    return error;
}

/// What ends a series early, if it is no failure.
bool has_ended(const Census& options, uint64_t taken) {
    return taken > 0 && !read_mapped_bytes(options.pid);
}

Result<void> run_series(const Census& options, Output& output) {
    MallocCensusTaker malloc_taker(options);
    const uint64_t count = options.interval_ns ? options.count.value_or(UINT64_MAX) : 1;
    for (uint64_t taken = 0; taken < count; ++taken) {
        if (taken > 0 && !wait_without_signal(*options.interval_ns)) return {};
        auto records = take_censuses(options, malloc_taker);
        if (!records && has_ended(options, taken)) return {};
        if (!records) return std::move(records).error();
        for (const Record& record : *records)
            if (Result<void> written = output.write(record); !written) return written;
    }
    return {};
}

}  // namespace

int run_census_command(const Census& options) {
    if (options.interval_ns) hold_ending_signals();
    Options output_options;
    output_options.format = options.format;
    return write_to_output(output_options, [&](Output& output) { return run_series(options, output); });
}

}  // namespace memtrace
