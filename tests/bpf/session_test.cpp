// When recording starts and stops, and whose: arming, disarming, targets, exec, exit and what is left of the ended.
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "bpf/tracing.hpp"

using namespace memtrace;
using namespace memtrace::test;

namespace {

constexpr int exec_failed = 99;
constexpr const char* program_after_exec = "the program that a target of these tests becomes by exec";

void become_a_program_that_allocates(Shared&) {
    execl("/proc/self/exe", "bpf_tests", program_after_exec, "-o", "/dev/null", nullptr);
    _exit(exec_failed);
}

void malloc_one_and_free_another(Shared&) {
    own_malloc(10, block_at(0x1000));
    own_free(block_at(0x8000), nullptr);
}

/// Targets that make one block each and end.
void make_address_spaces(Session& session, int count) {
    int gate[2];
    REQUIRE(pipe(gate) == 0);
    std::vector<pid_t> children;
    for (int index = 0; index < count; ++index) {
        const pid_t child = fork();
        if (child == 0) {
            char byte;
            if (read(gate[0], &byte, 1) == 1) own_malloc(10, block_at(0x1000));
            _exit(0);
        }
        children.push_back(child);
        REQUIRE(session.add_target(child, MT_TARGET_ARMED));
    }
    const std::string go(children.size(), 'g');
    CHECK(write(gate[1], go.data(), go.size()) == count);
    close(gate[0]);
    close(gate[1]);
    for (const pid_t child : children) {
        waitpid(child, nullptr, 0);
        session.remove_target(child);
    }
}

/// Answers each event with an allocation, which is the next event.
struct Flood : Events {
    explicit Flood(Tracing& flooded) : tracing(flooded) {}
    void on_block(const mt_block_event& event) override {
        Events::on_block(event);
        constexpr size_t far_too_many = 100;
        if (blocks.size() < far_too_many) tracing.run([](Shared&) { own_malloc(10, block_at(0x1000)); });
    }
    Tracing& tracing;
};

std::vector<mt_event_type> types_of(const std::vector<mt_process_event>& events) {
    std::vector<mt_event_type> types;
    for (const mt_process_event& event : events)
        types.push_back(static_cast<mt_event_type>(event.header.type));
    return types;
}

}  // namespace

// Hidden: what runs after an exec. Its own address space, one block.
TEST_CASE("the program that a target of these tests becomes by exec", "[.]") {
    CHECK(own_malloc(77, block_at(0x7000)) == block_at(0x7000));
}

TEST_CASE("nothing is recorded before arming, nor after disarming", "[bpf]") {
    const auto rung = GENERATE(every_rung());
    if (!can_trace(rung)) return;
    Tracing tracing(rung);
    tracing.attach({malloc_probe, free_probe});
    tracing.add_target(MT_TARGET_ARMED);

    tracing.run(malloc_one_and_free_another);
    CHECK(tracing.read().snapshot.address_spaces.empty());
    CHECK(tracing.read().snapshot.sites.empty());
    CHECK(tracing.read().snapshot.blocks.empty());

    tracing.session().arm();
    tracing.run([](Shared&) { own_malloc(20, block_at(0x2000)); });
    tracing.session().disarm();
    tracing.run(malloc_one_and_free_another);
    tracing.run([](Shared&) { own_free(block_at(0x2000), nullptr); });
    const Reading reading = tracing.read();
    CHECK(reading.blocks() == std::vector<LiveBlock>{{0x2000, 20}});
    CHECK(reading.counts() == Counts{});
}

TEST_CASE("what a followed target forks has an owner before it runs, and is recorded once it is armed", "[bpf]") {
    const auto rung = GENERATE(every_rung());
    if (!can_trace(rung)) return;
    Tracing tracing(rung);
    tracing.attach_to_all({malloc_probe, free_probe});
    REQUIRE(tracing.session().add_target(tracing.target().pid(), MT_TARGET_ARMED, true));
    tracing.session().arm();
    tracing.run([](Shared&) { own_malloc(10, block_at(0x1000)); });
    const uint32_t parent_owner = tracing.read().snapshot.address_spaces.at(0).owner;
    (void)tracing.drain();

    tracing.run([](Shared& shared) {
        const pid_t child = fork();
        if (child == 0) {
            own_malloc(20, block_at(0x2000));
            shared.numbers[2] = 1;
            while (shared.numbers[3] == 0)
                usleep(1000);
            own_malloc(30, block_at(0x3000));
            _exit(0);
        }
        shared.numbers[0] = static_cast<uint64_t>(child);
        while (shared.numbers[2] == 0)
            usleep(1000);
    });
    const auto child = static_cast<uint32_t>(tracing.target().shared().numbers[0]);
    const Events events = tracing.drain();
    REQUIRE(types_of(events.processes) == std::vector<mt_event_type>{MT_EVENT_FORK});
    const mt_process_event& fork_event = events.processes.front();
    CHECK(fork_event.header.tgid == child);
    CHECK(fork_event.parent_owner == parent_owner);
    CHECK(fork_event.parent_tgid == static_cast<uint32_t>(tracing.target().pid()));
    REQUIRE(fork_event.header.owner != 0);
    CHECK(tracing.read().blocks() == std::vector<LiveBlock>{{0x1000, 10}});

    tracing.session().arm_owner(fork_event.header.owner);
    tracing.target().shared().numbers[3] = 1;
    tracing.run([](Shared& shared) { waitpid(static_cast<pid_t>(shared.numbers[0]), nullptr, 0); });
    CHECK(tracing.read().blocks() == std::vector<LiveBlock>{{0x1000, 10}, {0x3000, 30}});
    CHECK(types_of(tracing.drain().processes) == std::vector<mt_event_type>{MT_EVENT_EXIT});
}

TEST_CASE("a process that is no target is not recorded, not even a child of one", "[bpf]") {
    const auto rung = GENERATE(every_rung());
    if (!can_trace(rung)) return;
    Tracing tracing(rung);
    tracing.attach({malloc_probe, free_probe});
    tracing.session().arm();
    tracing.run(malloc_one_and_free_another);
    CHECK(tracing.read().snapshot.address_spaces.empty());

    tracing.add_target(MT_TARGET_ARMED);
    own_malloc(30, block_at(0x3000));
    tracing.run([](Shared& shared) {
        const pid_t child = fork();
        if (child == 0) {
            malloc_one_and_free_another(shared);
            _exit(0);
        }
        int status = -1;
        waitpid(child, &status, 0);
        shared.numbers[0] = static_cast<uint64_t>(status);
        own_malloc(40, block_at(0x4000));
    });
    CHECK(tracing.target().shared().numbers[0] == 0);
    const Reading reading = tracing.read();
    CHECK(reading.blocks() == std::vector<LiveBlock>{{0x4000, 40}});
    REQUIRE(reading.snapshot.address_spaces.size() == 1);
    CHECK(reading.snapshot.address_spaces[0].pid == tracing.target().pid());
    CHECK(reading.counts() == Counts{});
    CHECK(tracing.session().owners_not_recorded() == 0);
}

TEST_CASE("a target that is removed is recorded no more", "[bpf]") {
    const auto rung = GENERATE(every_rung());
    if (!can_trace(rung)) return;
    Tracing tracing(rung, {malloc_probe, free_probe});
    tracing.run([](Shared&) { own_malloc(20, block_at(0x2000)); });
    const std::vector<uint32_t> owner = {tracing.session().remove_target(tracing.target().pid())};
    CHECK(owner.front() != 0);
    tracing.run(malloc_one_and_free_another);
    const Reading reading = tracing.read();
    CHECK(reading.blocks() == std::vector<LiveBlock>{{0x2000, 20}});
    CHECK(reading.counts() == Counts{});
    // The process lives on, and its number is free for another one.
    CHECK(tracing.session().releasable(owner) == owner);
    tracing.session().release(owner);
    CHECK(tracing.read().blocks().empty());
}

TEST_CASE("an exec ends the address space, and the next one is another owner", "[bpf]") {
    const auto rung = GENERATE(every_rung());
    if (!can_trace(rung)) return;
    Tracing tracing(rung, {malloc_probe, free_probe});
    tracing.run([](Shared&) { own_malloc(20, block_at(0x7000)); });
    const int status = tracing.target().wait_for_end(become_a_program_that_allocates);
    CHECK(status == 0);

    const Reading reading = tracing.read();
    REQUIRE(reading.snapshot.address_spaces.size() == 2);
    const AddressSpace& before = reading.snapshot.address_spaces[0];
    const AddressSpace& after = reading.snapshot.address_spaces[1];
    CHECK(before.pid == after.pid);
    CHECK(before.ended_ns > before.first_seen_ns);
    CHECK(after.first_seen_ns > before.ended_ns);
    CHECK(after.ended_ns > after.first_seen_ns);
    // The same address in two address spaces is two blocks.
    CHECK(reading.blocks() == std::vector<LiveBlock>{{0x7000, 20}, {0x7000, 77}});
    const std::vector<mt_process_event> events = tracing.drain().processes;
    REQUIRE(types_of(events) ==
            std::vector<mt_event_type>{MT_EVENT_OWNER, MT_EVENT_EXEC, MT_EVENT_OWNER, MT_EVENT_EXIT});
    CHECK(events[0].header.owner == before.owner);
    CHECK(events[1].header.owner == before.owner);
    CHECK(events[2].header.owner == after.owner);
    CHECK(events[3].header.owner == after.owner);
}

TEST_CASE("a target that is armed at exec is recorded from there on", "[bpf]") {
    const auto rung = GENERATE(every_rung());
    if (!can_trace(rung)) return;
    Tracing tracing(rung);
    tracing.attach({malloc_probe, free_probe});
    tracing.add_target(MT_TARGET_ARM_AT_EXEC);
    tracing.session().arm();
    tracing.run(malloc_one_and_free_another);
    CHECK(tracing.read().snapshot.address_spaces.empty());
    CHECK(tracing.target().wait_for_end(become_a_program_that_allocates) == 0);
    const Reading reading = tracing.read();
    CHECK(reading.blocks() == std::vector<LiveBlock>{{0x7000, 77}});
    CHECK(reading.counts() == Counts{});
}

TEST_CASE("an exit tells the status as wait does, and what was live stays until it is released", "[bpf]") {
    const auto rung = GENERATE(every_rung());
    if (!can_trace(rung)) return;
    SessionOptions options = small_tables();
    options.max_live_blocks = 64;  // so that some blocks are in the overflow table
    Tracing tracing(rung, {malloc_probe, free_probe}, options);
    tracing.run([](Shared&) {
        for (uint64_t index = 1; index <= 500; ++index)
            own_malloc(10, block_at(index * 0x40));
    });
    SECTION("by exit") {
        const int status = tracing.target().wait_for_end([](Shared&) { _exit(7); });
        CHECK(status == 7 << 8);
    }
    SECTION("by a signal") {
        const int status = tracing.target().wait_for_end([](Shared&) { raise(SIGKILL); });
        CHECK(status == SIGKILL);
    }
    const Reading ended = tracing.read();
    REQUIRE(ended.snapshot.address_spaces.size() == 1);
    const AddressSpace& space = ended.snapshot.address_spaces[0];
    const std::vector<mt_process_event> events = tracing.drain().processes;
    REQUIRE(types_of(events) == std::vector<mt_event_type>{MT_EVENT_OWNER, MT_EVENT_EXIT});
    CHECK((events[1].exit_code == 7 << 8 || events[1].exit_code == SIGKILL));
    CHECK(space.exit_code == events[1].exit_code);
    CHECK(space.ended_ns > 0);
    CHECK(ended.blocks().size() == ended.totals().allocations);
    CHECK(ended.blocks().size() > 128);

    const std::vector<uint32_t> owners = {space.owner};
    CHECK(tracing.session().releasable(owners) == owners);
    const Snapshot last = tracing.session().release(owners);
    CHECK(Reading{last}.totals().allocations == ended.totals().allocations);
    const Snapshot released = tracing.session().read_snapshot();
    CHECK(released.blocks.empty());
    CHECK(released.sites.empty());
    CHECK(released.address_spaces.empty());
}

TEST_CASE("a target beyond those that one session can have is an error", "[bpf]") {
    if (!can_trace(AttachRung::perf)) return;
    Tracing tracing(AttachRung::perf);
    constexpr pid_t no_process = 1 << 23;  // beyond PID_MAX_LIMIT
    for (pid_t index = 0; index < MT_MAX_OWNERS; ++index)
        if (!tracing.session().add_target(no_process + index, MT_TARGET_ARMED)) FAIL("target " << index);
    CHECK_FALSE(tracing.session().add_target(no_process + MT_MAX_OWNERS, MT_TARGET_ARMED));
    tracing.session().remove_target(no_process);
    CHECK(tracing.session().add_target(no_process + MT_MAX_OWNERS, MT_TARGET_ARMED));
}

// Hidden: it takes some thousand processes. One rung is enough: the probes play no part in it.
TEST_CASE("an address space beyond those that one session can tell apart is counted", "[.slow]") {
    if (!can_trace(AttachRung::session)) return;
    SessionOptions options = small_tables();
    options.ring_size_bytes = 4096;
    Tracing tracing(AttachRung::session, options);
    tracing.attach_to_all({malloc_probe});
    tracing.session().arm();
    constexpr int beyond = 1 + 64;
    constexpr int at_a_time = 64;
    static_assert((MT_MAX_OWNERS - 1 + beyond) % at_a_time == 0);
    for (int index = 0; index < MT_MAX_OWNERS - 1 + beyond; index += at_a_time)
        make_address_spaces(tracing.session(), at_a_time);
    CHECK(tracing.session().owners_not_recorded() == beyond);
    CHECK(tracing.read().totals().allocations == MT_MAX_OWNERS - 1);
}

TEST_CASE("events that come while others are handed over wait for the next time, and none is lost", "[bpf]") {
    if (!can_trace(AttachRung::session)) return;
    SessionOptions options = small_tables();
    options.traces_blocks = true;
    Tracing tracing(AttachRung::session, {malloc_probe}, options);
    tracing.run([](Shared&) {
        own_malloc(10, block_at(0x1000));
        own_malloc(10, block_at(0x2000));
    });
    Flood flood(tracing);
    tracing.session().drain_events(flood);
    // The first of the flood is known to be too late when it has been handed over.
    CHECK(flood.blocks.size() >= 2);
    CHECK(flood.blocks.size() <= 3);
    const size_t made = 2 + flood.blocks.size();
    CHECK(tracing.drain().blocks.size() + flood.blocks.size() == made);
}
