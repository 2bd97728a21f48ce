#include "kernel/kernel_features.hpp"

#include <bpf/bpf.h>
#include <linux/bpf.h>
#include <unistd.h>

#include <cerrno>

#include "base/fd.hpp"
#include "kernel/links.hpp"

namespace memtrace {
namespace {

FeatureState state_of_trial(int fd, int error_number) {
    if (fd >= 0) return FeatureState::present;
    return error_number == EPERM || error_number == EACCES ? FeatureState::not_permitted : FeatureState::missing;
}

FeatureState type_information() {
    return access("/sys/kernel/btf/vmlinux", R_OK) == 0 ? FeatureState::present : FeatureState::missing;
}

/// A map of that type, the smallest that there is.
FeatureState map_of_type(bpf_map_type type, uint32_t key_bytes, uint32_t value_bytes, uint32_t entries,
                         uint32_t flags) {
    LIBBPF_OPTS(bpf_map_create_opts, options);
    options.map_flags = flags;
    const Fd map(bpf_map_create(type, nullptr, key_bytes, value_bytes, entries, &options));
    return state_of_trial(map.get(), errno);
}

FeatureState run_statistics() {
    const Fd counting(bpf_enable_stats(BPF_STATS_RUN_TIME));
    return state_of_trial(counting.get(), errno);
}

/// `can_load`: programs may be loaded here, without which a link cannot be tried.
FeatureState rung(AttachRung way, bool can_load) {
    if (!can_load) return FeatureState::not_permitted;
    return kernel_has_rung(way) ? FeatureState::present : FeatureState::missing;
}

}  // namespace

std::vector<KernelFeature> kernel_features() {
    const auto page_size = static_cast<uint32_t>(sysconf(_SC_PAGESIZE));
    const FeatureState ring = map_of_type(BPF_MAP_TYPE_RINGBUF, 0, 0, page_size, 0);
    const bool can_load = ring != FeatureState::not_permitted;
    return {
        {"types of the kernel (BTF)", "the programs fit every kernel", type_information(), true},
        {"ring buffer", "stacks and events leave the kernel in order", ring, true},
        {"mapped tables", "reports read a million blocks in milliseconds",
         map_of_type(BPF_MAP_TYPE_ARRAY, 4, 8, 1, BPF_F_MMAPABLE), true},
        {"session links, Linux 6.13", "one probe for call and return: the cheapest way",
         rung(AttachRung::session, can_load), false},
        {"multi links, Linux 6.6", "only traced processes pay, detaching is quick, cap_sys_admin is not needed",
         rung(AttachRung::multi, can_load), false},
        {"perf events with cookies", "the way where there is no other; all who use a file pay for its probes",
         rung(AttachRung::perf, can_load), false},
        {"statistics of program runs", "reports tell what tracing costs; needs cap_sys_admin", run_statistics(), false},
    };
}

}  // namespace memtrace
