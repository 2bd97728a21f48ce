#include "tracing/unwind_table_loader.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/fd.hpp"
#include "base/log.hpp"
#include "processes/mappings.hpp"

namespace memtrace {

mt_file file_in_kernel(const FileIdentity& identity) {
    // The kernel's own dev_t (include/linux/kdev_t.h), which is not what makedev(3) gives.
    return {uint64_t{major(identity.device)} << 20 | minor(identity.device), identity.inode};
}

Result<void> UnwindTableLoader::load_table(LoadedFile& loaded, const mt_file& file, int fd) {
    loaded.tables.push_back(file);
    const bool has_every_address = (file.device & MT_UNWIND_EVERY_ADDRESS) != 0;
    auto table = build_unwind_table(fd, -1, has_every_address ? UnwindRows::all : UnwindRows::call_sites);
    if (!table) return session_.add_file_without_cfi(file);
    auto image = ElfImage::open(fd);
    if (!image) return session_.add_file_without_cfi(file);
    if (auto added = session_.add_unwind_table(file, *table, image->code_segments()); added) return {};
    drop_unmapped();
    return session_.add_unwind_table(file, *table, image->code_segments());
}

void UnwindTableLoader::load(pid_t pid, const FileIdentity& identity, int fd, const std::string& name) {
    LoadedFile& loaded = files_[identity];
    loaded.pids.insert(pid);
    const mt_file file = file_in_kernel(identity);
    if (!loaded.tables.empty()) return;
    if (auto result = load_table(loaded, file, fd); !result)
        log_warning(fmt::format("{}: {}: {}", name, result.error().what, result.error().why));
}

void UnwindTableLoader::inherit(pid_t parent, pid_t child) {
    for (auto& [identity, loaded] : files_)
        if (loaded.pids.contains(parent)) loaded.pids.insert(child);
}

bool UnwindTableLoader::is_loaded(pid_t pid, const FileIdentity& identity) const {
    const auto found = files_.find(identity);
    return found != files_.end() && found->second.pids.contains(pid);
}

void UnwindTableLoader::answer(pid_t pid, const mt_file& file, const Mapping& mapping, int fd) {
    LoadedFile& loaded = files_[identity_of(mapping)];
    loaded.pids.insert(pid);
    const auto result = fd >= 0 ? load_table(loaded, file, fd) : session_.add_file_without_cfi(file);
    if (!result) log_warning(fmt::format("{}: {}: {}", mapping.path, result.error().what, result.error().why));
}

void UnwindTableLoader::forget_process(pid_t pid) {
    for (auto& [identity, loaded] : files_)
        loaded.pids.erase(pid);
}

std::vector<FileIdentity> UnwindTableLoader::drop_unused() {
    std::vector<FileIdentity> dropped;
    for (auto file = files_.begin(); file != files_.end();) {
        if (!file->second.pids.empty()) {
            ++file;
            continue;
        }
        for (const mt_file& table : file->second.tables)
            session_.remove_unwind_table(table);
        dropped.push_back(file->first);
        file = files_.erase(file);
    }
    return dropped;
}

/// What a process has unmapped, as by dlclose, is known only by looking.
void UnwindTableLoader::drop_unmapped() {
    std::map<pid_t, std::set<FileIdentity>> mapped;
    for (auto& file : files_) {
        const FileIdentity& identity = file.first;
        LoadedFile& loaded = file.second;
        std::erase_if(loaded.pids, [&](pid_t pid) {
            auto found = mapped.find(pid);
            if (found == mapped.end()) {
                found = mapped.emplace(pid, std::set<FileIdentity>()).first;
                if (const auto mappings = read_mappings(pid))
                    for (const Mapping& mapping : *mappings)
                        found->second.insert(identity_of(mapping));
            }
            return !found->second.contains(identity);
        });
        if (!loaded.pids.empty()) continue;
        for (const mt_file& table : loaded.tables)
            session_.remove_unwind_table(table);
        loaded.tables.clear();
    }
}

Result<void> UnwindTableLoader::load_vdso() {
    const auto mappings = read_mappings(getpid());
    if (!mappings) return mappings.error();
    const auto is_vdso = [](const Mapping& mapping) { return mapping.path == "[vdso]"; };
    const auto vdso = std::find_if(mappings->begin(), mappings->end(), is_vdso);
    if (vdso == mappings->end()) return {};
    std::vector<uint8_t> image(vdso->end - vdso->start);
    const Fd memory(::open("/proc/self/mem", O_RDONLY | O_CLOEXEC));
    if (::pread(memory.get(), image.data(), image.size(), static_cast<off_t>(vdso->start)) !=
        static_cast<ssize_t>(image.size()))
        return Error{"cannot read the vDSO", errno_text(errno)};
    const auto table = build_unwind_table(image, UnwindRows::all);
    if (!table) return table.error();
    const auto elf = ElfImage::open(image);
    if (!elf) return elf.error();
    return session_.add_unwind_table({MT_UNWIND_VDSO, 1}, *table, elf->code_segments());
}

}  // namespace memtrace
