#include "runtimes/collected_process.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>

#include "processes/process.hpp"

namespace memtrace {
namespace {

constexpr std::string_view collector_mark = "GC_is_marked";

/// What is added to an address of the file to have that of the process; none where the mapping is not its code.
std::optional<uint64_t> bias_of(const ElfFile& file, const Mapping& mapping) {
    const auto functions = file.functions();
    if (!functions) return std::nullopt;
    for (const FunctionSymbol& function : *functions) {
        const auto offset = file.file_offset(function.vaddr);
        if (!offset || *offset < mapping.file_offset) continue;
        if (*offset - mapping.file_offset >= mapping.end - mapping.start) continue;
        return mapping.start + (*offset - mapping.file_offset) - function.vaddr;
    }
    return std::nullopt;
}

Result<ElfFile> open_file(pid_t pid, const Mapping& mapping) {
    const auto fd = open_mapped_file(pid, mapping);
    if (!fd) return fd.error();
    return ElfFile::open(fd->get(), mapping.path);
}

bool defines(const ElfFile& file, std::string_view symbol) {
    const auto functions = file.functions();
    return functions && std::ranges::find(*functions, symbol, &FunctionSymbol::name) != functions->end();
}

/// The mappings of code, one a file.
std::vector<Mapping> code_mappings(const std::vector<Mapping>& mappings) {
    std::vector<Mapping> code;
    std::set<std::string> seen;
    for (const Mapping& mapping : mappings)
        if (mapping.is_executable && mapping.has_file() && seen.insert(mapping.path).second) code.push_back(mapping);
    return code;
}

}  // namespace

Result<BoehmHeap> open_boehm_heap(pid_t pid, const Mapping& mapping) {
    auto memory = TargetMemory::open(pid);
    if (!memory) return std::move(memory).error();
    const auto file = open_file(pid, mapping);
    if (!file) return file.error();
    const auto bias = bias_of(*file, mapping);
    if (!bias) return Error{mapping.path, "its code is mapped in a way that is not known"};
    const auto layout = find_boehm_layout(*file, *memory, *bias);
    if (!layout) return layout.error();
    return BoehmHeap(std::move(*memory), *layout);
}

Result<BoehmHeap> find_boehm_heap(pid_t pid) {
    const auto process = read_process(pid);
    if (!process) return process.error();
    const auto mappings = read_mappings(pid);
    if (!mappings) return mappings.error();
    for (const Mapping& mapping : code_mappings(*mappings))
        if (const auto file = open_file(pid, mapping); file && defines(*file, collector_mark))
            return open_boehm_heap(pid, mapping);
    return Error{fmt::format("{}[{}]", process->comm, pid), "has no garbage-collected heap that can be read",
                 "a census is of programs with libgc (Boehm's collector), as Crystal's", ExitStatus::no_allocator};
}

ProcessTypes find_process_types(pid_t pid, const TypeNames& dumped_names) {
    ProcessTypes types{.names = dumped_names, .is_crystal = !dumped_names.empty(), .has_dump = !dumped_names.empty()};
    const auto mappings = read_mappings(pid);
    if (!mappings) return types;
    for (const Mapping& mapping : code_mappings(*mappings)) {
        const auto file = open_file(pid, mapping);
        if (!file || !is_crystal_program(*file)) continue;
        types.is_crystal = true;
        types.names.merge(find_type_names(*file));
        return types;
    }
    return types;
}

}  // namespace memtrace
