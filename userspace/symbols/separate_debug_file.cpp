#include "symbols/separate_debug_file.hpp"

#include <elfutils/libdwfl.h>
#include <fcntl.h>

#include <memory>

#include "symbols/debug_files.hpp"

namespace memtrace {

Fd open_separate_debug_file(int fd, const std::string& path) {
    char* no_path = nullptr;
    const Dwfl_Callbacks callbacks = {.find_elf = dwfl_build_id_find_elf,
                                      .find_debuginfo = find_debug_file,
                                      .section_address = dwfl_offline_section_address,
                                      .debuginfo_path = &no_path};
    const std::unique_ptr<Dwfl, decltype(&::dwfl_end)> dwfl(::dwfl_begin(&callbacks), &::dwfl_end);
    Fd own_fd(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
    if (!dwfl || !own_fd) return Fd();
    Dwfl_Module* module = ::dwfl_report_offline(dwfl.get(), path.c_str(), path.c_str(), own_fd.get());
    if (module == nullptr) return Fd();
    // libdwfl has taken the descriptor.
    (void)own_fd.release();
    ::dwfl_report_end(dwfl.get(), nullptr, nullptr);
    Dwarf_Addr bias = 0;
    // Makes libdwfl look for it.
    (void)::dwfl_module_getdwarf(module, &bias);
    const char* debug_path = nullptr;
    ::dwfl_module_info(module, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, &debug_path);
    return debug_path != nullptr ? Fd(::open(debug_path, O_RDONLY | O_CLOEXEC)) : Fd();
}

}  // namespace memtrace
