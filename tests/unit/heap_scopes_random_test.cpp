// Processes rolled up to scopes: what a random life of forks, execs and ends comes to, against a model that counts each
// event where it happens.
#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "catch.hpp"
#include "scope_snapshots.hpp"

using namespace memtrace;
using namespace memtrace::test;

namespace {

constexpr uint64_t second = 1'000'000'000;

/// Every event of a random life, counted where it happens.
class Model {
  public:
    Model(ScopeKind kind, uint32_t seed) : kind_(kind), random_(seed), history_(0, kind) {}

    void run() {
        start(0);
        for (uint32_t step = 1; step < 1500; ++step) {
            now_ns_ += 1 + random_() % second;
            step_once();
            if (random_() % 10 == 0) tick();
            if (random_() % 200 == 0) set_baseline();
            if (random_() % 50 == 0) end_address_spaces();
        }
    }

  private:
    struct LiveBlock {
        uint64_t size_bytes = 0;
        uint64_t birth_ns = 0;
        uint64_t stack = 0;
    };
    struct Process {
        ProcessIdentity identity;
        std::string scope;
        uint32_t owner = 0;
        std::vector<LiveBlock> blocks;
    };
    struct Sums {
        SiteTotals totals;
        uint64_t live_bytes = 0;
        uint64_t live_blocks = 0;
        uint64_t previous_bytes = 0;
        uint64_t previous_allocated_bytes = 0;
        uint64_t baseline_bytes = 0;
    };

    uint64_t below(uint64_t limit) { return random_() % limit; }
    Process& any_process() {
        return std::next(processes_.begin(), static_cast<ptrdiff_t>(below(processes_.size())))->second;
    }

    void step_once() {
        const uint64_t what = below(100);
        if (processes_.empty() || (what < 4 && processes_.size() < 20))
            start(0);
        else if (what < 12 && processes_.size() < 20)
            start(any_process().identity.pid);
        else if (what < 17)
            exec(any_process());
        else if (what < 25)
            end(any_process().identity.pid);
        else if (what < 70)
            allocate(any_process());
        else
            give_back(any_process());
    }

    std::string scope_name(const ProcessIdentity& identity) {
        if (kind_ == ScopeKind::exe) return identity.exe;
        if (kind_ == ScopeKind::cgroup) return identity.cgroup + "#" + std::to_string(generations_[identity.cgroup]);
        if (kind_ == ScopeKind::all) return "all";
        const auto parent = processes_.find(identity.parent);
        if (kind_ == ScopeKind::tree && parent != processes_.end()) return parent->second.scope;
        return std::to_string(++last_root_);
    }

    void start(pid_t parent) {
        pid_t pid = 1 + static_cast<pid_t>(below(40));
        while (processes_.contains(pid))
            pid = 1 + static_cast<pid_t>(below(40));
        Process process;
        process.identity =
            identity(pid, parent, std::string(1, static_cast<char>('a' + below(3))), "/" + std::to_string(below(3)));
        process.scope = scope_name(process.identity);
        processes_[pid] = process;
        new_space(processes_[pid]);
        update();
    }

    void new_space(Process& process) {
        uint32_t owner = 1;
        while (std::ranges::find(snapshot_.address_spaces, owner, &AddressSpace::owner) !=
               snapshot_.address_spaces.end())
            ++owner;
        process.owner = owner;
        process.identity.owners.push_back(owner);
        snapshot_.address_spaces.push_back(space(owner, process.identity.pid, ++now_ns_));
    }

    AddressSpace& space_of(uint32_t owner) {
        return *std::ranges::find(snapshot_.address_spaces, owner, &AddressSpace::owner);
    }

    template <typename Predicate>
    void erase_blocks(const Predicate& is_erased) {
        std::vector<Block> blocks(snapshot_.blocks.begin(), snapshot_.blocks.end());
        std::erase_if(blocks, is_erased);
        snapshot_.blocks = LiveBlocks(blocks);
    }

    void drop_live(Process& process) {
        for (const LiveBlock& block : process.blocks) {
            Sums& sums = sums_[process.scope][block.stack];
            sums.live_bytes -= block.size_bytes;
            sums.live_blocks -= 1;
        }
        process.blocks.clear();
        erase_blocks([&](const Block& block) { return block.owner == process.owner; });
        space_of(process.owner).ended_ns = ++now_ns_;
    }

    void exec(Process& process) {
        drop_live(process);
        process.identity.exe = std::string(1, static_cast<char>('a' + below(3)));
        if (kind_ == ScopeKind::exe) process.scope = process.identity.exe;
        new_space(process);
        update();
    }

    void end(pid_t pid) {
        Process process = processes_.at(pid);
        drop_live(process);
        update();
        history_.end_processes(snapshot_, {}, std::vector{pid}, kept_.function(snapshot_));
        processes_.erase(pid);
        std::set<uint32_t> released(process.identity.owners.begin(), process.identity.owners.end());
        release(released);
        const bool is_empty =
            std::ranges::none_of(processes_, [&](const auto& entry) { return entry.second.scope == process.scope; });
        if (!is_empty || kind_ == ScopeKind::exe || kind_ == ScopeKind::all) return;
        sums_.erase(process.scope);
        ++generations_[process.identity.cgroup];
    }

    /// Their numbers, and those of their sites, are given again.
    void release(const std::set<uint32_t>& owners) {
        std::erase_if(snapshot_.sites, [&](const Site& one) { return owners.contains(one.owner); });
        if (below(2) == 0) return;  // the kernel side may be slow
        std::erase_if(snapshot_.address_spaces, [&](const AddressSpace& one) { return owners.contains(one.owner); });
    }

    void end_address_spaces() {
        update();
        const auto owners = history_.end_address_spaces(snapshot_, {}, kept_.function(snapshot_));
        release({owners.begin(), owners.end()});
        for (auto& [pid, process] : processes_)
            std::erase_if(process.identity.owners,
                          [&](uint32_t owner) { return std::ranges::find(owners, owner) != owners.end(); });
    }

    Site& site_of(const Process& process, uint64_t stack) {
        for (Site& one : snapshot_.sites)
            if (one.owner == process.owner && one.stack[0] == stack) return one;
        uint32_t index = 1;
        while (std::ranges::find(snapshot_.sites, index, &Site::index) != snapshot_.sites.end())
            ++index;
        snapshot_.sites.push_back(site(index, process.owner, stack, {}));
        return snapshot_.sites.back();
    }

    void allocate(Process& process) {
        const LiveBlock block{1 + below(1000), ++now_ns_, 1 + below(6)};
        process.blocks.push_back(block);
        Site& of_block = site_of(process, block.stack);
        Sums& sums = sums_[process.scope][block.stack];
        for (SiteTotals* totals : {&of_block.totals, &sums.totals}) {
            totals->allocated_bytes += block.size_bytes;
            totals->allocations += 1;
        }
        sums.live_bytes += block.size_bytes;
        sums.live_blocks += 1;
        snapshot_.blocks.push_back({now_ns_, block.size_bytes, block.birth_ns, of_block.index, process.owner});
    }

    void give_back(Process& process) {
        if (process.blocks.empty()) return;
        const size_t which = below(process.blocks.size());
        const LiveBlock block = process.blocks[which];
        process.blocks.erase(process.blocks.begin() + static_cast<ptrdiff_t>(which));
        Sums& sums = sums_[process.scope][block.stack];
        for (SiteTotals* totals : {&site_of(process, block.stack).totals, &sums.totals}) {
            totals->freed_bytes += block.size_bytes;
            totals->frees += 1;
        }
        sums.live_bytes -= block.size_bytes;
        sums.live_blocks -= 1;
        erase_blocks([&](const Block& one) { return one.birth_ns == block.birth_ns; });
    }

    void update() {
        std::vector<ProcessIdentity> identities;
        for (const auto& [pid, process] : processes_)
            identities.push_back(process.identity);
        history_.update(identities);
    }

    void tick() {
        update();
        snapshot_.time_ns = ++now_ns_;
        const auto figures = history_.figures(snapshot_, {}, {});
        std::set<std::string> expected;
        for (const auto& [pid, process] : processes_)
            expected.insert(process.scope);
        REQUIRE(figures.size() == expected.size());
        for (const auto& [number, scope] : figures)
            check(scope);
        history_.advance(snapshot_, {});
        for (const std::string& scope : expected)
            for (auto& [stack, sums] : sums_[scope]) {
                sums.previous_bytes = sums.live_bytes;
                sums.previous_allocated_bytes = sums.totals.allocated_bytes;
            }
    }

    void set_baseline() {
        update();
        history_.set_baseline(snapshot_, {});
        for (auto& [scope, sites] : sums_)
            for (auto& [stack, sums] : sites)
                sums.baseline_bytes = sums.live_bytes;
    }

    void check(const ScopeFigures& scope) {
        std::string name;
        std::set<pid_t> living;
        for (const ProcessFigures& process : scope.processes) {
            if (process.has_ended) continue;
            name = processes_.at(process.pid).scope;
            living.insert(process.pid);
            check_process(process);
        }
        for (const auto& [pid, process] : processes_)
            REQUIRE(living.contains(pid) == (process.scope == name));
        Sums whole;
        for (const auto& [stack, sums] : sums_[name])
            add(whole, sums);
        const HeapFigures& heap = scope.heap;
        REQUIRE(heap.totals.allocated_bytes - heap.totals.freed_bytes - heap.ended_bytes == heap.live_bytes);
        REQUIRE(heap.totals.allocations - heap.totals.frees - heap.ended_blocks == heap.live_blocks);
        REQUIRE(heap.totals.allocated_bytes == whole.totals.allocated_bytes);
        REQUIRE(heap.totals.frees == whole.totals.frees);
        REQUIRE(heap.live_bytes == whole.live_bytes);
        REQUIRE(heap.live_blocks == whole.live_blocks);
        REQUIRE(heap.growth_bytes == signed_difference(whole.live_bytes, whole.previous_bytes));
        REQUIRE(heap.growth_since_baseline_bytes == signed_difference(whole.live_bytes, whole.baseline_bytes));
        REQUIRE(scope.interval.allocated_bytes == whole.totals.allocated_bytes - whole.previous_allocated_bytes);
        REQUIRE(scope.sites.size() == sums_[name].size());
        for (const SiteFigures& figures : scope.sites)
            check_site(figures, name);
    }

    static void add(Sums& whole, const Sums& part) {
        whole.totals += part.totals;
        whole.live_bytes += part.live_bytes;
        whole.live_blocks += part.live_blocks;
        whole.previous_bytes += part.previous_bytes;
        whole.previous_allocated_bytes += part.previous_allocated_bytes;
        whole.baseline_bytes += part.baseline_bytes;
    }

    static int64_t signed_difference(uint64_t now, uint64_t before) { return static_cast<int64_t>(now - before); }

    void check_process(const ProcessFigures& figures) {
        uint64_t live_bytes = 0;
        for (const LiveBlock& block : processes_.at(figures.pid).blocks)
            live_bytes += block.size_bytes;
        REQUIRE(figures.live_bytes == live_bytes);
        REQUIRE(figures.totals.live_bytes() == figures.live_bytes + figures.ended_bytes);
    }

    void check_site(const SiteFigures& figures, const std::string& name) {
        const uint64_t stack = stack_of(figures.site);
        const Sums& sums = sums_[name].at(stack);
        REQUIRE(figures.totals.allocated_bytes == sums.totals.allocated_bytes);
        REQUIRE(figures.live_bytes == sums.live_bytes);
        REQUIRE(figures.growth_bytes == signed_difference(sums.live_bytes, sums.previous_bytes));
        REQUIRE(figures.growth_since_baseline_bytes == signed_difference(sums.live_bytes, sums.baseline_bytes));
        std::vector<uint64_t> births;
        std::map<pid_t, uint64_t> holders;
        for (const auto& [pid, process] : processes_)
            for (const LiveBlock& block : process.blocks)
                if (process.scope == name && block.stack == stack) {
                    births.push_back(block.birth_ns);
                    holders[pid] += block.size_bytes;
                }
        std::ranges::sort(births);
        REQUIRE(figures.ages.has_value() == !births.empty());
        REQUIRE(figures.holders_total == holders.size());
        for (const SiteHolder& holder : figures.holders)
            REQUIRE(holders.at(holder.pid) == holder.live_bytes);
        if (births.empty()) return;
        REQUIRE(figures.ages->max_ns == snapshot_.time_ns - births.front());
        REQUIRE(figures.ages->min_ns == snapshot_.time_ns - births.back());
        REQUIRE(figures.ages->median_ns == snapshot_.time_ns - births[births.size() / 2]);
    }

    uint64_t stack_of(uint32_t index) const {
        if (index >= 1u << 31) return index - (1u << 31);
        return std::ranges::find(snapshot_.sites, index, &Site::index)->stack[0];
    }

    ScopeKind kind_;
    std::mt19937 random_;
    History history_;
    KeptStacks kept_;
    Snapshot snapshot_;
    uint64_t now_ns_ = 0;
    uint64_t last_root_ = 0;
    std::map<pid_t, Process> processes_;
    std::map<std::string, std::map<uint64_t, Sums>> sums_;  // by scope and stack
    std::map<std::string, uint64_t> generations_;
};

}  // namespace

TEST_CASE("a random life of forks, execs and ends is what a model counted, by any scope", "[heap]") {
    const auto kind = GENERATE(ScopeKind::process, ScopeKind::tree, ScopeKind::exe, ScopeKind::cgroup, ScopeKind::all);
    for (uint32_t seed = 1; seed <= 8; ++seed) {
        INFO("kind " << static_cast<int>(kind) << ", seed " << seed);
        Model(kind, seed).run();
    }
}
