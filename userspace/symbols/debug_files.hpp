// Where separate debug files are: on this host, in the file system of the process (containers), on debuginfod servers.
// In place of libdwfl's own search because that one looks on this host only, and asks servers for as long as they like.
// Uses base, libdwfl and libelf.
#pragma once

#include <elfutils/libdwfl.h>

#include <cstdint>
#include <string>

#include "base/fd.hpp"

namespace memtrace {

class Debuginfod;
class Module;

/// What find_debug_file needs to know; a Dwfl_Module's user data points to one.
struct DebugFileSearch {
    const Module* module = nullptr;
    Debuginfod* servers = nullptr;  // null: none are asked
};

/// The debug file of `search`'s module; none if there is none. `link` and its `crc` are those of .gnu_debuglink, empty
/// and 0 where the module has no such section.
Fd open_debug_file(const DebugFileSearch& search, const std::string& link, uint32_t crc);

/// A Dwfl_Callbacks::find_debuginfo (libdwfl.h): by build-id below /usr/lib/debug, then by .gnu_debuglink beside the
/// file, in .debug/ and below /usr/lib/debug, then from a server. A file by name must have the same build-id, or the
/// right CRC where there is none. Finds the common file of dwz (.gnu_debugaltlink) in the same ways.
int find_debug_file(Dwfl_Module* module, void** user_data, const char* module_name, Dwarf_Addr base,
                    const char* file_name, const char* debug_link, GElf_Word debug_link_crc, char** debug_file_name);

}  // namespace memtrace
