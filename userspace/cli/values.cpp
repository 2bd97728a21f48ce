#include "cli/values.hpp"

#include <algorithm>
#include <bit>
#include <limits>
#include <optional>

#include "base/units.hpp"

namespace memtrace {
namespace {

Error usage_error(std::string_view text, std::string_view why, std::string_view hint) {
    return Error{fmt::format("'{}'", text), std::string(why), std::string(hint), ExitStatus::usage};
}

std::optional<uint64_t> whole_number(std::string_view text) {
    uint64_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
    return number;
}

/// The words of a command, a character at a time.
class WordSplitter {
  public:
    explicit WordSplitter(std::string_view text) : rest_(text) {}

    /// False when a quote or a backslash has no end.
    bool split() {
        while (!rest_.empty()) {
            const char character = take();
            if (character == ' ' || character == '\t' || character == '\n') {
                end_word();
            } else if (character == '\'') {
                if (!take_single_quoted()) return false;
            } else if (character == '"') {
                if (!take_double_quoted()) return false;
            } else if (character == '\\') {
                if (rest_.empty()) return false;
                append(take());
            } else {
                append(character);
            }
        }
        end_word();
        return true;
    }
    std::vector<std::string> words() && { return std::move(words_); }

  private:
    char take() {
        const char character = rest_.front();
        rest_.remove_prefix(1);
        return character;
    }
    void append(char character) {
        word_ += character;
        is_in_word_ = true;
    }
    void end_word() {
        if (is_in_word_) words_.push_back(std::move(word_));
        word_.clear();
        is_in_word_ = false;
    }
    bool take_single_quoted() {
        is_in_word_ = true;
        while (!rest_.empty()) {
            const char character = take();
            if (character == '\'') return true;
            append(character);
        }
        return false;
    }
    bool take_double_quoted() {
        is_in_word_ = true;
        while (!rest_.empty()) {
            const char character = take();
            if (character == '"') return true;
            // POSIX 2.2.3: inside double quotes a backslash quotes these alone and else stands for itself.
            const bool quotes_next = character == '\\' && !rest_.empty() &&
                                     std::string_view("$`\"\\").find(rest_.front()) != std::string_view::npos;
            append(quotes_next ? take() : character);
        }
        return false;
    }

    std::string_view rest_;
    std::string word_;
    bool is_in_word_ = false;
    std::vector<std::string> words_;
};

}  // namespace

Result<std::vector<pid_t>> parse_pids(std::string_view text) {
    constexpr std::string_view separators = ", \t\n";
    constexpr std::string_view hint = "write -p 1234, -p 12,34 or -p \"$(pidof NAME)\"";
    std::vector<pid_t> pids;
    for (size_t begin = text.find_first_not_of(separators); begin != std::string_view::npos;
         begin = text.find_first_not_of(separators, begin)) {
        const size_t end = std::min(text.find_first_of(separators, begin), text.size());
        const std::string_view word = text.substr(begin, end - begin);
        const std::optional<uint64_t> number = whole_number(word);
        if (!number || *number == 0 || *number > static_cast<uint64_t>(std::numeric_limits<pid_t>::max()))
            return usage_error(word, "not a process id", hint);
        const auto pid = static_cast<pid_t>(*number);
        if (std::find(pids.begin(), pids.end(), pid) == pids.end()) pids.push_back(pid);
        begin = end;
    }
    if (pids.empty()) return usage_error(text, "no process id in it", hint);
    return pids;
}

Result<uint64_t> parse_number(std::string_view text, uint64_t low, uint64_t high) {
    const std::optional<uint64_t> number = whole_number(text);
    if (number && *number >= low && *number <= high) return *number;
    const std::string hint = fmt::format("write a whole number from {} to {}", low, high);
    return usage_error(text, number ? "out of range" : "not a number", hint);
}

Result<uint64_t> parse_interval(std::string_view text) {
    constexpr std::string_view hint = "write 5 (seconds), 500ms, 10s or 5m; a command to start goes after --";
    const Result<uint64_t> interval_ns = parse_duration(text, 1'000'000'000);
    if (!interval_ns) return usage_error(text, interval_ns.error().why, hint);
    if (*interval_ns == 0) return usage_error(text, "an interval is above 0", hint);
    return *interval_ns;
}

Result<uint64_t> parse_ring_size(std::string_view text) {
    Result<uint64_t> size_bytes = parse_size(text);
    if (!size_bytes) return size_bytes;
    if (std::has_single_bit(*size_bytes) && *size_bytes >= 4096 && *size_bytes <= 1u << 30) return size_bytes;
    return usage_error(text, "not a power of two from 4K to 1G", "write 8M or 64M");
}

Result<std::string> parse_path(const std::string& text) {
    if (!text.empty()) return text;
    return usage_error("", "not a file name", "write the name of a file after it");
}

Result<uint64_t> parse_sampling_mean(std::string_view text) {
    Result<uint64_t> size_bytes = parse_size(text);
    if (!size_bytes) return size_bytes;
    if (*size_bytes >= 1 && *size_bytes <= 1u << 30) return size_bytes;
    return usage_error(text, "not a distance from 1 to 1G", "write 512K; 1 records every block");
}

Result<double> parse_share(std::string_view text) {
    std::string_view digits = text;
    if (digits.ends_with('%')) digits.remove_suffix(1);
    double percent = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), percent);
    const bool is_number = error == std::errc() && end == digits.data() + digits.size();
    if (is_number && percent > 0 && percent <= 100) return percent / 100;
    return usage_error(text, "not a share above 0% and up to 100%", "write 5%, of one core");
}

Result<std::vector<std::string>> split_command(std::string_view text) {
    constexpr std::string_view hint = "quote blanks with ' or \", or write the command after --";
    WordSplitter splitter(text);
    if (!splitter.split()) return usage_error(text, "a quote or backslash has no end", hint);
    std::vector<std::string> words = std::move(splitter).words();
    if (words.empty()) return usage_error(text, "no command in it", hint);
    return words;
}

Result<void> add_target(std::vector<std::string>& targets, const std::string& text, std::string_view what) {
    if (text.empty()) return usage_error("", fmt::format("not a {}", what), "memtrace --help shows how it is written");
    if (std::find(targets.begin(), targets.end(), text) == targets.end()) targets.push_back(text);
    return {};
}

}  // namespace memtrace
