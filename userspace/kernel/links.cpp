#include "kernel/links.hpp"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <fmt/format.h>
#include <sys/syscall.h>

#include <cerrno>

#include "memtrace/abi.h"
#include "probes/allocator_table.hpp"

namespace memtrace {
namespace {

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

int create_link(const UprobeMultiAttributes& attributes) {
    return static_cast<int>(syscall(SYS_bpf, BPF_LINK_CREATE, &attributes, sizeof attributes));
}

uint64_t as_u64(const void* pointer) {
    return reinterpret_cast<uint64_t>(pointer);
}

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
        case PointKind::entry:
            break;
    }
    return point.row;
}

Error attach_error(const ProbePoint& first, int error_number) {
    const bool is_denied = error_number == EPERM || error_number == EACCES;
    return Error{fmt::format("cannot attach to {}", first.symbol), errno_text(error_number),
                 is_denied ? "run as root, or grant cap_bpf and cap_perfmon" : "",
                 is_denied ? ExitStatus::not_privileged : ExitStatus::failure};
}

}  // namespace

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
FileProbes& FileProbes::operator=(FileProbes&&) noexcept = default;
// Links go in the reverse order of attaching: what only gives back was first and must be last.
FileProbes::~FileProbes() {
    while (!perf_links_.empty())
        perf_links_.pop_back();
    while (!multi_links_.empty())
        multi_links_.pop_back();
}

void FileProbes::LinkDeleter::operator()(bpf_link* link) const {
    bpf_link__destroy(link);
}

Result<FileProbes> FileProbes::attach(AttachRung rung, const RungPrograms& programs, const AllocatorTable& table,
                                      int file_fd, std::span<const ProbePoint> points, LinkScope scope) {
    FileProbes probes(scope);
    std::vector<const ProbePoint*> returns;
    for (const ProbePoint& point : points)
        if (point.kind != PointKind::entry) returns.push_back(&point);
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
    if (link < 0) return attach_error(*points.front(), errno);
    multi_links_.emplace_back(link);
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
        if (!link) return attach_error(*point, errno);
        perf_links_.emplace_back(link);
    }
    return {};
}

bool kernel_has_rung(AttachRung rung) {
    // The smallest program there is, for a link on "/": EBADF ("not a regular file") comes after the link type was
    // accepted, EINVAL where it is unknown (kernel/trace/bpf_trace.c, bpf_uprobe_multi_link_attach).
    if (rung == AttachRung::perf) return true;
    const uint32_t attach_type = rung == AttachRung::session ? bpf_trace_uprobe_session : bpf_trace_uprobe_multi;
    const bpf_insn return_zero[] = {
        {.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = 0, .src_reg = 0, .off = 0, .imm = 0},
        {.code = BPF_JMP | BPF_EXIT, .dst_reg = 0, .src_reg = 0, .off = 0, .imm = 0}};
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
