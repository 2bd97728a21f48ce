#include "processes/mappings.hpp"

#include <fmt/format.h>
#include <sys/sysmacros.h>

#include <charconv>
#include <optional>

#include "base/text.hpp"
#include "processes/proc_file.hpp"
#include "processes/process.hpp"

namespace memtrace {
namespace {

/// Takes text apart from the left; every taker fails once one has failed.
class LineReader {
  public:
    explicit LineReader(std::string_view line) : rest_(line) {}
    bool is_good() const { return is_good_; }
    std::string_view rest() const { return rest_; }

    uint64_t number(int base) {
        uint64_t value = 0;
        const auto parsed = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value, base);
        if (parsed.ec != std::errc())
            is_good_ = false;
        else
            rest_.remove_prefix(static_cast<size_t>(parsed.ptr - rest_.data()));
        return value;
    }
    void character(char expected) {
        if (rest_.empty() || rest_.front() != expected)
            is_good_ = false;
        else
            rest_.remove_prefix(1);
    }
    bool flag(char set, char clear) {
        if (rest_.empty() || (rest_.front() != set && rest_.front() != clear)) {
            is_good_ = false;
            return false;
        }
        const bool is_set = rest_.front() == set;
        rest_.remove_prefix(1);
        return is_set;
    }
    void spaces() { rest_.remove_prefix(std::min(rest_.find_first_not_of(' '), rest_.size())); }

  private:
    std::string_view rest_;
    bool is_good_ = true;
};

std::string unescaped(std::string_view path) {
    constexpr std::string_view newline = "\\012";
    std::string text(path);
    for (size_t at = text.find(newline); at != std::string::npos; at = text.find(newline, at + 1))
        text.replace(at, newline.size(), "\n");
    return text;
}

std::optional<Mapping> parse_line(std::string_view line) {
    LineReader reader(line);
    Mapping mapping;
    mapping.start = reader.number(16);
    reader.character('-');
    mapping.end = reader.number(16);
    reader.character(' ');
    mapping.is_readable = reader.flag('r', '-');
    mapping.is_writable = reader.flag('w', '-');
    mapping.is_executable = reader.flag('x', '-');
    mapping.is_shared = reader.flag('s', 'p');
    reader.character(' ');
    mapping.file_offset = reader.number(16);
    reader.character(' ');
    const auto major = static_cast<unsigned>(reader.number(16));
    reader.character(':');
    const auto minor = static_cast<unsigned>(reader.number(16));
    reader.character(' ');
    mapping.inode = reader.number(10);
    if (!reader.is_good() || mapping.start >= mapping.end) return std::nullopt;
    if (!reader.rest().empty()) reader.character(' ');
    if (!reader.is_good()) return std::nullopt;
    reader.spaces();
    mapping.device = makedev(major, minor);
    set_mapping_name(mapping, unescaped(reader.rest()));
    return mapping;
}

}  // namespace

void set_mapping_name(Mapping& mapping, std::string_view kernel_name) {
    constexpr std::string_view suffix = " (deleted)";
    mapping.is_deleted = false;
    if (kernel_name.starts_with("//")) kernel_name = {};
    if (kernel_name.starts_with('/') && kernel_name.ends_with(suffix)) {
        kernel_name.remove_suffix(suffix.size());
        mapping.is_deleted = true;
    }
    mapping.path = kernel_name;
}

Result<std::vector<Mapping>> parse_mappings(std::string_view text) {
    std::vector<Mapping> mappings;
    while (!text.empty()) {
        const size_t size = std::min(text.find('\n'), text.size());
        const std::string_view line = text.substr(0, size);
        auto mapping = parse_line(line);
        if (!mapping)
            return Error{"list of mappings",
                         fmt::format("line {} is no mapping: {}", mappings.size() + 1, printable(line))};
        mappings.push_back(*std::move(mapping));
        text.remove_prefix(std::min(size + 1, text.size()));
    }
    return mappings;
}

Result<std::vector<Mapping>> read_mappings(pid_t pid) {
    auto text = read_whole_file(proc_path(pid, "maps"));
    if (const int* error_number = std::get_if<int>(&text))
        return process_error(fmt::format("mappings of process {}", pid), *error_number);
    if (std::get<std::string>(text).empty())
        if (const pid_t thread = thread_with_memory(pid); thread != pid) return read_mappings(thread);
    return parse_mappings(std::get<std::string>(text));
}

}  // namespace memtrace
