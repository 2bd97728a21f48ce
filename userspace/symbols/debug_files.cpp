#include "symbols/debug_files.hpp"

#include <elfutils/libdwelf.h>
#include <libelf.h>
#include <unistd.h>
#include <zlib.h>

#include <climits>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.hpp"
#include "symbols/debuginfod.hpp"
#include "symbols/file_root.hpp"
#include "symbols/module.hpp"

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
    uLong crc = ::crc32(0, nullptr, 0);
    std::vector<uint8_t> chunk(1 << 18);
    off_t offset = 0;
    for (ssize_t got = 0; (got = ::pread(fd, chunk.data(), chunk.size(), offset)) > 0; offset += got)
        crc = ::crc32(crc, chunk.data(), static_cast<uInt>(got));
    return static_cast<uint32_t>(crc);
}

/// What a debug file is known by.
struct Wanted {
    std::string build_id;  // raw bytes; empty if unknown
    uint32_t crc = 0;      // counts where there is no build-id

    bool is(const Fd& file) const {
        if (!file) return false;
        return build_id.empty() ? crc32_of_file(file.get()) == crc : build_id_of(file.get()) == build_id;
    }
};

std::string path_by_build_id(const std::string& build_id) {
    constexpr std::string_view digits = "0123456789abcdef";
    std::string path = "/usr/lib/debug/.build-id/";
    for (size_t i = 0; i < build_id.size(); ++i) {
        const auto byte = static_cast<uint8_t>(build_id[i]);
        path += digits[byte >> 4];
        path += digits[byte & 15];
        if (i == 0) path += '/';
    }
    return path + ".debug";
}

/// Where a file that `file_name` calls `link` may be.
std::vector<std::string> places_of(const std::string& file_name, const std::string& link) {
    if (link.starts_with('/')) return {link};
    const std::string directory = file_name.substr(0, file_name.rfind('/') + 1);
    return {directory + link, directory + ".debug/" + link, "/usr/lib/debug" + directory + link};
}

/// The path of an open file without symbolic links, from which links to further files are counted.
std::string real_path_of(const Fd& file, const std::string& path) {
    std::string target(PATH_MAX, '\0');
    const std::string link = "/proc/self/fd/" + std::to_string(file.get());
    const ssize_t size = ::readlink(link.c_str(), target.data(), target.size());
    if (size <= 0 || target.front() != '/') return path;
    target.resize(static_cast<size_t>(size));
    return target;
}

struct FoundFile {
    Fd fd;
    std::string path;
};

FoundFile open_wanted(const FileRoot& root, const std::string& path, const Wanted& wanted) {
    Fd file = root.open_regular(path);
    if (!wanted.is(file)) return {};
    std::string real_path = &root == &FileRoot::own() ? real_path_of(file, path) : path;
    return {std::move(file), std::move(real_path)};
}

/// `file_name` and `link` as in places_of; `link` may be empty.
FoundFile find_wanted(const DebugFileSearch& search, const Wanted& wanted, const std::string& file_name,
                      const std::string& link) {
    const FileRoot& root_of_process = search.module->root();
    std::vector<const FileRoot*> roots = {&root_of_process};
    if (&root_of_process != &FileRoot::own()) roots.push_back(&FileRoot::own());
    std::vector<std::string> paths;
    if (wanted.build_id.size() > 1) paths.push_back(path_by_build_id(wanted.build_id));
    if (!link.empty())
        for (std::string& place : places_of(file_name, link))
            if (place != file_name) paths.push_back(std::move(place));
    for (const FileRoot* root : roots)
        for (const std::string& path : paths)
            if (FoundFile found = open_wanted(*root, path, wanted); found.fd) return found;
    if (!search.servers) return {};
    Fd file = search.servers->find(wanted.build_id);
    return wanted.is(file) ? FoundFile{std::move(file), file_name} : FoundFile{};
}

/// The build-id of the common file, which dwz wrote into the file that needs it.
std::string build_id_of_common_file(Dwfl_Module* module) {
    Dwarf_Addr unused_bias = 0;
    Dwarf* dwarf = ::dwfl_module_getdwarf(module, &unused_bias);
    const char* unused_name = nullptr;
    const void* bits = nullptr;
    const ssize_t size = dwarf ? ::dwelf_dwarf_gnu_debugaltlink(dwarf, &unused_name, &bits) : 0;
    return size > 0 ? std::string(static_cast<const char*>(bits), static_cast<size_t>(size)) : std::string();
}

}  // namespace

Fd open_debug_file(const DebugFileSearch& search, const std::string& link, uint32_t crc) {
    const Wanted wanted{search.module->build_id(), crc};
    if (wanted.build_id.empty() && link.empty()) return Fd();
    return find_wanted(search, wanted, search.module->path(), link).fd;
}

int find_debug_file(Dwfl_Module* module, void** user_data, const char*, Dwarf_Addr, const char* file_name,
                    const char* debug_link, GElf_Word debug_link_crc, char** debug_file_name) {
    const auto& search = *static_cast<const DebugFileSearch*>(*user_data);
    // libdwfl asks for the file of .gnu_debugaltlink by a name without a CRC.
    const bool is_common_file = debug_link && debug_link_crc == 0;
    Wanted wanted{is_common_file ? build_id_of_common_file(module) : search.module->build_id(), debug_link_crc};
    if (wanted.build_id.empty() && (!debug_link || is_common_file)) return -1;
    FoundFile found = find_wanted(search, wanted, file_name ? file_name : "", debug_link ? debug_link : "");
    if (found.fd) *debug_file_name = ::strdup(found.path.c_str());
    return found.fd.release();
}

}  // namespace memtrace
