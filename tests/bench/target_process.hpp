// The running target with a C library of its own: uprobes belong to a file, so probes that others have put on the
// system's library would be measured, too. Uses base/.
#pragma once

#include <filesystem>
#include <string>

#include "base/result.hpp"
#include "bench/child_process.hpp"
#include "bench/protocol.h"

namespace memtrace {

/// A directory that is removed with all that is in it. Move-only.
class TemporaryDirectory {
  public:
    static Result<TemporaryDirectory> make();
    TemporaryDirectory(TemporaryDirectory&& other) noexcept;
    TemporaryDirectory& operator=(TemporaryDirectory&&) = delete;
    ~TemporaryDirectory();
    const std::filesystem::path& path() const { return path_; }

  private:
    explicit TemporaryDirectory(std::filesystem::path path);
    std::filesystem::path path_;
};

class TargetProcess {
  public:
    /// Starts `program` with a copy of the C library that this program itself runs with.
    static Result<TargetProcess> start(const std::string& program);

    pid_t pid() const { return process_.pid(); }
    const std::filesystem::path& library() const { return library_; }
    /// malloc and free pairs that it has run since it started.
    uint64_t pairs() const { return pairs_; }

    Result<bench_result> run(const bench_request& request);

  private:
    TargetProcess(TemporaryDirectory directory, std::filesystem::path library, ChildProcess process);

    TemporaryDirectory directory_;
    std::filesystem::path library_;
    ChildProcess process_;
    uint64_t pairs_ = 0;
};

}  // namespace memtrace
