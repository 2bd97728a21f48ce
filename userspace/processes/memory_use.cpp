#include "processes/memory_use.hpp"

#include <algorithm>

namespace memtrace {
namespace {

/// Go's arena hints (runtime/malloc.go, mallocinit): 0x00c000000000 and up.
constexpr AddressRange go_heap = {.begin = 0xc0'0000'0000, .end = 0x100'0000'0000};
/// pthread_attr_setguardsize(3): a page, or what a program asks for.
constexpr uint64_t most_guard_bytes = 64 << 10;

bool is_anonymous(const Mapping& mapping) {
    return !mapping.is_shared && (mapping.path.empty() || mapping.path.starts_with("[anon"));
}

/// A thread's stack ends, downwards, in a mapping that nothing may touch.
bool is_guard(const Mapping& mapping) {
    return is_anonymous(mapping) && !mapping.is_readable && !mapping.is_writable && !mapping.is_executable &&
           mapping.end - mapping.start <= most_guard_bytes;
}

bool has_any(std::span<const uint64_t> sorted_addresses, const Mapping& mapping) {
    const auto first = std::ranges::lower_bound(sorted_addresses, mapping.start);
    return first != sorted_addresses.end() && *first < mapping.end;
}

MemoryUse use_of(const Mapping& mapping, const Mapping* before, const KnownUses& known,
                 std::span<const uint64_t> stack_pointers) {
    if (mapping.is_shared) return MemoryUse::shared;
    if (mapping.path == "[heap]") return MemoryUse::main_heap;
    if (mapping.path.starts_with("[stack")) return MemoryUse::stacks;
    if (!is_anonymous(mapping)) return MemoryUse::files;
    if (known.is_go && mapping.start >= go_heap.begin && mapping.start < go_heap.end) return MemoryUse::gc_heap;
    if (has_any(stack_pointers, mapping)) return MemoryUse::stacks;
    if (before != nullptr && before->end == mapping.start && is_guard(*before) && mapping.is_writable)
        return MemoryUse::stacks;
    return MemoryUse::anonymous;
}

void add(UseFigures& to, uint64_t rss_bytes, uint64_t mapped_bytes) {
    to.rss_bytes += rss_bytes;
    to.mapped_bytes += mapped_bytes;
}

}  // namespace

std::string_view name_of(MemoryUse use) {
    constexpr std::array<std::string_view, memory_uses> names = {"main_heap", "arenas", "anonymous", "gc_heap",
                                                                 "stacks",    "files",  "shared"};
    return names[static_cast<size_t>(use)];
}

UseFigures sum_of(const MemoryByUse& memory) {
    UseFigures sum;
    for (const UseFigures& figures : memory)
        add(sum, figures.rss_bytes, figures.mapped_bytes);
    return sum;
}

MemoryByUse split_by_use(std::span<const ResidentMapping> mappings, const KnownUses& known,
                         const std::function<uint64_t(AddressRange)>& resident_bytes) {
    std::vector<uint64_t> stack_pointers(known.stack_pointers.begin(), known.stack_pointers.end());
    std::ranges::sort(stack_pointers);
    MemoryByUse memory{};
    const Mapping* before = nullptr;
    for (const ResidentMapping& resident : mappings) {
        const Mapping& mapping = resident.mapping;
        uint64_t rss_bytes = resident.rss_bytes;
        uint64_t mapped_bytes = mapping.end - mapping.start;
        if (is_anonymous(mapping)) {
            for (const AddressRange& arena : known.arenas) {
                const AddressRange part = {std::max(arena.begin, mapping.start), std::min(arena.end, mapping.end)};
                if (part.begin >= part.end) continue;
                const bool is_all = part.end - part.begin == mapped_bytes;
                const uint64_t part_rss = is_all ? rss_bytes : std::min(rss_bytes, resident_bytes(part));
                add(memory[static_cast<size_t>(MemoryUse::arenas)], part_rss, part.end - part.begin);
                rss_bytes -= part_rss;
                mapped_bytes -= part.end - part.begin;
            }
        }
        const MemoryUse use = use_of(mapping, before, known, stack_pointers);
        add(memory[static_cast<size_t>(use)], rss_bytes, mapped_bytes);
        before = &mapping;
    }
    return memory;
}

}  // namespace memtrace
