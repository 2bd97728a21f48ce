#include "tracing/end_status.hpp"

#include <fmt/format.h>
#include <sys/wait.h>

#include <cstring>

namespace memtrace {

std::string describe_end(uint32_t exit_code) {
    const int status = static_cast<int>(exit_code);
    if (!WIFSIGNALED(status)) return fmt::format("exited with status {}", WEXITSTATUS(status));
    const int signal = WTERMSIG(status);
    const char* name = sigdescr_np(signal);
    return fmt::format("killed by signal {} ({}){}", signal, name ? name : "unknown",
                       WCOREDUMP(status) ? ", core dumped" : "");
}

int shell_status(uint32_t exit_code) {
    const int status = static_cast<int>(exit_code);
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace memtrace
