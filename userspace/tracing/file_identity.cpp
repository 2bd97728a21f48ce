#include "tracing/file_identity.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

namespace memtrace {

Result<FileIdentity> identity_of_open_file(int fd) {
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    void* memory = mmap(nullptr, page, PROT_READ, MAP_PRIVATE, fd, 0);
    if (memory == MAP_FAILED) return Error{"cannot map a file", errno_text(errno)};
    auto mappings = read_mappings(getpid());
    munmap(memory, page);
    if (!mappings) return std::move(mappings).error();
    const auto address = reinterpret_cast<uint64_t>(memory);
    for (const Mapping& mapping : *mappings)
        if (address >= mapping.start && address < mapping.end) return identity_of(mapping);
    return Error{"cannot identify a file", "its mapping is not in /proc/self/maps"};
}

}  // namespace memtrace
