#include "symbols/file_root.hpp"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <optional>

#include "processes/proc_file.hpp"

namespace memtrace {
namespace {

Fd open_root(const std::string& path) {
    return Fd(::open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
}

std::optional<std::pair<uint64_t, uint64_t>> mount_and_inode(const Fd& root) {
    struct statx status {};
    const unsigned wanted = STATX_INO | STATX_MNT_ID;
    if (!root || ::statx(root.get(), "", AT_EMPTY_PATH, wanted, &status) != 0) return std::nullopt;
    return std::pair(status.stx_mnt_id, status.stx_ino);
}

}  // namespace

const FileRoot& FileRoot::own() {
    static const FileRoot root(open_root("/"));
    return root;
}

FileRoot FileRoot::of_process(pid_t pid) {
    return FileRoot(open_root(proc_path(pid, "root")));
}

Fd FileRoot::open_regular(const std::string& path) const {
    open_how how{};
    how.flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
    how.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS;
    if (!root_) return Fd();
    Fd fd(static_cast<int>(::syscall(SYS_openat2, root_.get(), path.c_str(), &how, sizeof(how))));
    struct stat status {};
    if (!fd || ::fstat(fd.get(), &status) != 0 || !S_ISREG(status.st_mode)) return Fd();
    return fd;
}

std::shared_ptr<const FileRoot> FileRoots::root_of(pid_t pid) {
    std::shared_ptr<const FileRoot> own(std::shared_ptr<void>(), &FileRoot::own());
    Fd root = open_root(proc_path(pid, "root"));
    const auto key = mount_and_inode(root);
    if (!key || key == mount_and_inode(open_root("/"))) return own;
    auto& known = roots_[*key];
    if (!known) known = std::make_shared<FileRoot>(std::move(root));
    return known;
}

}  // namespace memtrace
