#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>

#include "base/text.hpp"
#include "processes/loaded_files.hpp"

namespace memtrace {
namespace {

std::string_view search_path(char* const* environment) {
    constexpr std::string_view name = "PATH=";
    for (; environment && *environment; ++environment) {
        const std::string_view variable(*environment);
        if (variable.starts_with(name)) return variable.substr(name.size());
    }
    return "/bin:/usr/bin";
}

CommandStatus status_of(const std::string& path) {
    struct stat status {};
    if (::stat(path.c_str(), &status) != 0)
        return errno == EACCES ? CommandStatus::not_executable : CommandStatus::not_found;
    const bool is_executable = S_ISREG(status.st_mode) && ::faccessat(AT_FDCWD, path.c_str(), X_OK, AT_EACCESS) == 0;
    return is_executable ? CommandStatus::found : CommandStatus::not_executable;
}

}  // namespace

CommandPath find_command(const std::string& command, char* const* environment) {
    if (command.empty()) return {};
    if (command.find('/') != std::string::npos) {
        const CommandStatus status = status_of(command);
        return {status == CommandStatus::found ? command : std::string(), status};
    }
    CommandPath result;
    std::string_view directories = search_path(environment);
    for (;;) {
        const size_t size = std::min(directories.find(':'), directories.size());
        std::string path(directories.substr(0, size));
        if (!path.empty()) path += '/';  // empty: the current directory
        path += command;
        const CommandStatus status = status_of(path);
        if (status == CommandStatus::found) return {std::move(path), status};
        if (status == CommandStatus::not_executable) result.status = status;
        if (size == directories.size()) return result;
        directories.remove_prefix(size + 1);
    }
}

Error command_error(const std::string& command, CommandStatus status) {
    if (status == CommandStatus::not_executable)
        return {printable(command), "permission denied", "chmod +x makes a file executable"};
    return {printable(command), "not found", "give its path, or add its directory to PATH"};
}

}  // namespace memtrace
