#include "kernel/system_calls.hpp"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <string>
#include <string_view>

#include "base/capabilities.hpp"
#include "base/clock.hpp"

namespace memtrace {
namespace {

struct Tracepoint {
    std::string_view name;
    bool is_exit = false;
};

/// In the order in which they are attached.
constexpr auto tracepoints = std::to_array<Tracepoint>({
    {"sys_exit_munmap", true},
    {"sys_enter_munmap"},
    {"sys_exit_shmdt", true},
    {"sys_enter_shmdt"},
    {"sys_exit_brk", true},
    {"sys_enter_brk"},
    {"sys_exit_mremap", true},
    {"sys_enter_mremap"},
    {"sys_exit_mprotect", true},
    {"sys_exit_madvise", true},
    {"sys_exit_mmap", true},
    {"sys_exit_shmat", true},
});

constexpr const char* what = "cannot see system calls";

/// The directory of the kernel's trace events. Where nobody has mounted it, it is mounted for this process alone, at no
/// path, and goes with the descriptor.
Result<Fd> open_tracefs() {
    for (const char* path : {"/sys/kernel/tracing", "/sys/kernel/debug/tracing"}) {
        Fd mounted(::open(path, O_PATH | O_DIRECTORY | O_CLOEXEC));
        if (mounted && ::faccessat(mounted.get(), "events/syscalls", F_OK, 0) == 0) return mounted;
    }
    const Fd context(::fsopen("tracefs", FSOPEN_CLOEXEC));
    if (context && ::fsconfig(context.get(), FSCONFIG_CMD_CREATE, nullptr, nullptr, 0) == 0) {
        Fd mounted(::fsmount(context.get(), FSMOUNT_CLOEXEC, 0));
        if (mounted && ::faccessat(mounted.get(), "events/syscalls", F_OK, 0) == 0) return mounted;
    }
    if (errno == EPERM || errno == EACCES)
        return Error{what, reason_of_refusal(std::array{Capability::sys_admin}), "run as root (sudo memtrace ...)",
                     ExitStatus::not_privileged};
    return Error{what, "this kernel has no tracepoints of system calls", "it must be built with CONFIG_FTRACE_SYSCALLS",
                 ExitStatus::kernel_lacks_feature};
}

/// The kernel's number of a tracepoint; 0 where it has none: without System V IPC there is no shmat.
uint64_t number_of(const Fd& tracefs, std::string_view name) {
    const std::string path = "events/syscalls/" + std::string(name) + "/id";
    const Fd file(::openat(tracefs.get(), path.c_str(), O_RDONLY | O_CLOEXEC));
    std::array<char, 32> text{};
    uint64_t number = 0;
    if (!file || ::read(file.get(), text.data(), text.size()) <= 0) return 0;
    std::from_chars(text.data(), text.data() + text.size(), number);
    return number;
}

/// For every task on every cpu: a program at a tracepoint runs wherever it is hit.
Fd open_event(uint64_t number) {
    perf_event_attr attributes{};
    attributes.type = PERF_TYPE_TRACEPOINT;
    attributes.size = sizeof attributes;
    attributes.config = number;
    constexpr int any_task = -1, first_cpu = 0, no_group = -1;
    return Fd(static_cast<int>(
        syscall(SYS_perf_event_open, &attributes, any_task, first_cpu, no_group, PERF_FLAG_FD_CLOEXEC)));
}

}  // namespace

Result<SystemCallProbes> SystemCallProbes::attach(const bpf_program* on_entry, const bpf_program* on_exit) {
    const auto tracefs = open_tracefs();
    if (!tracefs) return tracefs.error();
    SystemCallProbes probes;
    for (const Tracepoint& tracepoint : tracepoints) {
        const uint64_t number = number_of(*tracefs, tracepoint.name);
        if (number == 0) continue;
        Fd event = open_event(number);
        if (!event) return Error{what, errno_text(errno), "run as root (sudo memtrace ...)"};
        const int program = bpf_program__fd(tracepoint.is_exit ? on_exit : on_entry);
        Fd link(bpf_link_create(program, event.get(), BPF_PERF_EVENT, nullptr));
        if (!link) return Error{what, errno_text(errno)};
        probes.events_.push_back(std::move(event));
        probes.links_.push_back(std::move(link));
    }
    if (probes.links_.empty())
        return Error{what, "this kernel has no tracepoints of system calls", "", ExitStatus::kernel_lacks_feature};
    return probes;
}

uint64_t time_of_system_call_ns() {
    constexpr int rounds = 10;
    constexpr uint64_t calls = 200;
    uint64_t quickest_ns = UINT64_MAX;
    for (int round = 0; round < rounds; ++round) {
        const uint64_t begin_ns = monotonic_now_ns();
        for (uint64_t call = 0; call < calls; ++call)
            syscall(SYS_getppid);
        quickest_ns = std::min(quickest_ns, (monotonic_now_ns() - begin_ns) / calls);
    }
    return quickest_ns;
}

}  // namespace memtrace
