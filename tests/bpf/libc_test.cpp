// The probes at the places that the table and the resolver find in the C library and the C++ library of this host.
#include <dlfcn.h>
#include <malloc.h>

#include <cstdlib>
#include <new>

#include "bpf/tracing.hpp"

using namespace memtrace;
using namespace memtrace::test;

namespace {

/// The file that `function` comes from.
std::string file_of(void* function) {
    Dl_info info{};
    REQUIRE(dladdr(function, &info) != 0);
    return info.dli_fname;
}

/// So that the compiler leaves the pair of calls in.
void* escaped(void* block) {
    asm volatile("" : "+r"(block)::"memory");
    return block;
}

void use_libc(Shared& shared) {
    const auto hold = [&shared](void* block, size_t size_bytes) { shared.hold(escaped(block), size_bytes); };
    hold(std::malloc(101), 101);
    hold(std::malloc(0), 0);
    hold(std::calloc(3, 34), 102);
    hold(std::realloc(escaped(std::malloc(50)), 1000), 1000);
    hold(reallocarray(escaped(std::malloc(50)), 7, 300), 2100);
    hold(std::realloc(nullptr, 104), 104);
    hold(std::aligned_alloc(64, 128), 128);
    hold(memalign(64, 129), 129);
    hold(valloc(130), 130);
    hold(std::malloc(3 << 20), 3 << 20);
    void* block = nullptr;
    if (posix_memalign(&block, 4096, 131) == 0) hold(block, 131);
    std::free(escaped(std::malloc(77)));
    std::free(nullptr);
    shared.numbers[0] = escaped(std::malloc(size_t{1} << 62)) ? 1 : 0;
    shared.numbers[1] = static_cast<uint64_t>(posix_memalign(&block, 3, 10));
}

void use_operator_new(Shared& shared) {
    const auto hold = [&shared](void* block, size_t size_bytes) { shared.hold(escaped(block), size_bytes); };
    hold(::operator new(201), 201);
    hold(::operator new[](202), 202);
    hold(::operator new(203, std::nothrow), 203);
    hold(::operator new(204, std::align_val_t(64)), 204);
    ::operator delete(escaped(::operator new(99)));
    ::operator delete[](escaped(::operator new[](99)));
}

std::vector<LiveBlock> held_blocks(Shared& shared) {
    std::vector<LiveBlock> blocks;
    for (uint32_t index = 0; index < shared.block_count; ++index)
        blocks.push_back({shared.blocks[index].address, shared.blocks[index].size_bytes});
    std::ranges::sort(blocks);
    return blocks;
}

/// Detaching a perf probe takes some 100 ms, so on that rung only what these tests call, mappings excepted.
std::vector<ProbePoint> points_for(AttachRung rung, const std::string& path) {
    std::vector<ProbePoint> points = points_of_file(path);
    if (rung == AttachRung::perf)
        std::erase_if(points, [](const ProbePoint& point) {
            return point.row >= row_of("mmap") && point.row <= row_of("shmdt");
        });
    return points;
}

}  // namespace

TEST_CASE("the functions of this host's C library are recorded exactly", "[bpf]") {
    const auto rung = GENERATE(every_rung());
    if (!can_trace(rung)) return;
    const std::string libc = file_of(reinterpret_cast<void*>(&std::malloc));
    Tracing tracing(rung);
    tracing.attach_file(libc, points_for(rung, libc));
    tracing.add_target(MT_TARGET_ARMED);
    tracing.session().arm();
    tracing.run(use_libc);
    Shared& truth = tracing.target().shared();
    CHECK(truth.numbers[0] == 0);
    CHECK(truth.numbers[1] != 0);
    const Reading reading = tracing.read();
    CHECK(reading.blocks() == held_blocks(truth));
    CHECK(truth.block_count == 11);
    CHECK(reading.totals().allocations == 11 + 2 + 1);
    CHECK(reading.totals().frees == 2 + 1);
    CHECK(reading.totals().freed_bytes == 50 + 50 + 77);
    for (const Count& count : reading.counts())
        CHECK(count.counter == MT_COUNT_CALLS_SUPPRESSED);
    for (const mt_mapping_event& event : tracing.drain().mappings)
        CHECK(event.flags == MT_MAPPING_OF_ALLOCATOR);
}

TEST_CASE("operator new of this host's C++ library owns what it gets from malloc", "[bpf]") {
    const auto rung = GENERATE(every_rung());
    if (!can_trace(rung)) return;
    const std::string libc = file_of(reinterpret_cast<void*>(&std::malloc));
    const std::string libcxx = file_of(reinterpret_cast<void*>(static_cast<void* (*)(size_t)>(&::operator new)));
    Tracing tracing(rung);
    tracing.attach_file(libcxx, points_for(rung, libcxx));
    tracing.attach_file(libc, points_for(rung, libc));
    tracing.add_target(MT_TARGET_ARMED);
    tracing.session().arm();
    tracing.run(use_operator_new);
    const Reading reading = tracing.read();
    CHECK(reading.blocks() == held_blocks(tracing.target().shared()));
    CHECK(reading.totals().allocations == 6);
    CHECK(reading.totals().freed_bytes == 2 * 99);
    for (const char* malloc_like : {"malloc", "aligned_alloc", "memalign", "posix_memalign"})
        CHECK(reading.sites(malloc_like).empty());
    CHECK(reading.sites("_Znwm").size() == 2);
    CHECK(reading.sites("_Znam").size() == 2);
    for (const Count& count : reading.counts())
        CHECK(count.counter == MT_COUNT_CALLS_SUPPRESSED);
}
