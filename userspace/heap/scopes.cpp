#include "heap/scopes.hpp"

#include <algorithm>

namespace memtrace {
namespace {

/// At least.
constexpr size_t remembered_processes = 1024;

}  // namespace

void Scopes::update(std::span<const ProcessIdentity> identities) {
    Newcomers newcomers;
    for (const ProcessIdentity& identity : identities) {
        if (processes_.contains(identity.pid))
            note_execs(identity);
        else
            newcomers.emplace(identity.pid, &identity);
    }
    while (!newcomers.empty())
        join(*newcomers.begin()->second, newcomers);
}

/// A parent joins before its children, whatever their pids.
void Scopes::join(const ProcessIdentity& identity, Newcomers& newcomers) {
    newcomers.erase(identity.pid);
    if (const auto parent = newcomers.find(identity.parent); parent != newcomers.end())
        join(*parent->second, newcomers);
    const Process* parent = find_parent(identity.parent);
    Process process{.number = ++last_process_, .parent = parent ? parent->number : 0, .pid = identity.pid, .scope = 0};
    process.scope = scope_for(identity, parent);
    Scope& scope = scopes_.at(process.scope);
    scope.living += 1;
    scope.processes += 1;
    processes_[identity.pid] = process;
    if (kind_ != ScopeKind::exe) return;
    for (const uint32_t owner : identity.owners)
        exe_scopes_[owner] = process.scope;
}

/// What was announced last runs the binary that it runs now.
void Scopes::note_execs(const ProcessIdentity& identity) {
    if (kind_ != ScopeKind::exe) return;
    Process& process = processes_.at(identity.pid);
    for (const uint32_t owner : identity.owners) {
        if (exe_scopes_.contains(owner)) continue;
        const uint32_t scope = scope_with_key(identity.exe);
        exe_scopes_[owner] = scope;
        if (scope == process.scope) continue;
        scopes_.at(process.scope).living -= 1;
        scopes_.at(scope).living += 1;
        scopes_.at(scope).processes += 1;
        process.scope = scope;
    }
}

uint32_t Scopes::scope_for(const ProcessIdentity& identity, const Process* parent) {
    switch (kind_) {
        case ScopeKind::process:
            break;
        case ScopeKind::tree:
            if (parent && scopes_.contains(parent->scope)) return parent->scope;
            break;
        case ScopeKind::exe:
            return scope_with_key(identity.exe);
        case ScopeKind::cgroup:
            return scope_with_key(identity.cgroup);
        case ScopeKind::all:
            return scope_with_key("");
    }
    return add_scope({.key = "", .root = identity.pid}).number;
}

uint32_t Scopes::scope_with_key(const std::string& key) {
    const auto known = by_key_.find(key);
    if (known != by_key_.end()) return known->second;
    return by_key_[key] = add_scope({.key = key}).number;
}

Scopes::Scope& Scopes::add_scope(Scope scope) {
    scope.number = ++last_scope_;
    return scopes_[scope.number] = std::move(scope);
}

const Scopes::Process* Scopes::find_parent(pid_t pid) const {
    if (const auto living = processes_.find(pid); living != processes_.end()) return &living->second;
    const auto ended = std::find_if(ended_.rbegin(), ended_.rend(), [&](const Process& any) { return any.pid == pid; });
    return ended == ended_.rend() ? nullptr : &*ended;
}

std::optional<ScopePlace> Scopes::place_of(const AddressSpace& space) const {
    const auto forgotten = forgotten_.find(space.owner);
    if (forgotten != forgotten_.end() && forgotten->second == space.first_seen_ns) return std::nullopt;
    const auto found = processes_.find(space.pid);
    if (found == processes_.end()) return std::nullopt;
    const Process& process = found->second;
    if (kind_ != ScopeKind::exe) return ScopePlace{process.scope, process.number, process.pid};
    const auto exe = exe_scopes_.find(space.owner);
    return ScopePlace{exe == exe_scopes_.end() ? process.scope : exe->second, process.number, process.pid};
}

void Scopes::end(const Snapshot& snapshot, pid_t pid) {
    const auto found = processes_.find(pid);
    if (found == processes_.end()) return;
    for (const AddressSpace& space : snapshot.address_spaces)
        if (space.pid == pid) end(space);
    scopes_.at(found->second.scope).living -= 1;
    remember(found->second);
    processes_.erase(found);
}

void Scopes::end(const AddressSpace& space) {
    forgotten_[space.owner] = space.first_seen_ns;
    exe_scopes_.erase(space.owner);
}

/// Children of what is not remembered any more are those of its nearest ancestor that is.
void Scopes::remember(const Process& ended) {
    ended_.push_back(ended);
    if (ended_.size() <= 2 * remembered_processes) return;
    std::unordered_map<uint64_t, uint64_t> parents;
    while (ended_.size() > remembered_processes) {
        parents[ended_.front().number] = ended_.front().parent;
        ended_.pop_front();
    }
    const auto find_ancestor = [&](Process& process) {
        for (auto gone = parents.find(process.parent); gone != parents.end(); gone = parents.find(process.parent))
            process.parent = gone->second;
    };
    for (auto& [pid, process] : processes_)
        find_ancestor(process);
    for (Process& process : ended_)
        find_ancestor(process);
}

void Scopes::erase(uint32_t scope) {
    const auto found = scopes_.find(scope);
    if (found == scopes_.end()) return;
    const auto key = by_key_.find(found->second.key);
    if (key != by_key_.end() && key->second == scope) by_key_.erase(key);
    scopes_.erase(found);
}

void Scopes::forget_gone(const Snapshot& snapshot) {
    std::unordered_map<uint32_t, uint64_t> present;
    for (const AddressSpace& space : snapshot.address_spaces)
        present[space.owner] = space.first_seen_ns;
    std::erase_if(forgotten_, [&](const auto& entry) {
        const auto found = present.find(entry.first);
        return found == present.end() || found->second != entry.second;
    });
}

const Scopes::Scope* Scopes::scope_of(pid_t pid) const {
    const auto process = processes_.find(pid);
    return process == processes_.end() ? nullptr : &scopes_.at(process->second.scope);
}

bool Scopes::is_in(pid_t pid, uint32_t scope) const {
    const auto process = processes_.find(pid);
    return process != processes_.end() && process->second.scope == scope;
}

std::unordered_map<uint64_t, uint64_t> Scopes::parents() const {
    std::unordered_map<uint64_t, uint64_t> parents;
    for (const Process& process : ended_)
        parents[process.number] = process.parent;
    for (const auto& [pid, process] : processes_)
        parents[process.number] = process.parent;
    return parents;
}

}  // namespace memtrace
