#include "cli/collected_census.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <map>
#include <sstream>
#include <thread>
#include <tuple>

#include "base/clock.hpp"
#include "processes/process.hpp"
#include "runtimes/census.hpp"
#include "runtimes/go_heap_profile.hpp"

namespace memtrace {
namespace {

/// A collection lasts milliseconds; a heap that is always being collected shows no census.
constexpr int tries = 200;
constexpr std::chrono::milliseconds between_tries(20);

Result<HeapCensus> take_census(const Census& options) {
    auto names = read_type_names(options.type_names_path);
    if (!names) return std::move(names).error();
    const auto heap = find_boehm_heap(options.pid);
    if (!heap) return heap.error();
    const ProcessTypes types = find_process_types(options.pid, *names);
    for (int i = 0; i < tries; ++i) {
        if (auto census = count_objects(*heap, types)) return std::move(*census);
        if (!heap->collections()) break;
        std::this_thread::sleep_for(between_tries);
    }
    return Error{"census", "the heap could not be read between two collections, or the process has ended"};
}

CensusRecord empty_record(const Census& options, std::string collector) {
    const auto process = read_process(options.pid);
    CensusRecord record;
    record.time_unix_ns = unix_now_ns();
    record.pid = options.pid;
    record.comm = process ? process->comm : "";
    record.collector = std::move(collector);
    return record;
}

CensusRecord record_of(const HeapCensus& census, const Census& options) {
    CensusRecord record = empty_record(options, "boehm");
    record.collections = census.figures.collections;
    record.live_bytes = census.size_bytes;
    record.live_blocks = census.objects;
    record.blocks_not_read = census.figures.blocks_not_read;
    record.types_total = census.types.size();
    for (const TypeCount& type : census.types) {
        record.typed_blocks += type.objects;
        record.typed_bytes += type.size_bytes;
        if (type.objects < options.min_count || (options.top.value_or(0) != 0 && record.types.size() >= *options.top))
            continue;
        TypeEntry entry;
        entry.type = type.type;
        entry.live_bytes = type.size_bytes;
        entry.live_blocks = type.objects;
        record.types.push_back(std::move(entry));
    }
    return record;
}

uint64_t rounded(double value) {
    return static_cast<uint64_t>(std::llround(value));
}

/// One call stack has a bucket for each size.
CensusRecord record_of(const GoHeapProfile& profile, const Census& options) {
    CensusRecord record = empty_record(options, "go");
    record.sampling_mean_bytes = profile.sampled_every_bytes;
    double variance = 0;
    std::map<std::vector<std::string>, CensusSite> sites;
    for (const GoAllocations& one : profile.allocations) {
        const auto size_bytes = static_cast<double>(one.size_bytes);
        variance += one.live_variance * size_bytes * size_bytes;
        CensusSite& site = sites[one.functions];
        site.live_bytes += rounded(one.live * size_bytes);
        site.live_blocks += rounded(one.live);
        site.allocated_bytes += rounded(one.allocations * size_bytes);
        site.allocations += rounded(one.allocations);
        site.live_samples += one.live_samples;
    }
    record.error_bytes = rounded(std::sqrt(variance));
    record.sites_total = sites.size();
    for (auto& [functions, site] : sites) {
        record.live_bytes += site.live_bytes;
        record.live_blocks += site.live_blocks;
        record.live_samples += site.live_samples;
        site.functions = functions;
        if (site.allocations >= options.min_count) record.sites.push_back(std::move(site));
    }
    std::ranges::stable_sort(record.sites, std::greater(),
                             [](const CensusSite& site) { return std::tuple(site.live_bytes, site.allocated_bytes); });
    if (options.top.value_or(0) != 0 && record.sites.size() > *options.top) record.sites.resize(*options.top);
    return record;
}

}  // namespace

Result<CensusRecord> take_collected_census(const Census& options) {
    if (is_go_process(options.pid)) {
        const auto profile = read_go_heap_profile(options.pid);
        if (!profile) return profile.error();
        return record_of(*profile, options);
    }
    const auto census = take_census(options);
    if (!census) return census.error();
    return record_of(*census, options);
}

Result<TypeNames> read_type_names(const std::string& path) {
    if (path.empty()) return TypeNames();
    std::ifstream file(path, std::ios::binary);
    std::stringstream text;
    text << file.rdbuf();
    if (!file || !text)
        return Error{"--type-names " + path, "cannot be read", "name a file that CRYSTAL_DUMP_TYPE_ID=1 printed",
                     ExitStatus::usage};
    return parse_type_names(text.str(), "--type-names " + path);
}

}  // namespace memtrace
