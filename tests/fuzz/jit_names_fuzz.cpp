// Any bytes as a perf map or a jitdump file, read in two pieces as it grows. The first byte chooses which, and where it
// is cut. Run by libFuzzer; first inputs are in jit_names_corpus.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>

#include "symbols/jit_files.hpp"

using namespace memtrace;

namespace {

void read_new(GrowingFile& file, JitNames& names, bool is_dump) {
    if (is_dump)
        read_jit_dump(file, names);
    else
        read_perf_map(file, names);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size_bytes) {
    if (size_bytes < 2) return 0;
    const bool is_dump = (data[0] & 1) != 0;
    const size_t first_bytes = (size_bytes - 1) * (data[0] >> 1) / 128;
    Fd fd(::memfd_create("jit_names_fuzz", MFD_CLOEXEC));
    const int writer = fd.get();
    GrowingFile file(std::move(fd));
    JitNames names;
    if (::write(writer, data + 1, first_bytes) < 0) return 0;
    read_new(file, names, is_dump);
    if (file.fd() < 0) return 0;
    if (::write(writer, data + 1 + first_bytes, size_bytes - 1 - first_bytes) < 0) return 0;
    read_new(file, names, is_dump);
    for (const uint64_t address : {uint64_t{0}, uint64_t{0x1000}, ~uint64_t{0}}) {
        const JitNames::Found found = names.find(address);
        if (found.start > address) std::abort();
    }
    return 0;
}
