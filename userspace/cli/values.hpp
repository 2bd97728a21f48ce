// Text of one command line argument -> a checked value. Uses base/ only. Every error is of status usage, names the text
// and says what to write; the caller puts the option's name before it. All functions are pure.
#pragma once

#include <fmt/format.h>
#include <sys/types.h>

#include <array>
#include <charconv>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.hpp"

namespace memtrace {

/// Process ids between commas and blanks, in their order, each once; at least one.
Result<std::vector<pid_t>> parse_pids(std::string_view text);

/// A decimal whole number from `low` to `high`, both included.
Result<uint64_t> parse_number(std::string_view text, uint64_t low, uint64_t high);

/// Nanoseconds of a time above 0; a bare number counts seconds.
Result<uint64_t> parse_interval(std::string_view text);

/// Bytes of a ring buffer: a power of two from 4K (one page) to 1G, which the kernel demands of BPF_MAP_TYPE_RINGBUF.
Result<uint64_t> parse_ring_size(std::string_view text);

/// The name of a file.
Result<std::string> parse_path(const std::string& text);

/// Bytes of the mean distance between two sampled bytes: 1 to 1G.
Result<uint64_t> parse_sampling_mean(std::string_view text);

/// A share above 0 and up to 100 %: `5%`, `0.5%`, `5`; 1 is all of it.
Result<double> parse_share(std::string_view text);

/// Splits `text` as a POSIX shell splits words (Shell Command Language, 2.2 and 2.6.5): blanks separate; apostrophe,
/// quotation mark and backslash quote; nothing is expanded, so $, *, ~, | and > are plain characters. At least one
/// word.
Result<std::vector<std::string>> split_command(std::string_view text);

/// One of the names of `choices`; the error lists them.
template <typename Value, size_t Count>
Result<Value> parse_choice(std::string_view text,
                           const std::array<std::pair<std::string_view, Value>, Count>& choices) {
    std::string names;
    for (const auto& [name, value] : choices) {
        if (name == text) return value;
        names += names.empty() ? "" : ", ";
        names += name;
    }
    return Error{fmt::format("'{}'", text), "unknown", fmt::format("write one of {}", names), ExitStatus::usage};
}

/// Adds `text`, a `what`, to `targets`; one that is given again is the same target. Error: usage, when it is empty.
Result<void> add_target(std::vector<std::string>& targets, const std::string& text, std::string_view what);

}  // namespace memtrace
