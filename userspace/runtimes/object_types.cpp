#include "runtimes/object_types.hpp"

#include <tuple>

#include "runtimes/crystal_types.hpp"

namespace memtrace {

bool ObjectTypes::is_object(uint32_t type, uint64_t size_bytes) const {
    constexpr uint64_t string_head_bytes = 13;  // type, bytes, characters, and the 0 at the end (Crystal's string.cr)
    if (type == crystal_string_type) return size_bytes >= string_head_bytes;
    const auto sizes = counts_.find(type);
    if (sizes == counts_.end() || !sizes->second.contains(size_bytes)) return false;
    // Of several sizes the most frequent one; of several of these the smallest, so that it is never left to chance.
    const auto rank = [](const auto& size) { return std::tuple(size.second, ~size.first); };
    const auto& own = *sizes->second.find(size_bytes);
    for (const auto& other : sizes->second)
        if (rank(other) > rank(own)) return false;
    return true;
}

}  // namespace memtrace
