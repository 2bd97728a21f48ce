#include "tracing/memory_watch.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <set>
#include <utility>

#include "heap/sampling.hpp"
#include "processes/memory_map.hpp"
#include "processes/process.hpp"

namespace memtrace {
namespace {

/// To read smaps of more takes 90 ms, during which a thread of the process that maps something may have to wait.
constexpr uint64_t largest_rss_bytes = uint64_t{8} << 30;

/// What the kernel says of a mapping. Anonymous memory right behind the data of a program or library is its .bss.
MemoryKind kind_of(const Mapping& mapping, const Mapping* before, bool is_before_of_code) {
    if (mapping.is_shared) return MemoryKind::shared;
    if (mapping.path == "[heap]") return MemoryKind::heap;
    if (mapping.path.starts_with("[stack")) return MemoryKind::stacks;
    if (mapping.path.starts_with("[anon")) return MemoryKind::unknown;
    if (mapping.inode != 0 || mapping.path.starts_with('[')) return MemoryKind::files;
    const bool is_behind_data = is_before_of_code && before->end == mapping.start && before->is_writable &&
                                !before->is_shared && mapping.is_writable;
    return is_behind_data ? MemoryKind::files : MemoryKind::unknown;
}

bool overlaps_any(const ResidentRange& range, std::span<const KnownRange> known) {
    const auto first = std::ranges::upper_bound(known, range.start, {}, &KnownRange::end);
    return first != known.end() && first->start < range.end;
}

std::vector<ResidentRange> ranges_of(const std::vector<ResidentMapping>& mappings, std::span<const KnownRange> known) {
    std::vector<ResidentRange> ranges;
    const Mapping* before = nullptr;
    std::set<std::pair<uint64_t, uint64_t>> code;  // files that are run: device and inode
    for (const ResidentMapping& one : mappings) {
        const bool is_before_of_code = before && before->has_file() && code.contains({before->device, before->inode});
        if (one.mapping.is_executable) code.emplace(one.mapping.device, one.mapping.inode);
        ResidentRange range{one.mapping.start, one.mapping.end, one.rss_bytes, one.pss_bytes,
                            kind_of(one.mapping, before, is_before_of_code)};
        // The kernel has joined it with what was mapped behind it.
        const bool is_anonymous = one.mapping.inode == 0 && one.mapping.path.empty();
        if (is_anonymous && range.kind == MemoryKind::files && overlaps_any(range, known))
            range.kind = MemoryKind::unknown;
        ranges.push_back(range);
        before = &one.mapping;
    }
    return ranges;
}

/// glibc's arenas beside the main one: heaps that start at a multiple of HEAP_MAX_SIZE (malloc/arena.c; 64 MiB on
/// x86-64), the rest of which is reserved.
bool is_arena(const ResidentRange& range) {
    constexpr uint64_t heap_max_bytes = 64 << 20;
    return range.kind == MemoryKind::unknown && range.start % heap_max_bytes == 0 &&
           range.end - range.start <= heap_max_bytes;
}

EarlierMemory earlier_memory(pid_t pid, std::span<const ResidentRange> ranges) {
    EarlierMemory earlier(ranges);
    std::vector<uint64_t> pointers = read_stack_pointers(pid);
    for (const ResidentRange& range : ranges) {
        const bool is_stack = std::ranges::any_of(
            pointers, [&](uint64_t pointer) { return pointer >= range.start && pointer < range.end; });
        if (is_stack) earlier.assign(range.start, range.end, MemoryKind::stacks);
        if (is_arena(range)) earlier.assign(range.start, range.end, MemoryKind::heap);
    }
    return earlier;
}

/// memtrace's own program: a command that has not called exec yet.
bool runs_own_program(pid_t pid) {
    struct stat own {
    }, other{};
    return ::stat("/proc/self/exe", &own) == 0 &&
           ::stat(("/proc/" + std::to_string(pid) + "/exe").c_str(), &other) == 0 && own.st_dev == other.st_dev &&
           own.st_ino == other.st_ino;
}

}  // namespace

ResidentBytes MemoryWatch::Reading::resident_bytes() {
    return [this](uint64_t start, uint64_t end) { return pages ? pages->bytes(start, end) : end - start; };
}

std::span<const uint32_t> MemoryWatch::owners_of(pid_t pid) const {
    const auto target = tracer_.targets().find(pid);
    return target == tracer_.targets().end() ? std::span<const uint32_t>() : target->second.owners;
}

std::optional<MemoryWatch::Reading> MemoryWatch::read_process(pid_t pid) const {
    const auto mappings = read_resident_mappings(pid);
    if (!mappings || mappings->empty()) return std::nullopt;
    Reading reading;
    const auto owners = owners_of(pid);
    if (!owners.empty()) reading.known = tracer_.mapping_ledger().ranges(owners.back());
    reading.ranges = ranges_of(*mappings, reading.known);
    if (auto pages = ResidentPages::open(pid)) reading.pages = std::move(pages).value();
    return reading;
}

bool MemoryWatch::is_too_large(pid_t pid) const {
    return !reads_all_blocks_ && read_rss_bytes(pid).value_or(0) > largest_rss_bytes;
}

void MemoryWatch::end(uint64_t number) {
    if (const auto found = watched_.find(number); found != watched_.end()) found->second.pid = 0;
}

std::optional<MemoryByKind> MemoryWatch::earlier(uint64_t number) const {
    const auto found = watched_.find(number);
    if (found == watched_.end() || !found->second.has_begun) return std::nullopt;
    return found->second.earlier.sums();
}

void MemoryWatch::begin(uint64_t number, pid_t pid) {
    Watched& watched = watched_[number];
    watched.pid = pid;
    watched.has_begun = runs_own_program(pid);
    if (watched.has_begun || is_too_large(pid)) return;
    auto reading = read_process(pid);
    if (!reading) return;
    watched.has_begun = true;
    const auto target = tracer_.targets().find(pid);
    const pid_t parent = target == tracer_.targets().end() ? 0 : target->second.forked_from;
    const auto known =
        std::ranges::find_if(watched_, [&](const auto& entry) { return parent != 0 && entry.second.pid == parent; });
    if (known == watched_.end()) {
        watched.earlier = earlier_memory(pid, reading->ranges);
        return;
    }
    const EarlierMemory& of_parent = known->second.earlier;
    watched.earlier = EarlierMemory(
        of_parent, split_memory(reading->ranges, reading->known, of_parent.ranges(), reading->resident_bytes()));
}

/// Whose earlier memory was turns out by what is given back, and by the blocks that come to lie in it.
void MemoryWatch::learn(Watched& watched, const Snapshot& snapshot) const {
    const auto owners = owners_of(watched.pid);
    for (const uint32_t owner : owners)
        for (const KnownRange& range : tracer_.mapping_ledger().earlier_ranges(owner))
            watched.earlier.assign(range.start, range.end,
                                   range.use == MappingUse::allocator ? MemoryKind::heap : MemoryKind::mappings);
    if (owners.empty()) return;
    std::vector<uint64_t> addresses;
    for (const Block& block : snapshot.landmarks)
        if (block.owner == owners.back()) addresses.push_back(block.address);
    watched.earlier.assign_to_heap(addresses);
}

/// Of live blocks; a sampled one stands for others.
uint64_t MemoryWatch::untouched_bytes(Reading& reading, uint32_t owner, const Snapshot& snapshot) {
    if (!reading.pages) return 0;
    std::vector<Block> blocks;
    const auto add = [&](const Block& block) {
        if (block.owner == owner && (reads_all_blocks_ || block.size_bytes >= large_block_bytes))
            blocks.push_back(block);
    };
    if (reads_all_blocks_)
        for (const Block& block : snapshot.blocks)
            add(block);
    else
        std::ranges::for_each(snapshot.landmarks, add);
    std::ranges::sort(blocks, {}, &Block::address);
    std::unordered_map<uint32_t, double> untouched;  // by call site
    for (const Block& block : blocks) {
        const uint64_t resident = reading.pages->bytes(block.address, block.address + block.size_bytes);
        const double weight = SampledSums::weight_of(block);
        untouched[block.site] += static_cast<double>(block.size_bytes - resident) * weight;
        if (reads_all_blocks_)
            resident_bytes_[block.site] += static_cast<uint64_t>(static_cast<double>(resident) * weight);
    }
    // The sums were read before the blocks: one that has come in between is not among what is live.
    uint64_t sum_bytes = 0;
    for (const Site& site : snapshot.sites)
        if (const auto found = untouched.find(site.index); found != untouched.end())
            sum_bytes += std::min(static_cast<uint64_t>(found->second), site.totals.live_bytes());
    return sum_bytes;
}

std::optional<ProcessMemory> MemoryWatch::read(uint64_t number, const Snapshot& snapshot) {
    const auto found = watched_.find(number);
    if (found == watched_.end() || !found->second.has_begun) return std::nullopt;
    Watched& watched = found->second;
    if (is_too_large(watched.pid)) return std::nullopt;
    auto reading = read_process(watched.pid);
    if (!reading) return std::nullopt;
    learn(watched, snapshot);
    ProcessMemory memory;
    memory.now = split_memory(reading->ranges, reading->known, watched.earlier.ranges(), reading->resident_bytes());
    const auto owners = owners_of(watched.pid);
    if (!owners.empty()) memory.untouched_bytes = untouched_bytes(*reading, owners.back(), snapshot);
    return memory;
}

}  // namespace memtrace
