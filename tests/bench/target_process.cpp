#include "bench/target_process.hpp"

#include <dlfcn.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <system_error>
#include <utility>

namespace memtrace {

TemporaryDirectory::TemporaryDirectory(std::filesystem::path path) : path_(std::move(path)) {}

TemporaryDirectory::TemporaryDirectory(TemporaryDirectory&& other) noexcept
    : path_(std::exchange(other.path_, std::filesystem::path())) {}

TemporaryDirectory::~TemporaryDirectory() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
}

Result<TemporaryDirectory> TemporaryDirectory::make() {
    std::string path = (std::filesystem::temp_directory_path() / "memtrace-bench-XXXXXX").string();
    if (!mkdtemp(path.data())) return Error{"cannot make a temporary directory", errno_text(errno)};
    return TemporaryDirectory(path);
}

TargetProcess::TargetProcess(TemporaryDirectory directory, std::filesystem::path library, ChildProcess process)
    : directory_(std::move(directory)), library_(std::move(library)), process_(std::move(process)) {}

Result<TargetProcess> TargetProcess::start(const std::string& program) {
    Dl_info system_library{};
    if (dladdr(reinterpret_cast<void*>(&getppid), &system_library) == 0)
        return Error{"cannot find the C library", "this program is linked statically"};
    Result<TemporaryDirectory> directory = TemporaryDirectory::make();
    if (!directory) return directory.error();
    std::filesystem::path library = directory->path() / "libc.so.6";
    std::error_code error;
    std::filesystem::copy_file(system_library.dli_fname, library, error);
    if (error) return Error{"cannot copy the C library", error.message()};
    Result<ChildProcess> process = ChildProcess::start({program}, {"LD_LIBRARY_PATH=" + directory->path().string()});
    if (!process) return process.error();
    return TargetProcess(std::move(*directory), std::move(library), std::move(*process));
}

Result<bench_result> TargetProcess::run(const bench_request& request) {
    const Error gone{"the bench's target ended", "it does not answer"};
    bench_result result{};
    if (write(process_.input(), &request, sizeof request) != static_cast<ssize_t>(sizeof request)) return gone;
    if (read(process_.output(), &result, sizeof result) != static_cast<ssize_t>(sizeof result)) return gone;
    pairs_ += request.pairs * (request.slices + 1) + 2 * uint64_t{request.live_blocks};
    return result;
}

}  // namespace memtrace
