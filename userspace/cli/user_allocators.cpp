#include "cli/user_allocators.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <string>

#include "base/fd.hpp"
#include "symbols/demangle.hpp"

namespace memtrace {
namespace {

Error usage_error(std::string what, std::string why, std::string hint) {
    return Error{std::move(what), std::move(why), std::move(hint), ExitStatus::usage};
}

Error read_error(const std::string& path) {
    return usage_error("--allocators " + path, errno_text(errno), "write `memtrace list > FILE` for one to start from");
}

/// The file's text; no more of it than is needed to see that it is too long.
Result<std::string> read_text(const std::string& path) {
    const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!file) return read_error(path);
    std::string text(max_user_functions_text_bytes + 1, '\0');
    size_t size_bytes = 0;
    while (size_bytes < text.size()) {
        const ssize_t got = ::read(file.get(), text.data() + size_bytes, text.size() - size_bytes);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return read_error(path);
        if (got == 0) break;
        size_bytes += static_cast<size_t>(got);
    }
    text.resize(size_bytes);
    return text;
}

bool is_path(const std::string& file) {
    return file.find('/') != std::string::npos;
}

/// A relative path that leads nowhere can be no target's file; an absolute one may be in another mount namespace.
Result<void> follow_path(UserFunction& function) {
    if (!is_path(function.file)) return {};
    const std::unique_ptr<char, decltype(&std::free)> real(::realpath(function.file.c_str(), nullptr), &std::free);
    if (real) {
        function.file = real.get();
    } else if (!function.file.starts_with('/')) {
        return usage_error(fmt::format("'{}'", function.file), errno_text(errno),
                           "write a whole path, or the file's name alone");
    }
    return {};
}

int precision(const UserFunction& function) {
    if (function.file.empty()) return 0;
    return is_path(function.file) ? 2 : 1;
}

}  // namespace

Result<std::vector<UserFunction>> user_functions_of(const Options& options) {
    std::vector<UserFunction> functions = options.user_functions;
    if (!options.allocators_path.empty()) {
        const Result<std::string> text = read_text(options.allocators_path);
        if (!text) return text.error();
        Result<std::vector<UserFunction>> rows = parse_user_functions(*text, options.allocators_path);
        if (!rows) return rows;
        functions.insert(functions.end(), rows->begin(), rows->end());
    }
    if (functions.size() > max_user_functions())
        return usage_error(fmt::format("{} functions", functions.size()),
                           fmt::format("there is room for {}", max_user_functions()),
                           "leave out what the targets do not call");
    for (UserFunction& function : functions) {
        if (const Result<void> outcome = follow_path(function); !outcome) return outcome.error();
        if (function.name == function.symbol) function.name = demangle(function.symbol);
    }
    if (const UserFunction* repeated = find_repeated(functions); repeated != nullptr)
        return usage_error(fmt::format("'{}'", repeated->symbol), "named twice for the same file",
                           "leave out one of the two");
    std::stable_sort(functions.begin(), functions.end(), [](const UserFunction& left, const UserFunction& right) {
        return precision(left) < precision(right);
    });
    return functions;
}

}  // namespace memtrace
