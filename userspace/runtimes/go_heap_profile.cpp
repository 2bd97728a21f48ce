#include "runtimes/go_heap_profile.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <span>
#include <unordered_map>
#include <unordered_set>

#include "probes/instructions.hpp"

namespace memtrace {
namespace {

// runtime/mprof.go, struct bucket and memRecord: next, allnext, typ, hash, size, nstk; the stack; then four cycles of
// allocs, frees, alloc_bytes, free_bytes, of which the first is what has been published.
constexpr size_t head_words = 6;
constexpr size_t record_words = 16;
constexpr uint64_t memory_profile = 1;
constexpr uint64_t max_stack = 1024;
constexpr size_t max_buckets = 1 << 20;
constexpr uint64_t max_function_bytes = 4096;

std::optional<uint64_t> rip_load_target(const Instruction& instruction, uint64_t function_start) {
    const ZydisDecodedOperand& from = instruction.operands[1];
    const bool is_load = instruction.decoded.mnemonic == ZYDIS_MNEMONIC_MOV && from.type == ZYDIS_OPERAND_TYPE_MEMORY &&
                         from.mem.base == ZYDIS_REGISTER_RIP && from.size == 64;
    if (!is_load) return std::nullopt;
    return function_start + instruction.end() + static_cast<uint64_t>(from.mem.disp.value);
}

/// The address in the file of the variable that a function loads first, or last, before it calls anything.
std::optional<uint64_t> loaded_variable(const GoProcess& go, std::string_view function, bool wants_first) {
    const auto found = go.program.find(function);
    if (!found) return std::nullopt;
    const auto bytes = go.file.code(found->start, std::min(found->end - found->start, max_function_bytes));
    if (!bytes) return std::nullopt;
    const Code code(*bytes);
    Instruction instruction;
    std::optional<uint64_t> variable;
    for (uint64_t offset = 0; code.decode(offset, instruction); offset = instruction.end()) {
        if (instruction.decoded.mnemonic == ZYDIS_MNEMONIC_CALL) break;
        if (const auto target = rip_load_target(instruction, found->start)) variable = target;
        if (variable && wants_first) break;
    }
    return variable;
}

Error form_error(const GoProcess& go, std::string_view what) {
    return Error{go.file.name(), fmt::format("keeps its heap profile in a form that is not known: {}", what),
                 "memtrace knows that of Go 1.18 and 1.19 and those that are like it"};
}

/// One bucket of the profile.
struct Bucket {
    uint64_t next = 0;
    uint64_t size_bytes = 0;
    uint64_t allocations = 0;
    uint64_t frees = 0;
    std::vector<uint64_t> stack;
};

/// None where the memory is not what a bucket is: the bytes must be as many objects of its size.
std::optional<Bucket> read_bucket(const TargetMemory& memory, uint64_t address) {
    std::array<uint64_t, head_words> head{};
    if (memory.read(address, std::as_writable_bytes(std::span(head))) != sizeof head) return std::nullopt;
    const uint64_t depth = head[5];
    if (head[2] != memory_profile || depth > max_stack) return std::nullopt;
    Bucket bucket{.next = head[1], .size_bytes = head[4], .stack = std::vector<uint64_t>(depth)};
    std::array<uint64_t, record_words> record{};
    const uint64_t stack_end = address + sizeof head + 8 * depth;
    if (memory.read(address + sizeof head, std::as_writable_bytes(std::span(bucket.stack))) != 8 * depth)
        return std::nullopt;
    if (memory.read(stack_end, std::as_writable_bytes(std::span(record))) != sizeof record) return std::nullopt;
    uint64_t allocated_bytes = 0;
    for (size_t cycle = 0; cycle < record_words; cycle += 4) {
        bucket.allocations += record[cycle];
        bucket.frees += record[cycle + 1];
        allocated_bytes += record[cycle + 2];
    }
    // It is written while it is read.
    bucket.frees = std::min(bucket.frees, bucket.allocations);
    const bool is_consistent = bucket.size_bytes != 0 &&
                               (allocated_bytes + bucket.size_bytes) / bucket.size_bytes >= bucket.allocations &&
                               allocated_bytes / bucket.size_bytes <= bucket.allocations + 1;
    if (!is_consistent) return std::nullopt;
    return bucket;
}

}  // namespace

double go_sampling_probability(uint64_t size_bytes, uint64_t rate_bytes) {
    if (rate_bytes <= 1) return 1;
    return -std::expm1(-static_cast<double>(size_bytes) / static_cast<double>(rate_bytes));
}

Result<GoHeapReader> GoHeapReader::open(const GoProcess& go) {
    const auto head = loaded_variable(go, "runtime.mProf_FlushLocked", true);
    const auto rate = loaded_variable(go, "runtime.profilealloc", false);
    if (!head || !rate) return form_error(go, "its variables were not found");
    return GoHeapReader(go, go.bias + *head, go.bias + *rate);
}

std::optional<uint64_t> GoHeapReader::sampled_every_bytes() const {
    return go_->memory.read_value<uint64_t>(rate_);
}

Result<GoHeapProfile> GoHeapReader::read() const {
    const auto rate = sampled_every_bytes();
    const auto head = go_->memory.read_value<uint64_t>(head_);
    if (!rate || !head) return form_error(*go_, "its variables cannot be read");
    if (*rate == 0)
        return Error{go_->file.name(), "keeps no heap profile (MemProfileRate = 0)",
                     "Go's linker leaves it out of programs that use none: import runtime/pprof or net/http/pprof"};
    GoHeapProfile profile{.sampled_every_bytes = *rate};
    std::unordered_map<uint64_t, std::string> names;
    std::unordered_set<uint64_t> seen;
    for (uint64_t address = *head; address != 0 && seen.size() < max_buckets;) {
        if (!seen.insert(address).second) return form_error(*go_, "its list is a circle");
        const auto bucket = read_bucket(go_->memory, address);
        if (!bucket) return form_error(*go_, "a bucket contradicts itself");
        const double probability = go_sampling_probability(bucket->size_bytes, *rate);
        const auto live = static_cast<double>(bucket->allocations - bucket->frees);
        GoAllocations entry{.bucket = address,
                            .size_bytes = bucket->size_bytes,
                            .samples = bucket->allocations,
                            .live_samples = bucket->allocations - bucket->frees,
                            .allocations = static_cast<double>(bucket->allocations) / probability,
                            .live = live / probability,
                            .live_variance = live * (1 - probability) / (probability * probability)};
        for (const uint64_t return_address : bucket->stack) {
            std::string& name = names[return_address];
            const auto function = go_->program.at(return_address - 1 - go_->bias);
            if (name.empty()) name = function ? function->name : fmt::format("{:#x}", return_address);
            entry.functions.push_back(name);
        }
        profile.samples += entry.samples;
        profile.allocations.push_back(std::move(entry));
        address = bucket->next;
    }
    return profile;
}

Result<GoHeapProfile> read_go_heap_profile(pid_t pid) {
    const auto go = open_go_process(pid);
    if (!go) return go.error();
    const auto reader = GoHeapReader::open(*go);
    if (!reader) return reader.error();
    return reader->read();
}

}  // namespace memtrace
