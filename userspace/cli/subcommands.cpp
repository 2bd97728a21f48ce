#include "cli/subcommands.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "cli/choices.hpp"
#include "cli/usage_errors.hpp"

namespace memtrace {
namespace {

/// The first of `given` that is not among `taken`; empty when there is none.
template <size_t Count>
std::string first_other(const std::vector<std::string>& given, const std::array<std::string_view, Count>& taken) {
    const auto other = std::ranges::find_if(
        given, [&](const std::string& name) { return std::ranges::find(taken, name) == taken.end(); });
    return other == given.end() ? "" : *other;
}

}  // namespace

Result<Request> list_request(const Options& options, bool lists_placement, const std::vector<std::string>& given) {
    if (given.empty() && lists_placement && !options.pids.empty()) return Request(ListPlacement{options.pids});
    if (given.empty() && !lists_placement && options.pids.empty()) return Request(ListAllocators{});
    return usage_error("list", "takes --placement and -p PID together, or nothing",
                       "write memtrace list, or memtrace list --placement -p PID");
}

Result<Request> doctor_request(Options options, const std::vector<std::string>& given) {
    constexpr std::array<std::string_view, 10> taken = {
        "pid",  "attach", "max-live-blocks", "max-sites",     "ring-size", "alloc",
        "free", "obj",    "allocators",      "symbols-prefix"};
    if (const std::string other = first_other(given, taken); !other.empty())
        return usage_error("doctor", fmt::format("does not take {}", other),
                           "write memtrace doctor, or memtrace doctor -p PID");
    return Request(Doctor{std::move(options)});
}

Result<Request> selftest_request(const Options& options, const std::vector<std::string>& given) {
    constexpr std::array<std::string_view, 4> taken = {"attach", "max-live-blocks", "max-sites", "ring-size"};
    if (const std::string other = first_other(given, taken); !other.empty())
        return usage_error("selftest", fmt::format("does not take {}", other),
                           "write memtrace selftest, or memtrace selftest --attach HOW");
    SelfTest selftest;
    for (const auto& [name, how] : attach_choices)
        if (how == options.attach) selftest.options = {"--attach", std::string(name)};
    selftest.options.insert(selftest.options.end(), {"--max-live-blocks", fmt::format("{}", options.max_live_blocks),
                                                     "--max-sites", fmt::format("{}", options.call_sites()),
                                                     "--ring-size", fmt::format("{}", options.ring_bytes())});
    return Request(std::move(selftest));
}

}  // namespace memtrace
