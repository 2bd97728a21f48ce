#include "cli/pid_arguments.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <optional>
#include <string_view>

namespace memtrace {
namespace {

constexpr pid_t longest_usual_interval_s = 60;

std::optional<pid_t> pid_of(std::string_view text) {
    pid_t pid = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), pid);
    if (error != std::errc() || end != text.data() + text.size() || pid <= 0) return std::nullopt;
    return pid;
}

/// `-p`, also behind other short options that take no value, or `--pid`.
bool is_pid_option(std::string_view text) {
    if (text == "--pid") return true;
    return text.size() >= 2 && text.front() == '-' && text.back() == 'p' &&
           text.substr(1, text.size() - 2).find_first_not_of("aAfqt") == std::string_view::npos;
}

/// Where the process ids of an option begin in its own argument: `-p12`, `--pid=12`; none where they are in the next.
std::optional<std::string_view> attached_value(std::string_view text) {
    for (const std::string_view name : {"--pid=", "-p"})
        if (text.starts_with(name) && text.size() > name.size()) return text.substr(name.size());
    return std::nullopt;
}

Error ambiguous(std::string what, std::string why, pid_t first, pid_t second) {
    return Error{
        std::move(what), std::move(why),
        fmt::format("write -p {0},{1} for both processes, -p \"$(pidof NAME)\" for all, -p {0} {1}s for an interval",
                    first, second),
        ExitStatus::usage};
}

/// How many of `numbers` are process ids.
Result<size_t> count_pids(pid_t first, std::span<const pid_t> numbers, const SameProgram& same_program) {
    size_t count = 0;
    std::optional<pid_t> other;
    for (size_t index = 0; index < numbers.size(); ++index) {
        const pid_t number = numbers[index];
        if (!same_program(first, number)) {
            other = other.value_or(number);
            continue;
        }
        const std::string what = fmt::format("-p {} {}", first, fmt::join(numbers.first(index + 1), " "));
        if (other)
            return ambiguous(what,
                             fmt::format("process {} runs the program of {}, but {} does not", number, first, *other),
                             first, numbers.front());
        if (number <= longest_usual_interval_s)
            return ambiguous(what, fmt::format("{} is a process of the same program, or an interval", number), first,
                             number);
        count = index + 1;
    }
    return count;
}

}  // namespace

Result<std::vector<std::string>> join_pids(std::span<const char* const> arguments, const SameProgram& same_program) {
    std::vector<std::string> joined(arguments.begin(), arguments.end());
    if (!same_program) return joined;
    for (size_t index = 0; index < joined.size(); ++index) {
        std::optional<std::string_view> value = attached_value(joined[index]);
        if (!value && (!is_pid_option(joined[index]) || index + 1 == joined.size())) continue;
        if (!value) value = joined[++index];
        const std::optional<pid_t> first = pid_of(*value);
        if (!first) continue;
        std::vector<pid_t> numbers;
        for (size_t next = index + 1; next < joined.size(); ++next) {
            const std::optional<pid_t> number = pid_of(joined[next]);
            if (!number) break;
            numbers.push_back(*number);
        }
        const Result<size_t> count = count_pids(*first, numbers, same_program);
        if (!count) return count.error();
        const auto begin = joined.begin() + static_cast<std::ptrdiff_t>(index) + 1;
        const auto end = begin + static_cast<std::ptrdiff_t>(*count);
        for (auto text = begin; text != end; ++text)
            joined[index] += "," + *text;
        joined.erase(begin, end);
    }
    return joined;
}

}  // namespace memtrace
