#include "symbols/separate_debug_file.hpp"

#include <elfutils/libdwelf.h>
#include <fcntl.h>
#include <libelf.h>

#include <memory>

#include "symbols/debug_files.hpp"
#include "symbols/module.hpp"

namespace memtrace {

Fd open_separate_debug_file(int fd, const std::string& path) {
    const Module module(path, Fd(::fcntl(fd, F_DUPFD_CLOEXEC, 0)));
    if (!module.is_elf()) return Fd();
    const std::unique_ptr<Elf, decltype(&::elf_end)> elf(::elf_begin(fd, ELF_C_READ, nullptr), &::elf_end);
    GElf_Word crc = 0;
    const char* link = elf ? ::dwelf_elf_gnu_debuglink(elf.get(), &crc) : nullptr;
    return open_debug_file({&module, nullptr}, link ? link : "", crc);
}

}  // namespace memtrace
