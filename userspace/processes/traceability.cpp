#include "processes/traceability.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <string_view>

#include "base/fd.hpp"
#include "processes/proc_file.hpp"

namespace memtrace {
namespace {

constexpr pid_t kthreadd = 2;

/// What follows "\nNAME:" and blanks in the form of /proc/PID/status, to the end of the line; empty: no such line.
std::string_view field_of(std::string_view status, std::string_view name) {
    const size_t line = status.find(fmt::format("\n{}:", name));
    if (line == std::string_view::npos) return {};
    status.remove_prefix(line + name.size() + 2);
    status.remove_prefix(std::min(status.find_first_not_of(" \t"), status.size()));
    return status.substr(0, status.find('\n'));
}

/// The number that `text` begins with, else 0.
template <typename Number>
Number number_in(std::string_view text) {
    Number number = 0;
    std::from_chars(text.data(), text.data() + text.size(), number);
    return number;
}

#if defined(__x86_64__)
constexpr long uretprobe_number = 335;  // arch/x86/entry/syscalls/syscall_64.tbl
constexpr int filtered_errno = EDOM;

enum class SystemCall { missing, filtered, present };

/// In a child: from then on the system call fails with `filtered_errno` if the filter is asked.
bool filter_uretprobe() {
    std::array<sock_filter, 4> filter = {
        sock_filter BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        sock_filter BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(uretprobe_number), 0, 1),
        sock_filter BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | filtered_errno),
        sock_filter BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    const sock_fprog program = {filter.size(), filter.data()};
    return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) == 0;
}

/// The kernel answers the call with SIGILL when it does not come from a return probe.
SystemCall call_uretprobe(bool with_filter) {
    const pid_t child = ::fork();
    if (child == 0) {
        const rlimit no_core = {0, 0};
        ::setrlimit(RLIMIT_CORE, &no_core);
        ::signal(SIGILL, SIG_DFL);
        if (with_filter && !filter_uretprobe()) ::_exit(ENOSYS);
        ::_exit(::syscall(uretprobe_number) < 0 ? errno : 0);
    }
    int status = 0;
    while (child > 0 && ::waitpid(child, &status, 0) < 0 && errno == EINTR)
        continue;
    if (child < 0 || (WIFEXITED(status) && WEXITSTATUS(status) == ENOSYS)) return SystemCall::missing;
    return WIFEXITED(status) && WEXITSTATUS(status) == filtered_errno ? SystemCall::filtered : SystemCall::present;
}

bool asks_filter_of_uretprobe() {
    // A filter answers for a number that the kernel does not know, too.
    return call_uretprobe(true) == SystemCall::filtered && call_uretprobe(false) != SystemCall::missing;
}
#else
bool asks_filter_of_uretprobe() {
    return false;
}
#endif

}  // namespace

std::optional<std::string> reason_not_to_trace(const TraceFacts& facts, bool kills_filtered) {
    if (facts.is_memtrace) return "is memtrace itself";
    if (facts.is_kernel_thread) return "is a kernel thread, which has no heap of its own";
    if (facts.has_ended) return "has ended and waits for its parent (zombie)";
    if (facts.denied_by)
        return fmt::format("belongs to user {}; memtrace needs cap_sys_ptrace for it, or root (sudo)",
                           *facts.denied_by);
    if (facts.is_seccomp_filtered && kills_filtered)
        return "has a seccomp filter, and this kernel (6.11 to 6.13) would kill it at the first return probe";
    return std::nullopt;
}

std::optional<TraceFacts> read_trace_facts(pid_t pid, const std::string& proc) {
    const auto content = read_whole_file(fmt::format("{}/{}/status", proc, pid));
    const auto* status = std::get_if<std::string>(&content);
    if (!status) return std::nullopt;
    TraceFacts facts;
    facts.is_memtrace = pid == ::getpid();
    const std::string_view state = field_of(*status, "State");
    const bool is_first_thread_over = state.starts_with('Z') || state.starts_with('X');
    // Only who has memory has a size. A process loses it on its way out, before it is a zombie.
    const bool has_no_memory = !is_first_thread_over && field_of(*status, "VmSize").empty();
    // kthreadd starts them all, and is process 2 (kernel/fork.c, rest_init in init/main.c).
    facts.is_kernel_thread = has_no_memory && (field_of(*status, "PPid") == "2" || pid == kthreadd);
    facts.has_ended =
        (is_first_thread_over && field_of(*status, "Threads") == "1") || (has_no_memory && !facts.is_kernel_thread);
    const std::string_view seccomp = field_of(*status, "Seccomp");
    facts.is_seccomp_filtered = !seccomp.empty() && seccomp != "0";
    facts.tracer = number_in<pid_t>(field_of(*status, "TracerPid"));
    facts.threads = number_in<uint64_t>(field_of(*status, "Threads"));
    const std::string_view users = field_of(*status, "Uid");
    const std::string_view effective = users.substr(std::min(users.find('\t') + 1, users.size()));
    facts.has_changed_user = number_in<uid_t>(users) != number_in<uid_t>(effective);
    const Fd maps(::open(fmt::format("{}/{}/maps", proc, pid).c_str(), O_RDONLY | O_CLOEXEC));
    if (!maps && (errno == EACCES || errno == EPERM)) facts.denied_by = number_in<uid_t>(users);
    return facts;
}

bool uretprobes_kill_filtered() {
    static const bool kills = asks_filter_of_uretprobe();
    return kills;
}

std::optional<std::string> reason_not_to_trace(pid_t pid) {
    const auto facts = read_trace_facts(pid);
    if (!facts) return std::nullopt;
    return reason_not_to_trace(*facts, facts->is_seccomp_filtered && uretprobes_kill_filtered());
}

}  // namespace memtrace
