// Any bytes as an ELF file whose probe points are looked for: points in it, or an Error; never a crash, and each point
// lies in the file. Run by libFuzzer; first inputs are in elf_probes_corpus.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>

#include "base/fd.hpp"
#include "probes/resolve.hpp"

using namespace memtrace;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size_bytes) {
    static const AllocatorTable table;
    const Fd fd(::memfd_create("elf_probes_fuzz", MFD_CLOEXEC));
    if (::write(fd.get(), data, size_bytes) != static_cast<ssize_t>(size_bytes)) return 0;
    const Result<ElfFile> file = ElfFile::open(fd.get(), "input");
    if (!file) return 0;
    (void)file->build_id();
    (void)file->interpreter();
    (void)file->is_static();
    (void)file->symbol_of_slot(0x4000);
    const Result<ProbePoints> found = find_probe_points(*file, table, &*file);
    if (!found) return 0;
    for (const ProbePoint& point : found->points)
        if (point.file_offset >= size_bytes || point.row >= table.rows().size()) std::abort();
    return 0;
}
