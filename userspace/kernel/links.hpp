// Probes that are attached, and the ways ("rungs") to attach them. A link is detached when its object goes.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.hpp"
#include "base/result.hpp"
#include "probes/resolve.hpp"

struct bpf_link;
struct bpf_program;

namespace memtrace {

/// Ways to attach, best first: session (Linux 6.13), uprobe_multi link (6.6), perf event with a cookie (5.15).
enum class AttachRung { session, multi, perf };

/// "session", "multi", "perf".
std::string_view rung_name(AttachRung rung);

/// Whether the running kernel has the link type of `rung`; asks it by trying, attaches nothing.
bool kernel_has_rung(AttachRung rung);

/// The kernel does not permit attaching by `rung`: which capability is missing.
Error refused_attach(const std::string& what, AttachRung rung);

/// The programs that one rung uses; borrowed from the skeleton.
struct RungPrograms {
    bpf_program* on_call = nullptr;
    bpf_program* on_return = nullptr;          // multi and perf
    bpf_program* on_call_or_return = nullptr;  // session
    bpf_program* on_return_instruction = nullptr;
    bpf_program* on_go_call = nullptr;
    bpf_program* on_go_return = nullptr;
};

/// Whose hits a link takes.
struct LinkScope {
    pid_t pid = 0;             // 0: everybody's
    uint64_t cookie_bits = 0;  // added to the cookie of each probe: enum mt_cookie
};

/// The probes of one file. They go all at once, in no order: nothing that they see may be armed then.
class FileProbes {
  public:
    FileProbes(FileProbes&&) noexcept;
    FileProbes& operator=(FileProbes&&) noexcept = delete;
    ~FileProbes();

    /// The end of several of them: each link waits for the kernel, some 50 ms, and those that wait together wait once.
    static void detach(std::vector<FileProbes> probes);

    /// Attaches `points` of the file `file_fd`; see Session::attach.
    static Result<FileProbes> attach(AttachRung rung, const RungPrograms& programs, const AllocatorTable& table,
                                     int file_fd, std::span<const ProbePoint> points, LinkScope scope);

  private:
    explicit FileProbes(LinkScope scope);
    Result<void> attach_group(AttachRung rung, const RungPrograms& programs, int file_fd,
                              const std::vector<const ProbePoint*>& points, bool waits_for_return);
    Result<void> attach_go(AttachRung rung, const RungPrograms& programs, const AllocatorTable& table, int file_fd,
                           std::span<const ProbePoint> points);
    Result<void> attach_plain(AttachRung rung, const bpf_program* program, int file_fd,
                              const std::vector<const ProbePoint*>& points);
    Result<void> attach_multi(const bpf_program* program, uint32_t attach_type, bool is_return, int file_fd,
                              const std::vector<const ProbePoint*>& points);
    Result<void> attach_perf(const bpf_program* program, bool is_return, int file_fd,
                             const std::vector<const ProbePoint*>& points);

    struct LinkDeleter {
        void operator()(bpf_link* link) const;
    };
    struct Links {
        std::vector<Fd> multi;
        std::vector<std::unique_ptr<bpf_link, LinkDeleter>> perf;
    };
    static void close(Links links);

    LinkScope scope_;
    Links links_;
};

}  // namespace memtrace
