// The kernel's uprobe_multi link by its system call. For this folder only.
#pragma once

#include <linux/bpf.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

namespace memtrace {

// include/uapi/linux/bpf.h of Linux 6.6 and 6.13; Debian 12's headers and libbpf 1.1 do not know them.
constexpr uint32_t bpf_trace_uprobe_multi = 48;
constexpr uint32_t bpf_trace_uprobe_session = 57;
constexpr uint32_t bpf_f_uprobe_multi_return = 1;

/// The part of union bpf_attr that BPF_LINK_CREATE reads for uprobe_multi (Linux 6.18, BTF of union bpf_attr).
struct UprobeMultiAttributes {
    uint32_t program_fd = 0;
    uint32_t target_fd = 0;
    uint32_t attach_type = 0;
    uint32_t flags = 0;
    uint64_t path = 0;
    uint64_t offsets = 0;
    uint64_t reference_counter_offsets = 0;
    uint64_t cookies = 0;
    uint32_t count = 0;
    uint32_t multi_flags = 0;
    uint32_t pid = 0;
    uint32_t padding = 0;
};
static_assert(sizeof(UprobeMultiAttributes) == 64);

/// The link's fd, or -1 and errno.
inline int create_link(const UprobeMultiAttributes& attributes) {
    return static_cast<int>(syscall(SYS_bpf, BPF_LINK_CREATE, &attributes, sizeof attributes));
}

inline uint64_t as_u64(const void* pointer) {
    return reinterpret_cast<uint64_t>(pointer);
}

/// The smallest program that there is.
constexpr bpf_insn return_zero[] = {
    {.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = 0, .src_reg = 0, .off = 0, .imm = 0},
    {.code = BPF_JMP | BPF_EXIT, .dst_reg = 0, .src_reg = 0, .off = 0, .imm = 0}};

}  // namespace memtrace
