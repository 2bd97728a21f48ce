// What fork children inherit: single laws, and random forks, frees and ends against a model that copies at fork.
#include "heap/inheritance.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <set>
#include <unordered_set>

#include "catch.hpp"
#include "heap/history.hpp"

using namespace memtrace;

namespace {

/// Copies the memory at each fork, as the kernel does; and keeps what the kernel side of memtrace would.
class Model {
  public:
    struct Item {
        uint64_t id = 0;
        uint64_t size_bytes = 0;
        uint32_t site = 0;
        bool is_inherited = false;
    };
    struct Space {
        uint32_t parent = 0;
        uint32_t fork_number = 0;
        uint32_t forks = 0;
        bool has_ended = false;
        std::map<uint64_t, Item> memory;  // by address
        std::map<uint64_t, Block> live;
        std::map<uint64_t, uint32_t> inherited_frees;
    };

    uint32_t start() { return add({}); }
    void allocate(uint32_t owner, uint64_t address, uint64_t size_bytes, uint32_t site) {
        Space& space = spaces_.at(owner);
        space.memory[address] = {++ids_, size_bytes, site};
        space.live[address] = {.address = address,
                               .size_bytes = size_bytes,
                               .birth_ns = ids_,
                               .site = site,
                               .owner = owner,
                               .forks = space.forks};
    }
    void free(uint32_t owner, uint64_t address) {
        Space& space = spaces_.at(owner);
        const bool is_inherited = space.memory.at(address).is_inherited;
        space.memory.erase(address);
        if (is_inherited) {
            space.inherited_frees[address] = space.forks;
            return;
        }
        const Block block = space.live.at(address);
        if (is_held(owner) && block.forks < space.forks) ghosts_.push_back({block, space.forks});
        space.live.erase(address);
    }
    /// A free of what is neither its own nor inherited, which the kernel side could not tell.
    void free_unknown(uint32_t owner, uint64_t address) {
        Space& space = spaces_.at(owner);
        space.inherited_frees.emplace(address, space.forks);
    }
    uint32_t fork(uint32_t owner) {
        Space& parent = spaces_.at(owner);
        Space child;
        child.parent = owner;
        child.fork_number = ++parent.forks;
        child.memory = parent.memory;
        for (auto& [address, item] : child.memory)
            item.is_inherited = true;
        return add(std::move(child));
    }
    void end(uint32_t owner) {
        spaces_.at(owner).has_ended = true;
        spaces_.at(owner).memory.clear();
        // Nobody can hold what was its: it is released, and so may be those above.
        for (uint32_t ended = owner; ended != 0 && spaces_.at(ended).has_ended && !is_held(ended);) {
            const uint32_t parent = spaces_.at(ended).parent;
            std::erase_if(ghosts_, [&](const Ghost& ghost) { return ghost.block.owner == ended; });
            spaces_.erase(ended);
            ended = parent;
        }
    }

    Snapshot snapshot() const {
        Snapshot snapshot;
        snapshot.time_ns = ids_ + 1;
        for (const auto& [owner, space] : spaces_) {
            AddressSpace address_space;
            address_space.owner = owner;
            address_space.pid = static_cast<pid_t>(owner);
            address_space.ended_ns = space.has_ended;
            address_space.parent_owner = space.parent;
            address_space.fork_number = space.fork_number;
            snapshot.address_spaces.push_back(address_space);
            for (const auto& [address, block] : space.live)
                snapshot.blocks.push_back(block);
            for (const auto& [address, forks] : space.inherited_frees)
                snapshot.inherited_frees.push_back({owner, address, forks});
        }
        snapshot.inheritable.assign(snapshot.blocks.begin(), snapshot.blocks.end());
        snapshot.ghosts = ghosts_;
        return snapshot;
    }

    std::vector<uint32_t> living() const {
        std::vector<uint32_t> living;
        for (const auto& [owner, space] : spaces_)
            if (!space.has_ended) living.push_back(owner);
        return living;
    }
    const std::map<uint64_t, Item>& memory(uint32_t owner) const { return spaces_.at(owner).memory; }

  private:
    uint32_t add(Space space) {
        spaces_[++owners_] = std::move(space);
        return owners_;
    }
    bool is_held(uint32_t owner) const {
        return std::ranges::any_of(spaces_, [&](const auto& other) { return other.second.parent == owner; });
    }

    std::map<uint32_t, Space> spaces_;
    std::vector<Ghost> ghosts_;
    uint32_t owners_ = 0;
    uint64_t ids_ = 0;
};

using Sums = std::map<uint32_t, std::pair<uint64_t, uint64_t>>;  // bytes and blocks by site

Sums sums_of(const std::vector<InheritedSite>& sites) {
    Sums sums;
    for (const InheritedSite& site : sites)
        sums[site.site] = {site.bytes, site.blocks};
    return sums;
}

Sums expected_inherited(const Model& model, uint32_t owner) {
    Sums sums;
    for (const auto& [address, item] : model.memory(owner)) {
        if (!item.is_inherited) continue;
        sums[item.site].first += item.size_bytes;
        ++sums[item.site].second;
    }
    return sums;
}

Sums expected_beside_live(const Model& model, const std::unordered_set<uint32_t>& owners) {
    std::map<uint64_t, Model::Item> inherited;
    std::set<uint64_t> own;
    for (const uint32_t owner : owners)
        for (const auto& [address, item] : model.memory(owner)) {
            if (item.is_inherited)
                inherited.emplace(item.id, item);
            else
                own.insert(item.id);
        }
    Sums sums;
    for (const auto& [id, item] : inherited) {
        if (own.contains(id)) continue;
        sums[item.site].first += item.size_bytes;
        ++sums[item.site].second;
    }
    return sums;
}

/// One random step of one of the living; few addresses, so that they are used again.
void take_step(Model& model, std::mt19937& random) {
    const auto below = [&](size_t limit) { return static_cast<uint32_t>(random() % limit); };
    const std::vector<uint32_t> living = model.living();
    const uint32_t owner = living[below(living.size())];
    const uint64_t address = 16 * (1 + below(24));
    const uint32_t action = below(100);
    if (action < 80) {
        if (model.memory(owner).contains(address))
            model.free(owner, address);
        else
            model.allocate(owner, address, 1 + below(1000), 1 + below(5));
    } else if (action < 90 && living.size() < 12) {
        model.fork(owner);
    } else if (living.size() > 1) {
        model.end(owner);
    }
}

void check(const Model& model, std::mt19937& random) {
    const Inheritance inheritance(model.snapshot());
    std::unordered_set<uint32_t> some;
    for (const uint32_t owner : model.living()) {
        REQUIRE(sums_of(inheritance.inherited(owner)) == expected_inherited(model, owner));
        REQUIRE(inheritance.unknown_frees(owner) == 0);
        if (random() % 2) some.insert(owner);
    }
    const std::vector<uint32_t> living = model.living();
    const std::unordered_set<uint32_t> all(living.begin(), living.end());
    REQUIRE(sums_of(inheritance.held_beside_live(some)) == expected_beside_live(model, some));
    REQUIRE(sums_of(inheritance.held_beside_live(all)) == expected_beside_live(model, all));
}

/// Of the scope that is rooted at `owner`; a process has the number of its owner.
ScopeFigures figures_of(const Snapshot& snapshot, uint32_t owner, const FigureOptions& options,
                        ScopeKind kind = ScopeKind::process) {
    History history(0, kind);
    std::vector<ProcessIdentity> processes;
    for (const AddressSpace& space : snapshot.address_spaces)
        processes.push_back({.pid = space.pid,
                             .parent = static_cast<pid_t>(space.parent_owner),
                             .exe = "",
                             .cgroup = "",
                             .owners = {space.owner}});
    history.update(processes);
    for (const auto& [number, figures] : history.figures(snapshot, {}, options))
        if (figures.root == static_cast<pid_t>(owner)) return figures;
    FAIL("no scope of " << owner);
    return {};
}

}  // namespace

TEST_CASE("a child inherits what its parent had when it was forked, whatever the parent does later", "[heap]") {
    Model model;
    const uint32_t parent = model.start();
    model.allocate(parent, 0x10, 100, 1);
    model.allocate(parent, 0x20, 200, 2);
    const uint32_t child = model.fork(parent);
    model.allocate(parent, 0x30, 400, 1);
    model.free(parent, 0x10);
    model.allocate(parent, 0x10, 800, 1);
    const Inheritance inheritance(model.snapshot());
    CHECK(sums_of(inheritance.inherited(child)) == Sums{{1, {100, 1}}, {2, {200, 1}}});
    CHECK(inheritance.inherited(parent).empty());
    // The tree holds 200, 400 and the new 800 by its root, and the old 100 by its child.
    CHECK(sums_of(inheritance.held_beside_live({parent, child})) == Sums{{1, {100, 1}}});
    CHECK(sums_of(inheritance.held_beside_live({child})) == Sums{{1, {100, 1}}, {2, {200, 1}}});
    CHECK(inheritance.held_beside_live({parent}).empty());
}

TEST_CASE("an inherited block is gone from a tree when its last holder has given it back", "[heap]") {
    Model model;
    const uint32_t parent = model.start();
    model.allocate(parent, 0x10, 100, 1);
    const uint32_t first = model.fork(parent);
    const uint32_t second = model.fork(parent);
    const uint32_t grandchild = model.fork(first);
    const std::unordered_set<uint32_t> tree = {parent, first, second, grandchild};
    for (const uint32_t holder : {parent, first, grandchild}) {
        model.free(holder, 0x10);
        CHECK(sums_of(Inheritance(model.snapshot()).held_beside_live(tree)) == Sums{{1, {100, 1}}});
    }
    model.free(second, 0x10);
    CHECK(Inheritance(model.snapshot()).held_beside_live(tree).empty());
}

TEST_CASE("a noted free of nothing that was inherited is an unknown free", "[heap]") {
    Model model;
    const uint32_t parent = model.start();
    const uint32_t child = model.fork(parent);
    model.allocate(parent, 0x20, 10, 1);
    model.free_unknown(child, 0x10);
    model.free_unknown(child, 0x20);
    const Inheritance inheritance(model.snapshot());
    CHECK(inheritance.unknown_frees(child) == 2);
    CHECK(inheritance.unknown_frees(parent) == 0);
    Snapshot snapshot = model.snapshot();
    count_unknown_frees(snapshot);
    CHECK(snapshot.address_spaces[0].counters[MT_COUNT_UNKNOWN_FREES] == 0);
    CHECK(snapshot.address_spaces[1].counters[MT_COUNT_UNKNOWN_FREES] == 2);
}

TEST_CASE("a block that was put back, or read while it was freed, counts once", "[heap]") {
    Model model;
    const uint32_t parent = model.start();
    model.allocate(parent, 0x10, 100, 1);
    const uint32_t child = model.fork(parent);
    Snapshot snapshot = model.snapshot();
    snapshot.ghosts.push_back({snapshot.blocks.front(), 1});
    CHECK(sums_of(Inheritance(snapshot).inherited(child)) == Sums{{1, {100, 1}}});
    CHECK(sums_of(Inheritance(snapshot).held_beside_live({child})) == Sums{{1, {100, 1}}});
}

TEST_CASE("random forks, frees and ends agree with a model that copies memory", "[heap]") {
    std::mt19937 random(20261130);
    for (int run = 0; run < 40; ++run) {
        Model model;
        model.start();
        for (int step = 0; step < 300; ++step) {
            take_step(model, random);
            if (step % 7 == 0) check(model, random);
        }
    }
}

TEST_CASE("a report shows what was inherited apart from what is live", "[heap]") {
    Model model;
    const uint32_t parent = model.start();
    model.allocate(parent, 0x10, 100, 1);
    model.allocate(parent, 0x20, 50, 1);
    const uint32_t child = model.fork(parent);
    model.allocate(child, 0x30, 7, 2);
    model.free(child, 0x20);
    Snapshot snapshot = model.snapshot();
    snapshot.sites = {{.index = 1, .owner = parent, .row = 5, .flags = MT_SITE_READY, .totals = {150, 2, 0, 0}},
                      {.index = 2, .owner = child, .row = 6, .flags = MT_SITE_READY, .totals = {7, 1, 0, 0}}};
    const ScopeFigures of_child = figures_of(snapshot, child, {});
    CHECK(of_child.heap.live_bytes == 7);
    CHECK(of_child.heap.inherited_bytes == 100);
    CHECK(of_child.heap.inherited_blocks == 1);
    REQUIRE(of_child.sites.size() == 2);
    const SiteFigures& inherited = of_child.sites[0].is_inherited ? of_child.sites[0] : of_child.sites[1];
    CHECK(inherited.is_inherited);
    CHECK(inherited.site == 1);
    CHECK(inherited.row == 5);
    CHECK(inherited.live_bytes == 100);
    CHECK(inherited.live_blocks == 1);
    CHECK(inherited.totals.allocations == 0);
    CHECK(figures_of(snapshot, parent, {}).heap.inherited_bytes == 0);
    CHECK(figures_of(snapshot, parent, {}).heap.live_bytes == 150);
    // In the tree the parent has it.
    const ScopeFigures tree = figures_of(snapshot, parent, {}, ScopeKind::tree);
    CHECK(tree.processes.size() == 2);
    CHECK(tree.heap.live_bytes == 157);
    CHECK(tree.heap.inherited_bytes == 0);

    // Of blocks that are older than the fork, those that are old enough.
    FigureOptions older;
    older.older_ns = snapshot.time_ns - 1;
    const ScopeFigures old_ones = figures_of(snapshot, child, older);
    CHECK(old_ones.heap.inherited_bytes == 100);
    REQUIRE(old_ones.sites.size() == 1);
    CHECK(old_ones.sites[0].live_bytes == 100);
    older.older_ns = snapshot.time_ns;
    CHECK(figures_of(snapshot, child, older).sites.empty());
}

TEST_CASE("a call site of two parents is one among the inherited ones, too", "[heap]") {
    Model model;
    const uint32_t first = model.start();
    const uint32_t second = model.start();
    Snapshot snapshot;
    for (const uint32_t parent : {first, second}) {
        model.allocate(parent, 0x10, 100 * parent, parent);
        model.allocate(parent, 0x20, 7, parent + 2);
        model.fork(parent);
        model.free(parent, 0x10);
        model.free(parent, 0x20);
    }
    snapshot = model.snapshot();
    for (const uint32_t parent : {first, second}) {
        const SiteTotals freed{100 * parent, 1, 100 * parent, 1};
        snapshot.sites.push_back({parent, parent, 5, MT_SITE_READY, freed, {9, 9}});
        // Another function with the same stack.
        snapshot.sites.push_back({parent + 2, parent, 5 + parent, MT_SITE_READY, {7, 1, 7, 1}, {9, 9}});
    }
    std::vector<SiteFigures> inherited = figures_of(snapshot, 0, {}, ScopeKind::all).sites;
    std::erase_if(inherited, [](const SiteFigures& site) { return !site.is_inherited; });
    REQUIRE(inherited.size() == 3);
    CHECK(inherited[0].live_bytes == 300);
    CHECK(inherited[0].live_blocks == 2);
    CHECK(inherited[0].row == 5);
    CHECK(inherited[1].live_bytes == 7);
    CHECK(inherited[2].live_bytes == 7);
}

TEST_CASE("an inherited block that was sampled stands for others, noted or not", "[heap]") {
    Snapshot snapshot;
    snapshot.address_spaces.resize(2);
    snapshot.address_spaces[0].owner = 1;
    snapshot.address_spaces[1].owner = 2;
    snapshot.address_spaces[1].parent_owner = 1;
    snapshot.address_spaces[1].fork_number = 1;
    for (const uint64_t address : {0x1000, 0x2000})
        snapshot.inheritable.push_back({.address = address,
                                        .size_bytes = 1000,
                                        .birth_ns = 1,
                                        .site = 7,
                                        .owner = 1,
                                        .sampling_mean_bytes = 4000});
    // Another process freed one of its own at the second one's address.
    snapshot.inherited_frees.push_back({.owner = 3, .address = 0x2000, .forks = 0});
    const double weight = 1 / (1 - std::exp(-0.25));
    const std::vector<InheritedSite> sites = Inheritance(snapshot).inherited(2);
    REQUIRE(sites.size() == 1);
    CHECK(sites[0].bytes == static_cast<uint64_t>(std::llround(2 * weight * 1000)));
    CHECK(sites[0].blocks == static_cast<uint64_t>(std::llround(2 * weight)));
}
