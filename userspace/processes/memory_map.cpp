#include "processes/memory_map.hpp"

#include <fmt/format.h>

#include <charconv>
#include <filesystem>
#include <optional>
#include <string>

#include "base/text.hpp"
#include "processes/proc_file.hpp"
#include "processes/process.hpp"

namespace memtrace {
namespace {

/// The number behind `name` and blanks in kB, as bytes; none for another line.
std::optional<uint64_t> field_bytes(std::string_view line, std::string_view name) {
    if (!line.starts_with(name)) return std::nullopt;
    line.remove_prefix(name.size());
    line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
    uint64_t kibibytes = 0;
    if (std::from_chars(line.data(), line.data() + line.size(), kibibytes).ec != std::errc()) return std::nullopt;
    return kibibytes * 1024;
}

/// Fields start with a capital letter, mappings with a hexadecimal digit.
bool is_field(std::string_view line) {
    return !line.empty() && line.front() >= 'A' && line.front() <= 'Z';
}

/// "NUMBER ARGUMENTS STACK_POINTER PC" of a thread that waits in the kernel; "running" else.
std::optional<uint64_t> stack_pointer_of(std::string_view text) {
    while (!text.empty() && text.back() == '\n')
        text.remove_suffix(1);
    const size_t pc = text.rfind(" 0x");
    if (pc == std::string_view::npos) return std::nullopt;
    const size_t sp = text.rfind(" 0x", pc - 1);
    if (pc == 0 || sp == std::string_view::npos) return std::nullopt;
    const std::string_view digits = text.substr(sp + 3, pc - sp - 3);
    uint64_t value = 0;
    if (std::from_chars(digits.data(), digits.data() + digits.size(), value, 16).ec != std::errc()) return std::nullopt;
    return value;
}

}  // namespace

Result<std::vector<ResidentMapping>> parse_resident_mappings(std::string_view text) {
    std::vector<ResidentMapping> mappings;
    while (!text.empty()) {
        const size_t size = std::min(text.find('\n'), text.size());
        const std::string_view line = text.substr(0, size);
        text.remove_prefix(std::min(size + 1, text.size()));
        if (!is_field(line)) {
            auto parsed = parse_mappings(line);
            if (!parsed) return std::move(parsed).error();
            if (parsed->empty()) return Error{"list of resident mappings", "an empty line"};
            mappings.push_back({.mapping = std::move(parsed->front())});
            continue;
        }
        if (mappings.empty()) return Error{"list of resident mappings", "no mapping before: " + printable(line)};
        if (const auto rss = field_bytes(line, "Rss:")) mappings.back().rss_bytes = *rss;
        if (const auto pss = field_bytes(line, "Pss:")) mappings.back().pss_bytes = *pss;
    }
    return mappings;
}

Result<std::vector<ResidentMapping>> read_resident_mappings(pid_t pid) {
    auto text = read_whole_file(proc_path(thread_with_memory(pid), "smaps"));
    if (const int* error_number = std::get_if<int>(&text))
        return process_error(fmt::format("resident memory of process {}", pid), *error_number);
    return parse_resident_mappings(std::get<std::string>(text));
}

std::vector<uint64_t> read_stack_pointers(pid_t pid) {
    std::vector<uint64_t> pointers;
    std::error_code no_error;
    for (const auto& entry : std::filesystem::directory_iterator(proc_path(pid, "task"), no_error)) {
        const auto text = read_whole_file(entry.path() / "syscall");
        const auto* line = std::get_if<std::string>(&text);
        if (const auto pointer = line ? stack_pointer_of(*line) : std::nullopt) pointers.push_back(*pointer);
    }
    return pointers;
}

}  // namespace memtrace
