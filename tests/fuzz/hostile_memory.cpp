#include "fuzz/hostile_memory.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace memtrace {
namespace {

struct HostileMemory {
    MemoryShape shape = MemoryShape::once;
    std::span<const uint8_t> bytes;
    uint64_t start = 0;
    uint64_t reads = 0;
};

HostileMemory& memory() {
    static HostileMemory memory;
    return memory;
}

}  // namespace

void set_hostile_memory(MemoryShape shape, std::span<const uint8_t> bytes, uint64_t start) {
    memory() = {.shape = shape, .bytes = bytes, .start = start};
}

TargetMemory hostile_memory() {
    auto opened = TargetMemory::open(0);
    if (!opened) std::abort();
    return std::move(*opened);
}

// In place of those of userspace/processes/target_memory.cpp.
Result<TargetMemory> TargetMemory::open(pid_t) {
    return TargetMemory(Fd());
}

size_t TargetMemory::read(uint64_t address, std::span<std::byte> to) const {
    HostileMemory& from = memory();
    const size_t size_bytes = from.bytes.size();
    uint64_t place = address - from.start;
    if (size_bytes == 0 || address > INT64_MAX) return 0;
    if (from.shape != MemoryShape::endless && place >= size_bytes) return 0;
    const size_t wanted = from.shape == MemoryShape::endless ? to.size() : std::min(to.size(), size_bytes - place);
    if (from.shape == MemoryShape::changing) place += 8 * from.reads++;
    for (size_t done = 0; done < wanted;) {
        place %= size_bytes;
        const size_t piece = std::min(wanted - done, size_bytes - place);
        std::memcpy(to.data() + done, from.bytes.data() + place, piece);
        done += piece;
        place += piece;
    }
    return wanted;
}

}  // namespace memtrace
