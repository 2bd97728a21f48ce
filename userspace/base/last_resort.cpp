#include "base/last_resort.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <exception>
#include <new>
#include <string_view>
#include <utility>

namespace memtrace {
namespace {

void say(std::string_view text) {
    [[maybe_unused]] const ssize_t ignored = write(STDERR_FILENO, text.data(), text.size());
}

[[noreturn]] void end_without_memory() {
    say("memtrace: out of memory: the system or a limit (ulimit -v, control group) gives no more\n");
    say("hint: raise the limit, or lower --max-live-blocks, --max-sites and --ring-size\n");
    _exit(EXIT_FAILURE);
}

[[noreturn]] void end_by_exception() {
    say("memtrace: cannot go on: ");
    if (const std::exception_ptr thrown = std::current_exception()) {
        try {
            std::rethrow_exception(thrown);
        } catch (const std::exception& exception) {
            say(exception.what());
        } catch (...) {
            say("an exception of an unknown kind");
        }
    } else {
        say("it was called for without a reason");
    }
    say("\n");
    _exit(EXIT_FAILURE);
}

/// Objects of namespace scope, those of libraries too, allocate before main.
[[gnu::constructor(102)]] void install_before_main() {
    std::set_new_handler(end_without_memory);
    std::set_terminate(end_by_exception);
}

}  // namespace

void reserve_standard_streams() {
    // Writing to what is open for reading only is EBADF, and so is the other way round.
    for (const auto& [stream, access] :
         {std::pair{STDIN_FILENO, O_WRONLY}, std::pair{STDOUT_FILENO, O_RDONLY}, std::pair{STDERR_FILENO, O_WRONLY}})
        if (fcntl(stream, F_GETFD) < 0) (void)open("/dev/null", access | O_NOCTTY);
}

}  // namespace memtrace
