#include "symbols/debug_files.hpp"

#include <elfutils/libdwelf.h>
#include <fcntl.h>
#include <libelf.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.hpp"

namespace memtrace {
namespace {

std::string build_id_of(int fd) {
    const std::unique_ptr<Elf, decltype(&::elf_end)> elf(::elf_begin(fd, ELF_C_READ, nullptr), &::elf_end);
    const void* bits = nullptr;
    const ssize_t size = elf ? ::dwelf_elf_gnu_build_id(elf.get(), &bits) : 0;
    return size > 0 ? std::string(static_cast<const char*>(bits), static_cast<size_t>(size)) : std::string();
}

/// CRC-32 of ISO 3309 as .gnu_debuglink wants it (GDB manual, "Separate Debug Files").
uint32_t crc32_of_file(int fd) {
    uint32_t crc = ~0U;
    std::vector<uint8_t> chunk(1 << 18);
    off_t offset = 0;
    for (ssize_t got = 0; (got = ::pread(fd, chunk.data(), chunk.size(), offset)) > 0; offset += got)
        for (ssize_t i = 0; i < got; ++i) {
            crc ^= chunk[static_cast<size_t>(i)];
            for (int bit = 0; bit < 8; ++bit)
                crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0xedb88320U : 0U);
        }
    return ~crc;
}

std::vector<std::string> places_of(const std::string& file_name, const std::string& link) {
    if (link.starts_with('/')) return {link};
    const std::string directory = file_name.substr(0, file_name.rfind('/') + 1);
    return {directory + link, directory + ".debug/" + link, "/usr/lib/debug" + directory + link};
}

Fd open_regular(const std::string& path) {
    Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    struct stat status {};
    if (!fd || ::fstat(fd.get(), &status) != 0 || !S_ISREG(status.st_mode)) return Fd();
    return fd;
}

}  // namespace

int find_debug_file(Dwfl_Module* module, void** user_data, const char* module_name, Dwarf_Addr base,
                    const char* file_name, const char* debug_link, GElf_Word debug_link_crc, char** debug_file_name) {
    // libdwfl asks for the file of .gnu_debugaltlink (dwz) by a name without a CRC; the build-id is not that file's.
    const bool is_alternative = debug_link && debug_link_crc == 0;
    const unsigned char* bits = nullptr;
    GElf_Addr unused_address = 0;
    const int size = ::dwfl_module_build_id(module, &bits, &unused_address);
    std::string build_id;
    if (size > 0 && !is_alternative) {
        build_id.assign(reinterpret_cast<const char*>(bits), static_cast<size_t>(size));
        const int fd = ::dwfl_build_id_find_debuginfo(module, user_data, module_name, base, file_name, debug_link,
                                                      debug_link_crc, debug_file_name);
        if (fd >= 0) return fd;
    }
    if (!debug_link || !file_name) return -1;
    for (const std::string& path : places_of(file_name, debug_link)) {
        Fd fd = open_regular(path);
        if (!fd || path == file_name) continue;
        const bool is_right = is_alternative     ? true
                              : build_id.empty() ? crc32_of_file(fd.get()) == debug_link_crc
                                                 : build_id_of(fd.get()) == build_id;
        if (!is_right) continue;
        *debug_file_name = ::strdup(path.c_str());
        return fd.release();
    }
    return -1;
}

}  // namespace memtrace
