// Debug files from the servers that DEBUGINFOD_URLS names. Uses base and libdebuginfod, which is loaded only when that
// variable is set: it brings libcurl and a TLS library along, 20 MB that hardly anybody needs.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "base/fd.hpp"

namespace memtrace {

/// For one thread. A report waits for the answer: when nothing comes for `patience` (DEBUGINFOD_TIMEOUT seconds, else
/// 10), or the file is not whole after six times as long, no server is asked again, which a warning says once.
class Debuginfod {
  public:
    Debuginfod();
    explicit Debuginfod(std::chrono::milliseconds patience);
    Debuginfod(const Debuginfod&) = delete;
    Debuginfod& operator=(const Debuginfod&) = delete;
    ~Debuginfod();

    /// The debug file of `build_id` (raw bytes), from the client's cache or a server; none if there is none, or nobody
    /// to ask.
    Fd find(const std::string& build_id);

  private:
    struct Library;
    void give_up(const std::string& why);

    std::chrono::milliseconds patience_;
    std::unique_ptr<Library> library_;  // null until the first question
    bool has_given_up_ = false;
};

}  // namespace memtrace
