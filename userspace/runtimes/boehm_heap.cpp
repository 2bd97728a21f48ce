#include "runtimes/boehm_heap.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <unordered_set>

namespace memtrace {
namespace {

// libgc's own constants (gc_hdrs.h, gc_priv.h) for x86-64; the layout was refused where its code has others.
constexpr uint64_t page_bytes = 4096;  // HBLKSIZE
constexpr uint64_t page_shift = 12;
constexpr uint64_t index_shift = 22;
constexpr uint64_t top_entries = 2048;
constexpr uint64_t bottom_entries = 1024;
constexpr uint64_t granule_shift = 4;
constexpr uint64_t mark_bytes = page_bytes >> granule_shift;
constexpr uint8_t free_flag = 4;           // FREE_BLK
constexpr uint64_t largest_small = 2048;   // of an object that shares its block
constexpr uint64_t largest_link = 4096;    // an entry below says how many pages before the block's header stands
constexpr uint64_t pointer_free_kind = 0;  // PTRFREE
// What hostile memory can make of a chain or of a large block, at most.
constexpr size_t max_chain = 1 << 16;
constexpr int max_links = 64;

template <typename Value>
Value value_at(std::span<const std::byte> bytes, uint64_t offset) {
    Value value{};
    if (offset + sizeof value <= bytes.size()) std::memcpy(&value, bytes.data() + offset, sizeof value);
    return value;
}

}  // namespace

std::optional<uint64_t> BoehmHeap::allocated_bytes() const {
    const auto first = memory_.read_value<uint64_t>(layout_.allocated[0]);
    const auto second = memory_.read_value<uint64_t>(layout_.allocated[1]);
    if (!first || !second) return std::nullopt;
    return *first + *second;
}

/// Collections so far, when none is marking: marks are cleared before a collection and whole only when it is counted.
std::optional<uint64_t> BoehmHeap::quiet_collections() const {
    const auto state = memory_.read_value<int32_t>(layout_.mark_state);
    if (!state || *state != 0) return std::nullopt;
    return collections();
}

/// The bottom_index for `key`; 0: none.
uint64_t BoehmHeap::bottom_index_of(uint64_t key, IndexCursor& cursor) const {
    if (cursor.key == key) return cursor.bottom_index;
    cursor.key = key;
    cursor.bottom_index = memory_.read_value<uint64_t>(layout_.top_index + 8 * (key & (top_entries - 1))).value_or(0);
    while (cursor.bottom_index != 0) {
        const auto found = memory_.read_value<uint64_t>(cursor.bottom_index + layout_.bottom_key);
        if (found == key) break;
        if (!found || cursor.steps_left == 0) {
            cursor.bottom_index = 0;
            break;
        }
        --cursor.steps_left;
        cursor.bottom_index = memory_.read_value<uint64_t>(cursor.bottom_index + layout_.bottom_link).value_or(0);
    }
    return cursor.bottom_index;
}

/// The header of the block that `address` is in; 0: none.
uint64_t BoehmHeap::header_address(uint64_t address, IndexCursor& cursor) const {
    for (int links = 0; links < max_links; ++links) {
        const uint64_t bottom_index = bottom_index_of(address >> index_shift, cursor);
        if (bottom_index == 0) return 0;
        const uint64_t entry = address >> page_shift & (bottom_entries - 1);
        const uint64_t header = memory_.read_value<uint64_t>(bottom_index + 8 * entry).value_or(0);
        if (header == 0 || header >= largest_link) return header;
        address -= header << page_shift;
    }
    return 0;
}

std::optional<BoehmHeap::Header> BoehmHeap::read_header(uint64_t header_address) const {
    std::vector<std::byte> bytes(layout_.header_marks + mark_bytes);
    // The last mark bytes may end a page: those of a block of large objects are not all there.
    if (memory_.read(header_address, bytes) < layout_.header_marks + 1) return std::nullopt;
    Header header;
    header.block = value_at<uint64_t>(bytes, layout_.header_block);
    header.object_bytes = value_at<uint64_t>(bytes, layout_.header_size);
    header.is_free = (value_at<uint8_t>(bytes, layout_.header_flags) & free_flag) != 0;
    header.is_pointer_free = value_at<uint8_t>(bytes, layout_.header_kind) == pointer_free_kind;
    const auto* marks = reinterpret_cast<const uint8_t*>(bytes.data() + layout_.header_marks);
    header.marks.assign(marks, marks + mark_bytes);
    if (header.object_bytes == 0 || header.block % page_bytes != 0) return std::nullopt;
    return header;
}

MarkState BoehmHeap::state_of(const CollectedBlock& block, const Header& header) const {
    if (header.is_free || block.address < header.block) return MarkState::no_object;
    const bool is_small = header.object_bytes <= largest_small;
    const uint64_t offset = block.address - header.block;
    if (is_small && offset >= page_bytes) return MarkState::no_object;
    const uint64_t inside = is_small ? offset % header.object_bytes : offset;
    if (inside != 0 && !block.may_be_inside) return MarkState::no_object;
    if (inside + block.size_bytes > header.object_bytes) return MarkState::no_object;
    return header.marks[(offset - inside) >> granule_shift] != 0 ? MarkState::marked : MarkState::unmarked;
}

std::optional<std::vector<MarkState>> BoehmHeap::states(std::span<const CollectedBlock> blocks) const {
    const auto before = quiet_collections();
    if (!before) return std::nullopt;
    std::vector<MarkState> states;
    states.reserve(blocks.size());
    uint64_t page = UINT64_MAX;
    std::optional<Header> header;
    IndexCursor cursor;
    for (const CollectedBlock& block : blocks) {
        if (block.address >> page_shift != page) {
            page = block.address >> page_shift;
            const uint64_t address = header_address(block.address, cursor);
            header = address == 0 ? std::nullopt : read_header(address);
        }
        states.push_back(header ? state_of(block, *header) : MarkState::no_object);
    }
    if (cursor.steps_left == 0 || quiet_collections() != before) return std::nullopt;
    return states;
}

std::vector<uint32_t> BoehmHeap::first_words(std::span<const uint64_t> addresses) const {
    std::vector<uint32_t> words;
    words.reserve(addresses.size());
    std::array<std::byte, page_bytes> bytes;
    uint64_t page = UINT64_MAX;
    size_t readable = 0;
    for (const uint64_t address : addresses) {
        if (address >> page_shift != page) {
            page = address >> page_shift;
            readable = memory_.read(page << page_shift, bytes);
        }
        words.push_back(value_at<uint32_t>(std::span(bytes).first(readable), address & (page_bytes - 1)));
    }
    return words;
}

/// Whether the block could be looked at.
bool BoehmHeap::visit_block(const Header& header, const std::function<void(const CensusObject&)>& visit) const {
    const bool is_small = header.object_bytes <= largest_small;
    std::array<std::byte, page_bytes> page;
    const size_t wanted = is_small ? page_bytes : 2 * sizeof(uint32_t);
    if (memory_.read(header.block, std::span(page).first(wanted)) != wanted) return false;
    if (is_small && (header.object_bytes >> granule_shift) == 0) return false;
    for (uint64_t offset = 0; offset + header.object_bytes <= page_bytes || offset == 0;
         offset += header.object_bytes) {
        if (header.marks[offset >> granule_shift] != 0)
            visit({header.object_bytes, value_at<uint32_t>(page, offset),
                   value_at<uint32_t>(page, offset + sizeof(uint32_t)), header.is_pointer_free});
        if (!is_small) break;
    }
    return true;
}

void BoehmHeap::visit_bottom_index(uint64_t bottom_index, uint64_t most_blocks, CensusFigures& figures,
                                   const std::function<void(const CensusObject&)>& visit) const {
    std::array<uint64_t, bottom_entries> entries{};
    const size_t read = memory_.read(bottom_index, std::as_writable_bytes(std::span(entries)));
    const uint64_t key = memory_.read_value<uint64_t>(bottom_index + layout_.bottom_key).value_or(0);
    if (read != sizeof entries) {
        ++figures.blocks_not_read;
        return;
    }
    for (uint64_t entry = 0; entry < bottom_entries; ++entry) {
        if (entries[entry] < largest_link) continue;
        if (figures.blocks == most_blocks) {
            ++figures.blocks_not_read;
            return;
        }
        const auto header = read_header(entries[entry]);
        const uint64_t block = (key << index_shift) + (entry << page_shift);
        ++figures.blocks;
        if (header && header->is_free) continue;
        if (!header || header->block != block || !visit_block(*header, visit)) ++figures.blocks_not_read;
    }
}

std::optional<CensusFigures> BoehmHeap::census(const std::function<void(const CensusObject&)>& visit,
                                               uint64_t most_blocks) const {
    const auto before = quiet_collections();
    if (!before) return std::nullopt;
    CensusFigures figures{.collections = *before};
    std::array<uint64_t, top_entries> top{};
    if (memory_.read(layout_.top_index, std::as_writable_bytes(std::span(top))) != sizeof top) return std::nullopt;
    std::unordered_set<uint64_t> seen;
    for (uint64_t bottom : top)
        // The end of all chains is one and the same index, which is empty.
        while (bottom != 0 && seen.size() < max_chain && seen.insert(bottom).second) {
            visit_bottom_index(bottom, most_blocks, figures, visit);
            bottom = memory_.read_value<uint64_t>(bottom + layout_.bottom_link).value_or(0);
        }
    if (quiet_collections() != before) return std::nullopt;
    return figures;
}

}  // namespace memtrace
