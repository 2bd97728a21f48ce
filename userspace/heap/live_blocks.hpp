// The live blocks of a snapshot, millions of them: in columns, so that what a report reads of all of them, births and
// call sites, is small and in a row. The rest is there where it was asked for. Pure data; uses base/.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <span>

#include "base/large_vector.hpp"

namespace memtrace {

/// One live block.
struct Block {
    uint64_t address = 0;
    uint64_t size_bytes = 0;
    uint64_t birth_ns = 0;  // CLOCK_MONOTONIC
    uint32_t site = 0;
    uint32_t owner = 0;
    uint32_t forks = 0;                // that its owner had made when it was born: children of later ones inherit it
    uint32_t sampling_mean_bytes = 0;  // of a sampled block, which stands for 1 / (1 - exp(-size / mean)) blocks
};

/// Either whole blocks or only births and call sites, never some of each. Reads as a sequence of Blocks; of those that
/// are not whole only these two fields mean something.
class LiveBlocks {
  public:
    LiveBlocks() = default;
    LiveBlocks(std::initializer_list<Block> blocks) { append(blocks); }
    explicit LiveBlocks(std::span<const Block> blocks) { append(blocks); }

    size_t size() const { return births_ns_.size(); }
    bool empty() const { return births_ns_.empty(); }
    bool are_whole() const { return wholes_.size() == size(); }
    std::span<const uint64_t> births_ns() const { return births_ns_; }
    std::span<const uint32_t> sites() const { return sites_; }

    Block operator[](size_t index) const {
        Block block = are_whole() ? wholes_[index] : Block{};
        block.birth_ns = births_ns_[index];
        block.site = sites_[index];
        return block;
    }
    Block front() const { return (*this)[0]; }

    void reserve(size_t count, bool are_to_be_whole) {
        births_ns_.reserve(count);
        sites_.reserve(count);
        if (are_to_be_whole) wholes_.reserve(count);
    }
    void push_back(const Block& block) {
        assert(are_whole());
        births_ns_.push_back(block.birth_ns);
        sites_.push_back(block.site);
        wholes_.push_back(block);
    }
    /// Births and call sites alone: the same number of each.
    void append(std::span<const uint64_t> births_ns, std::span<const uint32_t> sites) {
        assert(wholes_.empty() && births_ns.size() == sites.size());
        births_ns_.insert(births_ns_.end(), births_ns.begin(), births_ns.end());
        sites_.insert(sites_.end(), sites.begin(), sites.end());
    }
    /// Of whole blocks.
    void set_sampling_mean(size_t index, uint32_t mean_bytes) { wholes_[index].sampling_mean_bytes = mean_bytes; }
    void append(std::span<const Block> blocks) {
        for (const Block& block : blocks)
            push_back(block);
    }

    class Iterator {
      public:
        using value_type = Block;
        using difference_type = std::ptrdiff_t;
        using reference = Block;
        using pointer = void;
        using iterator_category = std::input_iterator_tag;

        Iterator() = default;
        Iterator(const LiveBlocks& blocks, size_t index) : blocks_(&blocks), index_(index) {}
        Block operator*() const { return (*blocks_)[index_]; }
        Iterator& operator++() {
            ++index_;
            return *this;
        }
        Iterator operator++(int) {
            Iterator before = *this;
            ++index_;
            return before;
        }
        bool operator==(const Iterator& other) const { return index_ == other.index_; }

      private:
        const LiveBlocks* blocks_ = nullptr;
        size_t index_ = 0;
    };
    Iterator begin() const { return {*this, 0}; }
    Iterator end() const { return {*this, size()}; }

  private:
    LargeVector<uint64_t> births_ns_;
    LargeVector<uint32_t> sites_;
    LargeVector<Block> wholes_;
};

}  // namespace memtrace
