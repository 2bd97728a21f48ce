// The stacks of all call sites: taken as return addresses while their process runs, kept as places in files, named when
// they are shown. Uses base, processes and the rest of this folder. Everything here works after the processes have
// ended.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "processes/mappings.hpp"
#include "symbols/address_space_map.hpp"
#include "symbols/frame.hpp"
#include "symbols/jit_symbols.hpp"
#include "symbols/module.hpp"
#include "symbols/symbolizer.hpp"

namespace memtrace {

/// What was lost on the way to names; no figure of memory depends on it.
struct StackStoreLosses {
    uint64_t modules_not_opened = 0;  // mappings whose file could not be opened
    uint64_t stacks_cut = 0;          // stacks that ended at an address outside any code
};

/// A stack whose process has been forgotten: `site` is a number under which it is known as if it were a site.
struct KeptStack {
    uint32_t site = 0;  // 0: the stack was not known
    std::array<uint64_t, 2> hash{};
};

/// For one thread. `owner` is the serial of an address space, `site` that of a call site (include/memtrace/abi.h);
/// times are CLOCK_MONOTONIC in nanoseconds.
class StackStore {
  public:
    /// `pid` is about to be traced: its mappings are read at once, so that its stacks can be named even when it ends
    /// before its first event is looked at. Optional, and not for one that is about to exec; add_address_space follows.
    void add_process(pid_t pid);
    /// `owner` is the present address space of `pid`; its mappings are read at once when the process lives. After an
    /// exec, call it with the new owner. Mappings that were added for `pid` before count as well. Calling it again
    /// changes nothing.
    void add_address_space(uint32_t owner, pid_t pid);
    /// `owner` is the address space of `pid`, which `parent` has just forked: it has the parent's mappings, even when
    /// it ends before it is looked at.
    void add_forked_address_space(uint32_t owner, pid_t pid, pid_t parent);
    /// A mapping event of `pid`; its file is opened at once. May come before add_address_space (a command that is just
    /// starting): add only those of pids that are traced, and drain the events before recording the stacks of a batch.
    void add_mapping(pid_t pid, const Mapping& mapping, uint64_t time_ns);
    /// `owner` has ended at `time_ns` by exec or exit: its mappings are never read again. Optional, but it keeps the
    /// mappings of what an exec started apart from those before.
    void end_address_space(uint32_t owner, uint64_t time_ns);
    /// Reads the mappings of `owner` again. No effect after its process has ended.
    void refresh(uint32_t owner);
    /// Keeps the stack of `site`: return addresses, the allocation's caller first. An address that is not known leads
    /// to a refresh, at most one in 20 ms for an address space; what is then still unknown is tried again when it is
    /// shown. The first address outside any code ends the stack (see stack_error). Recording a site again replaces it.
    void record_stack(uint32_t site, uint32_t owner, std::span<const uint64_t> return_addresses, uint64_t time_ns);

    /// The code that was at `address` of `owner` at `time_ns`; looked for again, as record_stack does, when it is not
    /// known. None outside any code.
    std::optional<CodeLocation> locate(uint32_t owner, uint64_t address, uint64_t time_ns);

    /// What the stack of `site` is known by in every process of this session: a hash of its frames' places in files; of
    /// code without a file the address space belongs to it. The first word is never 0, but for an unknown site, an
    /// empty stack. Files with the same build-id are one.
    std::array<uint64_t, 2> stack_hash(uint32_t site);
    /// Keeps the stack of `site` for the time after forget(). Code without a file counts by its name from now on, so
    /// that what many processes leave behind is as much as there are different stacks.
    KeptStack keep(uint32_t site);
    /// Nothing of `owner` is asked for any more, but for what was kept.
    void forget(uint32_t owner);

    /// Inlined functions are frames of their own (see Symbolizer). Named on first use and then kept; the reference
    /// stays valid until the site is recorded again. Empty for an unknown site.
    const std::vector<Frame>& frames(uint32_t site);
    /// 16 hex digits, the same on every host and run for the same code: the first 8 bytes of the SHA-256 of kind,
    /// function and the return addresses' (build-id or SHA-256 of the file; file offset) pairs, of JIT code the name.
    /// None for an unknown site or an empty stack, and when there is neither a file nor a name.
    std::optional<std::string> site_id(uint32_t site, std::string_view kind, std::string_view function);
    /// Why the stack of `site` is not whole, in words; none when it is. "stack not recorded" for an unknown site.
    std::optional<std::string> stack_error(uint32_t site);
    StackStoreLosses losses() const;

  private:
    struct Space {
        pid_t pid = 0;
        uint64_t start_time = 0;    // of the process, so that a reused pid is never read; 0 if unknown
        uint64_t refreshed_ns = 0;  // start of the last reading of /proc/PID/maps
        uint64_t began_ns = 0;      // end of the address space before it; 0: there was none, or it is not known
        uint64_t ended_ns = 0;
        bool has_owner = false;  // false: only mapping events of its process came so far
        bool has_ended = false;
        AddressSpaceMap map;
        JitSymbols jit;
    };
    struct Stack {
        std::shared_ptr<Space> space;
        std::vector<CodeLocation> locations;
        std::vector<uint64_t> unresolved;  // return addresses from the first unknown one on
        uint64_t time_ns = 0;
        bool is_cut = false;
        std::optional<std::vector<Frame>> frames;
        std::array<uint64_t, 2> hash{};  // first word 0: not computed yet
        bool lacks_jit_names = false;    // in `frames`: their process may name its code later
    };
    Space& present_space(pid_t pid);
    void add_mapping_to(Space& space, const Mapping& mapping, uint64_t valid_from_ns, uint64_t observed_ns);
    static void open_jit_names(Stack& stack);
    void name(Stack& stack);
    std::vector<Frame> frames_at(Space& space, const CodeLocation& location);
    void read_space(Space& space);
    bool refresh_if_stale(Space& space, uint64_t time_ns);
    static void resolve(Stack& stack);
    void cut(Stack& stack);
    Stack* settled(uint32_t site);
    uint64_t module_number(const Module* module);
    std::array<uint64_t, 2> hash_of(Stack& stack, bool by_name);

    ModuleCache modules_;
    Symbolizer symbolizer_;
    std::unordered_map<pid_t, std::shared_ptr<Space>> by_pid_;
    std::unordered_map<uint32_t, std::shared_ptr<Space>> by_owner_;
    std::unordered_map<uint32_t, Stack> stacks_;
    std::unordered_map<uint32_t, std::vector<uint32_t>> sites_by_owner_;
    std::map<std::array<uint64_t, 2>, uint32_t> kept_;  // number by hash
    std::map<const Module*, uint64_t> module_numbers_;
    std::map<std::string, uint64_t> module_numbers_by_build_id_;
    uint64_t stacks_cut_ = 0;
};

}  // namespace memtrace
