#include "cli/print.hpp"

#include <signal.h>
#include <unistd.h>

#include <cerrno>

#include "base/log.hpp"

namespace memtrace {

int print(std::string_view text) {
    signal(SIGPIPE, SIG_IGN);
    while (!text.empty()) {
        const ssize_t written = write(STDOUT_FILENO, text.data(), text.size());
        if (written >= 0) {
            text.remove_prefix(static_cast<size_t>(written));
            continue;
        }
        if (errno == EINTR) continue;
        if (errno == EPIPE) return static_cast<int>(ExitStatus::ok);
        log_error({"cannot write to standard output", errno_text(errno)});
        return static_cast<int>(ExitStatus::failure);
    }
    return static_cast<int>(ExitStatus::ok);
}

}  // namespace memtrace
