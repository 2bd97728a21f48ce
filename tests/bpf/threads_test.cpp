// Threads that race on one allocator: the balance is exact when they stand still, and never absurd while they run.
#include <array>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <random>
#include <thread>

#include "bpf/tracing.hpp"

using namespace memtrace;
using namespace memtrace::test;

namespace {

constexpr int thread_count = 4;
constexpr int rounds = 4000;

/// The numbers of Shared that the racing threads fill.
enum Number { allocations, allocated_bytes, freed_blocks, freed_bytes, has_to_stop };

void* traced_malloc(Shared& shared, size_t size_bytes) {
    shared.numbers[allocations].fetch_add(1);
    shared.numbers[allocated_bytes].fetch_add(size_bytes);
    return own_malloc(size_bytes, [=] { return std::malloc(size_bytes); });
}

void traced_free(Shared& shared, void* block, size_t size_bytes) {
    shared.numbers[freed_blocks].fetch_add(1);
    shared.numbers[freed_bytes].fetch_add(size_bytes);
    own_free(block, [=] {
        std::free(block);
        return nullptr;
    });
}

void* traced_realloc(Shared& shared, void* block, size_t old_size_bytes, size_t size_bytes) {
    shared.numbers[allocations].fetch_add(1);
    shared.numbers[allocated_bytes].fetch_add(size_bytes);
    shared.numbers[freed_blocks].fetch_add(1);
    shared.numbers[freed_bytes].fetch_add(old_size_bytes);
    return own_realloc(block, size_bytes, [=] { return std::realloc(block, size_bytes); });
}

struct Held {
    void* block = nullptr;
    size_t size_bytes = 0;
};

/// Blocks that any thread may take, resize and give back: addresses go from one thread to the other.
struct Exchange {
    std::mutex mutex;
    std::array<Held, 64> held{};

    Held swap(size_t index, Held mine) {
        const std::lock_guard lock(mutex);
        return std::exchange(held[index], mine);
    }
};

void race(Shared& shared, Exchange& exchange, unsigned seed, int how_often) {
    std::minstd_rand random(seed);
    for (int round = 0; round < how_often && shared.numbers[has_to_stop] == 0; ++round) {
        const size_t size_bytes = 1 + random() % 200;
        Held mine = exchange.swap(random() % exchange.held.size(), {});
        if (mine.block && random() % 2) {
            traced_free(shared, mine.block, mine.size_bytes);
            continue;
        }
        void* const block = mine.block ? traced_realloc(shared, mine.block, mine.size_bytes, size_bytes)
                                       : traced_malloc(shared, size_bytes);
        mine = exchange.swap(random() % exchange.held.size(), {block, size_bytes});
        if (mine.block) traced_free(shared, mine.block, mine.size_bytes);
    }
}

void race_in_threads(Shared& shared, int how_often) {
    Exchange exchange;
    std::vector<std::thread> threads;
    for (unsigned thread = 0; thread < thread_count; ++thread)
        threads.emplace_back([&, thread] { race(shared, exchange, thread + 1, how_often); });
    for (std::thread& thread : threads)
        thread.join();
    for (const Held& held : exchange.held)
        if (held.block) shared.hold(held.block, held.size_bytes);
}

std::vector<LiveBlock> held_blocks(Shared& shared) {
    std::vector<LiveBlock> blocks;
    for (uint32_t index = 0; index < shared.block_count; ++index)
        blocks.push_back({shared.blocks[index].address, shared.blocks[index].size_bytes});
    std::ranges::sort(blocks);
    return blocks;
}

/// Lets the target run until that much of it is recorded, however slow this host is.
void wait_for_allocations(const Session& session, uint64_t count) {
    constexpr int looks = 5000;
    for (int look = 0; look < looks; ++look) {
        if (Reading{session.read_snapshot()}.totals().allocations >= count) return;
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    FAIL("the target's threads do nothing");
}

const std::vector<OwnProbe> racing_probes = {malloc_probe, realloc_probe, free_probe};

}  // namespace

TEST_CASE("threads that race on one allocator balance to the byte", "[bpf]") {
    const auto rung = GENERATE(every_rung());
    if (!can_trace(rung)) return;
    Tracing tracing(rung, racing_probes);
    tracing.run([](Shared& shared) { race_in_threads(shared, rounds); });
    Shared& truth = tracing.target().shared();
    const Reading reading = tracing.read();
    CHECK(reading.blocks() == held_blocks(truth));
    CHECK(reading.blocks().size() > 0);
    CHECK(reading.totals().allocations == truth.numbers[allocations]);
    CHECK(reading.totals().allocated_bytes == truth.numbers[allocated_bytes]);
    CHECK(reading.totals().frees == truth.numbers[freed_blocks]);
    CHECK(reading.totals().freed_bytes == truth.numbers[freed_bytes]);
    CHECK(reading.snapshot.address_spaces.size() == 1);
    Counts counts = reading.counts();
    // Where another thread was changing the mappings at that moment, a stack is cut; its block is not.
    std::erase_if(counts, [](const Count& count) { return count.counter == MT_COUNT_STACKS_TRUNCATED; });
    CHECK(counts == Counts{});
}

TEST_CASE("a snapshot in the midst of a race is never absurd", "[bpf]") {
    const auto rung = GENERATE(every_rung());
    if (!can_trace(rung)) return;
    Tracing tracing(rung, racing_probes);
    tracing.target().start([](Shared& shared) { race_in_threads(shared, 1 << 30); });
    wait_for_allocations(tracing.session(), 1000);
    uint64_t last_allocations = 0;
    for (int look = 0; look < 50; ++look) {
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
        const Reading reading{tracing.session().read_snapshot()};
        for (const Site& site : reading.snapshot.sites) {
            CHECK(static_cast<int64_t>(site.totals.live_blocks()) >= 0);
            CHECK(static_cast<int64_t>(site.totals.live_bytes()) >= 0);
        }
        for (const Block& block : reading.snapshot.blocks) {
            CHECK(block.owner == 1);
            CHECK(block.size_bytes <= 200);
            CHECK(block.birth_ns <= reading.snapshot.time_ns);
        }
        CHECK(reading.totals().allocations >= last_allocations);
        last_allocations = reading.totals().allocations;
    }
    tracing.target().shared().numbers[has_to_stop] = 1;
    tracing.target().finish();
    CHECK(tracing.read().blocks() == held_blocks(tracing.target().shared()));
}

TEST_CASE("attaching at full speed leaves no block that the target does not hold", "[bpf]") {
    const auto rung = GENERATE(every_rung());
    if (!can_trace(rung)) return;
    const int times = rung == AttachRung::perf ? 2 : 8;
    for (int time = 0; time < times; ++time) {
        Tracing tracing(rung);
        tracing.target().start([](Shared& shared) { race_in_threads(shared, 1 << 30); });
        while (tracing.target().shared().numbers[allocations] == 0)
            std::this_thread::yield();
        tracing.attach(racing_probes);
        tracing.add_target(MT_TARGET_ARMED);
        tracing.session().arm();
        wait_for_allocations(tracing.session(), 1000);
        tracing.target().shared().numbers[has_to_stop] = 1;
        tracing.target().finish();
        const Reading reading = tracing.read();
        const std::vector<LiveBlock> held = held_blocks(tracing.target().shared());
        for (const LiveBlock& block : reading.blocks()) {
            INFO(block);
            CHECK(std::ranges::binary_search(held, block));
        }
        CHECK(reading.count(MT_COUNT_FREES_MISSED) == 0);
    }
}
