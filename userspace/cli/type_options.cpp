#include "cli/type_options.hpp"

#include <limits>

#include "cli/values.hpp"
#include "memtrace/abi.h"

namespace memtrace {
namespace {

Error named(std::string_view option, Error error) {
    error.what = std::string(option) + " " + error.what;
    error.status = ExitStatus::usage;
    return error;
}

}  // namespace

TypeOptions::TypeOptions(CLI::App& app, Options& options) {
    const std::string group = "Collected heaps (Crystal, Go)";
    app.add_flag_function(
           "--go-full", [&options](int64_t) { options.traces_go_fully = true; },
           "every Go allocation with its type; slow")
        ->group(group)
        ->disable_flag_override();
    app.add_flag_function(
           "--growth", [&options](int64_t) { options.shows_growth = true; },
           "how memory grows by its use, no probe (-p)")
        ->group("What is shown")
        ->disable_flag_override();
    app.add_flag_function(
           "--types", [&options](int64_t) { options.shows_types = true; }, "objects by type in place of call sites")
        ->group(group)
        ->disable_flag_override();
    const auto add = [&](const char* name, const char* placeholder, std::string& target, const char* description) {
        app.add_option(name, target, description)->option_text(placeholder)->take_last()->group(group);
    };
    add("--type", "NAME", options.only_type, "only call sites that allocate objects of NAME");
    add("--type-names", "FILE", options.type_names_path, "what CRYSTAL_DUMP_TYPE_ID printed");
    add("--min-count", "N", min_count_, "only call sites and types with N allocations");
    add("--depth", "N", depth_, "call sites are told apart by N frames (all)");
}

Result<void> TypeOptions::check(Options& options) const {
    auto min_count = parse_number(min_count_, 0, std::numeric_limits<uint64_t>::max());
    if (!min_count) return named("--min-count", std::move(min_count).error());
    options.min_count = *min_count;
    if (!depth_.empty()) {
        auto depth = parse_number(depth_, 1, MT_MAX_FRAMES);
        if (!depth) return named("--depth", std::move(depth).error());
        options.depth = static_cast<uint32_t>(*depth);
    }
    const bool counts_types = options.shows_types || !options.only_type.empty();
    if (!counts_types || (!options.sample_bytes && !options.max_overhead)) return {};
    return Error{"--types", "objects are counted by type only when every block is recorded",
                 "leave --sample and --max-overhead out", ExitStatus::usage};
}

}  // namespace memtrace
