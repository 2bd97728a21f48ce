// Any bytes as a mapped file whose code is to be named: frames for every place, at least one each. Run by libFuzzer;
// first inputs are in debug_names_corpus.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>

#include "base/fd.hpp"
#include "symbols/frame.hpp"
#include "symbols/module.hpp"
#include "symbols/symbolizer.hpp"

using namespace memtrace;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size_bytes) {
    Fd fd(::memfd_create("debug_names_fuzz", MFD_CLOEXEC));
    if (::write(fd.get(), data, size_bytes) != static_cast<ssize_t>(size_bytes)) return 0;
    const Module module("/debug_names_fuzz/input", std::move(fd));
    (void)module.identity();
    Symbolizer symbolizer;
    for (uint64_t offset = 0; offset < size_bytes; offset += 1 + offset / 16)
        if (symbolizer.frames_at({&module, offset}).empty()) std::abort();
    return 0;
}
