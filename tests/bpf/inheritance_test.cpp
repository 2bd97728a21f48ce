// What fork children inherit, with real children: a child's free of an inherited block never touches its parent's, and
// what a parent gives back later is still its children's.
#include <sys/wait.h>
#include <unistd.h>

#include <unordered_set>

#include "bpf/family.hpp"
#include "heap/inheritance.hpp"

using namespace memtrace;
using namespace memtrace::test;

namespace {

struct Held {
    uint64_t bytes = 0;
    uint64_t blocks = 0;
    auto operator<=>(const Held&) const = default;
};

std::ostream& operator<<(std::ostream& out, const Held& held) {
    return out << held.blocks << " blocks of " << held.bytes << " bytes";
}

Held sum_of(const std::vector<InheritedSite>& sites) {
    Held held;
    for (const InheritedSite& site : sites) {
        held.bytes += site.bytes;
        held.blocks += site.blocks;
    }
    return held;
}

Held inherited(const Reading& reading, uint32_t owner) {
    return sum_of(Inheritance(reading.snapshot).inherited(owner));
}

}  // namespace

TEST_CASE("a child's frees and reallocs of inherited blocks are its own, and its parent's figures stay", "[bpf]") {
    const auto rung = GENERATE(every_rung());
    if (!can_trace(rung)) return;
    Family family(rung);
    family.tracing().run([](Shared& shared) {
        own_malloc(100, block_at(0x1000));
        own_malloc(200, block_at(0x2000));
        own_malloc(400, block_at(0x3000));
        own_malloc(800, block_at(0x4000));
        if (fork() == 0) {
            wait_for(shared.numbers[armed], 1);
            own_free(block_at(0x1000), nullptr);
            own_realloc(block_at(0x2000), 50, block_at(0x2000));  // where it is
            own_realloc(block_at(0x3000), 60, block_at(0x9000));  // moved
            own_realloc(block_at(0x4000), 70, nullptr);           // failed
            own_free(block_at(0x7000), nullptr);                  // nobody's
            own_malloc(5, block_at(0x1000));
            shared.numbers[done] = 1;
            wait_for(shared.numbers[may_end], 1);
            _exit(0);
        }
    });
    const uint32_t child = family.arm_child();
    CHECK(inherited(family.tracing().read(), child) == Held{1500, 4});
    family.shared().numbers[armed] = 1;
    wait_for(family.shared().numbers[done], 1);
    const Reading reading = family.tracing().read();
    CHECK(inherited(reading, child) == Held{800, 1});
    CHECK(Inheritance(reading.snapshot).unknown_frees(child) == 0);
    CHECK(reading.counts() == Counts{{MT_COUNT_UNKNOWN_FREES, 1}});
    CHECK(reading.blocks() ==
          std::vector<LiveBlock>{
              {0x1000, 5}, {0x1000, 100}, {0x2000, 50}, {0x2000, 200}, {0x3000, 400}, {0x4000, 800}, {0x9000, 60}});
    // The tree: all four of the parent's are live there, and nothing is held beside.
    std::unordered_set<uint32_t> tree;
    for (const AddressSpace& space : reading.snapshot.address_spaces)
        tree.insert(space.owner);
    CHECK(tree.size() == 2);
    CHECK(Inheritance(reading.snapshot).held_beside_live(tree).empty());
    family.shared().numbers[may_end] = 1;
}

TEST_CASE("a reading without blocks knows an inherited block that was given back from one of nobody", "[bpf]") {
    if (!can_trace(AttachRung::session)) return;
    Family family(AttachRung::session);
    family.tracing().run([](Shared& shared) {
        own_malloc(100, block_at(0x1000));
        own_malloc(200, block_at(0x2000));
        if (fork() == 0) {
            wait_for(shared.numbers[armed], 1);
            own_free(block_at(0x1000), nullptr);
            shared.numbers[done] = 1;
            wait_for(shared.numbers[may_end], 1);
            _exit(0);
        }
    });
    const uint32_t child = family.arm_child();
    family.shared().numbers[armed] = 1;
    wait_for(family.shared().numbers[done], 1);
    const Snapshot sums = family.tracing().session().read_snapshot(BlockDetail::none);
    CHECK(sums.blocks.empty());
    REQUIRE(sums.inheritable.size() == 1);
    CHECK(sums.inheritable[0].address == 0x1000);
    CHECK(Inheritance(sums).unknown_frees(child) == 0);
    const Snapshot births = family.tracing().session().read_snapshot(BlockDetail::births);
    CHECK(births.blocks.size() == 2);
    CHECK(sum_of(Inheritance(births).inherited(child)) == Held{200, 1});
    family.shared().numbers[may_end] = 1;
}

TEST_CASE("what a parent gives back is held by the children that it had then, and by no later one", "[bpf]") {
    if (!can_trace(AttachRung::session)) return;
    Family family(AttachRung::session);
    family.tracing().run([](Shared& shared) {
        own_malloc(100, block_at(0x1000));
        own_malloc(200, block_at(0x2000));
        for (uint64_t number = 1; number <= 2; ++number) {
            if (fork() == 0) {
                wait_for(shared.numbers[armed], 1);
                own_free(block_at(0x1000), nullptr);
                shared.numbers[done + number - 1] += 1;
                wait_for(shared.numbers[may_end], 1);
                _exit(0);
            }
            if (number == 1) {
                own_realloc(block_at(0x1000), 300, block_at(0x1000));  // the second child has this one
                own_free(block_at(0x2000), nullptr);
            } else {
                own_free(block_at(0x1000), nullptr);
            }
        }
    });
    const uint32_t first = family.arm_child();
    const uint32_t second = family.arm_child();
    Reading reading = family.tracing().read();
    CHECK(inherited(reading, first) == Held{300, 2});
    CHECK(inherited(reading, second) == Held{300, 1});
    CHECK(reading.blocks().empty());
    CHECK(sum_of(Inheritance(reading.snapshot).held_beside_live({first, second})) == Held{600, 3});

    family.shared().numbers[armed] = 1;
    wait_for(family.shared().numbers[done], 1);
    wait_for(family.shared().numbers[done_by_second], 1);
    reading = family.tracing().read();
    CHECK(inherited(reading, first) == Held{200, 1});
    CHECK(inherited(reading, second) == Held{0, 0});
    CHECK(reading.counts() == Counts{});
    CHECK(sum_of(Inheritance(reading.snapshot).held_beside_live({first, second})) == Held{200, 1});
    family.shared().numbers[may_end] = 1;
}

TEST_CASE("a grandchild inherits what its parent had not given back, also when those above have ended", "[bpf]") {
    if (!can_trace(AttachRung::session)) return;
    Family family(AttachRung::session);
    family.tracing().target().start([](Shared& shared) {
        own_malloc(100, block_at(0x1000));
        own_malloc(200, block_at(0x2000));
        own_malloc(400, block_at(0x3000));
        const pid_t child = fork();
        if (child == 0) {
            wait_for(shared.numbers[armed], 1);
            own_free(block_at(0x1000), nullptr);
            own_malloc(7, block_at(0x1000));
            if (fork() == 0) {
                wait_for(shared.numbers[armed], 2);
                own_free(block_at(0x2000), nullptr);
                shared.numbers[done] = 2;
                wait_for(shared.numbers[armed], 3);
                own_free(block_at(0x1000), nullptr);
                own_free(block_at(0x3000), nullptr);
                shared.numbers[done] = 3;
                wait_for(shared.numbers[may_end], 1);
                _exit(0);
            }
            own_free(block_at(0x3000), nullptr);
            _exit(0);
        }
        int status = 0;
        waitpid(child, &status, 0);
        own_free(block_at(0x3000), nullptr);
        _exit(0);
    });
    const uint32_t child = family.arm_child();
    family.shared().numbers[armed] = 1;
    const uint32_t grandchild = family.arm_child();
    family.shared().numbers[armed] = 2;
    wait_for(family.shared().numbers[done], 2);
    while (family.exits() < 2)
        usleep(200);
    Reading reading = family.tracing().read();
    CHECK(inherited(reading, grandchild) == Held{407, 2});
    CHECK(sum_of(Inheritance(reading.snapshot).held_beside_live({grandchild})) == Held{407, 2});
    const std::vector<uint32_t> all = {reading.snapshot.address_spaces[0].owner, child, grandchild};
    CHECK(family.tracing().session().releasable(all).empty());

    family.shared().numbers[armed] = 3;
    wait_for(family.shared().numbers[done], 3);
    reading = family.tracing().read();
    CHECK(inherited(reading, grandchild) == Held{0, 0});
    CHECK(reading.counts() == Counts{});
    family.shared().numbers[may_end] = 1;
    while (family.exits() < 3)
        usleep(200);
    CHECK(family.release_all(all) == 3);
    CHECK(family.tracing().session().read_snapshot().address_spaces.empty());
    CHECK(family.tracing().session().read_snapshot().blocks.empty());
}

TEST_CASE("an exec ends what a child inherited", "[bpf]") {
    if (!can_trace(AttachRung::session)) return;
    Family family(AttachRung::session);
    family.tracing().run([](Shared& shared) {
        own_malloc(100, block_at(0x1000));
        if (fork() != 0) return;
        wait_for(shared.numbers[armed], 1);
        execl("/bin/true", "true", nullptr);
        _exit(1);
    });
    const uint32_t child = family.arm_child();
    CHECK(inherited(family.tracing().read(), child) == Held{100, 1});
    family.shared().numbers[armed] = 1;
    while (family.tracing().session().releasable(std::vector{child}).empty())
        usleep(200);
    // Its parent has nobody left who could hold its blocks: no ghost.
    family.tracing().run([](Shared&) { own_free(block_at(0x1000), nullptr); });
    CHECK(family.tracing().read().snapshot.ghosts.empty());
}

TEST_CASE("a block that lived for many forks is told from one that was never there", "[bpf]") {
    if (!can_trace(AttachRung::session)) return;
    Family family(AttachRung::session);
    family.tracing().run([](Shared& shared) {
        own_malloc(100, block_at(0x1000));
        for (int number = 0; number < 20; ++number) {
            if (fork() != 0) continue;
            wait_for(shared.numbers[armed], 1);
            if (number == 0) {
                own_free(block_at(0x1000), nullptr);
                own_free(block_at(0x2000), nullptr);
                own_free(block_at(0x3000), nullptr);
                shared.numbers[done] = 1;
            }
            wait_for(shared.numbers[may_end], 1);
            _exit(0);
        }
        own_free(block_at(0x1000), nullptr);
        // As old as the 20th fork, where the first child looks for it.
        own_malloc(1, block_at(0x3000));
        own_free(block_at(0x3000), nullptr);
    });
    std::vector<uint32_t> children;
    for (int number = 0; number < 20; ++number)
        children.push_back(family.arm_child());
    Reading reading = family.tracing().read();
    for (const uint32_t child : children)
        CHECK(inherited(reading, child) == Held{100, 1});
    family.shared().numbers[armed] = 1;
    wait_for(family.shared().numbers[done], 1);
    reading = family.tracing().read();
    CHECK(inherited(reading, children[0]) == Held{0, 0});
    CHECK(inherited(reading, children[1]) == Held{100, 1});
    CHECK(reading.count(MT_COUNT_UNKNOWN_FREES) + Inheritance(reading.snapshot).unknown_frees(children[0]) == 2);
    family.shared().numbers[may_end] = 1;
}

TEST_CASE("ghosts and noted frees that find no room are counted", "[bpf][losses]") {
    if (!can_trace(AttachRung::session)) return;
    SessionOptions options = small_tables();
    options.max_live_blocks = 1024;  // room for 256 of each
    Family family(AttachRung::session, options);
    family.tracing().run([](Shared& shared) {
        for (uint64_t index = 1; index <= 600; ++index)
            own_malloc(10, block_at(index * 0x1000));
        if (fork() == 0) {
            wait_for(shared.numbers[armed], 1);
            for (uint64_t index = 301; index <= 600; ++index)
                own_free(block_at(index * 0x1000), nullptr);
            shared.numbers[done] = 1;
            wait_for(shared.numbers[may_end], 1);
            _exit(0);
        }
        for (uint64_t index = 1; index <= 300; ++index)
            own_free(block_at(index * 0x1000), nullptr);
    });
    const uint32_t child = family.arm_child();
    Reading reading = family.tracing().read();
    const uint64_t ghosts_lost = reading.count(MT_COUNT_INHERITED_LOST);
    CHECK(ghosts_lost > 0);
    CHECK(inherited(reading, child).blocks + ghosts_lost == 600);
    family.shared().numbers[armed] = 1;
    wait_for(family.shared().numbers[done], 1);
    reading = family.tracing().read();
    const uint64_t frees_lost = reading.count(MT_COUNT_INHERITED_LOST) - ghosts_lost;
    CHECK(frees_lost > 0);
    CHECK(inherited(reading, child).blocks + ghosts_lost == 300 + frees_lost);
    CHECK(reading.counts() == Counts{{MT_COUNT_INHERITED_LOST, ghosts_lost + frees_lost}});
    family.shared().numbers[may_end] = 1;
}
