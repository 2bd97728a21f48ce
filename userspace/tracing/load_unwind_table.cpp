#include "tracing/load_unwind_table.hpp"

#include <unistd.h>

#include <algorithm>

#include "processes/mappings.hpp"

namespace memtrace {

Result<void> load_file_table(Session& session, const mt_file& file, int fd) {
    const bool has_every_address = (file.device & MT_UNWIND_EVERY_ADDRESS) != 0;
    auto table = build_unwind_table(fd, -1, has_every_address ? UnwindRows::all : UnwindRows::call_sites);
    if (!table) return session.add_file_without_cfi(file);
    auto image = ElfImage::open(fd);
    if (!image) return session.add_file_without_cfi(file);
    return session.add_unwind_table(file, *table, image->code_segments());
}

Result<void> load_vdso_table(Session& session) {
    const auto mappings = read_mappings(getpid());
    if (!mappings) return mappings.error();
    const auto is_vdso = [](const Mapping& mapping) { return mapping.path == "[vdso]"; };
    const auto vdso = std::find_if(mappings->begin(), mappings->end(), is_vdso);
    if (vdso == mappings->end()) return {};
    const std::span image(reinterpret_cast<const uint8_t*>(vdso->start), vdso->end - vdso->start);
    const auto table = build_unwind_table(image, UnwindRows::all);
    if (!table) return table.error();
    const auto elf = ElfImage::open(image);
    if (!elf) return elf.error();
    return session.add_unwind_table({MT_UNWIND_VDSO, 1}, *table, elf->code_segments());
}

}  // namespace memtrace
