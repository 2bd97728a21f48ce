#include "formats/text_malloc.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.hpp"
#include "base/units.hpp"
#include "formats/columns.hpp"
#include "formats/style.hpp"

namespace memtrace {
namespace {

constexpr size_t figure_width = 12;
/// Of an arena that is changing while it is read that much may be missing without a word.
constexpr uint64_t unnoticed_bytes = 64 << 10;

std::string figure(std::string_view text) {
    return pad_left(text, figure_width);
}

std::string counted_blocks(uint64_t count) {
    return fmt::format("{} block{}", format_count(count), count == 1 ? "" : "s");
}

std::string count_change(int64_t change) {
    if (change == 0) return "0";
    return (change < 0 ? "-" : "+") + format_count(static_cast<uint64_t>(change < 0 ? -change : change));
}

std::string sizes_asked_for(const ChunkSizeEntry& size) {
    if (size.most_bytes - size.least_bytes >= 4095)
        return fmt::format("{} to {} bytes", format_count(size.least_bytes), format_count(size.most_bytes));
    return fmt::format("{} to {} bytes", size.least_bytes, size.most_bytes);
}

std::string title_line(const MallocCensusRecord& census, const Style& style) {
    const std::string version = census.version ? " " + printable(*census.version) : "";
    return style.headline(fmt::format("{}[{}]", printable(census.comm), census.pid)) +
           fmt::format(": {}{} has {} from the system in {}\n", printable(census.allocator), version,
                       format_size(census.system_bytes),
                       census.arenas == 1 ? "one arena" : format_count(census.arenas) + " arenas");
}

std::string live_lines(const MallocCensusRecord& census, const Style& style) {
    std::string text =
        fmt::format("  live       {} in {}", format_size(census.live_bytes), counted_blocks(census.live_blocks));
    if (census.mapped_blocks.value_or(0) > 0)
        text += fmt::format(", and {} in {} with mappings of their own", format_size(*census.mapped_bytes),
                            counted_blocks(*census.mapped_blocks));
    if (!census.mapped_blocks) text += "; blocks with mappings of their own are not in it";
    text += '\n';
    if (census.sequence == 1) return text;
    const std::string growth = fmt::format("{} since the first census, {} ago", format_size_change(census.growth_bytes),
                                           format_duration(census.elapsed_ns));
    return text + "  growth     " + (census.growth_bytes > 0 ? style.growth(growth) : growth) + '\n';
}

std::string kept_lines(const MallocCensusRecord& census) {
    const uint64_t kept_bytes = census.binned_bytes + census.fast_bytes + census.thread_cached_bytes + census.top_bytes;
    std::string text = fmt::format(
        "  kept       {} free: {} in {}, {} in thread caches, {} in fast bins, {} at the end\n",
        format_size(kept_bytes), format_size(census.binned_bytes), counted_blocks(census.binned_blocks),
        format_size(census.thread_cached_bytes), format_size(census.fast_bytes), format_size(census.top_bytes));
    return text + fmt::format("  resident   {} of what is kept; malloc_trim would give back {}\n",
                              format_size(census.retained_bytes), format_size(census.trimmable_bytes));
}

std::string missing_lines(const MallocCensusRecord& census, const Style& style) {
    std::string text;
    if (census.not_found_bytes > unnoticed_bytes)
        text += style.loss(fmt::format("NOT COMPLETE: {} of the arenas could not be followed",
                                       format_size(census.not_found_bytes))) +
                '\n';
    if (!census.has_all_fast)
        text +=
            style.loss("NOT COMPLETE: blocks in fast bins, too many to be told apart, are among the live ones") + '\n';
    const uint64_t mapped_blocks = census.mapped_blocks.value_or(0);
    if (census.mapped_blocks_sized < mapped_blocks)
        text += fmt::format("  {} with mappings of their own, of sizes that are not known, are not in the table\n",
                            counted_blocks(mapped_blocks - census.mapped_blocks_sized));
    return text;
}

std::string size_table(const MallocCensusRecord& census, const Style& style) {
    const bool has_growth = census.sequence > 1;
    std::string heading = figure("live") + figure("blocks");
    if (has_growth) heading += figure("growth") + figure("blocks");
    std::string text = style.quiet(heading + "  that were asked for as") + '\n';
    for (const ChunkSizeEntry& size : census.sizes) {
        text += figure(format_size(size.live_bytes)) + figure(format_count(size.live_blocks));
        if (has_growth)
            text += figure(format_size_change(size.growth_bytes)) + figure(count_change(size.growth_blocks));
        text += "  " + sizes_asked_for(size) + '\n';
    }
    if (census.sizes.size() < census.sizes_total)
        text += fmt::format("{:>{}}  [{} more sizes]\n", "", (has_growth ? 4 : 2) * figure_width,
                            format_count(census.sizes_total - census.sizes.size()));
    return text;
}

/// What grows, and how to see who asks for it.
std::string verdict_lines(const MallocCensusRecord& census) {
    if (census.sequence == 1)
        return fmt::format("Which size grows is told by a second census: memtrace census {} 10\n", census.pid);
    if (census.growth_pattern == "none" || census.sizes.empty() || census.risen_bytes == 0)
        return "No size has grown enough to be told from a heap that breathes.\n";
    const ChunkSizeEntry& most = census.sizes.front();
    const uint64_t percent = static_cast<uint64_t>(std::max<int64_t>(most.growth_bytes, 0)) * 100 / census.risen_bytes;
    if (census.growth_pattern == "mixed")
        return fmt::format("No size stands out: {} have grown most, with {}% of it. ", sizes_asked_for(most), percent) +
               fmt::format("Where sizes are mixed a census cannot tell who grows;\nmemtrace -p {} ", census.pid) +
               "-o 1m --sort growth can.\n";
    return fmt::format("Blocks of {} grow: {} since the first census, {}% of what has grown{}.\n",
                       sizes_asked_for(most), format_size_change(most.growth_bytes), percent,
                       most.has_grown_each_time && census.sequence > 2 ? ", and from each census to the next" : "") +
           fmt::format("Who asks for them and keeps them: memtrace -p {} -z {} -Z {} --sort growth\n", census.pid,
                       most.least_bytes, most.most_bytes);
}

}  // namespace

std::string malloc_census_text(const MallocCensusRecord& census, const WriterOptions& options) {
    const Style style(options.has_colors);
    return title_line(census, style) + live_lines(census, style) + kept_lines(census) + missing_lines(census, style) +
           '\n' + size_table(census, style) + '\n' + verdict_lines(census) + '\n';
}

}  // namespace memtrace
