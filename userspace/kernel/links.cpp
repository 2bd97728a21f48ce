#include "kernel/links.hpp"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <iterator>
#include <thread>

#include "base/capabilities.hpp"
#include "base/thread.hpp"
#include "kernel/uprobe_multi.hpp"
#include "memtrace/abi.h"
#include "probes/allocator_table.hpp"

namespace memtrace {
namespace {

/// A path by which the kernel finds just this inode, whatever its name or mount namespace is.
std::string path_of(int file_fd) {
    return fmt::format("/proc/self/fd/{}", file_fd);
}

uint64_t cookie_of(const ProbePoint& point) {
    switch (point.kind) {
        case PointKind::return_instruction:
            return MT_COOKIE_RETURN_INSTRUCTION;
        case PointKind::unseen_return:
            return MT_COOKIE_UNSEEN_RETURN;
        case PointKind::go_entry_checked:
            return point.row | static_cast<uint64_t>(MT_COOKIE_STACK_CHECK);
        case PointKind::entry:
        case PointKind::go_entry:
        case PointKind::go_return:
            break;
    }
    return point.row;
}

Error attach_error(const ProbePoint& first, int error_number, AttachRung rung) {
    const std::string what = fmt::format("cannot attach to {}", first.symbol);
    if (error_number != EPERM && error_number != EACCES) return Error{what, errno_text(error_number)};
    return refused_attach(what, rung);
}

}  // namespace

Error refused_attach(const std::string& what, AttachRung rung) {
    // Probes by perf events are for cap_sys_admin alone (Linux "require CAP_SYS_ADMIN for uprobes", 2025).
    const auto wanted = rung == AttachRung::perf
                            ? std::vector{Capability::bpf, Capability::perfmon, Capability::sys_admin}
                            : std::vector{Capability::bpf, Capability::perfmon};
    return Error{what, reason_of_refusal(wanted),
                 rung == AttachRung::perf ? "run as root (sudo memtrace ...)" : privilege_hint(),
                 ExitStatus::not_privileged};
}

std::string_view rung_name(AttachRung rung) {
    switch (rung) {
        case AttachRung::session:
            return "session";
        case AttachRung::multi:
            return "multi";
        case AttachRung::perf:
            return "perf";
    }
    return "";
}

FileProbes::FileProbes(LinkScope scope) : scope_(scope) {}
FileProbes::FileProbes(FileProbes&&) noexcept = default;
FileProbes::~FileProbes() {
    close(std::move(links_));
}

void FileProbes::detach(std::vector<FileProbes> probes) {
    Links all;
    for (FileProbes& one : probes) {
        std::ranges::move(one.links_.multi, std::back_inserter(all.multi));
        std::ranges::move(one.links_.perf, std::back_inserter(all.perf));
        one.links_ = {};
    }
    close(std::move(all));
}

void FileProbes::close(Links links) {
    constexpr size_t most_threads = 16;
    const size_t count = links.multi.size() + links.perf.size();
    std::atomic<size_t> next = 0;
    const auto close_some = [&] {
        for (size_t index = next++; index < count; index = next++)
            if (index < links.multi.size())
                links.multi[index] = Fd();
            else
                links.perf[index - links.multi.size()].reset();
    };
    std::vector<std::thread> threads;
    while (threads.size() + 1 < std::min(count, most_threads)) {
        auto thread = start_thread(close_some);
        if (!thread) break;
        threads.push_back(std::move(*thread));
    }
    close_some();
    for (std::thread& thread : threads)
        thread.join();
}

void FileProbes::LinkDeleter::operator()(bpf_link* link) const {
    bpf_link__destroy(link);
}

Result<FileProbes> FileProbes::attach(AttachRung rung, const RungPrograms& programs, const AllocatorTable& table,
                                      int file_fd, std::span<const ProbePoint> points, LinkScope scope) {
    FileProbes probes(scope);
    std::vector<const ProbePoint*> returns;
    for (const ProbePoint& point : points)
        if (point.kind == PointKind::return_instruction || point.kind == PointKind::unseen_return)
            returns.push_back(&point);
    if (auto attached = probes.attach_go(rung, programs, table, file_fd, points); !attached)
        return std::move(attached).error();
    // A call that is seen at entry is then seen at its return too.
    if (auto attached = probes.attach_plain(rung, programs.on_return_instruction, file_fd, returns); !attached)
        return std::move(attached).error();
    // One pass a group: frees that are not waited for, frees that are, then the rest likewise.
    for (const bool gives_back : {true, false}) {
        for (const bool waits_for_return : {false, true}) {
            std::vector<const ProbePoint*> group;
            for (const ProbePoint& point : points) {
                const mt_row& row = table[point.row].row;
                if (point.kind == PointKind::entry && frees(row) == gives_back &&
                    is_return_probed(row) == waits_for_return)
                    group.push_back(&point);
            }
            if (group.empty()) continue;
            if (auto attached = probes.attach_group(rung, programs, file_fd, group, waits_for_return); !attached)
                return std::move(attached).error();
        }
    }
    return probes;
}

/// Returns first, then what gives back, then what allocates.
Result<void> FileProbes::attach_go(AttachRung rung, const RungPrograms& programs, const AllocatorTable& table,
                                   int file_fd, std::span<const ProbePoint> points) {
    std::vector<const ProbePoint*> returns;
    std::vector<const ProbePoint*> ends;
    std::vector<const ProbePoint*> entries;
    for (const ProbePoint& point : points) {
        if (point.kind == PointKind::go_return) returns.push_back(&point);
        if (point.kind == PointKind::go_entry || point.kind == PointKind::go_entry_checked)
            (frees(table[point.row].row) ? ends : entries).push_back(&point);
    }
    if (auto attached = attach_plain(rung, programs.on_go_return, file_fd, returns); !attached) return attached;
    if (auto attached = attach_plain(rung, programs.on_go_call, file_fd, ends); !attached) return attached;
    return attach_plain(rung, programs.on_go_call, file_fd, entries);
}

Result<void> FileProbes::attach_plain(AttachRung rung, const bpf_program* program, int file_fd,
                                      const std::vector<const ProbePoint*>& points) {
    if (points.empty()) return {};
    if (rung == AttachRung::perf) return attach_perf(program, false, file_fd, points);
    return attach_multi(program, bpf_trace_uprobe_multi, false, file_fd, points);
}

Result<void> FileProbes::attach_group(AttachRung rung, const RungPrograms& programs, int file_fd,
                                      const std::vector<const ProbePoint*>& points, bool waits_for_return) {
    if (rung == AttachRung::session && waits_for_return)
        return attach_multi(programs.on_call_or_return, bpf_trace_uprobe_session, false, file_fd, points);
    // The return probe first: a call that is seen at entry is then seen at return too.
    if (rung == AttachRung::perf) {
        if (waits_for_return)
            if (auto attached = attach_perf(programs.on_return, true, file_fd, points); !attached) return attached;
        return attach_plain(rung, programs.on_call, file_fd, points);
    }
    if (waits_for_return)
        if (auto attached = attach_multi(programs.on_return, bpf_trace_uprobe_multi, true, file_fd, points); !attached)
            return attached;
    return attach_plain(rung, programs.on_call, file_fd, points);
}

Result<void> FileProbes::attach_multi(const bpf_program* program, uint32_t attach_type, bool is_return, int file_fd,
                                      const std::vector<const ProbePoint*>& points) {
    const std::string path = path_of(file_fd);
    std::vector<uint64_t> offsets;
    std::vector<uint64_t> cookies;
    for (const ProbePoint* point : points) {
        offsets.push_back(point->file_offset);
        cookies.push_back(cookie_of(*point) | scope_.cookie_bits);
    }
    UprobeMultiAttributes attributes;
    attributes.program_fd = static_cast<uint32_t>(bpf_program__fd(program));
    attributes.attach_type = attach_type;
    attributes.path = as_u64(path.c_str());
    attributes.offsets = as_u64(offsets.data());
    attributes.cookies = as_u64(cookies.data());
    attributes.count = static_cast<uint32_t>(points.size());
    attributes.multi_flags = is_return ? bpf_f_uprobe_multi_return : 0;
    attributes.pid = static_cast<uint32_t>(scope_.pid);
    const int link = create_link(attributes);
    if (link < 0) return attach_error(*points.front(), errno, AttachRung::multi);
    links_.multi.emplace_back(link);
    return {};
}

Result<void> FileProbes::attach_perf(const bpf_program* program, bool is_return, int file_fd,
                                     const std::vector<const ProbePoint*>& points) {
    const std::string path = path_of(file_fd);
    for (const ProbePoint* point : points) {
        LIBBPF_OPTS(bpf_uprobe_opts, options, .bpf_cookie = cookie_of(*point) | scope_.cookie_bits,
                    .retprobe = is_return);
        // A perf event dies with the thread that it was opened for, so it is opened for all; the programs filter.
        bpf_link* link = bpf_program__attach_uprobe_opts(program, -1, path.c_str(),
                                                         static_cast<size_t>(point->file_offset), &options);
        if (!link) return attach_error(*point, errno, AttachRung::perf);
        links_.perf.emplace_back(link);
    }
    return {};
}

bool kernel_has_rung(AttachRung rung) {
    // The smallest program, for a link on "/": EBADF ("not a regular file") comes after the link type was
    // accepted, EINVAL where it is unknown (kernel/trace/bpf_trace.c, bpf_uprobe_multi_link_attach).
    if (rung == AttachRung::perf) return true;
    const uint32_t attach_type = rung == AttachRung::session ? bpf_trace_uprobe_session : bpf_trace_uprobe_multi;
    LIBBPF_OPTS(bpf_prog_load_opts, options);
    options.expected_attach_type = static_cast<bpf_attach_type>(attach_type);
    const Fd program(bpf_prog_load(BPF_PROG_TYPE_KPROBE, nullptr, "GPL", return_zero, 2, &options));
    if (!program) return false;
    const uint64_t offset = 1;
    UprobeMultiAttributes attributes;
    attributes.program_fd = static_cast<uint32_t>(program.get());
    attributes.attach_type = attach_type;
    attributes.path = as_u64("/");
    attributes.offsets = as_u64(&offset);
    attributes.count = 1;
    const Fd link(create_link(attributes));
    return !link && errno == EBADF;
}

}  // namespace memtrace
