// Bytes that are not ours (process names, paths, symbols) made safe to show. Uses nothing of the project.
#pragma once

#include <string>
#include <string_view>

namespace memtrace {

/// `bytes` as UTF-8 on one line: control characters and bytes that are not UTF-8 become `\xNN`.
std::string printable(std::string_view bytes);

}  // namespace memtrace
