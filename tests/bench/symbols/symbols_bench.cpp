// symbols_bench FILE [COUNT]: how many call sites of FILE a second get their frames, cold (each seen for the first
// time) and warm. COUNT (20000) random call sites; the first 1000 of them are reported on their own, because they bear
// the reading of the units.
#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "base/log.hpp"
#include "symbols/module.hpp"
#include "symbols/symbolizer.hpp"

namespace memtrace {
namespace {

constexpr size_t first_count = 1000;

double seconds_now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Addresses of call instructions' last bytes, in random order, the same one in each run.
std::vector<uint64_t> call_sites(const std::string& path) {
    const std::string command = "objdump -d --no-show-raw-insn '" + path + "'";
    const std::unique_ptr<FILE, decltype(&::pclose)> listing(::popen(command.c_str(), "r"), &::pclose);
    std::vector<uint64_t> sites;
    bool follows_call = false;
    char* line = nullptr;
    size_t capacity = 0;
    while (listing && ::getline(&line, &capacity, listing.get()) > 0) {
        const std::string text(line);
        const size_t colon = text.find(":\t");
        if (colon == std::string::npos) continue;
        if (follows_call) sites.push_back(std::strtoull(line, nullptr, 16) - 1);
        follows_call = text.find("call", colon) != std::string::npos;
    }
    std::free(line);
    std::shuffle(sites.begin(), sites.end(), std::mt19937(1));
    return sites;
}

std::string memory_of_self() {
    std::ifstream status("/proc/self/status");
    std::string text;
    for (std::string line; std::getline(status, line);)
        if (line.starts_with("RssAnon") || line.starts_with("VmHWM")) text += line + "  ";
    std::replace(text.begin(), text.end(), '\t', ' ');
    return text;
}

struct Passed {
    double seconds = 0;
    size_t frames = 0;
};

Passed name_all(Symbolizer& symbolizer, const Module& module, std::span<const uint64_t> offsets) {
    Passed passed;
    const double start = seconds_now();
    for (const uint64_t offset : offsets)
        passed.frames += symbolizer.frames_at({&module, offset}).size();
    passed.seconds = seconds_now() - start;
    return passed;
}

void print_row(const char* what, size_t count, const Passed& passed) {
    fmt::print("{:<28} {:>8} call sites  {:>10.0f} /s  {:.2f} frames each\n", what, count,
               static_cast<double>(count) / passed.seconds,
               static_cast<double>(passed.frames) / static_cast<double>(count));
}

Result<void> run(const std::string& path, size_t count) {
    const Module module(path, Fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC)));
    if (!module.is_elf()) return Error{path, "is no ELF file"};
    std::vector<uint64_t> offsets;
    for (const uint64_t address : call_sites(path))
        if (const auto offset = module.file_offset(address)) offsets.push_back(*offset);
    offsets.resize(std::min(offsets.size(), count));
    if (offsets.size() <= first_count) return Error{path, "has too few calls"};
    const std::span all(offsets);
    Symbolizer symbolizer;
    fmt::print("{:<28} {:.1f} ms\n", "opening and one call site",
               name_all(symbolizer, module, all.first(1)).seconds * 1e3);
    print_row("cold, first", first_count, name_all(symbolizer, module, all.subspan(1, first_count)));
    const auto rest = all.subspan(first_count + 1);
    print_row("cold, all others", rest.size(), name_all(symbolizer, module, rest));
    print_row("warm", all.size(), name_all(symbolizer, module, all));
    fmt::print("{}\n", memory_of_self());
    return {};
}

}  // namespace
}  // namespace memtrace

int main(int argc, char** argv) {
    if (argc < 2) {
        std::fputs("usage: symbols_bench FILE [COUNT]\n", stderr);
        return 2;
    }
    const auto done = memtrace::run(argv[1], argc > 2 ? std::strtoul(argv[2], nullptr, 10) : 20'000);
    if (done) return 0;
    memtrace::log_error(done.error());
    return static_cast<int>(done.error().status);
}
