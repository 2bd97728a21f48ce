// Large blocks of glibc's malloc: each has a mapping of its own. Uses glibc_malloc.
#pragma once

#include <cstdint>
#include <vector>

#include "runtimes/glibc_malloc.hpp"

namespace memtrace {

/// The sizes of the chunks that are mappings of their own, as far as they are recognised: at the beginning of a page of
/// anonymous memory, with a size that fits. An aligned block begins elsewhere and is not found. Ends when `expected`
/// are found.
std::vector<uint64_t> find_mapped_chunks(const GlibcMalloc& malloc, const std::vector<Mapping>& mappings,
                                         uint64_t expected);

}  // namespace memtrace
