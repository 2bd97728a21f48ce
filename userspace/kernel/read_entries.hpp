// Reading a BPF hash map in batches. For this folder only.
#pragma once

#include <bpf/bpf.h>

#include <cstdint>
#include <vector>

namespace memtrace {

/// Calls `visit(key, value)` for every entry that is there all the time; for others it may or may not.
template <typename Key, typename Value, typename Visit>
void for_each_entry(int map_fd, const Visit& visit) {
    constexpr uint32_t batch_size = 4096;
    std::vector<Key> keys(batch_size);
    std::vector<Value> values(batch_size);
    uint64_t position = 0;
    void* from = nullptr;
    while (true) {
        uint32_t count = batch_size;
        const int error = bpf_map_lookup_batch(map_fd, from, &position, keys.data(), values.data(), &count, nullptr);
        for (uint32_t index = 0; index < count; ++index)
            visit(keys[index], values[index]);
        if (error != 0) return;
        from = &position;
    }
}

}  // namespace memtrace
