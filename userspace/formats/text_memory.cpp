#include "formats/text_memory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <vector>

#include "base/units.hpp"
#include "formats/columns.hpp"

namespace memtrace {
namespace {

/// One thing that the sentence names, and how it is drawn.
struct Part {
    int64_t size_bytes = 0;
    std::string text;
    std::string_view drawn;
    std::string_view drawn_in_ascii;
};

constexpr size_t bar_columns = 60;

std::string size_text(int64_t size_bytes) {
    return size_bytes < 0 ? format_size_change(size_bytes) : format_size(static_cast<uint64_t>(size_bytes));
}

/// "32 MiB files, 9 MiB unexplained": what is elsewhere, largest first, what is nothing left out.
std::string elsewhere_text(const GrowthFigures& growth) {
    std::vector<std::pair<int64_t, std::string_view>> parts = {
        {growth.stacks_bytes, "stacks"},
        {growth.files_bytes, "files"},
        {growth.shared_bytes, "shared memory"},
        {growth.earlier_bytes, "in other memory of before the attach"},
        {growth.gc_heap_bytes.value_or(0), "collected heap"},
        {growth.unexplained_bytes, "unexplained"}};
    std::erase_if(parts, [](const auto& part) { return part.first == 0; });
    std::ranges::stable_sort(parts, std::greater(), [](const auto& part) { return std::abs(part.first); });
    std::string text;
    for (const auto& [size_bytes, what] : parts)
        text += fmt::format("{}{} {}", text.empty() ? "" : ", ", size_text(size_bytes), what);
    return text;
}

std::string retained_text(const GrowthFigures& growth) {
    if (!growth.allocator_retained_bytes) return "of the allocator nothing is known";
    const int64_t retained = *growth.allocator_retained_bytes;
    if (retained >= 0) return size_text(retained) + " kept by the allocator";
    return size_text(retained) + " in memory that the allocator had before the attach";
}

std::array<Part, 3> parts_of(const GrowthFigures& growth) {
    const int64_t sites = growth.heap_live_bytes + growth.mappings_bytes;
    const int64_t retained = growth.allocator_retained_bytes.value_or(0);
    const int64_t elsewhere = growth.total_bytes - sites - retained;
    const std::string details = elsewhere_text(growth);
    return {
        Part{sites, size_text(sites) + " explained by the call sites below", "█", "#"},
        Part{retained, retained_text(growth), "▒", "+"},
        Part{elsewhere, size_text(elsewhere) + " elsewhere" + (details.empty() ? "" : " (" + details + ")"), "░", "."}};
}

/// What there is more of, by share; parts that shrank are not drawn.
std::string bar(const std::array<Part, 3>& parts, size_t columns, bool has_utf8) {
    int64_t whole = 0;
    for (const Part& part : parts)
        whole += std::max<int64_t>(part.size_bytes, 0);
    if (whole == 0) return {};
    std::string text;
    int64_t before = 0;
    for (const Part& part : parts) {
        const int64_t after = before + std::max<int64_t>(part.size_bytes, 0);
        const auto column_of = [&](int64_t size_bytes) {
            return static_cast<size_t>(std::lround(static_cast<double>(size_bytes) / static_cast<double>(whole) *
                                                   static_cast<double>(columns)));
        };
        for (size_t column = column_of(before); column < column_of(after); ++column)
            text += has_utf8 ? part.drawn : part.drawn_in_ascii;
        before = after;
    }
    return text;
}

}  // namespace

std::string growth_section(const ReportRecord& report, const WriterOptions& options, const Style& style) {
    if (!report.memory.growth) return {};
    const GrowthFigures& growth = *report.memory.growth;
    const auto parts = parts_of(growth);
    const int64_t total = growth.total_bytes;
    std::string sentence = fmt::format("{} {}", growth.is_shared_out ? "PSS" : "RSS",
                                       total == 0  ? "did not grow since the attach"
                                       : total > 0 ? fmt::format("grew {} since the attach", size_text(total))
                                                   : fmt::format("shrank {} since the attach", size_text(-total)));
    sentence += fmt::format(": {}, {}, {}", parts[0].text, parts[1].text, parts[2].text);
    const size_t room =
        options.width == 0 ? bar_columns : std::min(bar_columns, options.width - std::min<size_t>(options.width, 4));
    std::string text;
    for (const std::string& line : wrap_words("  " + sentence, options.width, 4))
        text += line + '\n';
    if (const std::string drawn = bar(parts, room, options.has_utf8); !drawn.empty() && total > 0)
        text += "  " + style.quiet(drawn) + '\n';
    return text;
}

}  // namespace memtrace
