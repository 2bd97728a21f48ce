// What ended address spaces give back: their room in the kernel side's tables, and their numbers in the stores.
#include <algorithm>
#include <set>

#include "base/clock.hpp"
#include "tracing/tracer.hpp"

namespace memtrace {
namespace {

constexpr uint64_t release_interval_ns = 200'000'000;
constexpr size_t many_owners = MT_MAX_OWNERS / 8;

}  // namespace

void Tracer::forget_owners(const std::vector<uint32_t>& owners) {
    const std::set<uint32_t> forgotten(owners.begin(), owners.end());
    for (const auto& [pid, target] : targets_.all())
        std::erase_if(targets_.find(pid)->owners, [&](uint32_t owner) { return forgotten.contains(owner); });
    for (const uint32_t owner : owners) {
        ended_by_exec_.erase(owner);
        resynced_.erase(owner);
    }
    forgotten_owners_.insert(forgotten_owners_.end(), owners.begin(), owners.end());
}

bool Tracer::wants_release() const {
    if (forgotten_owners_.size() >= many_owners) return true;
    const bool has_work = has_news_of_exec_ || !forgotten_owners_.empty() || targets_.has_removed_owners();
    return has_work && monotonic_now_ns() - released_ns_ >= release_interval_ns;
}

void Tracer::release_ended() {
    released_ns_ = monotonic_now_ns();
    has_news_of_exec_ = false;
    const std::vector<uint32_t> removed = targets_.take_removed_owners();
    forgotten_owners_.insert(forgotten_owners_.end(), removed.begin(), removed.end());
    const std::vector<uint32_t> owners = session_->releasable(forgotten_owners_);
    if (owners.empty()) return;
    session_->wait_for_programs();
    session_->drain_events(*this);
    const Snapshot last = session_->release(owners);
    const std::set<uint32_t> released(owners.begin(), owners.end());
    std::erase_if(forgotten_owners_, [&](uint32_t owner) { return released.contains(owner); });
    for (const uint32_t owner : owners) {
        mapping_ledger_.forget_owner(owner);
        resynced_.erase(owner);
        stack_store_.forget(owner);
    }
    for (const Site& site : last.sites) {
        mapping_ledger_.forget_site(site.index);
        raw_stack_errors_.erase(site.index);
        traced_site_ids_.erase(site.index);
    }
}

}  // namespace memtrace
