#include "cli/census_options.hpp"

#include <array>
#include <limits>
#include <memory>

#include "cli/help.hpp"
#include "cli/values.hpp"

namespace memtrace {
namespace {

constexpr std::array formats = {std::pair<std::string_view, OutputFormat>{"text", OutputFormat::text},
                                std::pair<std::string_view, OutputFormat>{"json", OutputFormat::json}};

constexpr std::string_view usage_text = R"(
What is live in a process, without a probe and without stopping it: blocks of glibc's malloc by size, objects of a
garbage-collected heap by type, as of its last collection. Several censuses tell which size grows.

Usage:
  memtrace census PID [INTERVAL [COUNT]] [OPTIONS]

  memtrace census 1234             what is live now, and what malloc keeps
  memtrace census 1234 10          every 10 s, with the growth since the first; ^C ends
  memtrace census 1234 1m 2        two, a minute apart

)";

Error named(std::string_view option, Error error) {
    error.what = std::string(option) + " " + error.what;
    error.status = ExitStatus::usage;
    return error;
}

}  // namespace

CensusOptions::CensusOptions(CLI::App& app)
    : command_(app.add_subcommand("census", "live blocks by size, objects by type, no probe")) {
    command_->group("Commands");
    command_->allow_extras();
    command_->formatter(std::make_shared<HelpFormatter>(std::string(usage_text)));
    command_->add_option("PID", pid_, "a running process")->option_text("");
    command_->add_option("INTERVAL", interval_, "from one census to the next: 10, 500ms, 5m")->option_text("");
    command_->add_option("COUNT", count_, "how many; none: until ^C")->option_text("");
    command_->add_option("--type-names", type_names_path_, "names of types: what CRYSTAL_DUMP_TYPE_ID printed")
        ->option_text("FILE");
    command_->add_option("--format", format_, "text or json (text)")->option_text("FORMAT");
    command_->add_option("-T,--top", top_, "types or sizes shown (0: all; all types, ten sizes)")->option_text("N");
    command_->add_option("--min-count", min_count_, "only types and sizes with so many objects (0)")->option_text("N");
    command_->set_help_flag("-h,--help", "this text");
}

Result<Request> CensusOptions::checked() const {
    const std::string hint = "write memtrace census PID; memtrace census --help shows more";
    if (pid_.empty()) return Error{"census", "no process is given", hint, ExitStatus::usage};
    auto pids = parse_pids(pid_);
    if (!pids) return std::move(pids).error();
    if (pids->size() != 1) return Error{"census", "takes one process", hint, ExitStatus::usage};
    auto format = parse_choice(format_, formats);
    if (!format) return named("--format", std::move(format).error());
    std::optional<uint32_t> top;
    if (!top_.empty()) {
        auto number = parse_number(top_, 0, std::numeric_limits<uint32_t>::max());
        if (!number) return named("--top", std::move(number).error());
        top = static_cast<uint32_t>(*number);
    }
    auto min_count = parse_number(min_count_, 0, std::numeric_limits<uint64_t>::max());
    if (!min_count) return named("--min-count", std::move(min_count).error());
    std::optional<uint64_t> interval_ns;
    std::optional<uint64_t> count;
    if (!interval_.empty()) {
        auto interval = parse_interval(interval_);
        if (!interval) return std::move(interval).error();
        interval_ns = *interval;
    }
    if (!count_.empty()) {
        auto number = parse_number(count_, 1, std::numeric_limits<uint64_t>::max());
        if (!number) return named("COUNT", std::move(number).error());
        count = *number;
    }
    return Request(Census{.pid = pids->front(),
                          .type_names_path = type_names_path_,
                          .format = *format,
                          .top = top,
                          .min_count = *min_count,
                          .interval_ns = interval_ns,
                          .count = count});
}

}  // namespace memtrace
