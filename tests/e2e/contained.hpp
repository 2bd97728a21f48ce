// Small root file systems, and programs that run in them behind namespaces of their own: what a container is to who
// looks at it from the host.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <vector>

#include "e2e/temporary_directory.hpp"
#include "e2e/workload.hpp"

namespace memtrace::e2e {

/// A directory that holds copies of programs with the C library and loader that they need, and an empty /tmp.
class SmallRoot {
  public:
    SmallRoot();
    /// Copies `program`, a file of the host, to "/NAME", with what `ldd` says that it loads. Returns "/NAME".
    std::string add(const std::string& program);
    /// ... with what it loads taken from `libraries`, an unpacked C library package.
    std::string add(const std::string& program, const std::filesystem::path& libraries);
    /// Copies a file of the host to the same place.
    void copy(const std::string& path);
    const std::filesystem::path& path() const { return directory_.path(); }

  private:
    TemporaryDirectory directory_;
};

/// How a program comes into a root: "chroot" alone, with mount and pid namespaces, ... The words before the program;
/// the root's path is already in them.
struct Place {
    std::string name;
    std::vector<std::string> command;
    bool has_parent;  // the program is the only child of the command, else the command itself becomes it
};
/// All places that `root` can be entered by.
std::vector<Place> places_of(const SmallRoot& root);

class ContainedWorkload {
  public:
    /// Starts `program`, a path in the root, and returns when it is ready.
    ContainedWorkload(const Place& place, const std::string& program, const std::vector<std::string>& arguments = {});

    /// As the host sees it.
    pid_t pid() const { return pid_; }
    Workload& workload() { return workload_; }

  private:
    Workload workload_;
    pid_t pid_;
};

}  // namespace memtrace::e2e
