// Sampling in the kernel: what is sampled, what a sampled block stands for, and that calls that are not sampled own
// what they call as all others do.
#include <cmath>

#include "bpf/tracing.hpp"
#include "heap/sampling.hpp"

using namespace memtrace;
using namespace memtrace::test;

namespace {

SessionOptions sampled(uint32_t mean_bytes) {
    SessionOptions options = small_tables();
    options.samples = true;
    options.sampling_mean_bytes = mean_bytes;
    return options;
}

/// Never sampled, but for once in a million tests.
constexpr uint32_t rarely = MT_MAX_SAMPLING_MEAN_BYTES;

}  // namespace

TEST_CASE("a sample of every byte has every block, and its figures are exact", "[bpf][sampling]") {
    const auto rung = GENERATE(every_rung());
    if (!can_trace(rung)) return;
    Tracing tracing(rung, {malloc_probe, calloc_probe, realloc_probe, posix_memalign_probe, free_probe}, sampled(1));
    tracing.run([](Shared&) {
        void* block = nullptr;
        own_malloc(0, block_at(0x1000));
        own_calloc(3, 33, [] { return own_malloc(99, block_at(0x2000)); });
        own_posix_memalign(&block, 64, 300, block_at(0x3000));
        own_realloc(block_at(0x2000), 50, block_at(0x4000));
        own_realloc(block_at(0x4000), 1ull << 40, nullptr);
        own_malloc(20, nullptr);
        own_free(block_at(0x3000), nullptr);
        own_free(block_at(0x9000), nullptr);
    });
    const Reading reading = tracing.read();
    CHECK(reading.blocks() == std::vector<LiveBlock>{{0x1000, 0}, {0x4000, 50}});
    CHECK(reading.totals().allocations == 4);
    CHECK(reading.totals().allocated_bytes == 99 + 300 + 50);
    CHECK(reading.totals().frees == 2);
    CHECK(reading.totals().freed_bytes == 99 + 300);
    CHECK(reading.counts() == Counts{{MT_COUNT_CALLS_SUPPRESSED, 1}});
}

TEST_CASE("calls that are not sampled suppress what they call, and leave nothing behind", "[bpf][sampling]") {
    const auto rung = GENERATE(every_rung());
    if (!can_trace(rung)) return;
    Tracing tracing(rung,
                    {malloc_probe, calloc_probe, realloc_probe, reallocarray_probe, new_probe, new_array_probe,
                     free_probe, mmap_probe, munmap_probe},
                    sampled(rarely));
    tracing.run([](Shared&) {
        own_malloc(64, [] {
            own_mmap(nullptr, 8192, 3, 34, -1, 0, block_at(0x100000));
            own_malloc(100, [] { return own_calloc(1, 2, block_at(0x1000)); });
            return block_at(0x2000);
        });
        own_reallocarray(nullptr, 2, 32, block_at(0x3000));
        own_new_array(
            10, [] { return own_mmap(nullptr, 8192, 3, 34, -1, 0, block_at(0x200000)); }, nullptr);
        own_mmap(nullptr, 4096, 3, 34, -1, 0, block_at(0x300000));
        own_munmap(block_at(0x300000), 4096, 0);
        own_free(block_at(0x2000), nullptr);
        own_realloc(block_at(0x3000), 10, [] {
            own_free(block_at(0x3000), nullptr);
            return own_malloc(10, block_at(0x4000));
        });
    });
    const Reading reading = tracing.read();
    CHECK(reading.blocks().empty());
    CHECK(reading.totals().allocations == 0);
    // mmap, malloc and calloc in malloc; realloc in reallocarray; mmap in operator new; free and malloc in realloc.
    CHECK(reading.counts() == Counts{{MT_COUNT_CALLS_SUPPRESSED, 7}});
    Events events = tracing.drain();
    CHECK(std::erase_if(events.mappings, [](const mt_mapping_event& event) {
              return event.flags == MT_MAPPING_OF_ALLOCATOR && event.site == 0;
          }) == 2);
    REQUIRE(events.mappings.size() == 2);
    CHECK(events.mappings[0].address == 0x300000);
    CHECK(events.mappings[1].header.type == MT_EVENT_UNMAP);
}

TEST_CASE("a sampled block is freed with what it stood for, whatever the mean is then", "[bpf][sampling]") {
    const auto rung = GENERATE(every_rung());
    if (!can_trace(rung)) return;
    Tracing tracing(rung, {malloc_probe, realloc_probe, free_probe}, sampled(4096));
    tracing.run([](Shared&) {
        for (uint64_t number = 1; number <= 300; ++number)
            own_malloc(1000, block_at(number << 12));
    });
    const Snapshot before = tracing.session().read_snapshot();
    REQUIRE(before.blocks.size() > 30);
    REQUIRE(before.blocks.size() < 110);
    const double weight = 1 / -std::expm1(-1000.0 / 4096);
    const SiteTotals live = Reading{before}.totals();
    CHECK(std::abs(static_cast<double>(live.live_blocks()) - weight * static_cast<double>(before.blocks.size())) < 1);
    CHECK(std::abs(static_cast<double>(live.live_bytes()) - 1000 * weight * static_cast<double>(before.blocks.size())) <
          1);
    tracing.session().set_sampling_mean(rarely);
    CHECK(tracing.session().sampling_mean() == rarely);
    tracing.run([](Shared&) {
        for (uint64_t number = 1; number <= 300; ++number)
            if (number % 2 == 0)
                own_free(block_at(number << 12), nullptr);
            else
                own_realloc(block_at(number << 12), 10, block_at(number << 12));
    });
    const Reading after{tracing.session().read_snapshot()};
    CHECK(after.blocks().empty());
    CHECK(after.totals().live_bytes() == 0);
    CHECK(after.totals().live_blocks() == 0);
    CHECK(after.totals().allocated_bytes == live.allocated_bytes);
    CHECK(after.counts() == Counts{});
}

TEST_CASE("fifty runs of sizes from 1 byte to 100 MB agree with the truth", "[bpf][sampling]") {
    const auto rung = GENERATE(AttachRung::session, AttachRung::multi);
    if (!can_trace(rung)) return;
    constexpr uint32_t mean_bytes = 16384;
    Tracing tracing(rung, {malloc_probe, new_probe, free_probe}, sampled(mean_bytes));
    constexpr int run_count = 50;
    double standardized = 0;
    int covered = 0;
    double blocks = 0;
    double true_blocks = 0;
    for (int run = 0; run < run_count; ++run) {
        tracing.run([](Shared& shared) {
            uint64_t bytes = 0;
            for (uint64_t number = 1; number <= 400; ++number) {
                // Powers of ten and more, the small ones most often.
                uint64_t size_bytes = 1;
                for (uint64_t steps = number % 80; steps >= 10; steps -= 10)
                    size_bytes *= 13;
                if (number == 400) size_bytes = 100'000'000;
                if (number % 3 == 0)
                    own_new(size_bytes, block_at(number << 12), nullptr);
                else
                    own_malloc(size_bytes, block_at(number << 12));
                bytes += size_bytes;
            }
            shared.numbers[0] = bytes;
        });
        const Reading reading{tracing.session().read_snapshot()};
        SampledSums sums;
        for (const Block& block : reading.snapshot.blocks)
            sums.add(block);
        const auto truth = static_cast<double>(tracing.target().shared().numbers[0].load());
        CHECK(std::abs(static_cast<double>(reading.totals().live_bytes()) - sums.size_bytes) < 5);
        standardized += (sums.size_bytes - truth) / std::sqrt(sums.variance);
        covered += std::abs(sums.size_bytes - truth) < static_cast<double>(sums.error_bytes());
        blocks += sums.blocks;
        true_blocks += 400;
        tracing.run([](Shared&) {
            for (uint64_t number = 1; number <= 400; ++number)
                own_free(block_at(number << 12), nullptr);
        });
        CHECK(Reading{tracing.session().read_snapshot()}.totals().live_bytes() == 0);
    }
    INFO("mean deviation " << standardized / run_count << ", covered " << covered << ", blocks "
                           << blocks / true_blocks);
    // The mean of 50 standardized errors has a standard error of 1/7.
    CHECK(std::abs(standardized) / run_count < 4 / std::sqrt(run_count));
    CHECK(covered >= 20);
    CHECK(covered <= 46);
}
