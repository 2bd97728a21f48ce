// What the kernel side's tables take, by the kernel's own account.
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <fmt/format.h>

#include <fstream>
#include <string>

#include "kernel/session.hpp"
#include "memtrace.skel.h"

namespace memtrace {
namespace {

/// An element of a hash map without preallocation that holds a struct mt_block: struct htab_elem (48 bytes), key and
/// value are 80 bytes, from the allocator's class of 96 (kernel/bpf/memalloc.c).
constexpr uint64_t overflow_element_bytes = 96;

/// "memlock" of /proc/self/fdinfo: what the map takes now (kernel/bpf/syscall.c, bpf_map_show_fdinfo).
uint64_t memory_of(int map_fd) {
    std::ifstream information(fmt::format("/proc/self/fdinfo/{}", map_fd));
    for (std::string line; std::getline(information, line);)
        if (line.starts_with("memlock:")) return std::stoull(line.substr(line.find('\t')));
    return 0;
}

}  // namespace

TableSizes Session::table_sizes() const {
    TableSizes sizes;
    const bpf_map* map = nullptr;
    bpf_object__for_each_map(map, skeleton_->obj) {
        const bpf_map_type type = bpf_map__type(map);
        const bool is_table = type != BPF_MAP_TYPE_TASK_STORAGE && type != BPF_MAP_TYPE_PROG_ARRAY;
        if (bpf_map__is_internal(map) || !is_table) continue;
        sizes.tables.push_back({bpf_map__name(map), bpf_map__max_entries(map), memory_of(bpf_map__fd(map))});
    }
    const uint32_t overflow_blocks = bpf_map__max_entries(skeleton_->maps.live_overflow);
    const uint64_t live_bytes = memory_of(bpf_map__fd(skeleton_->maps.live_blocks)) +
                                memory_of(bpf_map__fd(skeleton_->maps.live_overflow)) +
                                overflow_blocks * overflow_element_bytes;
    // Half full is what the table is made for (session.cpp, configure).
    sizes.max_live_blocks = bpf_map__max_entries(skeleton_->maps.live_blocks) * MT_BUCKET_SLOTS / 2;
    sizes.bytes_a_live_block = static_cast<double>(live_bytes) / sizes.max_live_blocks;
    sizes.bytes_a_thread =
        bpf_map__value_size(skeleton_->maps.threads) + bpf_map__value_size(skeleton_->maps.stack_memos);
    return sizes;
}

}  // namespace memtrace
