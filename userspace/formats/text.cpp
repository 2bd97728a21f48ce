// The live report for a person: what is wrong first, then how much memory is live and how it grows, then who holds it.
// Only reports and traced events are written; the rest of a session goes to stderr by other ways.
#include <fmt/format.h>

#include <cmath>
#include <ctime>
#include <ostream>
#include <string>
#include <string_view>
#include <variant>

#include "base/text.hpp"
#include "base/units.hpp"
#include "formats/columns.hpp"
#include "formats/format.hpp"
#include "formats/style.hpp"
#include "formats/text_growth.hpp"
#include "formats/text_malloc.hpp"
#include "formats/text_memory.hpp"
#include "formats/text_processes.hpp"
#include "formats/text_sites.hpp"
#include "formats/text_types.hpp"

namespace memtrace {
namespace {

constexpr size_t label_columns = 13;

std::string counted(uint64_t count, std::string_view thing) {
    return fmt::format("{} {}{}", format_count(count), thing, count == 1 ? "" : "s");
}

std::string counted_processes(uint64_t count) {
    return fmt::format("{} {}", format_count(count), count == 1 ? "process" : "processes");
}

std::string growth_text(int64_t change_bytes, const Style& style, std::string_view none = "no growth") {
    const std::string text = change_bytes == 0 ? std::string(none) : format_size_change(change_bytes);
    return change_bytes > 0 ? style.growth(text) : text;
}

std::string labeled(std::string_view label, std::string_view text) {
    return "  " + pad_right(label, label_columns - 2) + std::string(text) + '\n';
}

std::string rate_text(uint64_t size_bytes, uint64_t blocks, uint64_t duration_ns) {
    const double seconds = static_cast<double>(duration_ns) / 1e9;
    const auto per_second = [&](uint64_t count) {
        return static_cast<uint64_t>(std::llround(static_cast<double>(count) / seconds));
    };
    return fmt::format("{}/s in {}/s", format_size(per_second(size_bytes)), counted(per_second(blocks), "block"));
}

/// HH:MM:SS of the reader's time zone.
std::string clock_text(int64_t time_unix_ns) {
    const std::time_t seconds = time_unix_ns / 1'000'000'000;
    std::tm parts{};
    localtime_r(&seconds, &parts);
    return fmt::format("{:02}:{:02}:{:02}", parts.tm_hour, parts.tm_min, parts.tm_sec);
}

/// One line a loss, each with its way out; a report that cannot be trusted starts with them.
std::string loss_lines(const Accuracy& accuracy, const WriterOptions& options, const Style& style) {
    constexpr std::string_view start = "NOT COMPLETE: ";
    std::string text;
    for (const Loss& loss : accuracy.losses()) {
        std::string line = fmt::format("{}{} {} ({})", start, counted(loss.count, loss.thing), loss.state, loss.reason);
        if (!loss.way_out.empty()) line += fmt::format(": {}", loss.way_out);
        for (const std::string& part : wrap_words(line, options.width, start.size()))
            text += style.loss(part) + '\n';
    }
    return text;
}

/// What no longer moves, before the figures that it is about.
std::string stop_lines(const std::optional<StopFigures>& stop, const WriterOptions& options, const Style& style) {
    if (!stop) return {};
    constexpr std::string_view start = "STOPPED: ";
    const std::string line =
        fmt::format("{}{}; live, growth, mappings and call sites are those of {} after the attach, resident is of now",
                    start, stop->reason, format_duration(stop->elapsed_ns));
    std::string text;
    for (const std::string& part : wrap_words(line, options.width, start.size()))
        text += style.loss(part) + '\n';
    return text;
}

std::string title_line(const ReportRecord& report, const WriterOptions& options, const Style& style) {
    const std::string when = fmt::format("{}, {}{} after the attach", clock_text(report.time_unix_ns),
                                         report.is_final ? "final report, " : "", format_duration(report.elapsed_ns));
    std::string who = printable(report.scope.name);
    if (report.scope.pid) who += fmt::format("[{}]", *report.scope.pid);
    if (report.scope.by == "tree") who += " and below";
    if (report.scope.by != "process") who += fmt::format(", {}", counted_processes(report.scope.pids.size()));
    constexpr size_t gap = 2;
    if (options.width > when.size() + gap) who = shorten_middle(who, options.width - when.size() - gap);
    const size_t used = display_width(who) + when.size();
    const size_t blanks = options.width > used + gap ? options.width - used : gap;
    return style.headline(who) + std::string(blanks, ' ') + when + '\n';
}

std::string heap_lines(const ReportRecord& report, const Style& style) {
    const HeapFigures& heap = report.heap;
    std::string text =
        labeled("live", fmt::format("{}{} in {}, peak {}", style.headline(format_size(heap.live_bytes)),
                                    heap.error_bytes ? " ± " + format_size(*heap.error_bytes) : "",
                                    counted(heap.live_blocks, "block"), format_size(heap.peak_live_bytes)));
    text += labeled("growth", fmt::format("{} since the last report, {} since the {}",
                                          growth_text(heap.growth_bytes, style, "none"),
                                          growth_text(heap.growth_since_baseline_bytes, style, "none"),
                                          report.has_baseline ? "baseline" : "attach"));
    if (heap.inherited_blocks > 0)
        text += labeled("inherited", fmt::format("{} in {} of parents, not in live", format_size(heap.inherited_bytes),
                                                 counted(heap.inherited_blocks, "block")));
    if (heap.ended_blocks > 0)
        text += labeled("ended", fmt::format("{} in {} that {} ended", format_size(heap.ended_bytes),
                                             counted(heap.ended_blocks, "block"),
                                             report.scope.by == "process" ? "an exec" : "an exec or exit"));
    return text;
}

std::string memory_lines(const ReportRecord& report, const Style& style) {
    std::string resident = "not readable";
    if (report.memory.rss_bytes) resident = style.headline(format_size(*report.memory.rss_bytes));
    if (report.memory.pss_bytes && report.scope.pids.size() > 1)
        resident += fmt::format(" in sum, {} with shared pages divided", format_size(*report.memory.pss_bytes));
    if (report.memory.rss_bytes && report.memory.rss_growth_bytes)
        resident += fmt::format(", {} since the attach", growth_text(*report.memory.rss_growth_bytes, style));
    if (report.stop && report.memory.mapped_bytes)
        resident += fmt::format(", of {} mapped", format_size(*report.memory.mapped_bytes));
    const MappingTotals& mappings = report.mappings;
    const std::string parts = parts_text(mappings.parts);
    std::string text;
    if (mappings.mapped_bytes > 0)
        text += labeled(
            "mappings",
            fmt::format("{} in {}{}, {} since the last report", style.headline(format_size(mappings.live_bytes)),
                        format_count(mappings.live_count), parts.empty() ? parts : fmt::format(" ({})", parts),
                        growth_text(report.mappings_growth_bytes, style)));
    return text + labeled("resident", resident);
}

/// Which allocator is in use, where that is not plainly libc.
std::string allocator_lines(const std::vector<AllocatorEntry>& allocators) {
    std::string called;
    std::string not_called;
    bool is_plain = true;
    for (const AllocatorEntry& allocator : allocators) {
        if (allocator.name != "libc" && allocator.name != "c++") is_plain = false;
        std::string& list = allocator.allocations > 0 ? called : not_called;
        list += (list.empty() ? "" : ", ") + printable(allocator.name);
    }
    if (is_plain) return {};
    if (called.empty()) called = "none called yet";
    if (!not_called.empty()) called += fmt::format("; mapped, but not called: {}", not_called);
    return labeled("allocator", called);
}

std::string rate_lines(const IntervalFigures& interval) {
    if (interval.duration_ns == 0) return {};
    return labeled("allocated", rate_text(interval.allocated_bytes, interval.allocations, interval.duration_ns)) +
           labeled("freed", rate_text(interval.freed_bytes, interval.frees, interval.duration_ns));
}

std::string overhead_line(const std::optional<OverheadFigures>& overhead) {
    if (!overhead) return {};
    const std::string limit =
        overhead->max_core_share ? fmt::format(", {:.1f}% allowed", 100 * *overhead->max_core_share) : "";
    return labeled("tracing", fmt::format("costs {:.1f}% of a core, {}/s{}", 100 * overhead->core_share,
                                          counted(overhead->hits_per_second, "probe hit"), limit));
}

/// Whether the figures are all there, and what else a careful reader wants to know about them.
std::string accuracy_lines(const Accuracy& accuracy, const WriterOptions& options, const Style& style) {
    std::string line = accuracy.is_complete() ? "complete" : "NOT COMPLETE, see above";
    const auto add = [&](uint64_t count, std::string_view thing, std::string_view text) {
        if (count > 0) line += fmt::format("; {} {}", counted(count, thing), text);
    };
    if (accuracy.sampling_mean_bytes > 1)
        line += fmt::format("; estimates: one byte of {} is sampled, ± is one standard error",
                            format_size(accuracy.sampling_mean_bytes));
    if (accuracy.knows_unknown_frees()) add(accuracy.unknown_frees, "free", "of blocks from before the attach");
    add(accuracy.blocks_filtered, "allocation", "outside the sizes asked for");
    add(accuracy.calls_abandoned, "call", "left by a jump or a thread's end, no blocks");
    add(accuracy.stacks_truncated, "stack", "cut short, why is said with them");
    add(accuracy.children_not_seen, "vfork", "whose child was not seen");
    add(accuracy.types_not_recorded, "object", "in no figure of its type: raise --max-sites");
    std::string text;
    for (const std::string& part : wrap_words(line, options.width, 0))
        text += (accuracy.is_complete() ? part : style.loss(part)) + '\n';
    return text;
}

std::string text_of(const ReportRecord& report, const WriterOptions& options) {
    const Style style(options.has_colors);
    std::string text = loss_lines(report.accuracy, options, style) + stop_lines(report.stop, options, style);
    text += title_line(report, options, style) + heap_lines(report, style) + memory_lines(report, style) +
            growth_section(report, options, style) + rate_lines(report.interval) + allocator_lines(report.allocators) +
            overhead_line(report.overhead) + '\n';
    if (const std::string processes = process_section(report, options); !processes.empty()) text += processes + '\n';
    if (report.types)
        return text + types_section(report, options) + '\n' + accuracy_lines(report.accuracy, options, style) + '\n';
    const std::string heap_sites = site_section(report, "heap", options);
    const std::string mapping_sites = site_section(report, "mapping", options);
    text += heap_sites.empty() ? "No call site holds live blocks.\n" : heap_sites;
    if (!mapping_sites.empty()) text += '\n' + mapping_sites;
    if (report.before_attach) text += '\n' + before_attach_section(*report.before_attach, options);
    return text + '\n' + accuracy_lines(report.accuracy, options, style) + '\n';
}

std::string text_of(const RestRecord& rest, const WriterOptions& options) {
    const std::string who = counted_processes(rest.scopes);
    std::string line = rest.have_ended ? fmt::format("{} more ended since the report before, with {} live", who,
                                                     format_size(rest.live_bytes))
                                       : fmt::format("{} more: {} live, growth {}", who, format_size(rest.live_bytes),
                                                     format_size_change(rest.growth_bytes));
    line += "; -T 0 shows each, --by tree, exe or all adds them up";
    std::string text;
    for (const std::string& part : wrap_words(line, options.width, 2))
        text += part + '\n';
    return text + '\n';
}

std::string text_of(const BlockEventRecord& event, const WriterOptions&) {
    const std::string threads = fmt::format("{}/{}", event.pid, event.tid);
    return fmt::format("{:>7}.{:06}  {:<15}  {:<5}  {:#014x}  {:>10}  {}{}\n", event.time_ns / 1'000'000'000,
                       event.time_ns / 1'000 % 1'000'000, threads, event.is_free ? "free" : "alloc", event.address,
                       format_size(event.size_bytes), printable(event.function),
                       event.site ? "  " + printable(*event.site) : "");
}

std::string text_of(const CensusRecord& census, const WriterOptions& options) {
    return census_text(census, options);
}

std::string text_of(const MallocCensusRecord& census, const WriterOptions& options) {
    return malloc_census_text(census, options);
}

std::string text_of(const GrowthRecord& growth, const WriterOptions& options) {
    return growth_text(growth, options);
}

template <typename Other>
std::string text_of(const Other&, const WriterOptions&) {
    return {};
}

class TextWriter : public Writer {
  public:
    explicit TextWriter(const WriterOptions& options) : options_(options) {}

    void write(const Record& record, std::ostream& stream) override {
        const std::string text = std::visit([this](const auto& any) { return text_of(any, options_); }, record);
        if (!text.empty()) stream << text << std::flush;
    }

  private:
    WriterOptions options_;
};

}  // namespace

std::unique_ptr<Writer> make_text_writer(const WriterOptions& options) {
    return std::make_unique<TextWriter>(options);
}

}  // namespace memtrace
