// Any bytes as what names the types of a Crystal program: the compiler's dump, as text or JSON, or the program itself.
// The first byte chooses. Run by libFuzzer; first inputs are in type_dumps_corpus.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>

#include "base/fd.hpp"
#include "memtrace/runtimes_abi.h"
#include "runtimes/crystal_types.hpp"

using namespace memtrace;

namespace {

void check(const TypeNames& names) {
    for (const auto& [number, name] : names)
        if (number == 0 || number >= MT_MAX_TYPES) std::abort();
}

void read_program(std::string_view bytes) {
    const Fd fd(::memfd_create("type_dumps_fuzz", MFD_CLOEXEC));
    if (::write(fd.get(), bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size())) return;
    const auto file = ElfFile::open(fd.get(), "input");
    if (!file) return;
    (void)is_crystal_program(*file);
    check(find_type_names(*file));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size_bytes) {
    if (size_bytes == 0) return 0;
    const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size_bytes - 1);
    if ((data[0] & 1) != 0)
        read_program(bytes);
    else if (const auto names = parse_type_names(bytes, "input"))
        check(*names);
    return 0;
}
