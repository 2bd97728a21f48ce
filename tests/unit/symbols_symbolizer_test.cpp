#include <filesystem>

#include "catch.hpp"
#include "symbols_test_modules.hpp"

using namespace memtrace;
using namespace memtrace::test;

namespace {

constexpr auto source = R"(#include <cstdio>
namespace shop {
__attribute__((noinline)) int buy(int count) {
    asm volatile("");
    return count + 1;
}
}
extern "C" __attribute__((noinline)) int inner_name(int n) { asm volatile(""); return n * 3; }
extern "C" int outer_name(int) __attribute__((weak, alias("inner_name")));
extern "C" int __hidden_name(int) __attribute__((alias("inner_name")));
int main(int n, char**) { return shop::buy(n) + inner_name(n); }
)";

}  // namespace

TEST_CASE("code with debug information has function, file and line", "[symbols]") {
    const TemporaryFolder folder;
    for (const char* flags :
         {"-g -O1", "-g -O1 -no-pie", "-g -O1 -static", "-g -O1 -static-pie", "-g -O1 -gdwarf-4 -gz"}) {
        INFO(flags);
        const std::string path = folder.compile("program", source, flags);
        const Module module = module_at(path);
        REQUIRE(module.is_elf());
        Symbolizer symbolizer;
        const uint64_t offset = offset_of(folder, path, "_ZN4shop3buyEi");
        const Frame frame = frame_at(symbolizer, {&module, offset});
        CHECK(frame.function == "shop::buy(int)");
        CHECK_THAT(frame.file, ContainsSubstring("program.cc"));
        CHECK(frame.line >= 3);
        CHECK(frame.line <= 5);
        CHECK(frame.module == "program");
        CHECK(frame.offset == offset);
        CHECK(frame.function_offset == 0);
        CHECK(frame.kind == Frame::Kind::native);
        CHECK(frame_at(symbolizer, {&module, offset + 1}).function_offset == 1);
        CHECK(&frame_at(symbolizer, {&module, offset}) == &frame_at(symbolizer, {&module, offset}));
    }
}

TEST_CASE("of several names of a function the one for the outside is shown", "[symbols]") {
    const TemporaryFolder folder;
    const std::string path = folder.compile("program", source, "-O1");
    const Module module = module_at(path);
    Symbolizer symbolizer;
    CHECK(frame_at(symbolizer, {&module, offset_of(folder, path, "__hidden_name")}).function == "inner_name");
}

TEST_CASE("a stripped file has no names but exported ones, and says where", "[symbols]") {
    const TemporaryFolder folder;
    const std::string path = folder.compile("program", source, "-O1 -g");
    const uint64_t offset = offset_of(folder, path, "_ZN4shop3buyEi");
    TemporaryFolder::run("strip '" + path + "'");
    const Module module = module_at(path);
    Symbolizer symbolizer;
    const Frame frame = frame_at(symbolizer, {&module, offset});
    CHECK(frame.function.empty());
    CHECK(frame.file.empty());
    CHECK(frame.module == "program");
    CHECK(frame.offset == offset);

    const std::string library = folder.compile("library.so", source, "-O1 -shared -fPIC");
    const uint64_t exported = offset_of(folder, library, "_ZN4shop3buyEi");
    TemporaryFolder::run("strip '" + library + "'");
    const Module stripped_library = module_at(library);
    CHECK(frame_at(symbolizer, {&stripped_library, exported}).function == "shop::buy(int)");
}

TEST_CASE("a separate debug file is found beside the program, the wrong one is not used", "[symbols]") {
    const TemporaryFolder folder;
    for (const char* flags : {"-O1 -g", "-O1 -g -Wl,--build-id=none"}) {
        INFO(flags);
        const std::string path = folder.compile("program", source, flags);
        const uint64_t offset = offset_of(folder, path, "_ZN4shop3buyEi");
        const std::string debug = folder / "program.debug";
        TemporaryFolder::run("objcopy --only-keep-debug '" + path + "' '" + debug + "' && strip '" + path +
                             "' && objcopy --add-gnu-debuglink='" + debug + "' '" + path + "'");
        {
            const Module module = module_at(path);
            Symbolizer symbolizer;
            CHECK(frame_at(symbolizer, {&module, offset}).function == "shop::buy(int)");
            CHECK(frame_at(symbolizer, {&module, offset}).line > 0);
        }
        const std::string other = folder.compile("other", std::string(source) + "int more;", flags);
        std::filesystem::rename(other, debug);
        const Module module = module_at(path);
        Symbolizer symbolizer;
        CHECK(frame_at(symbolizer, {&module, offset}).function.empty());
    }
}

TEST_CASE("offsets outside any segment or function have no name", "[symbols]") {
    const TemporaryFolder folder;
    const std::string path = folder.compile("program", source, "-O1 -g");
    const Module module = module_at(path);
    Symbolizer symbolizer;
    for (const uint64_t offset : {uint64_t{0}, uint64_t{1} << 40, ~uint64_t{0}}) {
        const Frame frame = frame_at(symbolizer, {&module, offset});
        CHECK(frame.function.empty());
        CHECK(frame.offset == offset);
    }
}

TEST_CASE("files that are no ELF files, and damaged ones, end in no name and no crash", "[symbols]") {
    const TemporaryFolder folder;
    const std::string path = folder.compile("program", source, "-O1 -g");
    const uint64_t offset = offset_of(folder, path, "_ZN4shop3buyEi");
    std::ifstream input(path, std::ios::binary);
    const std::string whole{std::istreambuf_iterator<char>(input), {}};

    const Module text = module_at(folder.write("text", "hello"));
    CHECK_FALSE(text.is_elf());
    CHECK(text.is_jit());
    CHECK_FALSE(text.identity());
    Symbolizer symbolizer;
    CHECK(frame_at(symbolizer, {&text, 3}).kind == Frame::Kind::jit);

    std::vector<std::unique_ptr<Module>> damaged;
    for (size_t size = 1; size < whole.size(); size += whole.size() / 40) {
        const std::string cut = folder.write("cut" + std::to_string(size), whole.substr(0, size));
        damaged.push_back(std::make_unique<Module>(module_at(cut)));
        CHECK(frame_at(symbolizer, {damaged.back().get(), offset}).module == "cut" + std::to_string(size));
    }
    for (size_t i = 0; i < 60; ++i) {
        std::string bytes = whole;
        for (size_t k = 0; k < 40; ++k)
            bytes[(i * 7919 + k * 104'729 * (i + 1)) % (k % 2 ? 1024 : bytes.size())] ^= '\x55';
        const std::string name = "wild" + std::to_string(i);
        damaged.push_back(std::make_unique<Module>(module_at(folder.write(name, bytes))));
        CHECK(frame_at(symbolizer, {damaged.back().get(), offset}).module == name);
    }
}

TEST_CASE("what names a file is its build-id, else its content", "[symbols]") {
    const TemporaryFolder folder;
    const Module with = module_at(folder.compile("with", source, "-O1 -Wl,--build-id=0x0123456789abcdef"));
    CHECK(with.build_id() == "\x01\x23\x45\x67\x89\xab\xcd\xef");
    CHECK(with.identity() == with.build_id());
    const std::string path = folder.compile("without", source, "-O1 -Wl,--build-id=none");
    const Module without = module_at(path);
    CHECK(without.build_id().empty());
    REQUIRE(without.identity());
    CHECK(without.identity()->size() == 32);
    std::filesystem::copy(path, folder / "copy");
    CHECK(module_at(folder / "copy").identity() == without.identity());
    CHECK_FALSE(Module("/gone", Fd()).identity());
}

TEST_CASE("addresses and offsets of a file lead to each other", "[symbols]") {
    const TemporaryFolder folder;
    const Module module = module_at(folder.compile("program", source, "-O1 -no-pie"));
    const auto address = module.virtual_address(0x1000);
    REQUIRE(address);
    CHECK(*address >= 0x400000);
    CHECK(module.file_offset(*address) == 0x1000);
    CHECK_FALSE(module.file_offset(0));
    CHECK_FALSE(module.virtual_address(~uint64_t{0}));
}
