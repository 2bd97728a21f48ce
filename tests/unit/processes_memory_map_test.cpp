// /proc/PID/smaps and the stack pointers of threads, read and parsed.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "catch.hpp"
#include "processes/memory_map.hpp"

using namespace memtrace;

TEST_CASE("the list of resident mappings is read field by field", "[processes]") {
    const auto mappings = parse_resident_mappings(
        "55c15b706000-55c15b708000 r--p 00000000 fe:00 247134                     /usr/bin/cat\n"
        "Size:                  8 kB\nRss:                   4 kB\nPss:                   2 kB\n"
        "Pss_Dirty:             1 kB\nVmFlags: rd mr mw me \n"
        "7ffd00000000-7ffd00021000 rw-p 00000000 00:00 0                          [stack]\n"
        "Size:                132 kB\nRss:                  16 kB\nPss:                  16 kB\n");
    REQUIRE(mappings);
    REQUIRE(mappings->size() == 2);
    CHECK(mappings->at(0).mapping.path == "/usr/bin/cat");
    CHECK(mappings->at(0).rss_bytes == 4096);
    CHECK(mappings->at(0).pss_bytes == 2048);
    CHECK(mappings->at(1).mapping.path == "[stack]");
    CHECK(mappings->at(1).rss_bytes == 16384);
    CHECK(parse_resident_mappings("")->empty());
}

TEST_CASE("what is no list of resident mappings is refused", "[processes]") {
    CHECK_FALSE(parse_resident_mappings("Rss: 4 kB\n"));
    CHECK_FALSE(parse_resident_mappings("55c15b706000 r--p\n"));
    CHECK_FALSE(parse_resident_mappings("\n"));
    CHECK(parse_resident_mappings("1000-2000 r--p 00000000 00:00 0\nRss: many kB\n")->at(0).rss_bytes == 0);
}

TEST_CASE("this process's pages are counted as they are touched", "[processes]") {
    constexpr size_t size_bytes = 64 * 4096;
    auto* const memory =
        static_cast<char*>(mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    REQUIRE(memory != MAP_FAILED);
    std::memset(memory, 1, 10 * 4096);
    const auto mappings = read_resident_mappings(getpid());
    REQUIRE(mappings);
    const auto found = std::ranges::find(*mappings, reinterpret_cast<uint64_t>(memory),
                                         [](const ResidentMapping& one) { return one.mapping.start; });
    REQUIRE(found != mappings->end());
    CHECK(found->rss_bytes == 10 * 4096);
    CHECK(found->mapping.is_shared);
    munmap(memory, size_bytes);
    CHECK_FALSE(read_resident_mappings(0x7ffffff0));
}
