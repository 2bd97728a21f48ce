// Which of the calls that are inside each other owns the block, and what becomes of calls that never return.
#include <setjmp.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <new>
#include <thread>

#include "bpf/fiber.hpp"
#include "bpf/tracing.hpp"

using namespace memtrace;
using namespace memtrace::test;

namespace {

struct Jump {
    jmp_buf env;
};

/// `leave` must never return.
template <typename Leave>
void* never(Leave leave) {
    leave();
    return nullptr;
}

__attribute__((noipa)) void jump_out_of_malloc() {
    Jump jump;
    if (setjmp(jump.env) == 0) own_malloc(10, [&jump] { return never([&jump] { longjmp(jump.env, 1); }); });
}

}  // namespace

TEST_CASE("what an allocator calls inside is suppressed: the outermost call owns the block", "[bpf]") {
    const auto rung = GENERATE(every_rung());
    if (!can_trace(rung)) return;
    Tracing tracing(rung, {malloc_probe, calloc_probe, realloc_probe, free_probe});
    tracing.run([](Shared&) {
        own_calloc(2, 50, [] { return own_malloc(116, block_at(0x1000)); });
        own_realloc(block_at(0x1000), 200, [] {
            void* const block = own_malloc(216, block_at(0x2000));
            own_free(block_at(0x1000), nullptr);
            return block;
        });
        own_free(block_at(0x2000), [] {
            own_free(block_at(0x7000), nullptr);
            return nullptr;
        });
    });
    const Reading reading = tracing.read();
    CHECK(reading.blocks().empty());
    CHECK(reading.totals().allocations == 2);
    CHECK(reading.totals().allocated_bytes == 300);
    CHECK(reading.totals().frees == 2);
    CHECK(reading.sites("malloc").empty());
    // A free is over at its entry, so it suppresses nothing that it calls.
    CHECK(reading.counts() == Counts{{MT_COUNT_UNKNOWN_FREES, 1}, {MT_COUNT_CALLS_SUPPRESSED, 3}});
}

TEST_CASE("an allocator that ends in a jump to another one is one call", "[bpf]") {
    const auto rung = GENERATE(every_rung());
    if (!can_trace(rung)) return;
    Tracing tracing(rung, {malloc_probe, realloc_probe, reallocarray_probe});
    tracing.run([](Shared&) {
        own_malloc(10, block_at(0x1000));
        own_reallocarray(block_at(0x1000), 3, 7, block_at(0x2000));
        own_reallocarray(block_at(0x2000), 3, 1ull << 40, nullptr);
        own_realloc(nullptr, 5, block_at(0x3000));
    });
    const Reading reading = tracing.read();
    CHECK(reading.blocks() == std::vector<LiveBlock>{{0x2000, 21}, {0x3000, 5}});
    CHECK(reading.totals().allocations == 3);
    CHECK(reading.totals().frees == 1);
    CHECK(reading.sites("reallocarray").size() == 1);
    CHECK(reading.sites("realloc").size() == 1);
    CHECK(reading.counts() == Counts{{MT_COUNT_CALLS_SUPPRESSED, 2}});
}

TEST_CASE("a block that operator new gets from malloc is operator new's", "[bpf]") {
    const auto rung = GENERATE(every_rung());
    if (!can_trace(rung)) return;
    Tracing tracing(rung, {malloc_probe, new_probe, new_array_probe});
    tracing.run([](Shared&) {
        own_new(10, block_at(0x1000), nullptr);
        own_new_array(20, block_at(0x2000), nullptr);
        own_malloc(30, block_at(0x3000));
    });
    const Reading reading = tracing.read();
    CHECK(reading.blocks() == std::vector<LiveBlock>{{0x1000, 10}, {0x2000, 20}, {0x3000, 30}});
    CHECK(reading.sites("_Znwm").size() == 1);
    CHECK(reading.sites("_Znam").size() == 1);
    CHECK(reading.sites("malloc").size() == 1);
    CHECK(reading.counts() == Counts{});
}

TEST_CASE("an operator new that throws is an abandoned call, and the target lives on", "[bpf]") {
    const auto rung = GENERATE(every_rung());
    if (!can_trace(rung)) return;
    Tracing tracing(rung, {malloc_probe, new_probe, new_array_probe});
    tracing.run([](Shared& shared) {
        for (int round = 0; round < 3; ++round) {
            try {
                own_new_array(10, nullptr, nullptr);
            } catch (const std::bad_alloc&) {
                shared.numbers[0].fetch_add(1);
            }
        }
        own_malloc(30, block_at(0x3000));
    });
    CHECK(tracing.target().shared().numbers[0] == 3);
    const Reading reading = tracing.read();
    CHECK(reading.blocks() == std::vector<LiveBlock>{{0x3000, 30}});
    CHECK(reading.counts() == Counts{{MT_COUNT_CALLS_ABANDONED, 3}});
}

TEST_CASE("a new_handler's own blocks are its own, and the next attempt is operator new's", "[bpf]") {
    const auto rung = GENERATE(every_rung());
    if (!can_trace(rung)) return;
    Tracing tracing(rung, {malloc_probe, free_probe, new_probe});
    tracing.run([](Shared&) {
        own_malloc(1000, block_at(0x9000));
        int attempts = 0;
        own_new(
            10, [&attempts] { return ++attempts < 3 ? nullptr : block_at(0x1000); },
            [&attempts] {
                if (attempts == 1) own_free(block_at(0x9000), nullptr);
                own_malloc(20, block_at(0x2000 + 0x100ull * static_cast<uint64_t>(attempts)));
                return block_at(1);
            });
    });
    const Reading reading = tracing.read();
    CHECK(reading.blocks() == std::vector<LiveBlock>{{0x1000, 10}, {0x2100, 20}, {0x2200, 20}});
    CHECK(reading.totals().frees == 1);
    CHECK(reading.sites("_Znwm").size() == 1);
    CHECK(reading.counts() == Counts{});
}

TEST_CASE("a malloc that longjmp leaves is an abandoned call and no block", "[bpf]") {
    const auto rung = GENERATE(every_rung());
    if (!can_trace(rung)) return;
    Tracing tracing(rung, {malloc_probe, free_probe});
    tracing.run([](Shared&) {
        for (int round = 0; round < 20; ++round)
            jump_out_of_malloc();
        own_malloc(30, block_at(0x3000));
        own_free(block_at(0x3000), nullptr);
    });
    const Reading reading = tracing.read();
    CHECK(reading.blocks().empty());
    CHECK(reading.totals().allocations == 1);
    CHECK(reading.totals().frees == 1);
    CHECK(reading.counts() == Counts{{MT_COUNT_CALLS_ABANDONED, 20}});
}

TEST_CASE("an allocator call that a jump leaves inside another one does not end that one", "[bpf]") {
    const auto rung = GENERATE(every_rung());
    if (!can_trace(rung)) return;
    Tracing tracing(rung, {malloc_probe, calloc_probe});
    tracing.run([](Shared&) {
        own_calloc(1, 100, [] {
            jump_out_of_malloc();
            return block_at(0x1000);
        });
    });
    const Reading reading = tracing.read();
    CHECK(reading.blocks() == std::vector<LiveBlock>{{0x1000, 100}});
    CHECK(reading.counts() == Counts{{MT_COUNT_CALLS_SUPPRESSED, 1}});
}

TEST_CASE("a thread that ends inside malloc leaves an abandoned call", "[bpf]") {
    const auto rung = GENERATE(every_rung());
    if (!can_trace(rung)) return;
    Tracing tracing(rung, {malloc_probe});
    tracing.run([](Shared&) {
        static std::string thread_folder;
        std::thread([] {
            thread_folder = "/proc/self/task/" + std::to_string(gettid());
            own_malloc(20, block_at(0x2000));
            own_malloc(10, [] { return never([] { syscall(SYS_exit, 0); }); });
        }).join();
        // Before Linux 6.16 the kernel tells of the end after the memory, and so the joining thread, has been let go.
        while (access(thread_folder.c_str(), F_OK) == 0)
            sched_yield();
    });
    const Reading reading = tracing.read();
    CHECK(reading.blocks() == std::vector<LiveBlock>{{0x2000, 20}});
    CHECK(reading.counts() == Counts{{MT_COUNT_CALLS_ABANDONED, 1}});
}

TEST_CASE("a signal handler that interrupts malloc allocates for itself", "[bpf]") {
    const auto rung = GENERATE(every_rung());
    if (!can_trace(rung)) return;
    Tracing tracing(rung, {malloc_probe, free_probe});
    tracing.run([](Shared&) {
        own_malloc(5, block_at(0x500));
        signal(SIGUSR1, [](int) {
            own_malloc(20, block_at(0x2000));
            own_free(block_at(0x500), nullptr);
        });
        own_malloc(10, [] {
            raise(SIGUSR1);
            return block_at(0x1000);
        });
    });
    const Reading reading = tracing.read();
    CHECK(reading.blocks() == std::vector<LiveBlock>{{0x1000, 10}, {0x2000, 20}});
    CHECK(reading.totals().frees == 1);
    CHECK(reading.counts() == Counts{});
}

TEST_CASE("a signal handler on its own stack allocates for itself", "[bpf]") {
    const auto rung = GENERATE(every_rung());
    if (!can_trace(rung)) return;
    Tracing tracing(rung, {malloc_probe});
    tracing.run([](Shared&) {
        const stack_t stack{.ss_sp = map_two_stacks().lower, .ss_flags = 0, .ss_size = TwoStacks::size_bytes};
        sigaltstack(&stack, nullptr);
        struct sigaction action = {};
        action.sa_handler = [](int) { own_malloc(20, block_at(0x2000)); };
        action.sa_flags = SA_ONSTACK;
        sigaction(SIGUSR1, &action, nullptr);
        own_malloc(10, [] {
            raise(SIGUSR1);
            return block_at(0x1000);
        });
    });
    const Reading reading = tracing.read();
    CHECK(reading.blocks() == std::vector<LiveBlock>{{0x1000, 10}, {0x2000, 20}});
    CHECK(reading.counts() == Counts{});
}

TEST_CASE("a call on a lower stack while another waits on a higher one owns its block", "[bpf]") {
    const auto rung = GENERATE(every_rung());
    if (!can_trace(rung)) return;
    Tracing tracing(rung, {malloc_probe, calloc_probe});
    tracing.run([](Shared&) {
        own_malloc(10, [] {
            Fiber fiber(map_two_stacks().lower, TwoStacks::size_bytes, [](Fiber&) {
                own_malloc(20, block_at(0x2000));
                own_calloc(3, 10, [] { return own_malloc(30, block_at(0x3000)); });
            });
            fiber.resume();
            return block_at(0x1000);
        });
    });
    const Reading reading = tracing.read();
    CHECK(reading.blocks() == std::vector<LiveBlock>{{0x1000, 10}, {0x2000, 20}, {0x3000, 30}});
    CHECK(reading.counts() == Counts{{MT_COUNT_CALLS_SUPPRESSED, 1}});
}
