#include "formats/text_types.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.hpp"
#include "base/units.hpp"
#include "formats/columns.hpp"
#include "formats/style.hpp"

namespace memtrace {
namespace {

constexpr size_t figure_width = 12;

std::string figure(std::string_view text) {
    return pad_left(text, figure_width);
}

std::string live_cells(const TypeEntry& type) {
    return figure(type.live_bytes ? format_size(*type.live_bytes) : "-") +
           figure(type.live_blocks ? format_count(*type.live_blocks) : "-");
}

std::string type_cell(const std::string& type, size_t figures, const WriterOptions& options) {
    const std::string text = printable(type);
    const size_t used = figures * figure_width + 2;
    return options.width > used + 8 ? shorten_middle(text, options.width - used) : text;
}

/// A runtime's own profile: estimates, by call stack.
std::string profile_text(const CensusRecord& census, const WriterOptions& options) {
    const Style style(options.has_colors);
    std::string text =
        style.headline(fmt::format("{}[{}]", printable(census.comm), census.pid)) +
        fmt::format(": about {} \u00b1 {} live in {} objects, of which its runtime has sampled {}, one every {}\n",
                    format_size(census.live_bytes), format_size(census.error_bytes), format_count(census.live_blocks),
                    format_count(census.live_samples), format_size(census.sampling_mean_bytes));
    text += '\n' + style.quiet(figure("live") + figure("objects") + figure("samples") + figure("allocated")) + '\n';
    for (const CensusSite& site : census.sites) {
        text += figure(format_size(site.live_bytes)) + figure(format_count(site.live_blocks)) +
                figure(format_count(site.live_samples)) + figure(format_size(site.allocated_bytes)) + '\n';
        for (const std::string& function : site.functions)
            text += "          " + printable(function) + '\n';
        text += '\n';
    }
    if (census.sites.size() < census.sites_total)
        text += fmt::format("    [{} more call sites]\n", format_count(census.sites_total - census.sites.size()));
    return text;
}

}  // namespace

std::string types_section(const ReportRecord& report, const WriterOptions& options) {
    const Style style(options.has_colors);
    if (!report.types || report.types->empty()) return "No objects whose types are known.\n";
    std::string text = style.headline("Objects by type") + '\n';
    text += style.quiet(figure("live") + figure("objects") + figure("allocated") + figure("objects") + "  type") + '\n';
    for (const TypeEntry& type : *report.types)
        text += live_cells(type) + figure(format_size(type.allocated_bytes)) + figure(format_count(type.allocations)) +
                "  " + type_cell(type.type, 4, options) + '\n';
    return text;
}

std::string before_attach_section(const BeforeAttachRecord& before, const WriterOptions& options) {
    const Style style(options.has_colors);
    std::string text = style.headline("Go heap from before the attach") +
                       fmt::format(": about {} \u00b1 {} still live, by its runtime's own samples; in no sum\n",
                                   format_size(before.live_bytes), format_size(before.error_bytes));
    for (const CensusSite& site : before.sites) {
        text += figure(format_size(site.live_bytes)) + " in " + format_count(site.live_blocks) + " objects\n";
        for (const std::string& function : site.functions)
            text += "          " + printable(function) + '\n';
    }
    if (before.sites.size() < before.sites_total)
        text += fmt::format("    [{} more call sites]\n", format_count(before.sites_total - before.sites.size()));
    return text;
}

std::string census_text(const CensusRecord& census, const WriterOptions& options) {
    if (census.sampling_mean_bytes > 0) return profile_text(census, options);
    const Style style(options.has_colors);
    std::string text =
        style.headline(fmt::format("{}[{}]", printable(census.comm), census.pid)) +
        fmt::format(": {} in {} objects at its last collection, which was number {}\n\n",
                    format_size(census.live_bytes), format_count(census.live_blocks), format_count(census.collections));
    text += style.quiet(figure("live") + figure("objects") + "  type") + '\n';
    for (const TypeEntry& type : census.types)
        text += live_cells(type) + "  " + type_cell(type.type, 2, options) + '\n';
    if (census.types.size() < census.types_total)
        text += fmt::format("{:>{}}  [{} more types]\n", "", 2 * figure_width,
                            format_count(census.types_total - census.types.size()));
    text += figure(format_size(census.live_bytes - census.typed_bytes)) +
            figure(format_count(census.live_blocks - census.typed_blocks)) + "  (no type: buffers and structs)\n";
    if (census.blocks_not_read > 0)
        text += style.loss(fmt::format("NOT COMPLETE: {} pages of the heap could not be read",
                                       format_count(census.blocks_not_read))) +
                '\n';
    return text;
}

}  // namespace memtrace
