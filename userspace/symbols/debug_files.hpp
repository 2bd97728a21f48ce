// Where separate debug files of this host are. Uses base, libdwfl and libelf. In place of libdwfl's own search because
// that one asks debuginfod servers, which may block a report for minutes.
#pragma once

#include <elfutils/libdwfl.h>

namespace memtrace {

/// A Dwfl_Callbacks::find_debuginfo (libdwfl.h): by build-id, then by .gnu_debuglink beside the file, in .debug/ and
/// below /usr/lib/debug; a file by name must have the same build-id, or the right CRC where there is none.
int find_debug_file(Dwfl_Module* module, void** user_data, const char* module_name, Dwarf_Addr base,
                    const char* file_name, const char* debug_link, GElf_Word debug_link_crc, char** debug_file_name);

}  // namespace memtrace
