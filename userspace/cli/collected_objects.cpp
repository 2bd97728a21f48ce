#include "cli/collected_objects.hpp"

#include <map>
#include <unordered_map>
#include <utility>

namespace memtrace {

std::vector<NamedObjects> named_objects(const Snapshot& snapshot, const ScopeFigures& figures, const Tracer& tracer) {
    std::vector<NamedObjects> named;
    if (snapshot.typed_objects.empty()) return named;
    std::unordered_map<uint32_t, const Target*> targets;  // by owner
    for (const ProcessFigures& process : figures.processes)
        if (const auto target = tracer.targets().find(process.pid); target != tracer.targets().end())
            for (const uint32_t owner : target->second.owners)
                targets.emplace(owner, &target->second);
    std::unordered_map<uint32_t, const Site*> sites;
    for (const Site& site : snapshot.sites)
        sites.emplace(site.index, &site);
    std::map<std::pair<StackHash, uint32_t>, uint32_t> shown;  // by stack and row
    for (const SiteFigures& one : figures.sites)
        if (const auto site = sites.find(one.site); site != sites.end() && !one.is_inherited)
            shown.emplace(std::pair(site->second->stack, site->second->row), one.site);
    for (const TypedObjects& objects : snapshot.typed_objects) {
        const auto site = sites.find(objects.site);
        const auto target = site == sites.end() ? targets.end() : targets.find(site->second->owner);
        if (target == targets.end()) continue;
        const auto place = shown.find(std::pair(site->second->stack, site->second->row));
        NamedObjects& one = named.emplace_back();
        one.site = place == shown.end() ? objects.site : place->second;
        one.type = tracer.type_name(target->second->process.pid, objects.type);
        one.size_bytes = objects.size_bytes;
        one.allocations = objects.allocations;
        if (!target->second->exit_code) one.live = objects.live;
    }
    return named;
}

std::optional<BeforeAttachRecord> before_attach(const ScopeFigures& figures, const Tracer& tracer) {
    std::optional<BeforeAttachRecord> all;
    for (const ProcessFigures& process : figures.processes)
        if (auto one = process.has_ended ? std::nullopt : tracer.live_from_before(process.pid))
            add(all, std::move(*one));
    return all;
}

}  // namespace memtrace
