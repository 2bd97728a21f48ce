#include "cli/usage_errors.hpp"

#include <fmt/format.h>

#include <utility>

namespace memtrace {

Error usage_error(std::string what, std::string why, std::string hint) {
    return Error{std::move(what), std::move(why), std::move(hint), ExitStatus::usage};
}

Error option_error(std::string_view sentence) {
    const std::string name(sentence.substr(0, sentence.find_first_of(": ")));
    const std::string why = sentence.ends_with("missing")    ? "its value is missing"
                            : sentence.ends_with("override") ? "takes no value"
                                                             : "given twice";
    return usage_error(name.starts_with('-') ? name : "--" + name, why, "memtrace --help shows how it is written");
}

Error no_target_error(const Options& options, const std::string& interval) {
    const std::string why = "no process or command to trace is given";
    if (options.follows_children && interval.empty())
        return usage_error("--follow", "no process whose children it means is given",
                           "add -p PID, -x NAME or --cgroup PATH");
    if (interval.empty())
        return usage_error("no target", why, "memtrace -p PID, or memtrace -- COMMAND; memtrace --help shows more");
    return usage_error("no target", why, fmt::format("did you mean memtrace -p {}?", interval));
}

}  // namespace memtrace
