// From files, and the vDSO, to their unwind tables in the kernel: loaded when a target maps the file, dropped when none
// does. Uses kernel, unwind and processes.
#pragma once

#include <sys/types.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "kernel/session.hpp"
#include "tracing/file_identity.hpp"

namespace memtrace {

/// The kernel side's name for a file.
mt_file file_in_kernel(const FileIdentity& identity);

/// For one thread.
class UnwindTableLoader {
  public:
    /// `session` must outlive the loader.
    explicit UnwindTableLoader(Session& session) : session_(session) {}

    /// The vDSO is the same in all 64-bit processes, so that of this one will do.
    Result<void> load_vdso();
    /// `pid` maps the file, which is open at `fd`. What goes wrong is a warning, and its code is walked by frame
    /// pointer.
    void load(pid_t pid, const FileIdentity& identity, int fd, const std::string& name);
    /// `child` was forked by `parent` and maps what it maps.
    void inherit(pid_t parent, pid_t child);
    /// Whether load() was called for both.
    bool is_loaded(pid_t pid, const FileIdentity& identity) const;
    /// A walk met `file`, by the kernel's numbers, of which there is no table yet; see MT_UNWIND_EVERY_ADDRESS. `fd` is
    /// the file that the mapping has, or -1 if it cannot be opened.
    void answer(pid_t pid, const mt_file& file, const Mapping& mapping, int fd);
    /// The process maps none of its files any more. What nobody maps is dropped by drop_unused().
    void forget_process(pid_t pid);
    /// The files that were dropped.
    std::vector<FileIdentity> drop_unused();

  private:
    struct LoadedFile {
        std::set<pid_t> pids;         // that map it
        std::vector<mt_file> tables;  // all that is known of it in the kernel
    };

    Result<void> load_table(LoadedFile& loaded, const mt_file& file, int fd);
    void drop_unmapped();

    Session& session_;
    std::map<FileIdentity, LoadedFile> files_;
};

}  // namespace memtrace
