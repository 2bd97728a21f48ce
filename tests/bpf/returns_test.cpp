// Functions whose return is seen at their own return instructions, because they may throw.
#include <algorithm>
#include <stdexcept>

#include "bpf/tracing.hpp"
#include "probes/allocator_table.hpp"

using namespace memtrace;
using namespace memtrace::test;

namespace {

AllocatorFunction pool_function(std::string_view symbol, mt_operation operation, mt_u8 size, mt_u8 old) {
    AllocatorFunction function{.family = "pool", .symbol = symbol, .name = symbol};
    function.row.operation = static_cast<mt_u8>(operation);
    function.row.size_argument = size;
    function.row.old_argument = old;
    function.row.flags = MT_ROW_RETURN_INSTRUCTIONS;
    return function;
}

/// The pool's functions, as a user would name them, and malloc and free beneath.
class PoolTracing {
  public:
    explicit PoolTracing(AttachRung rung) : tracing_(rung, options()) {
        tracing_.attach({malloc_probe, realloc_probe, free_probe});
        tracing_.attach_file("/proc/self/exe", points_of_file("/proc/self/exe", table_));
        tracing_.add_target(MT_TARGET_ARMED);
        tracing_.session().arm();
    }

    Tracing& tracing() { return tracing_; }
    Reading run(Step step) {
        tracing_.run(step);
        return tracing_.read();
    }
    /// Sites of the function `symbol` that have allocations.
    std::vector<Site> sites(const Reading& reading, std::string_view symbol) const {
        std::vector<Site> sites;
        for (const Site& site : reading.snapshot.sites)
            if (table_[site.row].symbol == symbol && site.totals.allocations > 0) sites.push_back(site);
        return sites;
    }

  private:
    SessionOptions options() {
        for (const auto& function :
             {pool_function("own_pool_get", MT_OP_ALLOCATE, 1, 0),
              pool_function("own_pool_get_by_jump", MT_OP_ALLOCATE, 1, 0),
              pool_function("own_pool_get_anywhere", MT_OP_ALLOCATE, 1, 0),
              pool_function("own_pool_grow", MT_OP_REALLOCATE, 2, 1), pool_function("own_pool_put", MT_OP_FREE, 0, 1),
              pool_function("own_pool_put_by_jump", MT_OP_FREE, 0, 1),
              pool_function("own_pool_resize", MT_OP_RESIZE, 2, 1)})
            REQUIRE(table_.add_function(function));
        SessionOptions options = small_tables();
        options.table = &table_;
        return options;
    }

    AllocatorTable table_;
    Tracing tracing_;
};

__attribute__((noipa)) void get_from_pool() {
    own_pool_get(10, [] { return own_malloc(4096, block_at(0x1000)); });
    asm volatile("");
}

__attribute__((noipa)) void* get_unseen(size_t, Act act) {
    return act();
}

bool throws(void* (*get)(size_t, Act)) {
    try {
        get(30, []() -> void* { throw std::runtime_error("no room"); });
    } catch (const std::runtime_error&) {
        return true;
    }
    return false;
}

}  // namespace

TEST_CASE("a pool's block is the pool's, with the pool's caller, and what lies beneath is suppressed", "[bpf]") {
    const auto rung = GENERATE(every_rung());
    if (!can_trace(rung)) return;
    PoolTracing pool(rung);
    const Reading reading = pool.run([](Shared&) {
        get_from_pool();
        own_pool_get(20, nullptr);
        own_malloc(7, block_at(0x3000));
    });
    CHECK(reading.blocks() == std::vector<LiveBlock>{{0x1000, 10}, {0x3000, 7}});
    CHECK(reading.counts() == Counts{{MT_COUNT_CALLS_SUPPRESSED, 1}});
    const auto sites = pool.sites(reading, "own_pool_get");
    REQUIRE(sites.size() == 1);
    const Events events = pool.tracing().drain();
    const Events::Stack* stack = events.stack_of(sites[0].index);
    REQUIRE(stack != nullptr);
    const uint64_t function = address_of(get_from_pool);
    CHECK(stack->return_addresses.at(0) > function);
    CHECK(stack->return_addresses.at(0) < function + 256);
}

TEST_CASE("a function that ends in a jump returns where the other one does", "[bpf]") {
    const auto rung = GENERATE(every_rung());
    if (!can_trace(rung)) return;
    PoolTracing pool(rung);
    const Reading reading = pool.run([](Shared&) {
        own_pool_get_by_jump(10, block_at(0x1000));
        own_pool_get(20, block_at(0x2000));
    });
    CHECK(reading.blocks() == std::vector<LiveBlock>{{0x1000, 10}, {0x2000, 20}});
    CHECK(pool.sites(reading, "own_pool_get_by_jump").size() == 1);
    CHECK(pool.sites(reading, "own_pool_get").size() == 1);
}

TEST_CASE("a jump to where the return is not seen is a return missed", "[bpf]") {
    const auto rung = GENERATE(every_rung());
    if (!can_trace(rung)) return;
    PoolTracing pool(rung);
    const Reading reading = pool.run([](Shared&) {
        own_pool_get_anywhere(10, block_at(0x1000), get_unseen);
        own_malloc(5, block_at(0x2000));
    });
    CHECK(reading.blocks() == std::vector<LiveBlock>{{0x2000, 5}});
    CHECK(reading.counts() == Counts{{MT_COUNT_RETURNS_MISSED, 1}});
}

TEST_CASE("a pool that ends in a jump to the allocator beneath owns its blocks", "[bpf]") {
    const auto rung = GENERATE(every_rung());
    if (!can_trace(rung)) return;
    PoolTracing pool(rung);
    const Reading reading = pool.run([](Shared&) {
        own_pool_get_anywhere(10, block_at(0x1000), own_malloc);
        own_pool_get_anywhere(20, nullptr, own_malloc);
        own_pool_grow(block_at(0x1000), 100, block_at(0x2000));
        own_pool_grow(block_at(0x2000), 200, nullptr);
        own_pool_get_anywhere(30, block_at(0x3000), own_malloc);
        own_pool_put_by_jump(block_at(0x3000), nullptr);
        own_malloc(7, block_at(0x4000));
        own_free(block_at(0x4000), nullptr);
    });
    CHECK(reading.blocks() == std::vector<LiveBlock>{{0x2000, 100}});
    CHECK(reading.totals().allocations == 4);
    CHECK(reading.totals().frees == 3);
    CHECK(pool.sites(reading, "own_pool_get_anywhere").size() == 2);
    CHECK(pool.sites(reading, "own_pool_grow").size() == 1);
    CHECK(reading.counts() == Counts{{MT_COUNT_CALLS_SUPPRESSED, 1}});
}

TEST_CASE("an exception leaves a pool unharmed, and no block", "[bpf]") {
    const auto rung = GENERATE(every_rung());
    if (!can_trace(rung)) return;
    PoolTracing pool(rung);
    const Reading reading = pool.run([](Shared& shared) {
        shared.numbers[0] = throws(own_pool_get) + throws(own_pool_get_by_jump);
        own_pool_get(40, block_at(0x4000));
    });
    CHECK(pool.tracing().target().shared().numbers[0] == 2);
    CHECK(reading.blocks() == std::vector<LiveBlock>{{0x4000, 40}});
    CHECK(reading.counts() == Counts{{MT_COUNT_CALLS_ABANDONED, 2}, {MT_COUNT_CALLS_SUPPRESSED, 1}});
}

TEST_CASE("what a pool's free gives back inside is suppressed until it returns", "[bpf]") {
    const auto rung = GENERATE(every_rung());
    if (!can_trace(rung)) return;
    PoolTracing pool(rung);
    const Reading reading = pool.run([](Shared&) {
        own_pool_get(10, block_at(0x1000));
        own_malloc(20, block_at(0x2000));
        own_pool_put(block_at(0x1000), [] {
            own_free(block_at(0x7000), nullptr);
            return nullptr;
        });
        own_free(block_at(0x2000), nullptr);
        own_pool_put(block_at(0x9000), nullptr);
    });
    CHECK(reading.blocks().empty());
    CHECK(reading.totals().frees == 2);
    CHECK(reading.counts() == Counts{{MT_COUNT_UNKNOWN_FREES, 1}, {MT_COUNT_CALLS_SUPPRESSED, 1}});
}

TEST_CASE("a block that is resized in place keeps its address, and its size where that failed", "[bpf]") {
    const auto rung = GENERATE(every_rung());
    if (!can_trace(rung)) return;
    PoolTracing pool(rung);
    const Reading reading = pool.run([](Shared&) {
        own_pool_get(10, block_at(0x1000));
        own_pool_get(20, block_at(0x2000));
        own_pool_resize(block_at(0x1000), 100, block_at(112));
        own_pool_resize(block_at(0x2000), 100, block_at(32));
    });
    CHECK(reading.blocks() == std::vector<LiveBlock>{{0x1000, 100}, {0x2000, 20}});
    CHECK(reading.totals().allocations == 3);
    CHECK(reading.totals().frees == 1);
    CHECK(reading.counts().empty());
}
