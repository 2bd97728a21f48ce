#include "symbols/stack_store.hpp"

#include <algorithm>
#include <functional>

#include "base/clock.hpp"
#include "processes/process.hpp"
#include "symbols/sha256.hpp"

namespace memtrace {
namespace {

constexpr uint64_t least_refresh_interval_ns = 20'000'000;
// Above all numbers of call sites.
constexpr uint32_t first_kept_stack = 1u << 31;

/// splitmix64's last steps.
uint64_t mixed(uint64_t word) {
    word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9;
    word = (word ^ (word >> 27)) * 0x94d049bb133111eb;
    return word ^ (word >> 31);
}

uint64_t start_time_of(pid_t pid) {
    const auto process = read_process(pid);
    return process ? process->start_time : 0;
}

void append_number(std::string& bytes, uint64_t number) {
    for (int shift = 0; shift < 64; shift += 8)
        bytes += static_cast<char>(number >> shift);
}

void append_text(std::string& bytes, std::string_view text) {
    append_number(bytes, text.size());
    bytes += text;
}

}  // namespace

void StackStore::add_process(pid_t pid) {
    Space& space = present_space(pid);
    if (space.has_owner) return;
    space.start_time = start_time_of(pid);
    read_space(space);
}

/// The space that new mappings of `pid` go to; made before its owner is known where need be.
StackStore::Space& StackStore::present_space(pid_t pid) {
    auto& space = by_pid_[pid];
    if (!space) {
        space = std::make_shared<Space>();
        space->pid = pid;
    }
    return *space;
}

void StackStore::add_address_space(uint32_t owner, pid_t pid) {
    auto& space = by_owner_[owner];
    if (space && space->pid != 0) return;
    std::shared_ptr<Space>& present = by_pid_[pid];
    if (present && !present->has_owner && !space) space = present;
    if (!space) space = std::make_shared<Space>();
    space->pid = pid;
    space->has_owner = true;
    space->start_time = start_time_of(pid);
    // An exec maps the new program before it is told of, and another one may have followed by now: what the process
    // mapped since the space before began may belong to any of them, and each stack knows its time.
    if (present && present != space) {
        space->map = present->map.seen_after(present->began_ns);
        space->began_ns = present->ended_ns;
    }
    read_space(*space);
    if (present && present != space) {
        if (space->has_ended) space->jit = std::move(present->jit);
        present->has_ended = true;
    }
    present = space;
}

void StackStore::add_forked_address_space(uint32_t owner, pid_t pid, pid_t parent) {
    const auto forked = std::make_shared<Space>();
    if (const auto space = by_pid_.find(parent); space != by_pid_.end()) {
        forked->map = space->second->map;
        forked->refreshed_ns = space->second->refreshed_ns;
    }
    forked->pid = pid;
    forked->has_owner = true;
    forked->start_time = start_time_of(pid);
    by_owner_[owner] = forked;
    by_pid_[pid] = forked;
}

void StackStore::end_address_space(uint32_t owner, uint64_t time_ns) {
    const auto space = by_owner_.find(owner);
    if (space == by_owner_.end()) return;
    space->second->has_ended = true;
    space->second->ended_ns = time_ns;
}

void StackStore::add_mapping(pid_t pid, const Mapping& mapping, uint64_t time_ns) {
    if (mapping.is_executable) add_mapping_to(present_space(pid), mapping, time_ns, time_ns);
}

void StackStore::add_mapping_to(Space& space, const Mapping& mapping, uint64_t valid_from_ns, uint64_t observed_ns) {
    const Module* module = modules_.module_of(space.pid, mapping);
    space.map.add(mapping, module, valid_from_ns, observed_ns);
    if (module->fd() >= 0 && JitSymbols::is_jit_dump(mapping.path)) space.jit.add_jit_dump(module->fd());
}

void StackStore::refresh(uint32_t owner) {
    if (const auto space = by_owner_.find(owner); space != by_owner_.end()) read_space(*space->second);
}

void StackStore::read_space(Space& space) {
    if (space.has_ended) return;
    const uint64_t now_ns = monotonic_now_ns();
    const auto mappings = read_mappings(space.pid);
    // A zombie has no mappings; a pid that was given to another process has another start time.
    const bool is_same = mappings && !mappings->empty() && start_time_of(space.pid) == space.start_time;
    if (!is_same) {
        space.has_ended = true;
        return;
    }
    for (const Mapping& mapping : *mappings)
        if (mapping.is_executable) add_mapping_to(space, mapping, space.refreshed_ns, now_ns);
    space.refreshed_ns = now_ns;
}

void StackStore::record_stack(uint32_t site, uint32_t owner, std::span<const uint64_t> return_addresses,
                              uint64_t time_ns) {
    auto& space = by_owner_[owner];
    if (!space) space = std::make_shared<Space>();
    const auto [entry, is_new] = stacks_.try_emplace(site);
    if (is_new) sites_by_owner_[owner].push_back(site);
    Stack& stack = entry->second;
    stack = Stack{};
    stack.space = space;
    stack.time_ns = time_ns;
    const auto end = std::find(return_addresses.begin(), return_addresses.end(), uint64_t{0});
    stack.unresolved.assign(return_addresses.begin(), end);
    resolve(stack);
    open_jit_names(stack);
    if (stack.unresolved.empty() || space->pid == 0) return;
    if (refresh_if_stale(*space, time_ns)) {
        resolve(stack);
        open_jit_names(stack);
    }
    if (!stack.unresolved.empty() && space->refreshed_ns >= time_ns) cut(stack);
}

/// Whether its mappings were read again, because they were last read before `time_ns`.
bool StackStore::refresh_if_stale(Space& space, uint64_t time_ns) {
    if (space.refreshed_ns >= time_ns || monotonic_now_ns() - space.refreshed_ns < least_refresh_interval_ns)
        return false;
    read_space(space);
    return true;
}

std::optional<CodeLocation> StackStore::locate(uint32_t owner, uint64_t address, uint64_t time_ns) {
    const auto found = by_owner_.find(owner);
    if (found == by_owner_.end()) return std::nullopt;
    Space& space = *found->second;
    auto location = space.map.find(address, time_ns);
    if (!location && space.pid != 0 && refresh_if_stale(space, time_ns)) location = space.map.find(address, time_ns);
    return location;
}

/// While the process lives; its names are read when they are shown.
void StackStore::open_jit_names(Stack& stack) {
    Space& space = *stack.space;
    if (space.pid == 0 || space.has_ended) return;
    const bool has_jit_code = std::any_of(stack.locations.begin(), stack.locations.end(),
                                          [](const CodeLocation& location) { return location.module->is_jit(); });
    if (has_jit_code && start_time_of(space.pid) == space.start_time) space.jit.open_perf_map(space.pid);
}

/// Moves what is known by now from `unresolved` to `locations`.
void StackStore::resolve(Stack& stack) {
    size_t resolved = 0;
    for (const uint64_t return_address : stack.unresolved) {
        const auto location = stack.space->map.find(return_address - 1, stack.time_ns);
        if (!location) break;
        stack.locations.push_back(*location);
        ++resolved;
    }
    stack.unresolved.erase(stack.unresolved.begin(), stack.unresolved.begin() + static_cast<ptrdiff_t>(resolved));
}

void StackStore::cut(Stack& stack) {
    stack.unresolved.clear();
    stack.is_cut = true;
    ++stacks_cut_;
}

StackStore::Stack* StackStore::settled(uint32_t site) {
    const auto found = stacks_.find(site);
    if (found == stacks_.end()) return nullptr;
    Stack& stack = found->second;
    if (stack.unresolved.empty()) return &stack;
    if (stack.space->pid != 0 && stack.space->refreshed_ns < stack.time_ns) read_space(*stack.space);
    resolve(stack);
    if (!stack.unresolved.empty()) cut(stack);
    return &stack;
}

/// Copies of one file are one module to a stack's hash.
uint64_t StackStore::module_number(const Module* module) {
    const auto [number, is_new] = module_numbers_.try_emplace(module, module_numbers_.size() + 1);
    if (is_new && !module->build_id().empty())
        number->second = module_numbers_by_build_id_.try_emplace(module->build_id(), number->second).first->second;
    return number->second;
}

std::array<uint64_t, 2> StackStore::hash_of(Stack& stack, bool by_name) {
    uint64_t first = 0x9e3779b97f4a7c15;
    uint64_t second = 0xc2b2ae3d27d4eb4f;
    const auto add = [&](uint64_t word) {
        first = mixed(first ^ word);
        second = mixed(second + word);
    };
    for (const CodeLocation& location : stack.locations) {
        add(module_number(location.module));
        if (!location.module->is_jit()) {
            add(location.offset);
        } else if (by_name) {
            add(std::hash<std::string>()(frames_at(*stack.space, location).back().function));
        } else {
            add(reinterpret_cast<uint64_t>(stack.space.get()));
            add(location.offset);
        }
    }
    return {first | 1, second};
}

std::array<uint64_t, 2> StackStore::stack_hash(uint32_t site) {
    Stack* stack = settled(site);
    if (!stack || stack->locations.empty()) return {};
    if (stack->hash[0] == 0) stack->hash = hash_of(*stack, false);
    return stack->hash;
}

KeptStack StackStore::keep(uint32_t site) {
    KeptStack kept{.hash = stack_hash(site)};
    if (kept.hash[0] == 0) return kept;
    const Stack& stack = stacks_.at(site);
    const bool has_jit_code =
        std::ranges::any_of(stack.locations, [](const auto& any) { return any.module->is_jit(); });
    Stack copy = stack;
    if (has_jit_code)
        kept.hash = hash_of(copy, true);
    else
        copy.space = std::make_shared<Space>();  // what it mapped is not needed any more
    const auto [known, is_new] = kept_.try_emplace(kept.hash, first_kept_stack + static_cast<uint32_t>(kept_.size()));
    kept.site = known->second;
    if (is_new) stacks_[kept.site] = std::move(copy);
    return kept;
}

void StackStore::forget(uint32_t owner) {
    if (const auto space = by_owner_.find(owner); space != by_owner_.end()) {
        space->second->has_ended = true;
        const auto present = by_pid_.find(space->second->pid);
        if (present != by_pid_.end() && present->second == space->second) by_pid_.erase(present);
        by_owner_.erase(space);
    }
    const auto sites = sites_by_owner_.find(owner);
    if (sites == sites_by_owner_.end()) return;
    for (const uint32_t site : sites->second)
        stacks_.erase(site);
    sites_by_owner_.erase(sites);
}

const std::vector<Frame>& StackStore::frames(uint32_t site) {
    static const std::vector<Frame> none;
    Stack* stack = settled(site);
    if (!stack) return none;
    if (!stack->frames || stack->lacks_jit_names) name(*stack);
    return *stack->frames;
}

void StackStore::name(Stack& stack) {
    if (stack.lacks_jit_names) open_jit_names(stack);
    stack.lacks_jit_names = false;
    auto& frames = stack.frames.emplace();
    for (const CodeLocation& location : stack.locations) {
        const std::vector<Frame> at_location = frames_at(*stack.space, location);
        frames.insert(frames.end(), at_location.begin(), at_location.end());
        const Frame& function = at_location.back();
        if (function.kind == Frame::Kind::jit && function.function.empty()) stack.lacks_jit_names = true;
    }
}

std::vector<Frame> StackStore::frames_at(Space& space, const CodeLocation& location) {
    std::vector<Frame> frames = symbolizer_.frames_at(location);
    if (!location.module->is_jit()) return frames;
    if (auto function = space.jit.find(location.offset)) {
        frames.back().function = std::move(function->name);
        frames.back().function_offset = location.offset - function->start;
    }
    return frames;
}

std::optional<std::string> StackStore::site_id(uint32_t site, std::string_view kind, std::string_view function) {
    const Stack* stack = settled(site);
    if (!stack || stack->locations.empty()) return std::nullopt;
    std::string bytes;
    append_text(bytes, kind);
    append_text(bytes, function);
    for (const CodeLocation& location : stack->locations) {
        if (const auto& identity = location.module->identity()) {
            append_text(bytes, *identity);
            append_number(bytes, location.offset);
            continue;
        }
        const std::string function_name = frames_at(*stack->space, location).back().function;
        if (function_name.empty()) return std::nullopt;
        append_text(bytes, function_name);
    }
    return hex_digits(sha256(bytes), 8);
}

std::optional<std::string> StackStore::stack_error(uint32_t site) {
    const Stack* stack = settled(site);
    if (!stack) return "stack not recorded";
    if (stack->is_cut) return "frame pointer chain ends outside code";
    return std::nullopt;
}

StackStoreLosses StackStore::losses() const {
    return {modules_.open_failures(), stacks_cut_};
}

}  // namespace memtrace
