// Ranges of whole pages, as the calls that change mappings round them. Pure; for the mapping ledger.
#pragma once

#include <cstdint>

namespace memtrace {

constexpr uint64_t page_bytes = 4096;

struct PageRange {
    uint64_t start = 0;
    uint64_t end = 0;
    uint64_t size() const { return end - start; }
};

/// Whole pages from `address`; empty for what the kernel refuses anyway (unaligned, or past the end of the address
/// space).
inline PageRange whole_pages(uint64_t address, uint64_t size_bytes, uint64_t page = page_bytes) {
    uint64_t rounded = 0;
    uint64_t end = 0;
    if (address % page_bytes != 0 || __builtin_add_overflow(size_bytes, page - 1, &rounded)) return {};
    rounded -= rounded % page;
    if (__builtin_add_overflow(address, rounded, &end)) return {};
    return {address, end};
}

}  // namespace memtrace
