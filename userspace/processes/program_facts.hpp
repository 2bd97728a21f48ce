// What tells which program a process runs, as /proc shows it at one moment. Uses base only.
#pragma once

#include <fcntl.h>
#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.hpp"

namespace memtrace {

/// Device and inode as stat() has them: to be compared within one mount only, which is what paths below one root are.
struct FileId {
    dev_t device = 0;
    ino_t inode = 0;

    bool operator==(const FileId&) const = default;
};

struct ProgramFacts {
    std::string comm;                    // any bytes but NUL
    std::string exe;                     // as /proc/PID/exe has it, in the mounts of the process, without " (deleted)"
    FileId exe_id;                       // of that file, deleted or not
    std::string root;                    // as /proc/PID/root has it: "/", or where a chroot lies
    std::vector<std::string> arguments;  // argv; what the process made of it
    std::optional<std::string> script;   // the argument that is the file which exe interprets
    std::optional<FileId> script_id;
};

/// All but the script. None where the process has ended, is a kernel thread or may not be read. `proc` is where procfs
/// is mounted. Thread-safe.
std::optional<ProgramFacts> read_program_facts(pid_t pid, const std::string& proc);
/// Fills in the script, if one runs: the first argument whose #! line asks for the program that runs. Opens the files
/// that are among the first arguments. Thread-safe.
void find_script(pid_t pid, const std::string& proc, ProgramFacts& facts);

/// What `path` is for that process: below its root directory, symbolic links followed as it would; a relative path
/// starts at its working directory. O_PATH; not open when there is no such file.
Fd open_in_process(pid_t pid, const std::string& proc, const std::string& path);

/// None when `file` is not open.
std::optional<FileId> file_id(const Fd& file);

/// What follows the last '/'.
std::string_view base_name(std::string_view path);

}  // namespace memtrace
