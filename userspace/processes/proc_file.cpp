#include "processes/proc_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>

#include "base/fd.hpp"

namespace memtrace {

std::variant<std::string, int> read_whole_file(const std::string& path) {
    const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!fd) return errno;
    std::string content;
    std::string chunk(65536, '\0');
    for (;;) {
        const ssize_t got = ::read(fd.get(), chunk.data(), chunk.size());
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return errno;
        if (got == 0) return content;
        content.append(chunk, 0, static_cast<size_t>(got));
    }
}

std::string proc_path(pid_t pid, const char* name) {
    return fmt::format("/proc/{}/{}", pid, name);
}

}  // namespace memtrace
