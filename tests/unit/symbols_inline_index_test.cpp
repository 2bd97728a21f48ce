// The inlined frames and lines of random call sites, beside what binutils' addr2line and LLVM's llvm-symbolizer say.
#include <elfutils/libdw.h>
#include <fcntl.h>

#include <algorithm>
#include <random>
#include <sstream>

#include "catch.hpp"
#include "symbols/inline_index.hpp"
#include "symbols_test_modules.hpp"

using namespace memtrace;
using namespace memtrace::test;

namespace {

/// Functions inlined into each other, partly and more than once, in namespaces, classes, lambdas and other files.
constexpr auto shared_header = R"(#pragma once
[[gnu::noinline]] long sink(long value);
[[gnu::noinline]] void* take(unsigned long size_bytes);
template <int N> struct Cell {
    long value = N;
    void* block = nullptr;
    inline long grow(long by) { if (by > N) block = take(static_cast<unsigned long>(by)); return sink(value + by); }
    [[gnu::always_inline]] inline long twice(long by) { return grow(by) + grow(by + 1); }
};
static inline long in_header(long value) { return value % 3 == 0 ? sink(value) : sink(value + 1) + sink(value - 1); }
)";

constexpr auto source = R"(#include "shared.h"
namespace shop {
namespace {
template <int N> inline long visit(Cell<N>& cell, long count) {
    long sum = 0;
    for (long i = 0; i < count; ++i) sum += cell.twice(i);
    return sum;
}
template <int N> long keep(long count) {
    Cell<N> cell;
    const auto shift = [&](long by) { { long inner = sink(by); cell.value += inner; } return cell.grow(by); };
    struct Local {
        static long step(long by) { return in_header(by) + sink(by); }
        [[gnu::noinline]] static long far_step(long by) { return sink(by * N) + in_header(by - 1); }
    };
    if (count > N) return visit<N>(cell, count) + shift(count);
    if (count < 0) __builtin_trap();
    return shift(N) + Local::step(count) + visit<N>(cell, 2) + Local::far_step(count);
}
}
template <int... N> struct Numbers {};
template <int... N> long all(long count, Numbers<N...>) { return (keep<N>(count) + ...); }
long all_of(long count) {
    return all(count, Numbers<0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23>());
}
}
)";

constexpr auto other_source = R"(#include "shared.h"
namespace shop { long all_of(long count); }
long sink(long value) { asm volatile("" : "+r"(value)); return value; }
void* take(unsigned long size_bytes) { asm volatile("" : "+r"(size_bytes)); return reinterpret_cast<void*>(size_bytes); }
int main(int count, char**) { Cell<1000> cell; return static_cast<int>(shop::all_of(count) + in_header(count) + cell.twice(count)); }
)";

struct ReferenceFrame {
    std::string function;
    std::string file;
    uint32_t line = 0;
};
using ReferenceStack = std::vector<ReferenceFrame>;

std::ostream& operator<<(std::ostream& stream, const ReferenceStack& stack) {
    for (const ReferenceFrame& frame : stack)
        stream << "\n    " << frame.function << " " << frame.file << ":" << frame.line;
    return stream;
}

std::string base_name(const std::string& path) {
    return path.substr(path.rfind('/') + 1);
}

std::string output_of(const TemporaryFolder& folder, const std::string& command) {
    TemporaryFolder::run(command + " > '" + folder / "output" + "' 2> '" + folder / "errors" + "'");
    std::ifstream file(folder / "output");
    return {std::istreambuf_iterator<char>(file), {}};
}

/// Addresses of call instructions' last bytes (return address minus 1), at most `count`, the same ones in each run.
std::vector<uint64_t> call_sites(const TemporaryFolder& folder, const std::string& path, size_t count) {
    std::istringstream listing(output_of(folder, "objdump -d --no-show-raw-insn '" + path + "'"));
    std::vector<uint64_t> sites;
    bool follows_call = false;
    for (std::string line; std::getline(listing, line);) {
        const size_t colon = line.find(":\t");
        if (colon == std::string::npos) continue;
        if (follows_call) sites.push_back(std::stoull(line.substr(0, colon), nullptr, 16) - 1);
        follows_call = line.find("call", colon) != std::string::npos;
    }
    std::shuffle(sites.begin(), sites.end(), std::mt19937(1));
    sites.resize(std::min(sites.size(), count));
    return sites;
}

/// `command` reads addresses and prints, for each one, the address, then pairs of lines: function, FILE:LINE.
std::vector<ReferenceStack> stacks_by(const TemporaryFolder& folder, const std::string& command,
                                      const std::vector<uint64_t>& addresses) {
    std::string list;
    for (const uint64_t address : addresses)
        list += fmt::format("{:#x}\n", address);
    folder.write("addresses", list);
    std::istringstream output(output_of(folder, command + " < '" + folder / "addresses" + "'"));
    std::vector<ReferenceStack> stacks;
    for (std::string function, place; std::getline(output, function);) {
        if (function.starts_with("0x")) {
            stacks.emplace_back();
            continue;
        }
        std::getline(output, place);
        const size_t colon = place.rfind(':');
        const std::string number = place.substr(colon + 1);
        const auto line = number.starts_with('?') ? 0U : static_cast<uint32_t>(std::stoul(number));
        stacks.back().push_back({function, base_name(place.substr(0, colon)), line});
    }
    return stacks;
}

class OpenDwarf {
  public:
    explicit OpenDwarf(const std::string& path)
        : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)), dwarf_(::dwarf_begin(fd_.get(), DWARF_C_READ)) {}
    OpenDwarf(const OpenDwarf&) = delete;
    OpenDwarf& operator=(const OpenDwarf&) = delete;
    ~OpenDwarf() { ::dwarf_end(dwarf_); }
    Dwarf* get() const { return dwarf_; }

  private:
    Fd fd_;
    Dwarf* dwarf_;
};

ReferenceStack stack_of_index(InlineIndex& index, uint64_t address) {
    ReferenceStack stack;
    for (const SourceFrame& frame : index.frames_at(address))
        stack.push_back(
            {frame.function ? frame.function : "??", frame.file ? base_name(frame.file) : "??", frame.line});
    return stack;
}

/// Compiles both sources; the path of the program.
std::string build(const TemporaryFolder& folder, const std::string& name, const std::string& compiler,
                  const std::string& flags) {
    folder.write("shared.h", shared_header);
    folder.write("all.cc", source);
    folder.write("other.cc", other_source);
    // The objects have names of their own, because the .dwo files are named after them.
    TemporaryFolder::run(
        fmt::format("cd '{0}' && {2} -std=c++17 -O2 {3} -c all.cc -o '{1}-all.o' && "
                    "{2} -std=c++17 -O2 {3} -c other.cc -o '{1}-other.o' && {2} '{1}-all.o' '{1}-other.o' -o '{1}'",
                    folder / "", name, compiler, flags));
    return folder / name;
}

/// Call sites of a program and what another tool says of them. A frame's name is not compared where the tool prefers
/// .symtab to the debug information: llvm-symbolizer for the last one, addr2line for the first and last one without a
/// linkage name.
struct Reference {
    std::vector<uint64_t> sites;
    std::vector<ReferenceStack> stacks;
    bool is_addr2line = false;

    bool agrees(size_t site, const ReferenceStack& stack) const {
        const ReferenceStack& expected = stacks[site];
        if (stack.size() != expected.size()) return false;
        for (size_t i = 0; i < stack.size(); ++i) {
            if (stack[i].file != expected[i].file || stack[i].line != expected[i].line) return false;
            const bool is_last = i + 1 == stack.size();
            const bool has_linkage_name = stack[i].function.starts_with("_Z");
            const bool is_exempt = is_addr2line ? (i == 0 || is_last) && !has_linkage_name : is_last;
            if (!is_exempt && stack[i].function != expected[i].function) return false;
        }
        return true;
    }
};

Reference reference_of(const TemporaryFolder& folder, const std::string& path, const std::string& tool) {
    Reference reference;
    reference.is_addr2line = tool.starts_with("addr2line");
    reference.sites = call_sites(folder, path, 1000);
    reference.stacks = stacks_by(folder, fmt::format(fmt::runtime(tool), path), reference.sites);
    REQUIRE(reference.sites.size() == reference.stacks.size());
    REQUIRE(reference.sites.size() > 600);
    return reference;
}

void check_same_stacks(const std::string& path, const Reference& reference) {
    const OpenDwarf dwarf(path);
    REQUIRE(dwarf.get());
    InlineIndex index(dwarf.get());
    size_t inlined = 0, different = 0;
    for (size_t i = 0; i < reference.sites.size(); ++i) {
        const ReferenceStack& expected = reference.stacks[i];
        // The start-up code has names in .symtab only, which are not the index's part.
        if (expected.size() == 1 && expected[0].line == 0) continue;
        const ReferenceStack stack = stack_of_index(index, reference.sites[i]);
        inlined += stack.size() > 1 ? 1 : 0;
        if (reference.agrees(i, stack) || ++different > 3) continue;
        UNSCOPED_INFO(fmt::format("{:#x}", reference.sites[i]) << " expected" << expected << "\n  got" << stack);
    }
    CHECK(different == 0);
    CHECK(inlined > reference.sites.size() / 4);
}

std::vector<Reference> references_of(const TemporaryFolder& folder, const std::string& path) {
    std::vector<Reference> references = {reference_of(folder, path, "addr2line -a -i -f -e '{}'")};
    if (!is_installed("llvm-symbolizer-14")) {
        WARN("skipped: no comparison with llvm-symbolizer-14 (package llvm-14)");
        return references;
    }
    references.push_back(reference_of(folder, path,
                                      "llvm-symbolizer-14 -a -i --functions=linkage --no-demangle "
                                      "--output-style=GNU --obj='{}'"));
    return references;
}

}  // namespace

// addr2line 2.40 misses frames of split files, of dwz's and of clang's DWARF 5, LLVM 14 those of dwz's: their answers
// are those on the same code with plain DWARF 4.
TEST_CASE("call sites have the inlined frames and lines that other tools give them", "[symbols]") {
    const TemporaryFolder folder;
    for (const std::string compiler : {"g++", "clang++"}) {
        const std::string plain = build(folder, "plain", compiler, "-g -gdwarf-4");
        const auto references = references_of(folder, plain);
        for (const Reference& reference : references)
            check_same_stacks(plain, reference);
        for (const std::string flags : {"-gdwarf-5", "-gdwarf-4 -gsplit-dwarf", "-gdwarf-5 -gsplit-dwarf",
                                        "-gdwarf-5 -gz", "-gdwarf-4 -fdebug-types-section"}) {
            INFO(compiler << " " << flags);
            const std::string path = build(folder, "program", compiler, "-g " + flags);
            REQUIRE(call_sites(folder, path, 1000) == references[0].sites);
            for (const Reference& reference : references)
                check_same_stacks(path, reference);
        }
    }
}

TEST_CASE("frames are the same after dwz, in one file and with a common one", "[symbols]") {
    if (!is_installed("dwz")) {
        WARN("skipped: no dwz (package dwz)");
        return;
    }
    const TemporaryFolder folder;
    for (const std::string flags : {"-gdwarf-4", "-gdwarf-5"}) {
        INFO(flags);
        const std::string path = build(folder, "program", "g++", "-g " + flags);
        const auto references = references_of(folder, path);
        const std::string copy = folder / "copy", other = folder / "other", common = folder / "common";
        TemporaryFolder::run("cp '" + path + "' '" + copy + "' && cp '" + path + "' '" + other + "'");
        TemporaryFolder::run("dwz '" + path + "' && dwz -m '" + common + "' '" + copy + "' '" + other + "'");
        REQUIRE(output_of(folder, "readelf -S '" + copy + "'").find(".gnu_debugaltlink") != std::string::npos);
        for (const Reference& reference : references) {
            check_same_stacks(path, reference);
            check_same_stacks(copy, reference);
        }
    }
}
