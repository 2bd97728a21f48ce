#include "cli/malloc_census.hpp"

#include <algorithm>

#include "base/clock.hpp"

namespace memtrace {
namespace {

/// Sizes that a person is shown when no number is given.
constexpr uint32_t default_top = 10;

std::string_view name_of(GrowthPattern pattern) {
    switch (pattern) {
        case GrowthPattern::none:
            return "none";
        case GrowthPattern::one_size:
            return "one_size";
        case GrowthPattern::mixed:
            return "mixed";
    }
    return "none";
}

/// Without what is about the series and the sizes.
MallocCensusRecord record_of(const GlibcCensus& census) {
    MallocCensusRecord record;
    record.allocator = "glibc";
    if (!census.version.empty()) record.version = census.version;
    record.arenas = census.arenas;
    record.system_bytes = census.system_bytes;
    record.live_bytes = census.in_use.size_bytes;
    record.live_blocks = census.in_use.chunks;
    if (census.has_mapped) {
        record.mapped_bytes = census.mapped.size_bytes;
        record.mapped_blocks = census.mapped.chunks;
    }
    record.mapped_blocks_sized = census.mapped_chunks_sized;
    record.thread_cached_bytes = census.thread_cached.size_bytes;
    record.thread_cached_blocks = census.thread_cached.chunks;
    record.fast_bytes = census.fast.size_bytes;
    record.fast_blocks = census.fast.chunks;
    record.binned_bytes = census.binned.size_bytes;
    record.binned_blocks = census.binned.chunks;
    record.top_bytes = census.top_bytes;
    record.not_found_bytes = census.not_found_bytes;
    record.has_all_fast = census.has_all_fast;
    record.retained_bytes = census.resident_free_bytes;
    record.trimmable_bytes = census.trimmable_bytes;
    return record;
}

ChunkSizeEntry entry_of(const SizeGrowth& size) {
    const BlockSizes sizes =
        size.is_mapped ? glibc_mapped_block_sizes(size.chunk_bytes) : glibc_block_sizes(size.chunk_bytes);
    ChunkSizeEntry entry;
    entry.chunk_bytes = size.chunk_bytes;
    entry.least_bytes = sizes.least;
    entry.most_bytes = sizes.most;
    entry.is_mapped = size.is_mapped;
    entry.live_bytes = size.in_use.size_bytes;
    entry.live_blocks = size.in_use.chunks;
    entry.free_bytes = size.free.size_bytes;
    entry.free_blocks = size.free.chunks;
    entry.growth_bytes = size.growth_bytes;
    entry.growth_blocks = size.growth_blocks;
    entry.has_grown_each_time = size.has_grown_each_time;
    return entry;
}

}  // namespace

bool MallocCensusTaker::is_another_program(const ProcessInfo& process) const {
    return process.exe != process_.exe || process.exe_device != process_.exe_device ||
           process.exe_inode != process_.exe_inode || process.start_time != process_.start_time;
}

Result<MallocCensusRecord> MallocCensusTaker::take() {
    const uint64_t begin_ns = monotonic_now_ns();
    const auto census = take_glibc_census(options_.pid);
    if (!census) return census.error();
    const auto process = read_process(options_.pid);
    if (!process) return process.error();
    if (is_another_program(*process)) {
        history_ = {};
        taken_ = 0;
    }
    process_ = *process;
    if (taken_ == 0) first_ns_ = begin_ns;
    MallocCensusRecord record = record_of(*census);
    record.sequence = ++taken_;
    record.time_unix_ns = unix_now_ns();
    record.elapsed_ns = begin_ns - first_ns_;
    record.read_ns = monotonic_now_ns() - begin_ns;
    record.pid = options_.pid;
    record.comm = process->comm;
    const CensusGrowth growth = history_.add(*census);
    record.growth_bytes = growth.growth_bytes;
    record.risen_bytes = growth.risen_bytes;
    record.growth_pattern = name_of(growth.pattern);
    for (const SizeGrowth& size : growth.sizes)
        if (size.in_use.chunks >= std::max<uint64_t>(options_.min_count, size.growth_bytes == 0 ? 1 : 0))
            record.sizes.push_back(entry_of(size));
    if (taken_ == 1) std::ranges::stable_sort(record.sizes, std::greater(), &ChunkSizeEntry::live_bytes);
    record.sizes_total = record.sizes.size();
    const uint32_t top = options_.top.value_or(options_.format == OutputFormat::text ? default_top : 0);
    if (top != 0 && record.sizes.size() > top) record.sizes.resize(top);
    return record;
}

}  // namespace memtrace
