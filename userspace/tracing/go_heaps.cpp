#include "tracing/go_heaps.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <tuple>

#include "base/log.hpp"
#include "base/units.hpp"

namespace memtrace {
namespace {

/// runtime/malloc.go: where a program does not set it.
constexpr uint64_t usual_rate_bytes = 512 << 10;

uint64_t rounded(double value) {
    return static_cast<uint64_t>(std::llround(value));
}

uint64_t scaled(uint64_t count, double probability) {
    return rounded(static_cast<double>(count) / probability);
}

uint64_t samples_of(const std::unordered_map<uint64_t, GoAllocations>& buckets) {
    uint64_t samples = 0;
    for (const auto& [address, bucket] : buckets)
        samples += bucket.samples;
    return samples;
}

}  // namespace

void GoHeaps::open_heaps(const std::map<pid_t, Target>& targets) {
    for (const auto& [pid, target] : targets) {
        if (target.exit_code || std::ranges::none_of(target.allocator_mappings, &AllocatorMapping::is_go)) continue;
        Heap& heap = heaps_[pid];
        if (heap.has_ended) heap = Heap();
        if (!heap.process && !heap.has_warned) open(pid, heap);
    }
}

void GoHeaps::open(pid_t pid, Heap& heap) const {
    auto process = open_go_process(pid);
    // It may be ending, or not yet be where the linker puts it.
    if (!process) return;
    heap.process = std::make_unique<GoProcess>(std::move(*process));
    if (table_.traces_go_fully()) heap.types = std::make_unique<GoTypes>(*heap.process, pid);
    const auto reader = GoHeapReader::open(*heap.process);
    if (reader) {
        heap.reader = *reader;
    } else if (!table_.traces_go_fully()) {
        log_warning(fmt::format("process {}: {}", pid, reader.error().why));
    }
    read_profile(pid, heap);
    heap.first = heap.now;
}

void GoHeaps::read_profile(pid_t pid, Heap& heap) const {
    if (!heap.reader || heap.has_ended) return;
    const auto rate = heap.reader->sampled_every_bytes();
    if (!rate) return;
    heap.rate_bytes = *rate;
    if (*rate == 0) {
        if (table_.traces_go_fully() || std::exchange(heap.has_warned, true)) return;
        log_warning(fmt::format("process {}: its Go heap is not seen, because its runtime samples nothing: {}", pid,
                                "MemProfileRate = 0; import net/http/pprof, or trace all of it with --go-full"));
        return;
    }
    const auto profile = heap.reader->read();
    if (!profile) return;
    heap.now.clear();
    for (const GoAllocations& bucket : profile->allocations)
        heap.now.emplace(bucket.bucket, bucket);
}

void GoHeaps::read_profiles() {
    for (auto& [pid, heap] : heaps_)
        read_profile(pid, heap);
}

void GoHeaps::end_address_space(pid_t pid) {
    if (const auto heap = heaps_.find(pid); heap != heaps_.end()) heap->second.has_ended = true;
}

/// A bucket has one size, so a call site of samples has one too.
void GoHeaps::scale(Snapshot& snapshot, const std::unordered_map<uint32_t, Heap*>& heaps) const {
    std::unordered_map<uint32_t, uint32_t> means;  // by call site
    for (Site& site : snapshot.sites) {
        if (table_[site.row].row.operation != MT_OP_GO_SAMPLE || site.totals.allocations == 0) continue;
        const auto heap = heaps.find(site.owner);
        const uint64_t known = heap == heaps.end() ? 0 : heap->second->rate_bytes;
        const uint64_t rate_bytes = known == 0 ? usual_rate_bytes : known;
        means[site.index] = static_cast<uint32_t>(std::min<uint64_t>(rate_bytes, UINT32_MAX));
        const uint64_t size_bytes = site.totals.allocated_bytes / site.totals.allocations;
        const double probability = go_sampling_probability(size_bytes, rate_bytes);
        site.totals = {.allocated_bytes = scaled(site.totals.allocated_bytes, probability),
                       .allocations = scaled(site.totals.allocations, probability),
                       .freed_bytes = scaled(site.totals.freed_bytes, probability),
                       .frees = scaled(site.totals.frees, probability)};
    }
    if (means.empty()) return;
    const std::span<const uint32_t> sites = snapshot.blocks.sites();
    for (size_t index = 0; index < sites.size(); ++index)
        if (const auto mean = means.find(sites[index]); mean != means.end())
            snapshot.blocks.set_sampling_mean(index, mean->second);
    for (Block& block : snapshot.inheritable)
        if (const auto mean = means.find(block.site); mean != means.end()) block.sampling_mean_bytes = mean->second;
}

void GoHeaps::complete(Snapshot& snapshot) {
    if (heaps_.empty()) return;
    std::unordered_map<uint32_t, Heap*> heaps;  // by owner
    std::unordered_map<uint32_t, pid_t> pids;
    for (const AddressSpace& space : snapshot.address_spaces)
        if (const auto heap = heaps_.find(space.pid); heap != heaps_.end()) {
            heaps.emplace(space.owner, &heap->second);
            if (space.ended_ns == 0) pids.emplace(space.owner, space.pid);
        }
    std::map<pid_t, Seen> seen;
    for (const auto& [owner, pid] : pids) {
        heaps.at(owner)->seen_live.clear();
        seen[pid];
    }
    for (const Site& site : snapshot.sites) {
        const auto pid = pids.find(site.owner);
        if (pid == pids.end()) continue;
        const mt_u8 operation = table_[site.row].row.operation;
        if (operation == MT_OP_GO_ALLOCATE) seen[pid->second].allocated_bytes += site.totals.allocated_bytes;
        if (operation != MT_OP_GO_SAMPLE) continue;
        seen[pid->second].samples += site.totals.allocations;
        heaps.at(site.owner)->seen_live[site.kernel_hash] += site.totals.live_blocks();
    }
    for (const auto& [pid, figures] : seen)
        check_is_complete(pid, heaps_.at(pid), figures);
    scale(snapshot, heaps);
}

/// The runtime's own count runs away from what the probes saw when it allocates by a function that has no row.
void GoHeaps::check_is_complete(pid_t pid, Heap& heap, const Seen& seen) const {
    if (heap.has_warned || heap.now.empty()) return;
    if (!table_.traces_go_fully()) {
        constexpr uint64_t least_samples = 16;  // between the two readings, and while the probes were armed
        const uint64_t counted = samples_of(heap.now) - std::min(samples_of(heap.now), samples_of(heap.first));
        if (counted <= seen.samples + counted / 50 + least_samples) return;
        heap.has_warned = true;
        log_warning(fmt::format("process {}: its Go runtime sampled {} objects, of which {} were seen", pid, counted,
                                seen.samples));
        return;
    }
    constexpr double errors = 5;
    constexpr double least_bytes = 8 << 20;
    double bytes = 0;
    double variance = 0;
    for (const auto& [address, bucket] : heap.now) {
        const auto before = heap.first.find(address);
        const uint64_t samples = bucket.samples - (before == heap.first.end() ? 0 : before->second.samples);
        const double probability = go_sampling_probability(bucket.size_bytes, heap.rate_bytes);
        const double share = static_cast<double>(bucket.size_bytes) / probability;
        bytes += static_cast<double>(samples) * share;
        variance += static_cast<double>(samples) * (1 - probability) * share * share;
    }
    if (bytes - errors * std::sqrt(variance) - least_bytes <= static_cast<double>(seen.allocated_bytes)) return;
    heap.has_warned = true;
    log_warning(fmt::format("process {}: its Go runtime allocated about {}, of which {} were seen", pid,
                            format_size(rounded(bytes)), format_size(seen.allocated_bytes)));
}

std::vector<TypedObjects> GoHeaps::take_typed_objects(Snapshot& snapshot) const {
    std::vector<TypedObjects> taken;
    if (!table_.traces_go_fully() || heaps_.empty()) return taken;
    std::unordered_map<uint32_t, bool> are_go;  // by call site
    for (const Site& site : snapshot.sites)
        are_go[site.index] = table_[site.row].row.operation == MT_OP_GO_ALLOCATE;
    std::map<std::pair<uint32_t, uint64_t>, uint64_t> live;  // by call site and size: a call site has one type
    for (const Block& block : snapshot.blocks)
        if (are_go[block.site]) ++live[{block.site, block.size_bytes}];
    std::erase_if(snapshot.typed_objects, [&](const TypedObjects& objects) {
        if (!are_go[objects.site]) return false;
        taken.push_back(objects);
        taken.back().live = std::min(live[{objects.site, objects.size_bytes}], objects.allocations);
        return true;
    });
    return taken;
}

std::optional<std::string> GoHeaps::type_name(pid_t pid, uint32_t type) const {
    const auto heap = heaps_.find(pid);
    if (heap == heaps_.end() || !heap->second.types) return std::nullopt;
    return heap->second.types->name(type);
}

std::optional<BeforeAttachRecord> GoHeaps::live_from_before(pid_t pid) const {
    const auto found = heaps_.find(pid);
    if (found == heaps_.end() || found->second.first.empty() || found->second.has_ended) return std::nullopt;
    const Heap& heap = found->second;
    BeforeAttachRecord record;
    std::map<std::vector<std::string>, CensusSite> sites;
    double variance = 0;
    for (const auto& [address, first] : heap.first) {
        const auto now = heap.now.find(address);
        const auto seen = heap.seen_live.find(address);
        const uint64_t live_now = now == heap.now.end() ? 0 : now->second.live_samples;
        const uint64_t younger = seen == heap.seen_live.end() ? 0 : seen->second;
        const uint64_t samples = std::min(first.live_samples, live_now - std::min(live_now, younger));
        if (samples == 0) continue;
        const double probability = go_sampling_probability(first.size_bytes, heap.rate_bytes);
        const auto size_bytes = static_cast<double>(first.size_bytes);
        variance +=
            static_cast<double>(samples) * (1 - probability) * size_bytes * size_bytes / (probability * probability);
        CensusSite& site = sites[first.functions];
        site.live_samples += samples;
        site.live_blocks += scaled(samples, probability);
        site.live_bytes += scaled(samples * first.size_bytes, probability);
    }
    for (auto& [functions, site] : sites) {
        record.live_bytes += site.live_bytes;
        record.live_blocks += site.live_blocks;
        site.functions = functions;
        record.sites.push_back(std::move(site));
    }
    record.sites_total = sites.size();
    record.error_bytes = rounded(std::sqrt(variance));
    std::ranges::stable_sort(record.sites, std::greater(), &CensusSite::live_bytes);
    return record;
}

}  // namespace memtrace
