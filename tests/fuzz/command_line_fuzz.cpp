// Any bytes as memtrace's arguments, one a line, or as a file of --allocators: a Request, or an Error of status usage
// that says why. The first byte chooses. Run by libFuzzer; first inputs are in command_line_corpus.
#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "cli/parse.hpp"
#include "probes/user_functions.hpp"

using namespace memtrace;

namespace {

void check(const Error& error) {
    if (error.status != ExitStatus::usage || error.what.empty() || error.why.empty()) std::abort();
}

/// A program's arguments have no 0 in them, and the kernel hands on no more than some MB.
std::vector<std::string> lines_of(std::string_view text) {
    std::vector<std::string> lines;
    for (size_t start = 0; start <= text.size();) {
        const size_t end = std::min(text.find_first_of(std::string_view("\n\0", 2), start), text.size());
        lines.emplace_back(text.substr(start, end - start));
        start = end + 1;
    }
    return lines;
}

void parse_line(std::string_view text) {
    const std::vector<std::string> lines = lines_of(text);
    std::vector<const char*> arguments;
    for (const std::string& line : lines)
        arguments.push_back(line.c_str());
    const auto request = parse_arguments(arguments, [](pid_t left, pid_t right) { return (left ^ right) % 2 == 0; });
    if (!request) return check(request.error());
    if (const auto* options = std::get_if<Options>(&*request))
        if (!options->has_targets() || options->interval_ns == 0) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size_bytes) {
    if (size_bytes == 0) return 0;
    const std::string_view text(reinterpret_cast<const char*>(data) + 1, size_bytes - 1);
    if ((data[0] & 1) == 0) {
        parse_line(text);
        return 0;
    }
    const auto functions = parse_user_functions(text, "input");
    if (!functions) check(functions.error());
    return 0;
}
