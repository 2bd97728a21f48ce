#include "processes/loaded_files.hpp"

#include <elf.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string_view>

#include "base/fd.hpp"
#include "base/text.hpp"
#include "processes/child_output.hpp"

namespace memtrace {
namespace {

constexpr int most_interpreters = 5;      // BINPRM_MAX_RECURSION and a shell, fs/exec.c
constexpr size_t first_line_bytes = 256;  // BINPRM_BUF_SIZE since Linux 5.1
constexpr size_t most_interpreter_name = 4096;
constexpr int loader_timeout_ms = 10'000;

bool read_at(int fd, void* buffer, size_t size, uint64_t offset) {
    return ::pread(fd, buffer, size, static_cast<off_t>(offset)) == static_cast<ssize_t>(size);
}

std::vector<std::string> words_of(std::string_view text) {
    std::vector<std::string> words;
    for (;;) {
        const size_t begin = text.find_first_not_of(" \t");
        if (begin == std::string_view::npos) return words;
        text.remove_prefix(begin);
        const size_t size = std::min(text.find_first_of(" \t"), text.size());
        words.emplace_back(text.substr(0, size));
        text.remove_prefix(size);
    }
}

/// What `env WORDS...` of a script's first line starts, if that is plain to see.
std::optional<std::string> command_of_env(const std::vector<std::string>& words, char* const* environment) {
    for (size_t i = 1; i < words.size(); ++i) {
        if (words[i].front() == '-' || words[i].find('=') != std::string::npos) continue;
        CommandPath command = find_command(words[i], environment);
        if (command.status == CommandStatus::found) return std::move(command.path);
        return std::nullopt;
    }
    return std::nullopt;
}

/// The programs that `first_line` (without "#!") names.
std::vector<std::string> interpreters_of(std::string_view first_line, char* const* environment) {
    const auto words = words_of(first_line);
    if (words.empty()) return {};
    std::vector<std::string> interpreters{words[0]};
    if (words[0].substr(words[0].rfind('/') + 1) == "env")
        if (auto command = command_of_env(words, environment)) interpreters.push_back(*std::move(command));
    return interpreters;
}

/// The loader that the ELF file asks for; empty when it asks for none.
Result<std::string> loader_of(const std::string& path, int fd) {
    const std::string what = "program " + printable(path);
    Elf64_Ehdr header;
    if (!read_at(fd, &header, sizeof(header), 0)) return Error{what, "its ELF header is cut off"};
    if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB)
        return Error{what, "not a 64-bit program of this machine", "32-bit programs cannot be traced"};
    for (uint64_t i = 0; i < header.e_phnum; ++i) {
        Elf64_Phdr segment;
        if (!read_at(fd, &segment, sizeof(segment), header.e_phoff + i * sizeof(segment)))
            return Error{what, "its program headers are cut off"};
        if (segment.p_type != PT_INTERP) continue;
        if (segment.p_filesz < 2 || segment.p_filesz > most_interpreter_name)
            return Error{what, "its PT_INTERP is malformed"};
        std::string name(segment.p_filesz, '\0');
        if (!read_at(fd, name.data(), name.size(), segment.p_offset)) return Error{what, "its PT_INTERP is cut off"};
        name.resize(std::strlen(name.c_str()));
        return name;
    }
    return std::string();
}

/// The path in "name => /path (0x..)" or "/path (0x..)"; empty when the line names none.
std::string_view path_of_line(std::string_view line) {
    constexpr std::string_view arrow = " => ";
    if (const size_t at = line.find(arrow); at != std::string_view::npos) line.remove_prefix(at + arrow.size());
    line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
    const size_t address = line.rfind(" (0x");
    if (address == std::string_view::npos || !line.starts_with('/')) return {};
    return line.substr(0, address);
}

class FileList {
  public:
    void add(std::string path) {
        if (!contains(path)) paths_.push_back(std::move(path));
    }
    bool contains(const std::string& path) const {
        return std::find(paths_.begin(), paths_.end(), path) != paths_.end();
    }
    std::vector<std::string> take() && { return std::move(paths_); }

  private:
    std::vector<std::string> paths_;
};

Result<void> add_elf_files(const std::string& path, int fd, char* const* environment, FileList& files) {
    auto loader = loader_of(path, fd);
    if (!loader) return std::move(loader).error();
    if (loader->empty()) return {};
    files.add(*loader);
    // The loader takes a name without a slash for a library's name.
    const std::string program = path.find('/') == std::string::npos ? "./" + path : path;
    const auto listed = output_of({*loader, "--list", program}, environment, loader_timeout_ms);
    if (!listed) return listed.error();
    // glibc ends a --list of a static program with 1 and of one whose library is missing with 127.
    if (listed->exit_status != 0 && listed->exit_status != 1 && listed->exit_status != 127)
        return Error{"libraries of " + printable(path),
                     fmt::format("{} --list ended with status {}", printable(*loader), listed->exit_status)};
    std::string_view text = listed->text;
    while (!text.empty()) {
        const size_t size = std::min(text.find('\n'), text.size());
        if (const auto library = path_of_line(text.substr(0, size)); !library.empty()) files.add(std::string(library));
        text.remove_prefix(std::min(size + 1, text.size()));
    }
    return {};
}

Result<void> add_files(const std::string& path, char* const* environment, int depth, FileList& files) {
    if (depth > most_interpreters)
        return Error{"script " + printable(path), "more than 5 interpreters one behind the other"};
    if (files.contains(path)) return {};
    const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (!fd) return Error{"program " + printable(path), errno_text(errno)};
    files.add(path);

    std::array<char, first_line_bytes> start{};
    const ssize_t got = ::pread(fd.get(), start.data(), start.size(), 0);
    if (got < 0) return Error{"program " + printable(path), errno_text(errno)};
    std::string_view content(start.data(), static_cast<size_t>(got));
    if (content.starts_with(ELFMAG)) return add_elf_files(path, fd.get(), environment, files);
    // execvp hands a file of unknown format to the shell.
    if (!content.starts_with("#!")) return add_files("/bin/sh", environment, depth + 1, files);
    for (const auto& interpreter : interpreters_of(content.substr(2, content.find('\n') - 2), environment))
        if (auto added = add_files(interpreter, environment, depth + 1, files); !added) return added;
    return {};
}

}  // namespace

Result<std::vector<std::string>> files_loaded_by(const std::string& path, char* const* environment) {
    FileList files;
    if (auto added = add_files(path, environment, 0, files); !added) return std::move(added).error();
    return std::move(files).take();
}

}  // namespace memtrace
