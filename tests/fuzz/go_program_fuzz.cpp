// Any bytes as a Go program: its table of functions, the probe points in its code, and what its runtime keeps in memory
// (types, heap profile). The input: a byte that chooses how the memory behaves, two bytes with the length of the
// program's file, the file, the memory. A length of 0: the rest is a table of functions. Run by libFuzzer; first inputs
// are in go_program_corpus.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>

#include "fuzz/hostile_memory.hpp"
#include "probes/go_points.hpp"
#include "runtimes/go_heap_profile.hpp"
#include "runtimes/go_types.hpp"

using namespace memtrace;

namespace {

constexpr size_t data_bytes = 4 * 4096;
constexpr uint64_t data_start = 0x10000000;
constexpr uint64_t data_vaddr = 0x401000;  // in the file

/// The program's data, which is mapped in this process so that /proc/PID/maps has it; its bytes are the enemy's.
bool map_data() {
    const Fd fd(::memfd_create("go_program_fuzz", MFD_CLOEXEC));
    void* const place = reinterpret_cast<void*>(data_start);
    return ::ftruncate(fd.get(), data_bytes) == 0 &&
           ::mmap(place, data_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED_NOREPLACE, fd.get(), 0) == place;
}

void check(const GoProgram& program) {
    uint64_t functions = 0;
    for (const GoProgram::Function& function : program.functions_starting_with("")) {
        if (function.end < function.start) std::abort();
        if (++functions < 8) (void)program.find(function.name);
        (void)program.at(function.start);
    }
    (void)program.at(UINT64_MAX);
}

void read_process(const ElfFile& file, const GoProgram& program, std::span<const uint8_t> memory, MemoryShape shape) {
    static const bool has_data = map_data();
    if (!has_data) std::abort();
    set_hostile_memory(shape, memory, data_start);
    auto copy = ElfFile::open(file.fd(), file.name());
    if (!copy) return;
    const GoProcess go{hostile_memory(), std::move(*copy), program, data_start - data_vaddr};
    GoTypes types(go, getpid());
    for (uint32_t type = 0; type < 64 * 1024; type += 1021)
        (void)types.name(type);
    const auto reader = GoHeapReader::open(go);
    if (reader) (void)reader->read();
}

void read_file(std::span<const uint8_t> bytes, std::span<const uint8_t> memory, MemoryShape shape) {
    static const AllocatorTable table;
    const Fd fd(::memfd_create("go_program_fuzz", MFD_CLOEXEC));
    if (::write(fd.get(), bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size())) return;
    const auto file = ElfFile::open(fd.get(), "/memfd:go_program_fuzz");
    if (!file) return;
    const auto program = GoProgram::read(*file);
    if (!program) return;
    check(*program);
    ProbePoints points;
    add_go_points(*file, *program, table, points);
    for (const ProbePoint& point : points.points)
        if (point.file_offset >= bytes.size()) std::abort();
    read_process(*file, *program, memory, shape);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size_bytes) {
    if (size_bytes < 3) return 0;
    const auto shape = static_cast<MemoryShape>(data[0] % 3);
    const std::span rest(data + 3, size_bytes - 3);
    const size_t file_bytes = std::min<size_t>(data[1] | data[2] << 8, rest.size());
    if (file_bytes != 0) {
        read_file(rest.first(file_bytes), rest.subspan(file_bytes), shape);
    } else if (const auto program = GoProgram::parse(std::string(rest.begin(), rest.end()), "input")) {
        check(*program);
    }
    return 0;
}
