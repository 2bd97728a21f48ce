#include <linux/perf_event.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/sysmacros.h>
#include <time.h>

#include <cstring>

#include "catch.hpp"
#include "processes/mapping_events.hpp"
#include "processes_test_programs.hpp"

using namespace memtrace;
using namespace memtrace::test;

namespace {

class Bytes {
  public:
    template <typename T>
    Bytes& add(T value) {
        const auto* first = reinterpret_cast<const std::byte*>(&value);
        bytes_.insert(bytes_.end(), first, first + sizeof(T));
        return *this;
    }
    Bytes& add_name(const std::string& name) {
        for (const char character : name)
            bytes_.push_back(static_cast<std::byte>(character));
        do
            bytes_.push_back(std::byte{0});
        while (bytes_.size() % 8 != 0);
        return *this;
    }
    /// With the header's size set.
    std::vector<std::byte> take() {
        const auto size = static_cast<uint16_t>(bytes_.size());
        std::memcpy(bytes_.data() + offsetof(perf_event_header, size), &size, sizeof(size));
        return std::move(bytes_);
    }

  private:
    std::vector<std::byte> bytes_;
};

std::vector<std::byte> mmap2_record(uint32_t pid, uint64_t size_bytes, const std::string& name, uint16_t misc = 2) {
    Bytes bytes;
    bytes.add(perf_event_header{PERF_RECORD_MMAP2, misc, 0}).add(pid).add(pid + 1);
    bytes.add(uint64_t{0x7f0000001000}).add(size_bytes).add(uint64_t{0x3000}).add(uint32_t{8}).add(uint32_t{1});
    bytes.add(uint64_t{77}).add(uint64_t{1}).add(uint32_t{PROT_READ | PROT_EXEC}).add(uint32_t{MAP_PRIVATE});
    return bytes.add_name(name).add(pid).add(pid + 1).add(uint64_t{123456}).take();
}

std::vector<std::byte> lost_record(uint64_t lost) {
    return Bytes()
        .add(perf_event_header{PERF_RECORD_LOST, 0, 0})
        .add(uint64_t{1})
        .add(lost)
        .add(uint64_t{0})
        .add(uint64_t{0})
        .take();
}

/// Lays `records` one behind the other into a ring of 4096 bytes from `tail` on and reads them.
MappingBatch batch_of(const std::vector<std::vector<std::byte>>& records, uint64_t tail) {
    std::vector<std::byte> ring(4096);
    uint64_t head = tail;
    for (const auto& record : records)
        for (const std::byte byte : record)
            ring[head++ % ring.size()] = byte;
    MappingBatch batch;
    parse_ring(ring, tail, head, batch);
    return batch;
}

}  // namespace

TEST_CASE("a mapping record is taken apart", "[processes]") {
    const auto event = parse_mapping_record(mmap2_record(42, 0x2000, "/usr/lib/x.so (deleted)"));
    REQUIRE(event);
    CHECK(event->pid == 42);
    CHECK(event->tid == 43);
    CHECK(event->time_ns == 123456);
    CHECK(event->mapping == Mapping{0x7f0000001000, 0x7f0000003000, 0x3000, true, false, true, false, true,
                                    makedev(8, 1), 77, "/usr/lib/x.so"});
    CHECK(parse_mapping_record(mmap2_record(42, 0x2000, "//anon"))->mapping.path.empty());
}

TEST_CASE("a malformed mapping record is refused", "[processes]") {
    CHECK_FALSE(parse_mapping_record(mmap2_record(42, 0, "/x")));
    CHECK_FALSE(parse_mapping_record(mmap2_record(42, ~uint64_t{0}, "/x")));
    CHECK_FALSE(parse_mapping_record(mmap2_record(42, 1, "/x", PERF_RECORD_MISC_MMAP_BUILD_ID)));
    const auto record = mmap2_record(42, 0x1000, "/x");
    for (size_t size = 0; size < 88; ++size)
        CHECK_FALSE(parse_mapping_record(std::span(record).first(size)));
}

TEST_CASE("records that wrap around the ring's end are whole", "[processes]") {
    const std::vector<std::vector<std::byte>> records{mmap2_record(1, 0x1000, "/first"), lost_record(5),
                                                      mmap2_record(2, 0x1000, "/a/long/name/of/a/library.so")};
    for (uint64_t tail = 3 * 4096 - 512; tail < 3 * 4096 + 8; tail += 8) {
        const MappingBatch batch = batch_of(records, tail);
        REQUIRE(batch.events.size() == 2);
        CHECK(batch.events[0].mapping.path == "/first");
        CHECK(batch.events[1].mapping.path == "/a/long/name/of/a/library.so");
        CHECK(batch.events[1].time_ns == 123456);
        CHECK(batch.lost == 5);
    }
}

TEST_CASE("sizes that cannot be end the reading and are counted", "[processes]") {
    const std::vector<std::byte> empty_record(16);
    CHECK(batch_of({empty_record}, 0).lost == 1);
    auto too_long = mmap2_record(1, 0x1000, "/x");
    too_long[6] = std::byte{0xff};
    too_long[7] = std::byte{0xff};
    const MappingBatch batch = batch_of({mmap2_record(1, 0x1000, "/good"), too_long}, 0);
    CHECK(batch.events.size() == 1);
    CHECK(batch.lost == 1);
    CHECK(batch_of({std::vector<std::byte>(4)}, 0).lost == 1);
    MappingBatch beyond;
    parse_ring(empty_record, 0, 17, beyond);
    CHECK(beyond.lost == 1);
}

TEST_CASE("processes of other pid namespaces are nobody's events", "[processes]") {
    const MappingBatch batch = batch_of({mmap2_record(0, 0x1000, "/x"), mmap2_record(~uint32_t{0}, 0x1000, "/x")}, 0);
    CHECK(batch.events.empty());
    CHECK(batch.lost == 0);
}

TEST_CASE("a library is seen as soon as a running program loads it", "[processes]") {
    const TemporaryFolder folder;
    folder.compile("plugin.so", "extern \"C\" int plugin() { return 1; }", "-shared -fPIC");
    const std::string path = folder.compile("host",
                                            R"(
#include <cstdio>
#include <dlfcn.h>
int main() {
    std::puts("ready"); std::fflush(stdout); std::getchar();
    std::printf("%p\n", dlsym(dlopen(")" + folder / "plugin.so" +
                                                R"(", RTLD_NOW), "plugin"));
    std::fflush(stdout); return std::getchar();
})",
                                            "");
    RunningProgram program(path);
    REQUIRE(program.read_line() == "ready");
    auto events = MappingEvents::open();
    if (!events) {
        CHECK(events.error().status == ExitStatus::not_privileged);
        WARN("skipped: " << events.error().why);
        return;
    }
    timespec before{};
    ::clock_gettime(CLOCK_MONOTONIC, &before);
    program.write_line();
    const uint64_t address = program.read_number();

    pollfd wanted{events->poll_fd(), POLLIN, 0};
    CHECK(::poll(&wanted, 1, 1000) == 1);
    const MappingBatch batch = events->read();
    CHECK(batch.lost == 0);
    bool is_seen = false;
    for (const MappingEvent& event : batch.events) {
        if (event.pid != program.pid() || event.mapping.path != folder / "plugin.so") continue;
        is_seen = is_seen || (event.mapping.start <= address && address < event.mapping.end);
        CHECK(event.mapping.is_executable);
        CHECK(event.time_ns / 1'000'000'000 - static_cast<uint64_t>(before.tv_sec) <= 5);
        CHECK(open_mapped_file(event.pid, event.mapping));
    }
    CHECK(is_seen);
}
