// Debug information that is damaged or made to hurt: fewer names, but never a crash or an endless walk.
#include <elfutils/libdw.h>
#include <gelf.h>

#include <chrono>
#include <random>

#include "catch.hpp"
#include "symbols/inline_index.hpp"
#include "symbols_test_modules.hpp"

using namespace memtrace;
using namespace memtrace::test;

namespace {

constexpr auto source = R"(#include <map>
#include <string>
#include <vector>
struct Shop {
    std::map<int, std::string> shelf;
    [[gnu::noinline]] void buy(int count) { for (int i = 0; i < count; ++i) shelf[i] += std::to_string(i); }
};
int main(int count, char**) {
    Shop shop;
    auto again = [&](int n) { shop.buy(n); std::vector<int> all(n, 1); return all.back(); };
    return again(count);
}
)";

struct Part {
    uint64_t offset = 0;
    uint64_t size = 0;
    uint64_t address = 0;
};

/// The sections of `path` whose name starts with `prefix`.
std::vector<Part> sections(const std::string& path, std::string_view prefix) {
    const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    ::elf_version(EV_CURRENT);
    Elf* elf = ::elf_begin(fd.get(), ELF_C_READ, nullptr);
    size_t names = 0;
    ::elf_getshdrstrndx(elf, &names);
    std::vector<Part> parts;
    for (Elf_Scn* section = nullptr; (section = ::elf_nextscn(elf, section)) != nullptr;) {
        GElf_Shdr header;
        ::gelf_getshdr(section, &header);
        if (std::string_view(::elf_strptr(elf, names, header.sh_name)).starts_with(prefix))
            parts.push_back({header.sh_offset, header.sh_size, header.sh_addr});
    }
    ::elf_end(elf);
    return parts;
}

std::string content_of(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

/// Frames found for addresses all over the code.
size_t frames_of_all(const std::string& path, const Part& code) {
    const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    Dwarf* dwarf = ::dwarf_begin(fd.get(), DWARF_C_READ);
    if (!dwarf) return 0;
    size_t frames = 0;
    {
        InlineIndex index(dwarf);
        for (uint64_t address = code.address; address < code.address + code.size; address += 13)
            frames += index.frames_at(address).size();
    }
    ::dwarf_end(dwarf);
    return frames;
}

}  // namespace

TEST_CASE("damaged debug information ends in fewer names", "[symbols]") {
    const TemporaryFolder folder;
    std::mt19937 random(7);
    // More of it by hand: MEMTRACE_HOSTILE_ROUNDS=10000 unit_tests "damaged debug*"
    const char* wanted_rounds = std::getenv("MEMTRACE_HOSTILE_ROUNDS");
    const int rounds = wanted_rounds ? std::atoi(wanted_rounds) : 60;
    for (const char* flags : {"-g -O2 -gdwarf-5", "-g -O2 -gdwarf-4"}) {
        INFO(flags);
        const std::string path = folder.compile("program", source, flags);
        const Part code = sections(path, ".text").at(0);
        const std::vector<Part> debug = sections(path, ".debug_");
        const std::string whole = content_of(path);
        REQUIRE(frames_of_all(path, code) > 200);
        for (int round = 0; round < rounds; ++round) {
            std::string bytes = whole;
            const size_t changes = 1 + random() % 60;
            for (size_t change = 0; change < changes; ++change) {
                const Part& part = debug[random() % debug.size()];
                // Most of what a walk reads first is at the front.
                const uint64_t reach = change % 2 ? part.size : std::min<uint64_t>(part.size, 400);
                bytes[part.offset + random() % reach] = static_cast<char>(random());
            }
            const auto start = std::chrono::steady_clock::now();
            frames_of_all(folder.write("damaged", bytes), code);
            CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(10));
        }
    }
}
