#include "formats/text_growth.hpp"

#include <fmt/format.h>

#include <cmath>

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

std::string_view described(std::string_view use) {
    if (use == "main_heap") return "main heap (brk)";
    if (use == "arenas") return "glibc's arenas for threads";
    if (use == "anonymous") return "other private memory: large blocks, other allocators, own mappings";
    if (use == "gc_heap") return "Go's heap";
    if (use == "stacks") return "stacks";
    if (use == "files") return "files, with the data of programs and libraries";
    return "shared memory and shared files";
}

std::string slope_cell(const GrowthEntry& entry) {
    if (!entry.slope_bytes_per_second) return "-";
    return format_size_change(static_cast<int64_t>(std::llround(*entry.slope_bytes_per_second * 60)));
}

std::string row(const GrowthEntry& entry, std::string_view name) {
    return figure(format_size(entry.rss_bytes)) + figure(format_size_change(entry.rss_growth_bytes)) +
           figure(slope_cell(entry)) + figure(entry.pattern == "unknown" ? "-" : entry.pattern) +
           figure(format_size(entry.mapped_bytes)) + figure(format_size_change(entry.mapped_growth_bytes)) + "  " +
           std::string(name) + '\n';
}

std::string window_line(const GrowthRecord& growth) {
    if (growth.sequence == 1) return "";
    if (growth.window_ns == 0) return "Slopes need some more looks.\n";
    std::string text = fmt::format("Slopes are of the last {}; what was before is taken for warm-up.",
                                   format_duration(growth.window_ns));
    if (growth.all.pattern == "unknown") text += " Whether it grows is said after a minute more.";
    return text + '\n';
}

/// Where to go from here; nothing grows: nowhere.
std::string advice_lines(const GrowthRecord& growth) {
    std::string text;
    for (const GrowthEntry& entry : growth.uses) {
        if (entry.pattern != "growing" && entry.pattern != "step") continue;
        const bool is_heap = entry.use == "main_heap" || entry.use == "arenas";
        const std::string who = fmt::format("memtrace -p {} -o 1m --sort growth.\n", growth.pid);
        if (is_heap && growth.has_glibc)
            return fmt::format("The heap grows. Which size of blocks: memtrace census {} 30. Who keeps them: {}",
                               growth.pid, who);
        if (is_heap || entry.use == "anonymous" || entry.use == "gc_heap") text = "Who keeps it: " + who;
    }
    return text;
}

}  // namespace

std::string growth_text(const GrowthRecord& growth, const WriterOptions& options) {
    const Style style(options.has_colors);
    std::string text = style.headline(fmt::format("{}[{}]", printable(growth.comm), growth.pid)) +
                       fmt::format(": {} resident", format_size(growth.all.rss_bytes));
    if (growth.sequence > 1)
        text += fmt::format(", {} since the first look, {} ago", format_size_change(growth.all.rss_growth_bytes),
                            format_duration(growth.elapsed_ns));
    text += "\n\n" +
            style.quiet(figure("resident") + figure("growth") + figure("a minute") + figure("pattern") +
                        figure("mapped") + figure("growth")) +
            '\n';
    for (const GrowthEntry& entry : growth.uses)
        if (entry.mapped_bytes > 0 || entry.mapped_growth_bytes != 0) text += row(entry, described(entry.use));
    text += row(growth.all, "all") + '\n';
    const std::string remarks = window_line(growth) + advice_lines(growth);
    return remarks.empty() ? text : text + remarks + '\n';
}

}  // namespace memtrace
