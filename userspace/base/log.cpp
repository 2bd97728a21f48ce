#include "base/log.hpp"

#include <unistd.h>

#include <atomic>
#include <string>

#include "base/text.hpp"

namespace memtrace {
namespace {

std::atomic<bool> log_is_quiet = false;

void write_line(std::string line) {
    line += '\n';
    // A closed stderr must not end the tracing: there is nobody to tell.
    [[maybe_unused]] ssize_t ignored = ::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace

void log_error(const Error& error) {
    std::string text = "memtrace: " + printable(error.what);
    if (!error.why.empty()) text += ": " + printable(error.why);
    if (!error.hint.empty()) text += "\nhint: " + printable(error.hint);
    write_line(text);
}

void log_info(std::string_view message) {
    if (!log_is_quiet) write_line("memtrace: " + printable(message));
}

void log_warning(std::string_view message) {
    write_line("memtrace: warning: " + printable(message));
}

void set_log_quiet(bool is_quiet) {
    log_is_quiet = is_quiet;
}

}  // namespace memtrace
