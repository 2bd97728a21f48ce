// What hits cost, and what a budget does about it.
#include "tracing/overhead.hpp"

#include "catch.hpp"
#include "memtrace/sampling_abi.h"

using namespace memtrace;

namespace {

constexpr TrapPrice price{.emulated_ns = 700, .stepped_ns = 9000, .return_ns = 500};
constexpr uint64_t second = 1'000'000'000;

Overhead measured(double core_share, double least_share = 0.001) {
    return {.hits_per_second = 1000, .core_share = core_share, .least_share = least_share};
}

}  // namespace

TEST_CASE("overhead is traps times their price and the programs' own time", "[overhead]") {
    ProgramRuns runs;
    runs.session_hits = 20'000;  // 10,000 calls and their returns
    runs.plain_hits = 10'000;
    runs.run_time_ns = 5'000'000;
    const Overhead full = overhead_of(runs, second, price, {}, false);
    CHECK(full.hits_per_second == Approx(30'000));
    CHECK(full.core_share == Approx(10'000 * (700 + 500 + 700) / 1e9 + 0.005));
    CHECK(full.least_share == Approx(1.1 * 10'000 * (700 + 700) / 1e9));
    const Overhead sampled = overhead_of(runs, second, price, {}, true);
    CHECK(sampled.core_share == Approx(30'000 * 700 / 1e9 + 0.005));
    const Overhead stepped = overhead_of(runs, second, price, {.is_free_emulated = false}, false);
    CHECK(stepped.core_share - full.core_share == Approx(10'000 * (9000 - 700) / 1e9));
    CHECK(overhead_of(runs, 0, price, {}, false).core_share == 0);
}

TEST_CASE("a prediction adds returns and programs to the entries that were counted", "[overhead]") {
    ProgramRuns calls;
    calls.session_hits = 3000;
    calls.plain_hits = 3000;
    const Overhead predicted = predicted_overhead(calls, 300'000'000, price, {});
    CHECK(predicted.hits_per_second == Approx(20'000));
    CHECK(predicted.core_share == Approx(1.4 * 10'000 * (700 + 500 + 700) / 1e9));
    CHECK(predicted.least_share == Approx(1.1 * 10'000 * (700 + 700) / 1e9));
}

TEST_CASE("a budget starts with as little sampling as it can", "[overhead]") {
    const Budget budget(0.05);
    CHECK(budget.start(measured(0.04)) == 0u);
    CHECK(budget.start(measured(0.09, 0.03)) == Budget::first_mean_bytes);
    CHECK_FALSE(budget.start(measured(0.09, 0.06)));
}

TEST_CASE("a budget backs off, comes back when it is calm, and gives up when the traps alone are too much",
          "[overhead]") {
    Budget budget(0.05);
    CHECK(budget.next(measured(0.04), 0).mean_bytes == 0);
    CHECK(budget.next(measured(0.06), 0).mean_bytes == Budget::first_mean_bytes);
    CHECK(budget.next(measured(0.06), 512u << 10).mean_bytes == 4u << 20);
    CHECK(budget.next(measured(0.06), 1u << 30).mean_bytes == 1u << 30);
    CHECK_FALSE(budget.next(measured(0.06), 1u << 30).gives_up);

    SECTION("calm") {
        uint32_t mean_bytes = 4u << 20;
        int measurements = 0;
        while (mean_bytes == 4u << 20 && ++measurements < 100)
            mean_bytes = budget.next(measured(0.01), mean_bytes).mean_bytes;
        CHECK(mean_bytes == 512u << 10);
        CHECK(measurements == 10);  // 5, doubled by the retreat above
        CHECK(budget.next(measured(0.03), mean_bytes).mean_bytes == mean_bytes);
    }
    SECTION("traps alone") {
        CHECK_FALSE(budget.next(measured(0.07, 0.06), 512u << 10).gives_up);
        CHECK_FALSE(budget.next(measured(0.07, 0.06), 4u << 20).gives_up);
        CHECK(budget.next(measured(0.07, 0.06), 4u << 20).gives_up);
    }
}

TEST_CASE("shares are told in percent", "[overhead]") {
    CHECK(share_text(0.0612) == "6.1%");
    CHECK(share_text(0.0001) == "<0.1%");
    CHECK(share_text(0) == "0.0%");
}
