#include "formats/list.hpp"

#include <array>

namespace memtrace {

// One line a format: its make function's name, its name and its description. Expanded twice below, so that the line
// both declares and lists it.
#define MEMTRACE_FORMATS(FORMAT)                                      \
    FORMAT(make_text_writer, "text", "a report for people (default)") \
    FORMAT(make_json_writer, "json", "one JSON object a line")

#define MEMTRACE_DECLARE(make, name, description) std::unique_ptr<Writer> make(const WriterOptions& options);
MEMTRACE_FORMATS(MEMTRACE_DECLARE)
#undef MEMTRACE_DECLARE

std::span<const Format> formats() {
#define MEMTRACE_LIST(make, name, description) Format{name, description, make},
    static constexpr std::array all = {MEMTRACE_FORMATS(MEMTRACE_LIST)};
#undef MEMTRACE_LIST
    return all;
}

const Format* find_format(std::string_view name) {
    for (const Format& format : formats())
        if (format.name == name) return &format;
    return nullptr;
}

}  // namespace memtrace
