// -x NAME|PATH: which processes run a program. Uses base only.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "processes/program_facts.hpp"

namespace memtrace {

/// What the kernel tells of an exec: the path as it was given to execve(2), of a script the script's.
struct ExecutedFile {
    pid_t pid = 0;
    std::string path;
};

/// A program by a path (there is a '/' in it) or by a name. Nothing is kept between two questions: a file may be
/// replaced meanwhile. A process that ends while it is looked at does not match. For one thread.
///
/// A path is that of the process's own root or of ours: the same file through whatever link, a file that was deleted or
/// replaced since, or a script of that path that its interpreter runs. A name is the name of the file or the script,
/// comm, or what the name is in $PATH. Of a program that is many (busybox) the name that it was called by counts.
class Executable {
  public:
    /// `search_path` is $PATH; `proc` is where procfs is mounted.
    explicit Executable(std::string text, std::string_view search_path, std::string proc = "/proc");

    const std::string& text() const { return text_; }
    bool matches(pid_t pid) const;
    /// As above; when the process cannot be looked at any more, by the executed path alone.
    bool matches(const ExecutedFile& executed) const;
    /// All processes that match now, ascending.
    std::vector<pid_t> find() const;

  private:
    bool matches_facts(pid_t pid, ProgramFacts& facts) const;
    bool matches_path(pid_t pid, const ProgramFacts& facts) const;
    bool matches_name(const ProgramFacts& facts) const;
    bool is_our_file(FileId id) const;

    std::string text_;
    std::string path_;  // absolute, of ours; empty: a name that is not in $PATH
    bool is_path_;
    std::string proc_;
};

/// All processes of `proc`, ascending.
std::vector<pid_t> list_processes(const std::string& proc);

}  // namespace memtrace
