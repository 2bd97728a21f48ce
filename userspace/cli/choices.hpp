// What options choose from: words, and the largest numbers. Uses options.hpp.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <utility>

#include "cli/options.hpp"

namespace memtrace {

inline constexpr uint64_t max_live_blocks_limit = 1u << 28;  // 16 GiB of struct mt_bucket
inline constexpr uint64_t max_sites_limit = 1u << 24;        // 1 GiB of struct mt_site

template <typename Value>
using Choice = std::pair<std::string_view, Value>;

inline constexpr std::array sort_orders = {
    Choice<SortOrder>{"live", SortOrder::live}, Choice<SortOrder>{"count", SortOrder::count},
    Choice<SortOrder>{"growth", SortOrder::growth}, Choice<SortOrder>{"age", SortOrder::age},
    Choice<SortOrder>{"rate", SortOrder::rate}};
inline constexpr std::array report_scopes = {
    Choice<ReportBy>{"process", ReportBy::process}, Choice<ReportBy>{"tree", ReportBy::tree},
    Choice<ReportBy>{"exe", ReportBy::exe}, Choice<ReportBy>{"cgroup", ReportBy::cgroup},
    Choice<ReportBy>{"all", ReportBy::all}};
inline constexpr std::array output_formats = {Choice<OutputFormat>{"text", OutputFormat::text},
                                              Choice<OutputFormat>{"json", OutputFormat::json}};
inline constexpr std::array color_choices = {Choice<ColorChoice>{"auto", ColorChoice::automatic},
                                             Choice<ColorChoice>{"always", ColorChoice::always},
                                             Choice<ColorChoice>{"never", ColorChoice::never}};
inline constexpr std::array attach_choices = {Choice<AttachChoice>{"session", AttachChoice::session},
                                              Choice<AttachChoice>{"multi", AttachChoice::multi},
                                              Choice<AttachChoice>{"perf", AttachChoice::perf}};

}  // namespace memtrace
