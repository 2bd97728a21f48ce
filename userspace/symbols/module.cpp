#include "symbols/module.hpp"

#include <elfutils/libdwelf.h>
#include <gelf.h>
#include <libelf.h>
#include <sys/stat.h>

#include "base/text.hpp"
#include "symbols/sha256.hpp"

namespace memtrace {
namespace {

std::string name_of(const std::string& path) {
    if (path.empty()) return "[anon]";
    if (path.front() != '/') return printable(path);
    return printable(path.substr(path.rfind('/') + 1));
}

}  // namespace

Module::Module(std::string path, Fd fd, std::shared_ptr<const FileRoot> root)
    : path_(std::move(path)), name_(name_of(path_)), fd_(std::move(fd)), root_(std::move(root)) {
    if (fd_) read_elf();
}

void Module::read_elf() {
    ::elf_version(EV_CURRENT);
    // Not mapped: the file may shrink under us.
    const std::unique_ptr<Elf, decltype(&::elf_end)> elf(::elf_begin(fd_.get(), ELF_C_READ, nullptr), &::elf_end);
    if (!elf || ::elf_kind(elf.get()) != ELF_K_ELF) return;
    size_t count = 0;
    if (::elf_getphdrnum(elf.get(), &count) != 0) return;
    for (size_t i = 0; i < count; ++i) {
        GElf_Phdr header;
        if (!::gelf_getphdr(elf.get(), static_cast<int>(i), &header)) return;
        if (header.p_type == PT_LOAD) segments_.push_back({header.p_offset, header.p_filesz, header.p_vaddr});
    }
    const void* bits = nullptr;
    const ssize_t size = ::dwelf_elf_gnu_build_id(elf.get(), &bits);
    if (size > 0) build_id_.assign(static_cast<const char*>(bits), static_cast<size_t>(size));
}

bool Module::is_jit() const {
    if (fd_) return !is_elf();
    return path_.empty() || (path_.front() == '[' && path_ != "[vdso]" && path_ != "[vsyscall]");
}

const std::optional<std::string>& Module::identity() const {
    if (identity_) return *identity_;
    std::optional<std::string> identity;
    if (!build_id_.empty()) {
        identity = build_id_;
    } else if (is_elf()) {
        if (const auto digest = sha256_of_file(fd_.get())) identity.emplace(digest->begin(), digest->end());
    }
    return identity_.emplace(std::move(identity));
}

std::optional<uint64_t> Module::virtual_address(uint64_t file_offset) const {
    for (const Segment& segment : segments_)
        if (file_offset >= segment.file_offset && file_offset - segment.file_offset < segment.file_size_bytes)
            return segment.virtual_address + (file_offset - segment.file_offset);
    return std::nullopt;
}

std::optional<uint64_t> Module::file_offset(uint64_t virtual_address) const {
    for (const Segment& segment : segments_)
        if (virtual_address >= segment.virtual_address &&
            virtual_address - segment.virtual_address < segment.file_size_bytes)
            return segment.file_offset + (virtual_address - segment.virtual_address);
    return std::nullopt;
}

const Module* ModuleCache::module_of(pid_t pid, const Mapping& mapping) {
    if (!mapping.has_file()) return named(mapping.path);
    const MappingKey key{mapping.device, mapping.inode, mapping.path};
    if (const auto known = by_mapping_.find(key); known != by_mapping_.end()) return known->second;
    auto file = open_mapped_file(pid, mapping);
    if (!file) {
        ++open_failures_;
        return named(mapping.path);
    }
    const Module* module = opened(pid, mapping.path, std::move(file).value());
    by_mapping_.emplace(key, module);
    return module;
}

const Module* ModuleCache::named(const std::string& path) {
    const Module*& module = by_name_[path];
    if (!module) module = modules_.emplace_back(std::make_unique<Module>(path, Fd())).get();
    return module;
}

const Module* ModuleCache::opened(pid_t pid, const std::string& path, Fd fd) {
    struct stat status {};
    if (::fstat(fd.get(), &status) != 0) return named(path);
    const Module*& module = by_file_[FileKey{status.st_dev, status.st_ino}];
    if (!module)
        module = modules_.emplace_back(std::make_unique<Module>(path, std::move(fd), roots_.root_of(pid))).get();
    return module;
}

}  // namespace memtrace
