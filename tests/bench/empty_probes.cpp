#include "bench/empty_probes.hpp"

#include <bpf/libbpf.h>
#include <fcntl.h>

#include <chrono>

#include "base/fd.hpp"
#include "bench_empty.skel.h"
#include "probes/elf_file.hpp"
#include "probes/resolve.hpp"

namespace memtrace {
namespace {

// include/uapi/linux/bpf.h of Linux 6.6 and 6.13; Debian 12's headers do not know them.
constexpr auto bpf_trace_uprobe_multi = static_cast<bpf_attach_type>(48);
constexpr auto bpf_trace_uprobe_session = static_cast<bpf_attach_type>(57);

/// As memtrace loads its own programs for the rung.
void choose_programs(bench_empty_bpf& skeleton, AttachRung rung) {
    const bool is_session = rung == AttachRung::session;
    bpf_program__set_autoload(skeleton.progs.on_call_or_return, is_session);
    bpf_program__set_autoload(skeleton.progs.on_return, !is_session);
    if (rung == AttachRung::perf) return;
    bpf_program__set_expected_attach_type(skeleton.progs.on_call, bpf_trace_uprobe_multi);
    bpf_program__set_expected_attach_type(skeleton.progs.on_return, bpf_trace_uprobe_multi);
    bpf_program__set_expected_attach_type(skeleton.progs.on_call_or_return, bpf_trace_uprobe_session);
}

}  // namespace

EmptyProbes::EmptyProbes() = default;
EmptyProbes::~EmptyProbes() = default;

void EmptyProbes::SkeletonDeleter::operator()(bench_empty_bpf* skeleton) const {
    bench_empty_bpf__destroy(skeleton);
}

Result<void> EmptyProbes::load(AttachRung rung) {
    skeleton_.reset(bench_empty_bpf__open());
    if (!skeleton_) return Error{"cannot open the empty probes", errno_text(errno)};
    choose_programs(*skeleton_, rung);
    if (const int error = bench_empty_bpf__load(skeleton_.get()); error != 0)
        return Error{"cannot load the empty probes", errno_text(-error), "run as root", ExitStatus::not_privileged};
    return {};
}

Result<void> EmptyProbes::attach_file(AttachRung rung, const std::string& path, pid_t pid) {
    const Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    const Result<ElfFile> file = ElfFile::open(fd.get(), path);
    if (!file) return {};  // a script
    const AllocatorTable table;
    const Result<ProbePoints> found = find_probe_points(*file, table);
    if (!found) return found.error();
    if (found->points.empty()) return {};
    const RungPrograms programs = {skeleton_->progs.on_call, skeleton_->progs.on_return,
                                   skeleton_->progs.on_call_or_return, skeleton_->progs.on_call};
    const auto begin = std::chrono::steady_clock::now();
    Result<FileProbes> probes = FileProbes::attach(rung, programs, table, fd.get(), found->points, {.pid = pid});
    attach_ms_ += std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
    if (!probes) return probes.error();
    probe_count_ += found->points.size();
    probes_.push_back(std::move(*probes));
    return {};
}

Result<std::unique_ptr<EmptyProbes>> EmptyProbes::attach(AttachRung rung, const std::vector<std::string>& files,
                                                         pid_t pid) {
    std::unique_ptr<EmptyProbes> probes(new EmptyProbes);
    if (auto loaded = probes->load(rung); !loaded) return loaded.error();
    for (const std::string& file : files)
        if (auto attached = probes->attach_file(rung, file, pid); !attached) return attached.error();
    return probes;
}

}  // namespace memtrace
