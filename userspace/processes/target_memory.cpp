#include "processes/target_memory.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "processes/proc_file.hpp"
#include "processes/process.hpp"

namespace memtrace {

Result<TargetMemory> TargetMemory::open(pid_t pid) {
    Fd fd(::open(proc_path(pid, "mem").c_str(), O_RDONLY | O_CLOEXEC));
    if (!fd) return process_error("the memory of process " + std::to_string(pid), errno);
    return TargetMemory(std::move(fd));
}

size_t TargetMemory::read(uint64_t address, std::span<std::byte> to) const {
    // The kernel takes the offset as signed; no user address is above.
    if (address > INT64_MAX) return 0;
    size_t done = 0;
    while (done < to.size()) {
        const ssize_t count = pread(fd_.get(), to.data() + done, to.size() - done, static_cast<off_t>(address + done));
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) break;
        done += static_cast<size_t>(count);
    }
    return done;
}

}  // namespace memtrace
