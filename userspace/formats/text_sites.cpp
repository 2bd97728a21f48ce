#include "formats/text_sites.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>
#include <vector>

#include "base/text.hpp"
#include "base/units.hpp"
#include "formats/columns.hpp"
#include "formats/text_processes.hpp"
#include "formats/text_table.hpp"

namespace memtrace {
namespace {

constexpr size_t gap = column_gap;
constexpr size_t stack_indent = 6;
// A longer name shifts the rest of its own line, so that one of them does not move all lines far to the right.
constexpr size_t widest_aligned_name = 64;

std::string_view order_name(SiteOrder order, bool is_mapping) {
    switch (order) {
        case SiteOrder::live:
            return "live bytes";
        case SiteOrder::count:
            return is_mapping ? "live mappings" : "live blocks";
        case SiteOrder::growth:
            return "growth";
        case SiteOrder::age:
            return is_mapping ? "age of the oldest mapping" : "age of the oldest block";
        case SiteOrder::rate:
            return "allocation rate";
    }
    return "live bytes";
}

/// A site that holds nothing and did not change is no news, unless it is asked for what passed through it.
bool is_worth_showing(const SiteEntry& site, SiteOrder order) {
    if (order == SiteOrder::rate) return site.allocated_since_previous_bytes > 0 || site.live_blocks > 0;
    return site.live_blocks > 0 || site.growth_bytes != 0;
}

std::string rate_of(uint64_t size_bytes, uint64_t duration_ns) {
    if (duration_ns == 0) return "-";
    const double per_second = static_cast<double>(size_bytes) * 1e9 / static_cast<double>(duration_ns);
    return format_size(static_cast<uint64_t>(std::llround(per_second))) + "/s";
}

/// The columns in their order on the line.
class SiteTable {
  public:
    SiteTable(const ReportRecord& report, bool is_mapping) : report_(report), is_mapping_(is_mapping) {}

    void add(const SiteEntry& site) {
        const uint64_t whole = is_mapping_ ? report_.mappings.live_bytes : report_.heap.live_bytes;
        rank_.cells.push_back(fmt::format("{}", rank_.cells.size() + 1));
        live_.cells.push_back(format_size(site.live_bytes));
        has_resident_ |= site.resident_bytes.has_value();
        resident_.cells.push_back(site.resident_bytes ? format_size(*site.resident_bytes) : "-");
        error_.cells.push_back(site.error_bytes ? format_size(*site.error_bytes) : "-");
        share_.cells.push_back(site.is_inherited ? "-" : share_of(site.live_bytes, whole));
        blocks_.cells.push_back(format_count(site.live_blocks));
        growth_.cells.push_back(format_size_change(site.growth_bytes));
        since_baseline_.cells.push_back(format_size_change(site.growth_since_baseline_bytes));
        rate_.cells.push_back(rate_of(site.allocated_since_previous_bytes, report_.interval.duration_ns));
        median_.cells.push_back(site.ages ? format_duration(site.ages->median_ns) : "-");
        oldest_.cells.push_back(site.ages ? format_duration(site.ages->max_ns) : "-");
        function_.cells.push_back(printable(site.function) + (site.type ? " of " + printable(*site.type) : "") +
                                  (site.is_inherited ? " (inherited)" : ""));
    }

    /// What fits into `width` columns (0: all).
    std::vector<Column> columns(size_t width) const {
        std::vector<Column> columns = {rank_, live_, share_, blocks_, growth_};
        columns[3].title = is_mapping_ ? "mappings" : "blocks";
        if (report_.has_baseline) columns.push_back(since_baseline_);
        if (report_.heap.error_bytes && !is_mapping_) columns.insert(columns.begin() + 2, error_);
        if (has_resident_) columns.insert(columns.begin() + 2, resident_);
        if (report_.order == SiteOrder::rate) columns.push_back(rate_);
        columns.insert(columns.end(), {median_, oldest_, function_});
        drop_columns(columns, width);
        return columns;
    }

  private:
    const ReportRecord& report_;
    bool is_mapping_;
    bool has_resident_ = false;
    Column rank_{"  #"};
    Column live_{"      live", 0, Emphasis::headline};
    Column error_{"±", 1};
    Column resident_{"  resident", 2};
    Column share_{"share", 3};
    Column blocks_{"   blocks"};
    Column growth_{"    growth", 0, Emphasis::growth};
    Column since_baseline_{"since baseline", 0, Emphasis::growth};
    Column rate_{"allocated"};
    Column median_{"median age", 4};
    Column oldest_{"oldest", 2};
    Column function_{"function", 0, Emphasis::none, true};
};

std::string function_text(const Frame& frame) {
    if (frame.function.empty()) return fmt::format("?? {:#x}", frame.offset);
    return printable(frame.function);
}

std::string file_text(const Frame& frame) {
    if (frame.file.empty()) return {};
    return frame.line == 0 ? printable(frame.file) : fmt::format("{}:{}", printable(frame.file), frame.line);
}

/// Columns of one stack line, the same for all stacks of a section so that they read as one table.
struct StackLayout {
    size_t function = 0;
    size_t file = 0;
    size_t module = 0;
    size_t function_room = 0;  // where a longer name is cut; `function` is where the next column starts
    bool cuts = false;
};

std::string_view suffix_of(const Frame& frame) {
    return frame.is_inlined ? " (inlined)" : "";
}

StackLayout natural_layout(const std::vector<const SiteEntry*>& sites) {
    StackLayout layout;
    for (const SiteEntry* site : sites)
        for (const Frame& frame : site->frames) {
            const size_t function = display_width(function_text(frame)) + suffix_of(frame).size();
            layout.function = std::max(layout.function, function);
            layout.file = std::max(layout.file, display_width(file_text(frame)));
            layout.module = std::max(layout.module, display_width(printable(frame.module)));
        }
    return layout;
}

StackLayout stack_layout(const std::vector<const SiteEntry*>& sites, size_t width) {
    StackLayout layout = natural_layout(sites);
    if (width == 0) {
        layout.function = std::min(layout.function, widest_aligned_name);
        layout.file = std::min(layout.file, widest_aligned_name);
        return layout;
    }
    layout.cuts = true;
    layout.function_room = layout.function;
    const size_t fixed = stack_indent + 2 * gap;
    const size_t available = width > fixed ? width - fixed : 0;
    if (layout.function + layout.file + layout.module <= available) return layout;
    layout.file = std::min(layout.file, std::max<size_t>(available / 4, 16));
    layout.module = std::min(layout.module, std::max<size_t>(available / 5, 12));
    const size_t others = layout.file + layout.module;
    layout.function_room = available > others + 8 ? available - others : 8;
    layout.function = std::min({layout.function, layout.function_room, widest_aligned_name});
    return layout;
}

std::string frame_line(const Frame& frame, const StackLayout& layout) {
    const std::string suffix(suffix_of(frame));
    std::string function = function_text(frame);
    std::string file = file_text(frame);
    std::string module = printable(frame.module);
    if (layout.cuts) {
        const size_t room = layout.function_room > suffix.size() ? layout.function_room - suffix.size() : 0;
        function = shorten_middle(function, room);
        file = shorten_path(file, layout.file);
        module = shorten_middle(module, layout.module);
    }
    std::string line(stack_indent, ' ');
    line += pad_right(function + suffix, layout.function) + std::string(gap, ' ');
    if (layout.file > 0) line += pad_right(file, layout.file) + std::string(gap, ' ');
    line += module;
    line.erase(line.find_last_not_of(' ') + 1);
    return line + '\n';
}

std::string stack_text(const SiteEntry& site, const StackLayout& layout, const Style& style) {
    std::string text;
    for (const Frame& frame : site.frames)
        text += frame_line(frame, layout);
    if (site.stack_error)
        text += std::string(stack_indent, ' ') + style.growth(fmt::format("({})", printable(*site.stack_error))) + '\n';
    if (!site.blocks) return text;
    for (const BlockEntry& block : *site.blocks)
        text += fmt::format("{:{}}{:#014x}  {:>10}  {} old\n", "", stack_indent, block.address,
                            format_size(block.size_bytes), format_duration(block.age_ns));
    return text;
}

/// What of a mapping site's bytes is no private memory.
std::string parts_line(const SiteEntry& site, const Style& style) {
    const std::string parts = parts_text(site.parts);
    return parts.empty() ? parts : style.quiet(std::string(stack_indent, ' ') + "of it " + parts) + '\n';
}

/// Which processes hold it, where there are several that could.
std::string holders_text(const SiteEntry& site, const ReportRecord& report, const WriterOptions& options,
                         const Style& style) {
    if (report.processes.size() < 2 || site.holders.empty()) return {};
    std::string line(stack_indent, ' ');
    for (const SiteHolder& holder : site.holders)
        line += fmt::format("{}{} in {}", &holder == site.holders.data() ? "" : ", ", format_size(holder.live_bytes),
                            process_name(report, holder.pid));
    if (site.holders_total > site.holders.size())
        line += fmt::format(" and {} more", format_count(site.holders_total - site.holders.size()));
    std::string text;
    for (const std::string& part : wrap_words(line, options.width, stack_indent))
        text += style.quiet(part) + '\n';
    return text;
}

std::string heading(const ReportRecord& report, bool is_mapping, size_t shown) {
    const uint64_t total = is_mapping ? report.sites_total - report.heap_sites_total : report.heap_sites_total;
    const std::string_view sites = is_mapping ? "mapping call sites" : "call sites";
    std::string text = shown == total ? fmt::format("All {} {}", format_count(total), sites)
                                      : fmt::format("Top {} of {} {}", format_count(shown), format_count(total), sites);
    if (total == 1) text = is_mapping ? "The one mapping call site" : "The one call site";
    if (total > 1) text += fmt::format(" by {}", order_name(report.order, is_mapping));
    if (report.older_ns > 0)
        text += fmt::format(", {} older than {}", is_mapping ? "mappings" : "blocks", format_duration(report.older_ns));
    return text;
}

}  // namespace

std::string parts_text(const MappingParts& parts) {
    std::string text;
    const auto add = [&](uint64_t size_bytes, std::string_view what) {
        if (size_bytes > 0) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", format_size(size_bytes), what);
    };
    add(parts.reserved_bytes, "reserved");
    add(parts.file_bytes, "of files");
    add(parts.shared_bytes, "shared");
    add(parts.stack_bytes, "of thread stacks");
    return text;
}

std::string site_section(const ReportRecord& report, const std::string& kind, const WriterOptions& options) {
    const bool is_mapping = kind == "mapping";
    const Style style(options.has_colors);
    std::vector<const SiteEntry*> shown;
    SiteTable table(report, is_mapping);
    for (const SiteEntry& site : report.sites) {
        // Blocks of a collected heap stand beside the others.
        if ((site.kind == "mapping") != is_mapping || !is_worth_showing(site, report.order)) continue;
        shown.push_back(&site);
        table.add(site);
    }
    if (shown.empty()) return {};
    const std::vector<Column> columns = table.columns(options.width);
    const StackLayout layout = stack_layout(shown, options.width);
    std::string text = style.headline(heading(report, is_mapping, shown.size())) + '\n';
    text += table_head(columns, style);
    for (size_t row = 0; row < shown.size(); ++row) {
        if (row > 0) text += '\n';
        text += table_row(columns, row, style) + holders_text(*shown[row], report, options, style);
        text += parts_line(*shown[row], style);
        text += stack_text(*shown[row], layout, style);
    }
    return text;
}

}  // namespace memtrace
