// Which scope each process, and each of its address spaces, counts in. Pure; uses snapshot.hpp. A process stays where
// it was put when it was first seen: a tree keeps what its own parent left behind, a cgroup what has moved on. Only by
// exe does an exec move it, and what it held before stays where it was.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "heap/snapshot.hpp"

namespace memtrace {

/// What processes are rolled up by.
enum class ScopeKind { process, tree, exe, cgroup, all };

/// A target, as far as the roll-up needs to know it.
struct ProcessIdentity {
    pid_t pid = 0;
    pid_t parent = 0;              // when it was first seen; 0: not known
    std::string exe;               // the same text for the same binary, and for no other
    std::string cgroup;            // its path
    std::vector<uint32_t> owners;  // its address spaces that were announced
};

/// Where an address space counts. `process` is a number that no other process of the session has.
struct ScopePlace {
    uint32_t scope = 0;
    uint64_t process = 0;
    pid_t pid = 0;
};

/// Memory grows with the processes that live and with the scopes, not with the processes that have ended. Not
/// thread-safe.
class Scopes {
  public:
    explicit Scopes(ScopeKind kind) : kind_(kind) {}

    struct Scope {
        uint32_t number = 0;
        std::string key;  // of exe and cgroup
        pid_t root = 0;   // of process and tree
        uint64_t living = 0;
        uint64_t processes = 0;  // that were ever in it
    };
    struct Process {
        uint64_t number = 0;
        uint64_t parent = 0;  // its number; 0: no target
        pid_t pid = 0;
        uint32_t scope = 0;
    };

    ScopeKind kind() const { return kind_; }
    /// Every target, also those that are known; takes in what is new of them.
    void update(std::span<const ProcessIdentity> identities);
    /// None for an address space of no target, or of one that has been ended.
    std::optional<ScopePlace> place_of(const AddressSpace& space) const;
    /// The process has had its last figures, in `snapshot`: nothing of it is in any scope any more, even when its pid
    /// is used again.
    void end(const Snapshot& snapshot, pid_t pid);
    /// An exec has ended this one, and its last figures are taken.
    void end(const AddressSpace& space);
    /// Forgets a scope that no process is in; the next one with its key is another scope.
    void erase(uint32_t scope);
    /// Forgets what `snapshot` shows to be gone.
    void forget_gone(const Snapshot& snapshot);

    const std::unordered_map<pid_t, Process>& processes() const { return processes_; }
    const std::unordered_map<uint32_t, Scope>& scopes() const { return scopes_; }
    /// None for a pid that is no target.
    const Scope* scope_of(pid_t pid) const;
    /// Whether the process lives, in this scope.
    bool is_in(pid_t pid, uint32_t scope) const;
    /// The number of the parent of each process that lives or ended among the last ones; 0: it was no target.
    std::unordered_map<uint64_t, uint64_t> parents() const;

  private:
    using Newcomers = std::unordered_map<pid_t, const ProcessIdentity*>;

    void join(const ProcessIdentity& identity, Newcomers& newcomers);
    void note_execs(const ProcessIdentity& identity);
    uint32_t scope_for(const ProcessIdentity& identity, const Process* parent);
    uint32_t scope_with_key(const std::string& key);
    const Process* find_parent(pid_t pid) const;
    void remember(const Process& ended);
    Scope& add_scope(Scope scope);

    ScopeKind kind_;
    uint32_t last_scope_ = 0;
    uint64_t last_process_ = 0;
    std::unordered_map<uint32_t, Scope> scopes_;
    std::unordered_map<std::string, uint32_t> by_key_;
    std::unordered_map<pid_t, Process> processes_;
    std::deque<Process> ended_;  // the last ones: their children may come later, and are drawn below them
    std::unordered_map<uint32_t, uint32_t> exe_scopes_;  // by owner, by exe only
    std::unordered_map<uint32_t, uint64_t> forgotten_;   // first_seen_ns by owner
};

}  // namespace memtrace
