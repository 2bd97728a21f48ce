#include "runtimes/glibc_malloc.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <unordered_set>

#include "processes/process.hpp"
#include "processes/resident_pages.hpp"

namespace memtrace {
namespace {

// What hostile memory can cost, at most.
constexpr uint64_t max_data_bytes = 256ull << 20;
constexpr uint64_t max_text_bytes = 64ull << 20;
constexpr size_t max_arenas = 1 << 14;
constexpr size_t max_heaps = 1 << 16;
// systrim gives back the end of the brk heap before it says so in the arena (malloc.c). The thread that does it may
// have to wait for a processor in between, for some of the scheduler's slices.
constexpr int tries_of_end = 100;
constexpr std::chrono::milliseconds between_tries_of_end(1);
// heap_info, behind which the first heap of an arena has the arena: since glibc 2.35 with the size of pages.
constexpr uint64_t heap_head_before_35 = 0x20;
constexpr uint64_t heap_head_since_35 = 0x30;

/// The resident pages of a mapping, zeros for the others: to read a page that was not there would make it the
/// process's, and its resident set larger.
std::vector<std::byte> read_resident(const TargetMemory& memory, pid_t pid, const Mapping& mapping,
                                     uint64_t most_bytes) {
    std::vector<std::byte> bytes(std::min(mapping.end - mapping.start, most_bytes));
    auto pages = ResidentPages::open(pid);
    if (!pages) return {};
    constexpr uint64_t page_bytes = ResidentPages::page_bytes;
    for (uint64_t offset = 0; offset < bytes.size(); offset += page_bytes) {
        const uint64_t address = mapping.start + offset;
        if (pages->bytes(address, address + page_bytes) == 0) continue;
        memory.read(address, std::span(bytes).subspan(offset, std::min(page_bytes, bytes.size() - offset)));
    }
    return bytes;
}

bool is_data(const Mapping& mapping) {
    return mapping.has_file() && mapping.is_readable && mapping.is_writable && !mapping.is_shared;
}

/// What the file says of itself, in the parts that are not written to.
std::optional<uint32_t> version_of(pid_t pid, const std::vector<Mapping>& mappings, const Mapping& data) {
    const auto file = open_mapped_file(pid, data);
    if (!file) return std::nullopt;
    for (const Mapping& mapping : mappings) {
        if (mapping.path != data.path || mapping.inode != data.inode || mapping.is_writable || !mapping.is_readable)
            continue;
        std::string text(std::min(mapping.end - mapping.start, max_text_bytes), '\0');
        const ssize_t count = pread(file->get(), text.data(), text.size(), static_cast<off_t>(mapping.file_offset));
        text.resize(static_cast<size_t>(std::max<ssize_t>(count, 0)));
        if (const auto version = find_glibc_version(text)) return version;
    }
    return std::nullopt;
}

struct FoundArena {
    uint64_t address = 0;
    Mapping data;
};

/// The first main arena that has memory.
std::optional<FoundArena> find_main_arena(const TargetMemory& memory, pid_t pid, const std::vector<Mapping>& mappings) {
    uint64_t left = max_data_bytes;
    for (const Mapping& mapping : mappings) {
        if (!is_data(mapping)) continue;
        const std::vector<std::byte> bytes = read_resident(memory, pid, mapping, left);
        left -= bytes.size();
        if (const auto found = find_glibc_arena(bytes, mapping.start)) return FoundArena{*found, mapping};
    }
    return std::nullopt;
}

uint64_t aligned_up(uint64_t address) {
    return (address + glibc_chunk_alignment - 1) & ~(glibc_chunk_alignment - 1);
}

Error no_heap(pid_t pid, std::string why) {
    const auto process = read_process(pid);
    return {process ? fmt::format("{}[{}]", process->comm, pid) : fmt::format("process {}", pid), std::move(why), "",
            ExitStatus::no_allocator};
}

}  // namespace

BrkHeap find_brk_heap(const std::vector<Mapping>& mappings) {
    BrkHeap heap;
    for (const Mapping& mapping : mappings) {
        if (mapping.path != "[heap]") continue;
        if (heap.end == 0) heap.begin = mapping.start;
        heap.end = mapping.end;
    }
    return heap;
}

Result<GlibcMalloc> GlibcMalloc::find(pid_t pid) {
    const auto mappings = read_mappings(pid);
    if (!mappings) return mappings.error();
    auto memory = TargetMemory::open(pid);
    if (!memory) return std::move(memory).error();
    const auto found = find_main_arena(*memory, pid, *mappings);
    if (!found) return no_heap(pid, "has no block from glibc's malloc: it uses another allocator");
    const auto version = version_of(pid, *mappings, found->data);
    GlibcMalloc malloc(std::move(*memory), pid, found->address, found->data);
    const BrkHeap brk = find_brk_heap(*mappings);
    malloc.brk_begin_ = malloc.heap_begin_ = brk.begin;
    malloc.heap_end_ = brk.end;
    if (version && (*version < oldest_known_glibc || *version > newest_known_glibc))
        return no_heap(pid, fmt::format("uses glibc 2.{}; what its malloc keeps is known from 2.{} to 2.{}", *version,
                                        oldest_known_glibc, newest_known_glibc));
    if (version) malloc.version_ = fmt::format("2.{}", *version);
    if (const auto parameters = malloc.parameters()) malloc.heap_begin_ = parameters->heap_begin;
    if (!version && !malloc.begins_with_thread_cache())
        return no_heap(pid, "has a malloc as glibc's, but of a version that is not known");
    return malloc;
}

/// malloc's first block is its thread's cache; another size is another version.
bool GlibcMalloc::begins_with_thread_cache() const {
    const auto word = memory_.read_value<uint64_t>(aligned_up(heap_begin_) + sizeof(uint64_t));
    return word && glibc_chunk_head(*word).size_bytes == glibc_thread_cache_chunk_bytes;
}

std::optional<GlibcArena> GlibcMalloc::arena(uint64_t address) const {
    std::array<std::byte, glibc_arena_bytes> bytes;
    if (memory_.read(address, bytes) != bytes.size()) return std::nullopt;
    return parse_glibc_arena(bytes, address);
}

std::optional<std::vector<uint64_t>> GlibcMalloc::arenas() const {
    std::vector<uint64_t> addresses;
    std::unordered_set<uint64_t> seen;
    uint64_t address = main_arena_;
    do {
        const auto found = arena(address);
        if (!found || addresses.size() == max_arenas || !seen.insert(address).second) return std::nullopt;
        addresses.push_back(address);
        address = found->next;
    } while (address != main_arena_);
    return addresses;
}

std::optional<GlibcParameters> GlibcMalloc::parameters() const {
    if (brk_begin_ == 0) return std::nullopt;
    return find_glibc_parameters(read_resident(memory_, pid_, data_, max_data_bytes), brk_begin_, heap_end_);
}

/// Where the main arena's top ends. While the program allocates, the top moves and its end does not: that is where brk
/// is, but for an arena that was refused more of the brk heap.
std::optional<uint64_t> GlibcMalloc::main_end() const {
    for (int tries = 0; tries < tries_of_end; ++tries) {
        if (tries > 0) std::this_thread::sleep_for(between_tries_of_end);
        const auto found = arena(main_arena_);
        if (!found) continue;
        uint64_t end = heap_begin_ + found->system_bytes;
        if (!found->is_contiguous) {
            const auto word = memory_.read_value<uint64_t>(found->top + sizeof(uint64_t));
            if (!word || found->top < heap_begin_) continue;
            end = found->top + glibc_chunk_head(*word).size_bytes;
        }
        // brk may have moved meanwhile.
        if (end > heap_begin_ && end <= heap_end()) return end;
    }
    return std::nullopt;
}

/// Of the brk heap now.
uint64_t GlibcMalloc::heap_end() const {
    if (pid_ == 0) return heap_end_;
    const auto mappings = read_mappings(pid_);
    return mappings ? find_brk_heap(*mappings).end : 0;
}

std::optional<uint64_t> GlibcMalloc::end_of(const GlibcRegion& region) const {
    if (region.heap == 0) {
        return main_end();
    }
    std::array<std::byte, glibc_heap_bytes> bytes;
    if (memory_.read(region.heap, bytes) != bytes.size()) return std::nullopt;
    const GlibcHeap heap = parse_glibc_heap(bytes);
    if (heap.arena != region.arena || heap.size_bytes > glibc_heap_alignment) return std::nullopt;
    return region.heap + heap.size_bytes;
}

std::optional<std::vector<GlibcRegion>> GlibcMalloc::regions(uint64_t address) const {
    const auto found = arena(address);
    if (!found) return std::nullopt;
    std::vector<GlibcRegion> regions;
    if (address == main_arena_) {
        // Before its first block an arena's top is a bin of its own.
        if (found->system_bytes == 0) return regions;
        const auto end = main_end();
        if (!end) return std::nullopt;
        regions.push_back(
            {.arena = address, .heap = 0, .begin = aligned_up(heap_begin_), .end = *end, .has_top = true});
        return regions;
    }
    const uint64_t first_heap = address & ~(glibc_heap_alignment - 1);
    const uint64_t head = address - first_heap;
    if (head != heap_head_before_35 && head != heap_head_since_35) return std::nullopt;
    std::unordered_set<uint64_t> seen;
    for (uint64_t heap = found->top & ~(glibc_heap_alignment - 1); heap != 0;) {
        if (!seen.insert(heap).second) return std::nullopt;
        std::array<std::byte, glibc_heap_bytes> bytes;
        if (regions.size() == max_heaps || memory_.read(heap, bytes) != bytes.size()) return std::nullopt;
        const GlibcHeap info = parse_glibc_heap(bytes);
        if (info.arena != address || info.size_bytes > glibc_heap_alignment) return std::nullopt;
        const uint64_t begin = heap == first_heap ? address + glibc_arena_bytes : heap + head;
        regions.push_back({.arena = address,
                           .heap = heap,
                           .begin = aligned_up(begin),
                           .end = heap + info.size_bytes,
                           .has_top = regions.empty()});
        heap = info.previous;
    }
    std::ranges::reverse(regions);
    if (regions.empty() || regions.front().heap != first_heap) return std::nullopt;
    return regions;
}

}  // namespace memtrace
