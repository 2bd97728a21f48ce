// How often the kernel side's programs ran, by the kernel's own count.
#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include <cerrno>

#include "kernel/session.hpp"
#include "memtrace.skel.h"

namespace memtrace {
namespace {

void add_runs(ProgramRuns& runs, uint64_t ProgramRuns::*hits, const bpf_program* program) {
    bpf_prog_info info{};
    uint32_t size = sizeof info;
    if (!bpf_program__autoload(program)) return;
    if (bpf_obj_get_info_by_fd(bpf_program__fd(program), &info, &size) != 0) return;
    runs.*hits += info.run_cnt;
    runs.run_time_ns += info.run_time_ns;
}

}  // namespace

Result<Fd> Session::count_program_runs() const {
    Fd counting(bpf_enable_stats(BPF_STATS_RUN_TIME));
    if (counting) return counting;
    const bool is_denied = errno == EPERM;
    return Error{"cannot measure what tracing costs", errno_text(errno),
                 is_denied ? "run as root: the kernel counts for cap_sys_admin only" : "",
                 is_denied ? ExitStatus::not_privileged : ExitStatus::kernel_lacks_feature};
}

ProgramRuns Session::program_runs() const {
    ProgramRuns runs;
    add_runs(runs, &ProgramRuns::plain_hits, skeleton_->progs.on_call);
    add_runs(runs, &ProgramRuns::session_hits, skeleton_->progs.on_call_or_return);
    add_runs(runs, &ProgramRuns::return_hits, skeleton_->progs.on_return);
    add_runs(runs, &ProgramRuns::instruction_hits, skeleton_->progs.on_return_instruction);
    add_runs(runs, &ProgramRuns::plain_hits, skeleton_->progs.on_go_call);
    add_runs(runs, &ProgramRuns::instruction_hits, skeleton_->progs.on_go_return);
    return runs;
}

}  // namespace memtrace
