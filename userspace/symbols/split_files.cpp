#include "symbols/split_files.hpp"

#include <dwarf.h>
#include <sys/stat.h>

#include <string>

namespace memtrace {
namespace {

std::string text_of(Dwarf_Die& die, unsigned name) {
    Dwarf_Attribute attribute;
    const char* text = ::dwarf_attr(&die, name, &attribute) ? ::dwarf_formstring(&attribute) : nullptr;
    return text ? text : "";
}

/// libdw opens whatever is there, and opening a FIFO would block.
bool is_harmless(const std::string& path) {
    struct stat status {};
    return ::stat(path.c_str(), &status) != 0 || S_ISREG(status.st_mode);
}

bool has_harmless_name(Dwarf_Die& skeleton) {
    std::string name = text_of(skeleton, DW_AT_dwo_name);
    if (name.empty()) name = text_of(skeleton, DW_AT_GNU_dwo_name);
    if (name.empty()) return false;
    if (name.front() == '/') return is_harmless(name);
    return is_harmless(name) && is_harmless(text_of(skeleton, DW_AT_comp_dir) + '/' + name);
}

}  // namespace

std::optional<Dwarf_Die> split_unit_of(Dwarf_Die& skeleton) {
    uint8_t type = 0;
    if (::dwarf_cu_info(skeleton.cu, nullptr, &type, nullptr, nullptr, nullptr, nullptr, nullptr) != 0) return {};
    if (type != DW_UT_skeleton || !has_harmless_name(skeleton)) return {};
    Dwarf_Die split{};
    if (::dwarf_cu_info(skeleton.cu, nullptr, nullptr, nullptr, &split, nullptr, nullptr, nullptr) != 0) return {};
    return split.addr ? std::optional(split) : std::nullopt;
}

}  // namespace memtrace
