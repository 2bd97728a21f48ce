// Where records go: standard output or a file, in the chosen format. Uses formats/.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <ostream>
#include <streambuf>

#include "base/fd.hpp"
#include "base/result.hpp"
#include "cli/options.hpp"
#include "formats/format.hpp"

namespace memtrace {

/// Buffers for a file descriptor and remembers why a write failed, which std::ofstream does not tell.
class FdStreamBuffer : public std::streambuf {
  public:
    /// `fd` stays the caller's.
    explicit FdStreamBuffer(int fd);
    /// errno of the first failed write, 0 if there was none.
    int error_number() const { return error_number_; }

  protected:
    int overflow(int character) override;
    int sync() override;

  private:
    int fd_;
    int error_number_ = 0;
    std::array<char, 65536> buffer_;
};

/// For one thread.
class Output {
  public:
    /// Opens the file of `options`, or standard output, and looks at the terminal behind it.
    static Result<std::unique_ptr<Output>> open(const Options& options);

    /// Writes and flushes. After the Error of a reader that has gone (EPIPE) nothing more is written.
    Result<void> write(const Record& record);
    /// True when the reader of a pipe has closed it: no error, but nobody listens any more.
    bool is_closed_by_reader() const;

  private:
    Output(Fd file, int fd, std::string name, std::unique_ptr<Writer> writer)
        : file_(std::move(file)), buffer_(fd), stream_(&buffer_), name_(std::move(name)), writer_(std::move(writer)) {}

    Fd file_;  // none: standard output
    FdStreamBuffer buffer_;
    std::ostream stream_;
    std::string name_;
    std::unique_ptr<Writer> writer_;
};

/// Opens the output of `options` and lets `run` write to it. The exit status; what went wrong has been said, and a
/// reader that has gone is nothing wrong.
int write_to_output(const Options& options, const std::function<Result<void>(Output&)>& run);

}  // namespace memtrace
