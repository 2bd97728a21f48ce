#include "heap/history.hpp"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "heap/inheritance.hpp"
#include "heap/sampling.hpp"
#include "heap/site_blocks.hpp"

namespace memtrace {
namespace {

int64_t signed_difference(uint64_t now, uint64_t before) {
    return static_cast<int64_t>(now - before);
}

template <typename Key, typename Value, typename... Rest>
Value value_or_none(const std::unordered_map<Key, Value, Rest...>& map, const Key& key) {
    const auto found = map.find(key);
    return found == map.end() ? Value{} : found->second;
}

void add_to_heap(HeapFigures& heap, const SiteFigures& site) {
    heap.totals += site.totals;
    heap.live_bytes += site.live_bytes;
    heap.live_blocks += site.live_blocks;
    heap.ended_bytes += site.totals.live_bytes() - site.live_bytes;
    heap.ended_blocks += site.totals.live_blocks() - site.live_blocks;
}

IntervalFigures interval(const SiteTotals& before, const SiteTotals& now) {
    return {.duration_ns = 0,
            .allocated_bytes = difference(now.allocated_bytes, before.allocated_bytes),
            .allocations = difference(now.allocations, before.allocations),
            .freed_bytes = difference(now.freed_bytes, before.freed_bytes),
            .frees = difference(now.frees, before.frees)};
}

}  // namespace

History::Drafts History::drafts_of(const Readings& readings, const MappingLedger& ledger,
                                   const std::optional<std::vector<uint32_t>>& only) const {
    Drafts drafts;
    for (const auto& [number, scope] : scopes_.scopes())
        if (!only && scope.living > 0) drafts[number];
    for (const uint32_t number : only.value_or(std::vector<uint32_t>()))
        if (scopes_.scopes().contains(number)) drafts[number];
    for (const auto& [pid, process] : scopes_.processes())
        if (const auto draft = drafts.find(process.scope); draft != drafts.end())
            draft->second.add_process({process.scope, process.number, pid});
    std::unordered_map<uint32_t, ScopePlace> places;
    for (const SpaceReading& reading : readings.spaces) {
        const auto place = scopes_.place_of(*reading.space);
        const auto draft = place ? drafts.find(place->scope) : drafts.end();
        if (draft == drafts.end()) continue;
        places[reading.space->owner] = *place;
        draft->second.add_space(*place, reading);
    }
    for (const SiteReading& reading : readings.sites)
        if (const auto place = places.find(reading.site->owner); place != places.end())
            drafts.at(place->second.scope).add_site(place->second, reading);
    for (auto& [number, draft] : drafts)
        if (const auto ended = ended_.find(number); ended != ended_.end()) draft.add_ended(ended->second);
    correct_mappings(drafts, readings, ledger, places);
    return drafts;
}

/// A mapping that several processes of a scope have counts once.
void History::correct_mappings(Drafts& drafts, const Readings& readings, const MappingLedger& ledger,
                               const std::unordered_map<uint32_t, ScopePlace>& places) {
    if (!ledger.has_shared()) return;
    std::unordered_map<uint32_t, std::vector<uint32_t>> owners;  // living ones, by scope
    for (const SpaceReading& reading : readings.spaces)
        if (const auto place = places.find(reading.space->owner); reading.is_living && place != places.end())
            owners[place->second.scope].push_back(place->first);
    std::unordered_map<uint32_t, SiteKey> keys;
    for (const SiteReading& reading : readings.sites)
        if (reading.key.is_mapping) keys[reading.site->index] = reading.key;
    for (const auto& [scope, living] : owners) {
        ScopeDraft& draft = drafts.at(scope);
        if (draft.processes().size() < 2) continue;
        for (const MappingCorrection& correction : ledger.corrections(living)) {
            const auto key = keys.find(correction.site);
            draft.correct(correction, key == keys.end() ? SiteKey{{}, 0, true} : key->second);
        }
    }
}

std::map<uint32_t, ScopeFigures> History::figures(const Snapshot& snapshot, const MappingLedger& ledger,
                                                  const FigureOptions& options) const {
    const Readings readings = read_sites(snapshot, ledger, options.exited);
    const BlocksBySite blocks(snapshot, ledger, options.older_ns);
    std::map<uint32_t, ScopeFigures> figures;
    for (const auto& [number, draft] : drafts_of(readings, ledger, options.scopes))
        figures.emplace(number, scope_figures(number, draft, blocks, snapshot, options));
    add_inherited(figures, readings, snapshot, options);
    return figures;
}

/// What forked processes hold of blocks that are not their own, nor live in their scope.
void History::add_inherited(std::map<uint32_t, ScopeFigures>& figures, const Readings& readings,
                            const Snapshot& snapshot, const FigureOptions& options) const {
    const Inheritance inheritance(snapshot);
    if (inheritance.is_empty()) return;
    const Inheritance old_enough = options.older_ns > 0 ? Inheritance(snapshot, options.older_ns) : inheritance;
    std::unordered_map<uint32_t, std::unordered_set<uint32_t>> owners;  // that live, by scope
    for (const SpaceReading& reading : readings.spaces)
        if (const auto place = reading.is_living ? scopes_.place_of(*reading.space) : std::nullopt)
            owners[place->scope].insert(reading.space->owner);
    std::unordered_map<uint32_t, const SiteReading*> sites;
    for (const SiteReading& reading : readings.sites)
        sites[reading.site->index] = &reading;
    for (auto& [number, scope] : figures) {
        for (const InheritedSite& inherited : inheritance.held_beside_live(owners[number])) {
            scope.heap.inherited_bytes += inherited.bytes;
            scope.heap.inherited_blocks += inherited.blocks;
        }
        for (SiteFigures& site : inherited_sites(old_enough.held_beside_live(owners[number]), sites))
            scope.sites.push_back(std::move(site));
    }
}

const History::Known& History::known_in(const KnownScopes& scopes, uint32_t scope) {
    static const Known nothing;
    const auto found = scopes.find(scope);
    return found == scopes.end() ? nothing : found->second;
}

/// One standard error of what is live in a scope, young blocks as well.
uint64_t History::error_of(const ScopeDraft& draft, const Snapshot& snapshot) {
    std::unordered_set<uint32_t> sites;
    for (const ScopeDraft::DraftSite& site : draft.sites())
        for (const ScopeDraft::Part& part : site.parts)
            if (part.reading->is_living) sites.insert(part.reading->site->index);
    SampledSums sums;
    for (const Block& block : snapshot.blocks)
        if (sites.contains(block.site)) sums.add(block);
    return sums.error_bytes();
}

ScopeFigures History::scope_figures(uint32_t number, const ScopeDraft& draft, const BlocksBySite& blocks,
                                    const Snapshot& snapshot, const FigureOptions& options) const {
    const Scopes::Scope& scope = scopes_.scopes().at(number);
    ScopeFigures figures;
    figures.scope = number;
    figures.kind = scopes_.kind();
    figures.key = scope.key;
    figures.root = scope.root;
    const BlockOptions block_options{snapshot.time_ns, options.older_ns, options.keeps_blocks, snapshot.is_sampled};
    for (const ScopeDraft::DraftSite& site : draft.sites()) {
        SiteFigures one = grown(number, site);
        if (!one.is_mapping) add_to_heap(figures.heap, one);
        if (options.resident_bytes && !one.is_mapping)
            for (const ScopeDraft::Part& part : site.parts)
                one.resident_bytes =
                    one.resident_bytes.value_or(0) + value_or_none(*options.resident_bytes, part.reading->site->index);
        show_blocks(one, site.parts, blocks, block_options);
        if (options.older_ns == 0 || one.live_blocks > 0) figures.sites.push_back(std::move(one));
    }
    add_growth(figures, draft);
    figures.heap.peak_live_bytes = std::max(figures.heap.live_bytes, value_or_none(peaks_, number));
    figures.interval = interval(known_in(previous_, number).heap, figures.heap.totals);
    figures.interval.duration_ns = difference(snapshot.time_ns, previous_time_ns_);
    figures.mappings = draft.mappings();
    figures.accuracy = draft.accuracy();
    figures.accuracy.is_size_filtered = options.is_size_filtered;
    figures.accuracy.is_sampled = snapshot.is_sampled;
    figures.accuracy.sampling_mean_bytes = options.sampling_mean_bytes;
    const bool has_estimates =
        std::ranges::any_of(figures.sites, [](const SiteFigures& site) { return site.error_bytes.has_value(); });
    if (snapshot.is_sampled || has_estimates) figures.heap.error_bytes = error_of(draft, snapshot);
    figures.accuracy.events_side_band_lost += options.side_band_lost;
    figures.has_baseline = has_baseline_;
    add_processes(figures, draft);
    return figures;
}

/// Of the sums: those of call sites do not add up to it where one has got another key when its process ended.
void History::add_growth(ScopeFigures& figures, const ScopeDraft& draft) const {
    const Known& before = known_in(previous_, figures.scope);
    const Known& known = known_in(baseline_, figures.scope);
    HeapFigures& heap = figures.heap;
    heap.growth_bytes = signed_difference(heap.live_bytes, before.heap_live_bytes);
    heap.growth_since_baseline_bytes = signed_difference(heap.live_bytes, known.heap_live_bytes);
    figures.mappings_growth_bytes = signed_difference(draft.mappings().live_bytes, before.mappings_live_bytes);
}

SiteFigures History::grown(uint32_t scope, const ScopeDraft::DraftSite& site) const {
    SiteFigures figures = site.figures;
    const KnownSite before = value_or_none(known_in(previous_, scope).sites, site.key);
    const KnownSite known = value_or_none(known_in(baseline_, scope).sites, site.key);
    figures.growth_bytes = signed_difference(figures.live_bytes, before.live_bytes);
    figures.growth_since_baseline_bytes = signed_difference(figures.live_bytes, known.live_bytes);
    figures.allocated_since_previous_bytes = difference(figures.totals.allocated_bytes, before.allocated_bytes);
    return figures;
}

/// The table of the scope's processes, each below the nearest ancestor that is in it.
void History::add_processes(ScopeFigures& figures, const ScopeDraft& draft) const {
    const Known& before = known_in(previous_, figures.scope);
    const Known& known = known_in(baseline_, figures.scope);
    std::unordered_map<uint64_t, uint64_t> parents;
    if (draft.processes().size() > 1) parents = scopes_.parents();
    std::unordered_map<uint64_t, pid_t> pids;
    for (const ProcessFigures& process : draft.processes())
        pids[process.number] = process.pid;
    for (ProcessFigures one : draft.processes()) {
        one.growth_bytes = signed_difference(one.live_bytes, value_or_none(before.live_bytes, one.number));
        one.growth_since_baseline_bytes =
            signed_difference(one.live_bytes, value_or_none(known.live_bytes, one.number));
        one.has_ended |= !scopes_.is_in(one.pid, figures.scope);
        uint64_t ancestor = value_or_none(parents, one.number);
        while (ancestor != 0 && !pids.contains(ancestor))
            ancestor = value_or_none(parents, ancestor);
        one.ancestor = value_or_none(pids, ancestor);
        figures.processes.push_back(one);
    }
    std::ranges::sort(figures.processes, {}, &ProcessFigures::pid);
    if (const auto ended = ended_.find(figures.scope); ended != ended_.end())
        figures.ended_processes = ended->second.others;
}

History::Known History::known_of(const ScopeDraft& draft) {
    Known known;
    for (const ScopeDraft::DraftSite& site : draft.sites()) {
        KnownSite& one = known.sites[site.key];
        one.live_bytes = site.figures.live_bytes;
        one.allocated_bytes = site.figures.totals.allocated_bytes;
        if (!site.key.is_mapping) known.heap += site.figures.totals;
    }
    for (const ProcessFigures& process : draft.processes())
        if (!process.has_ended) known.live_bytes[process.number] = process.live_bytes;
    known.heap_live_bytes = draft.heap_live_bytes();
    known.mappings_live_bytes = draft.mappings().live_bytes;
    return known;
}

void History::advance(const Snapshot& snapshot, const MappingLedger& ledger, const FigureOptions& options) {
    const Readings readings = read_sites(snapshot, ledger, options.exited);
    const Drafts drafts = drafts_of(readings, ledger, options.scopes);
    note_peaks(drafts);
    for (const auto& [number, draft] : drafts) {
        previous_[number] = known_of(draft);
        if (const auto ended = ended_.find(number); ended != ended_.end()) ended->second.fold(0);
    }
    if (options.scopes) return;
    previous_time_ns_ = snapshot.time_ns;
    scopes_.forget_gone(snapshot);
}

void History::set_baseline(const Snapshot& snapshot, const MappingLedger& ledger) {
    const Readings readings = read_sites(snapshot, ledger, {});
    const Drafts drafts = drafts_of(readings, ledger, std::nullopt);
    note_peaks(drafts);
    baseline_.clear();
    for (const auto& [number, draft] : drafts)
        baseline_[number] = known_of(draft);
    has_baseline_ = true;
}

void History::observe(const Snapshot& snapshot, const MappingLedger& ledger) {
    const Readings readings = read_sites(snapshot, ledger, {});
    note_peaks(drafts_of(readings, ledger, std::nullopt));
}

void History::note_peaks(const Drafts& drafts) {
    for (const auto& [number, draft] : drafts)
        peaks_[number] = std::max(peaks_[number], draft.heap_live_bytes());
}

/// What certain address spaces hold as ended ones.
History::Drafts History::ended_drafts(const Snapshot& snapshot, const MappingLedger& ledger,
                                      const std::function<bool(const AddressSpace& space)>& has_ended) const {
    Readings readings = read_sites(snapshot, ledger, {});
    Drafts drafts;
    std::unordered_map<uint32_t, ScopePlace> places;
    for (SpaceReading& reading : readings.spaces) {
        const auto place = has_ended(*reading.space) ? scopes_.place_of(*reading.space) : std::nullopt;
        if (!place) continue;
        places[reading.space->owner] = *place;
        reading.end();
        drafts[place->scope].add_space(*place, reading);
    }
    for (SiteReading& reading : readings.sites) {
        const auto place = places.find(reading.site->owner);
        if (place == places.end()) continue;
        reading.is_living = false;
        drafts[place->second.scope].add_site(place->second, reading);
    }
    return drafts;
}

void History::end_processes(const Snapshot& snapshot, const MappingLedger& ledger, std::span<const pid_t> pids,
                            const KeepStack& keep_stack) {
    const std::unordered_set<pid_t> ending(pids.begin(), pids.end());
    const auto has_ended = [&](const AddressSpace& space) { return ending.contains(space.pid); };
    Drafts drafts = ended_drafts(snapshot, ledger, has_ended);
    for (const pid_t pid : ending)
        if (const auto process = scopes_.processes().find(pid); process != scopes_.processes().end())
            drafts[process->second.scope].add_process({process->second.scope, process->second.number, pid});
    for (const pid_t pid : pids)
        scopes_.end(snapshot, pid);
    const bool outlives_processes = scopes_.kind() == ScopeKind::exe || scopes_.kind() == ScopeKind::all;
    for (const auto& [number, draft] : drafts) {
        if (outlives_processes || scopes_.scopes().at(number).living > 0) {
            draft.end_into(ended_[number], keep_stack, [](const ProcessFigures&) { return false; });
            continue;
        }
        scopes_.erase(number);
        ended_.erase(number);
        previous_.erase(number);
        baseline_.erase(number);
        peaks_.erase(number);
    }
}

std::vector<uint32_t> History::end_address_spaces(const Snapshot& snapshot, const MappingLedger& ledger,
                                                  const KeepStack& keep_stack) {
    std::unordered_map<pid_t, uint64_t> newest;
    for (const AddressSpace& space : snapshot.address_spaces)
        newest[space.pid] = std::max(newest[space.pid], space.first_seen_ns);
    // The last one of a process may be that of its end, which has a report to come.
    const auto has_ended = [&](const AddressSpace& space) {
        return space.ended_ns != 0 && space.first_seen_ns < newest[space.pid];
    };
    std::vector<uint32_t> owners;
    for (const auto& [number, draft] : ended_drafts(snapshot, ledger, has_ended))
        draft.end_into(ended_[number], keep_stack, [this, scope = number](const ProcessFigures& process) {
            return scopes_.is_in(process.pid, scope);
        });
    for (const AddressSpace& space : snapshot.address_spaces) {
        if (!has_ended(space) || !scopes_.place_of(space)) continue;
        owners.push_back(space.owner);
        scopes_.end(space);
    }
    return owners;
}

}  // namespace memtrace
