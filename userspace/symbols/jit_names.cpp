#include "symbols/jit_names.hpp"

#include <algorithm>
#include <iterator>

namespace memtrace {
namespace {

constexpr size_t most_names = 1'000'000;
constexpr uint64_t most_name_bytes = uint64_t{128} << 20;
constexpr size_t longest_name = 4096;

}  // namespace

bool JitNames::is_full() const {
    return names_.size() >= most_names || name_bytes_ >= most_name_bytes;
}

void JitNames::add(uint64_t start, uint64_t size_bytes, std::string_view name) {
    const uint64_t end = start + size_bytes;
    if (end <= start || name.empty() || is_full()) return;
    make_room(start, end);
    name = name.substr(0, longest_name);
    entries_[start] = {start, end, static_cast<uint32_t>(names_.size())};
    names_.emplace_back(name);
    name_bytes_ += name.size();
}

/// Cuts away whatever lies in [start, end).
void JitNames::make_room(uint64_t start, uint64_t end) {
    auto entry = entries_.lower_bound(start);
    if (entry != entries_.begin()) {
        Entry& before = std::prev(entry)->second;
        if (before.end > end) entries_.emplace(end, before);
        before.end = std::min(before.end, start);
    }
    while (entry != entries_.end() && entry->first < end) {
        if (entry->second.end > end) entries_.emplace(end, entry->second);
        entry = entries_.erase(entry);
    }
}

JitNames::Found JitNames::find(uint64_t address) const {
    const auto after = entries_.upper_bound(address);
    if (after == entries_.begin()) return {};
    const Entry& entry = std::prev(after)->second;
    if (entry.end <= address) return {};
    return {names_[entry.name], entry.start};
}

}  // namespace memtrace
