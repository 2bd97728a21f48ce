// The heap of libgc (Boehm's collector) in a running process: which objects its last collection has found reachable.
// Reads the collector's block headers and mark bytes from outside and stops nothing; the process may do anything
// meanwhile, and its memory may hold anything. Uses processes and boehm_layout.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "base/result.hpp"
#include "processes/target_memory.hpp"
#include "runtimes/boehm_layout.hpp"

namespace memtrace {

/// A block that a program has from the collector.
struct CollectedBlock {
    uint64_t address = 0;
    uint64_t size_bytes = 0;     // that was asked for
    bool may_be_inside = false;  // it may begin inside of the collector's object
};

/// What the collector's headers say of an address.
enum class MarkState : uint8_t {
    no_object,  // no object of that size begins there any more
    unmarked,   // not found by the last collection: dead, or younger than it
    marked,
};

/// One object in a census.
struct CensusObject {
    uint64_t size_bytes = 0;  // of the collector's object: what was asked for, rounded up
    uint32_t first_word = 0;  // its first 32 bits
    uint32_t second_word = 0;
    bool is_pointer_free = false;
};

/// What a census could not look at.
struct CensusFigures {
    uint64_t collections = 0;      // until then
    uint64_t blocks = 0;           // whose headers were looked at
    uint64_t blocks_not_read = 0;  // headers that contradict themselves, memory that was not there, and too many blocks
};

/// For one thread. Copies what it is made of.
class BoehmHeap {
  public:
    BoehmHeap(TargetMemory memory, const BoehmLayout& layout) : memory_(std::move(memory)), layout_(layout) {}

    const BoehmLayout& layout() const { return layout_; }
    /// Collections that have ended since the process began; none when it cannot be read.
    std::optional<uint64_t> collections() const { return memory_.read_value<uint64_t>(layout_.collection_counter); }

    /// Bytes that were ever allocated, by the collector's own count: sizes are rounded up, and what is kept ready for a
    /// thread counts already.
    std::optional<uint64_t> allocated_bytes() const;

    /// The states of `blocks`, in their order, as of one and the same collection; it should be sorted by address. None
    /// when a collection was under way or came in between, or when the index is endless: ask again later.
    std::optional<std::vector<MarkState>> states(std::span<const CollectedBlock> blocks) const;

    /// The first 32 bits of each block, 0 where they cannot be read; it should be sorted by address.
    std::vector<uint32_t> first_words(std::span<const uint64_t> addresses) const;

    /// Calls `visit` for each marked object; pages that lie next to each other come next to each other. None as above:
    /// then what was visited means nothing. Of more than `most_blocks` the rest counts as not read.
    std::optional<CensusFigures> census(const std::function<void(const CensusObject&)>& visit,
                                        uint64_t most_blocks = max_census_blocks) const;
    /// 64 GiB of small objects; hostile memory could have blocks without end.
    static constexpr uint64_t max_census_blocks = 1 << 24;

  private:
    struct Header {
        uint64_t block = 0;
        uint64_t object_bytes = 0;
        bool is_free = true;
        bool is_pointer_free = false;
        std::vector<uint8_t> marks;
    };

    /// The bottom_index that was found last, and how much of the index may still be read.
    struct IndexCursor {
        uint64_t key = UINT64_MAX;
        uint64_t bottom_index = 0;
        size_t steps_left = 1 << 18;
    };

    std::optional<uint64_t> quiet_collections() const;
    uint64_t bottom_index_of(uint64_t key, IndexCursor& cursor) const;
    uint64_t header_address(uint64_t address, IndexCursor& cursor) const;
    std::optional<Header> read_header(uint64_t header_address) const;
    MarkState state_of(const CollectedBlock& block, const Header& header) const;
    void visit_bottom_index(uint64_t bottom_index, uint64_t most_blocks, CensusFigures& figures,
                            const std::function<void(const CensusObject&)>& visit) const;
    bool visit_block(const Header& header, const std::function<void(const CensusObject&)>& visit) const;

    TargetMemory memory_;
    BoehmLayout layout_;
};

}  // namespace memtrace
