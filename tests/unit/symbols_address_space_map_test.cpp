#include "catch.hpp"
#include "symbols/address_space_map.hpp"
#include "symbols/module.hpp"

using namespace memtrace;

namespace {

Mapping code(uint64_t start, uint64_t end, uint64_t file_offset, const std::string& path = "/x") {
    Mapping mapping;
    mapping.start = start;
    mapping.end = end;
    mapping.file_offset = file_offset;
    mapping.is_executable = true;
    mapping.path = path;
    return mapping;
}

const Module first("/first", Fd());
const Module second("/second", Fd());

}  // namespace

TEST_CASE("an address leads to its place in the file", "[symbols]") {
    AddressSpaceMap map;
    map.add(code(0x1000, 0x3000, 0x5000), &first, 0, 10);
    CHECK(map.find(0x1000, 5) == CodeLocation{&first, 0x5000});
    CHECK(map.find(0x2fff, 5) == CodeLocation{&first, 0x6fff});
    CHECK_FALSE(map.find(0xfff, 5));
    CHECK_FALSE(map.find(0x3000, 5));
    CHECK_FALSE(AddressSpaceMap().find(0, 5));
}

TEST_CASE("memory that is not executable holds no code", "[symbols]") {
    AddressSpaceMap map;
    Mapping data = code(0x1000, 0x2000, 0);
    data.is_executable = false;
    map.add(data, &first, 0, 0);
    map.add(code(0x2000, 0x2000, 0), &first, 0, 0);
    CHECK_FALSE(map.find(0x1000, 5));
    CHECK_FALSE(map.find(0x2000, 5));
}

TEST_CASE("a stack from before a library was replaced keeps its names", "[symbols]") {
    AddressSpaceMap map;
    map.add(code(0x1000, 0x4000, 0), &first, 100, 100);
    map.add(code(0x2000, 0x3000, 0x70), &second, 200, 200);
    CHECK(map.find(0x2500, 150) == CodeLocation{&first, 0x1500});
    CHECK(map.find(0x2500, 200) == CodeLocation{&second, 0x570});
    CHECK(map.find(0x1fff, 300) == CodeLocation{&first, 0xfff});
    CHECK(map.find(0x3000, 300) == CodeLocation{&first, 0x2000});
    CHECK_FALSE(map.find(0x2500, 99));
}

TEST_CASE("a mapping over several others replaces them and fills the gaps", "[symbols]") {
    AddressSpaceMap map;
    map.add(code(0x2000, 0x3000, 0), &first, 1, 1);
    map.add(code(0x4000, 0x5000, 0), &first, 1, 1);
    map.add(code(0x1000, 0x6000, 0), &second, 2, 2);
    for (const uint64_t address : {0x1000, 0x2000, 0x3000, 0x4000, 0x5000, 0x5fff})
        CHECK(map.find(address, 2) == CodeLocation{&second, address - 0x1000});
    CHECK(map.find(0x4010, 1) == CodeLocation{&first, 0x10});
    CHECK_FALSE(map.find(0x3010, 1));
}

TEST_CASE("an event that is older than what was seen there changes nothing", "[symbols]") {
    AddressSpaceMap map;
    map.add(code(0x1000, 0x2000, 0), &second, 0, 100);
    map.add(code(0x1000, 0x2000, 0), &first, 50, 50);
    CHECK(map.find(0x1000, 200) == CodeLocation{&second, 0});
    CHECK(map.find(0x1000, 60) == CodeLocation{&second, 0});
}

TEST_CASE("seeing the same again neither moves its beginning nor its end", "[symbols]") {
    AddressSpaceMap map;
    map.add(code(0x1000, 0x2000, 0), &first, 10, 10);
    map.add(code(0x1000, 0x2000, 0), &second, 20, 20);
    map.add(code(0x1000, 0x2000, 0), &second, 5, 30);
    CHECK(map.find(0x1000, 15) == CodeLocation{&first, 0});
    CHECK(map.find(0x1000, 25) == CodeLocation{&second, 0});
}

TEST_CASE("pieces of a JIT compiler's memory are one place each, however they are cut", "[symbols]") {
    const Module anonymous("", Fd());
    AddressSpaceMap map;
    map.add(code(0x1000, 0x9000, 0, ""), &anonymous, 1, 1);
    map.add(code(0x3000, 0x4000, 0, ""), &anonymous, 2, 2);
    CHECK(map.find(0x3010, 1) == CodeLocation{&anonymous, 0x3010});
    CHECK(map.find(0x3010, 3) == CodeLocation{&anonymous, 0x3010});
    CHECK(anonymous.name() == "[anon]");
    CHECK(anonymous.is_jit());
}

TEST_CASE("a library that comes and goes for ever keeps memory bounded and the newest right", "[symbols]") {
    AddressSpaceMap map;
    for (uint64_t time = 1; time <= 100'000; ++time)
        map.add(code(0x1000, 0x2000, 0), time % 2 == 0 ? &first : &second, time, time);
    CHECK(map.find(0x1000, 100'000)->module == &first);
    CHECK(map.find(0x1000, 99'999)->module == &second);
    CHECK_FALSE(map.find(0x1000, 99'000));
}

TEST_CASE("the last page of the address space is no exception", "[symbols]") {
    AddressSpaceMap map;
    map.add(code(~uint64_t{0xfff}, ~uint64_t{0}, 0), &first, 0, 0);
    CHECK(map.find(~uint64_t{0} - 1, 1) == CodeLocation{&first, 0xffe});
    CHECK_FALSE(map.find(~uint64_t{0}, 1));
}
