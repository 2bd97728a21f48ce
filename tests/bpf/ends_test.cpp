// What ended address spaces give back, so that others can come for ever; and what one process leaves for its neighbour.
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <map>
#include <utility>

#include "bpf/family.hpp"

using namespace memtrace;
using namespace memtrace::test;

namespace {

void malloc_at_four_sites(uint64_t address) {
    malloc_at_each_site(address, std::make_integer_sequence<uint64_t, 4>());
}

constexpr uint64_t bytes_of_four_sites = 406;

/// In a child: what it does once it is armed.
void be_a_generation(Shared& shared, uint64_t generation) {
    wait_for(shared.numbers[armed], generation);
    malloc_at_four_sites(0x10000);
    _exit(0);
}

/// In a table for a million.
void check_release(uint64_t count) {
    SessionOptions options = small_tables();
    options.max_live_blocks = 1u << 20;
    Tracing tracing(AttachRung::session, {malloc_probe, free_probe}, options);
    constexpr uint64_t at_a_time = 50'000;
    for (uint64_t made = 0; made < count; made += at_a_time)
        tracing.run([](Shared& shared) {
            const uint64_t first = shared.numbers[0].fetch_add(at_a_time);
            for (uint64_t index = first + 1; index <= first + at_a_time; ++index)
                own_malloc(32, block_at(index * 0x30));
        });
    REQUIRE(tracing.target().wait_for_end([](Shared&) { _exit(0); }) == 0);
    const Snapshot ended = tracing.session().read_snapshot();
    CHECK(ended.blocks.size() == count);
    const std::vector<uint32_t> owners = {ended.address_spaces.at(0).owner};
    const auto start = std::chrono::steady_clock::now();
    REQUIRE(tracing.session().releasable(owners) == owners);
    CHECK(Reading{tracing.session().release(owners)}.totals().live_blocks() == count);
    CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(1));
    CHECK(tracing.session().read_snapshot().blocks.empty());
}

}  // namespace

TEST_CASE("generation after generation has the serials and call sites of those before", "[bpf]") {
    if (!can_trace(AttachRung::session)) return;
    SessionOptions options = small_tables();
    options.max_address_spaces = 8;
    options.max_sites = 12;
    options.max_live_blocks = 64;
    Family family(AttachRung::session, options);
    Session& session = family.tracing().session();
    family.tracing().run([](Shared&) { own_malloc(1, block_at(0x10000)); });
    constexpr uint64_t generations = 100;
    std::map<uint32_t, uint64_t> uses_of_serials;
    std::vector<uint32_t> ended;
    for (uint64_t generation = 1; generation <= generations; ++generation) {
        family.tracing().target().shared().numbers[done] = generation;
        family.tracing().target().start([](Shared& shared) {
            const uint64_t number = shared.numbers[done];
            const pid_t child = fork();
            if (child == 0) be_a_generation(shared, number);
            waitpid(child, nullptr, 0);
        });
        const uint32_t owner = family.arm_child();
        ++uses_of_serials[owner];
        family.shared().numbers[armed] = generation;
        family.tracing().target().finish();
        while (family.exits() < generation)
            usleep(200);
        const std::vector<uint32_t> releasable = session.releasable(std::vector{owner});
        REQUIRE(releasable.size() == 1);
        session.wait_for_programs();
        const Snapshot last = session.release(releasable);
        REQUIRE(last.address_spaces.size() == 1);
        REQUIRE(last.address_spaces[0].counters == decltype(AddressSpace::counters){});
        REQUIRE(Reading{last}.totals().allocated_bytes == bytes_of_four_sites);
    }
    CHECK(session.owners_not_recorded() == 0);
    CHECK(uses_of_serials.size() == 7);
    const Reading reading = family.tracing().read();
    CHECK(reading.blocks() == std::vector<LiveBlock>{{0x10000, 1}});
    CHECK(reading.snapshot.sites.size() == 1);
    CHECK(reading.snapshot.address_spaces.size() == 1);
    CHECK(reading.counts() == Counts{});
}

TEST_CASE("of an address space that a snapshot shows as ended, the sums are the last ones", "[bpf]") {
    if (!can_trace(AttachRung::session)) return;
    SessionOptions options = small_tables();
    options.max_live_blocks = 1u << 18;  // so that to read it takes a while
    Family family(AttachRung::session, options);
    Session& session = family.tracing().session();
    session.arm_children_at_fork(true);
    family.tracing().target().start([](Shared& shared) {
        for (int index = 0; index < 150; ++index) {
            const pid_t child = fork();
            if (child == 0) {
                malloc_at_four_sites(0x10000);
                _exit(0);
            }
            waitpid(child, nullptr, 0);
        }
        shared.numbers[done] = 1;
    });
    uint64_t unlike = 0;
    while (family.shared().numbers[done] == 0) {
        const Snapshot snapshot = session.read_snapshot();
        std::map<uint32_t, uint64_t> allocations;
        for (const Site& site : snapshot.sites)
            allocations[site.owner] += site.totals.allocations;
        for (const AddressSpace& space : snapshot.address_spaces)
            unlike += space.ended_ns != 0 && allocations[space.owner] != 4;
    }
    CHECK(unlike == 0);
    family.tracing().target().finish();
    CHECK(family.tracing().read().totals().allocations == 4 * 150);
}

TEST_CASE("of parents that fork and exit, those too far up are let go, and what is lost with them is counted",
          "[bpf]") {
    if (!can_trace(AttachRung::session)) return;
    SessionOptions options = small_tables();
    options.max_address_spaces = 60;
    Family family(AttachRung::session, options);
    Session& session = family.tracing().session();
    constexpr uint64_t generations = 90;
    family.tracing().target().start([](Shared& shared) {
        own_malloc(10, block_at(0x1000));
        own_malloc(20, block_at(0x2000));
        for (uint64_t generation = 1; generation <= generations; ++generation) {
            if (fork() != 0) _exit(0);
            wait_for(shared.numbers[armed], generation);
        }
        wait_for(shared.numbers[may_end], 1);
        _exit(0);
    });
    std::vector<uint32_t> owners = {
        session.read_snapshot().address_spaces.empty() ? 1 : session.read_snapshot().address_spaces[0].owner};
    uint64_t lost = 0;
    for (uint64_t generation = 1; generation <= generations; ++generation) {
        owners.push_back(family.arm_child());
        while (family.exits() < generation)
            usleep(200);
        const std::vector<uint32_t> releasable = session.releasable(owners);
        std::erase_if(owners, [&](uint32_t owner) { return std::ranges::find(releasable, owner) != releasable.end(); });
        lost += Reading{session.release(releasable)}.count(MT_COUNT_INHERITED_LOST);
        family.shared().numbers[armed] = generation;
    }
    CHECK(session.owners_not_recorded() == 0);
    CHECK(owners.size() < 40);
    CHECK(lost + family.tracing().read().count(MT_COUNT_INHERITED_LOST) == 2);
    family.shared().numbers[may_end] = 1;
}

TEST_CASE("a process that has its share of the tables leaves its neighbour exact", "[bpf][losses]") {
    if (!can_trace(AttachRung::session)) return;
    SessionOptions options = small_tables();
    options.max_live_blocks = 256;
    options.max_sites = 6;
    options.max_process_blocks = 128;
    options.max_process_sites = 3;
    Family family(AttachRung::session, options);
    family.tracing().run([](Shared& shared) {
        if (fork() == 0) {
            wait_for(shared.numbers[armed], 1);
            malloc_at<0>(0x1000);
            malloc_at<1>(0x2000);
            for (uint64_t index = 3; index <= 100; ++index)
                malloc_at<2>(index * 0x1000);
            shared.numbers[done] = 1;
            wait_for(shared.numbers[may_end], 1);
            _exit(0);
        }
        for (uint64_t index = 1; index <= 500; ++index)
            own_malloc(16, block_at(index * 0x100000));
        malloc_at_four_sites(0x10000);
        own_free(block_at(0x100000), nullptr);
        own_free(block_at(0x200000), nullptr);
        malloc_at<1>(0x10000);
        malloc_at<3>(0x20000);
    });
    (void)family.arm_child();
    family.shared().numbers[armed] = 1;
    wait_for(family.shared().numbers[done], 1);
    const Reading reading = family.tracing().read();
    const auto& spaces = reading.snapshot.address_spaces;
    REQUIRE(spaces.size() == 2);
    const bool is_hog_first = spaces[0].pid == family.tracing().target().pid();
    const AddressSpace& hog = spaces[is_hog_first ? 0 : 1];
    const AddressSpace& neighbour = spaces[is_hog_first ? 1 : 0];
    CHECK(hog.counters[MT_COUNT_BLOCKS_QUOTA] == 500 + 4 - 128);
    CHECK(neighbour.counters == decltype(AddressSpace::counters){});
    std::map<uint32_t, uint64_t> blocks;
    for (const Block& block : reading.snapshot.blocks)
        ++blocks[block.owner];
    CHECK(blocks[hog.owner] == 128);
    CHECK(blocks[neighbour.owner] == 100);
    CHECK(hog.counters[MT_COUNT_STACKS_QUOTA] > 0);
    CHECK(reading.count(MT_COUNT_BLOCKS_LIVE_TABLE_FULL) == 0);
    CHECK(reading.count(MT_COUNT_STACKS_SITES_FULL) == 0);
    family.shared().numbers[may_end] = 1;
}

TEST_CASE("many live blocks of an ended process give their room back within a second", "[bpf]") {
    if (can_trace(AttachRung::session)) check_release(50'000);
}

// Hidden: on a busy machine it takes minutes to make them.
TEST_CASE("a million live blocks of an ended process give their room back within a second", "[.slow]") {
    if (can_trace(AttachRung::session)) check_release(1'000'000);
}

// Hidden: it takes minutes. What the tables hold and what the test holds stay as they are.
TEST_CASE("fifty thousand generations run out of nothing", "[.slow]") {
    if (!can_trace(AttachRung::session)) return;
    SessionOptions options = small_tables();
    options.ring_size_bytes = 8u << 20;
    Family family(AttachRung::session, options);
    Session& session = family.tracing().session();
    constexpr uint64_t generations = 50'000;
    constexpr uint64_t at_a_time = 2000;
    uint64_t released = 0;
    family.tracing().run([](Shared&) { own_malloc(1, block_at(0x10000)); });
    for (uint64_t number = 0; number < generations; number += at_a_time) {
        family.tracing().run([](Shared&) {
            for (uint64_t index = 0; index < at_a_time; ++index) {
                const pid_t child = fork();
                if (child == 0) _exit(0);
                waitpid(child, nullptr, 0);
            }
        });
        while (family.exits() < number + at_a_time)
            usleep(200);
        released += family.release_all(family.take_forked());
    }
    CHECK(released == generations);
    CHECK(session.owners_not_recorded() == 0);
    CHECK(family.tracing().read().snapshot.address_spaces.size() == 1);
}
