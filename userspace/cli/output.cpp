#include "cli/output.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "base/log.hpp"
#include "formats/list.hpp"

namespace memtrace {
namespace {

constexpr size_t usual_width = 80;

size_t terminal_width(int fd) {
    if (!isatty(fd)) return 0;
    winsize size{};
    if (ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
    size_t columns = 0;
    if (const char* text = std::getenv("COLUMNS"))
        if (std::from_chars(text, text + std::strlen(text), columns).ec == std::errc() && columns > 0) return columns;
    return usual_width;
}

bool is_set(const char* variable) {
    const char* value = std::getenv(variable);
    return value && *value != '\0';
}

/// As the C library decides it, setlocale(3): the first of the three that is set. What goes to a file is UTF-8.
bool has_utf8(int fd) {
    if (!isatty(fd)) return true;
    for (const char* variable : {"LC_ALL", "LC_CTYPE", "LANG"}) {
        if (!is_set(variable)) continue;
        const std::string_view locale = std::getenv(variable);
        return locale.find("UTF-8") != std::string_view::npos || locale.find("utf8") != std::string_view::npos;
    }
    return false;
}

/// A command that memtrace started has made the output that both share non-blocking, as Crystal and Node programs do.
void wait_writable(int fd) {
    pollfd output{.fd = fd, .events = POLLOUT, .revents = 0};
    poll(&output, 1, -1);
}

bool wants_colors(ColorChoice choice, int fd) {
    if (choice == ColorChoice::always) return true;
    if (choice == ColorChoice::never || is_set("NO_COLOR")) return false;
    const char* terminal = std::getenv("TERM");
    return isatty(fd) && terminal && std::string_view(terminal) != "dumb";
}

}  // namespace

FdStreamBuffer::FdStreamBuffer(int fd) : fd_(fd) {
    setp(buffer_.data(), buffer_.data() + buffer_.size());
}

int FdStreamBuffer::sync() {
    const char* from = pbase();
    while (from < pptr() && error_number_ == 0) {
        const ssize_t written = ::write(fd_, from, static_cast<size_t>(pptr() - from));
        if (written >= 0)
            from += written;
        else if (errno == EAGAIN)
            wait_writable(fd_);
        else if (errno != EINTR)
            error_number_ = errno;
    }
    setp(buffer_.data(), buffer_.data() + buffer_.size());
    return error_number_ == 0 ? 0 : -1;
}

int FdStreamBuffer::overflow(int character) {
    if (sync() != 0) return traits_type::eof();
    if (character != traits_type::eof()) {
        *pptr() = static_cast<char>(character);
        pbump(1);
    }
    return traits_type::not_eof(character);
}

Result<std::unique_ptr<Output>> Output::open(const Options& options) {
    Fd file;
    std::string name = "standard output";
    if (!options.output_path.empty()) {
        file = Fd(::open(options.output_path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
        name = options.output_path;
        if (!file) return Error{"cannot open " + name, errno_text(errno)};
    }
    const int fd = file ? file.get() : STDOUT_FILENO;
    const Format* format = find_format(options.format == OutputFormat::json ? "json" : "text");
    auto writer = format->make(
        {.width = terminal_width(fd), .has_colors = wants_colors(options.color, fd), .has_utf8 = has_utf8(fd)});
    return std::unique_ptr<Output>(new Output(std::move(file), fd, std::move(name), std::move(writer)));
}

Result<void> Output::write(const Record& record) {
    if (buffer_.error_number() == 0) {
        writer_->write(record, stream_);
        stream_.flush();
    }
    if (buffer_.error_number() == 0) return {};
    return Error{"cannot write to " + name_, errno_text(buffer_.error_number())};
}

bool Output::is_closed_by_reader() const {
    return buffer_.error_number() == EPIPE;
}

int write_to_output(const Options& options, const std::function<Result<void>(Output&)>& run) {
    const auto output = Output::open(options);
    const Result<void> outcome = output ? run(**output) : output.error();
    if (outcome || (output && (*output)->is_closed_by_reader())) return 0;
    log_error(outcome.error());
    return static_cast<int>(outcome.error().status);
}

}  // namespace memtrace
