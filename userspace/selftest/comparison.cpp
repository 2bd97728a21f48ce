#include "selftest/comparison.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>

namespace memtrace {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kept_by = "selftest_keeps";

/// The number under `keys`; none when there is none.
std::optional<int64_t> number_at(const Json& object, std::initializer_list<const char*> keys) {
    const Json* value = &object;
    for (const char* key : keys) {
        const auto found = value->find(key);
        if (!value->is_object() || found == value->end()) return std::nullopt;
        value = &*found;
    }
    return value->is_number_integer() ? std::optional(value->get<int64_t>()) : std::nullopt;
}

std::string text_of(const std::optional<int64_t>& number) {
    return number ? fmt::format("{}", *number) : "missing";
}

void expect(Comparison& comparison, std::string_view name, const std::optional<int64_t>& seen,
            const std::optional<int64_t>& counted) {
    ++comparison.compared;
    if (seen && seen == counted) return;
    comparison.differences.push_back(
        fmt::format("{} is {}, and the program counted {}", name, text_of(seen), text_of(counted)));
}

/// The function that an allocation of the site came from.
std::string_view caller_of(const Json& site) {
    const auto frames = site.find("frames");
    if (frames == site.end() || frames->empty()) return {};
    const auto function = frames->front().find("function");
    if (function == frames->front().end() || !function->is_string()) return {};
    return function->get_ref<const std::string&>();
}

void compare_kept(Comparison& comparison, const Json& truth, const Json& report) {
    int64_t bytes = 0;
    int64_t blocks = 0;
    const auto sites = report.find("sites");
    for (const Json& site : sites == report.end() ? Json::array() : *sites) {
        if (caller_of(site) != kept_by) continue;
        bytes += number_at(site, {"live_bytes"}).value_or(0);
        blocks += number_at(site, {"live_blocks"}).value_or(0);
    }
    const std::string name = fmt::format("of the call site {}", kept_by);
    expect(comparison, "live_bytes " + name, bytes, number_at(truth, {"kept_bytes"}));
    expect(comparison, "live_blocks " + name, blocks, number_at(truth, {"kept_blocks"}));
}

}  // namespace

Comparison compare(const Json& truth, const Json& report) {
    Comparison comparison;
    for (const char* name : {"allocated_bytes", "allocations", "freed_bytes", "frees", "live_bytes", "live_blocks"})
        expect(comparison, name, number_at(report, {"heap", name}), number_at(truth, {"heap", name}));
    for (const char* name : {"mapped_bytes", "unmapped_bytes"})
        expect(comparison, name, number_at(report, {"mappings", name}), number_at(truth, {"mappings", name}));
    expect(comparison, "unknown_frees", number_at(report, {"accuracy", "unknown_frees"}),
           number_at(truth, {"unknown_frees"}));
    compare_kept(comparison, truth, report);
    for (const char* loss : {"blocks_not_recorded", "stacks_not_recorded", "events_lost", "returns_missed",
                             "frees_missed", "reallocs_unresolved"})
        expect(comparison, loss, number_at(report, {"accuracy", loss}), 0);
    return comparison;
}

}  // namespace memtrace
