#include "runtimes/go_process.hpp"

#include <fmt/format.h>

#include "processes/mappings.hpp"
#include "processes/process.hpp"

namespace memtrace {

Result<GoProcess> open_go_process(pid_t pid) {
    const auto process = read_process(pid);
    if (!process) return process.error();
    const auto mappings = read_mappings(pid);
    if (!mappings) return mappings.error();
    const std::string name = fmt::format("{}[{}]", process->comm, pid);
    for (const Mapping& mapping : *mappings) {
        if (!mapping.is_executable || mapping.path != process->exe) continue;
        const auto fd = open_mapped_file(pid, mapping);
        if (!fd) return fd.error();
        auto file = ElfFile::open(fd->get(), mapping.path);
        if (!file) return file.error();
        auto program = GoProgram::read(*file);
        if (!program) return Error{name, program.error().why, "", ExitStatus::no_allocator};
        auto memory = TargetMemory::open(pid);
        if (!memory) return std::move(memory).error();
        const auto known = program->find("runtime.mallocgc");
        const auto offset = known ? file->file_offset(known->start) : std::nullopt;
        if (!offset) return Error{name, "its table of Go functions does not fit its code"};
        const uint64_t bias = mapping.start + *offset - mapping.file_offset - known->start;
        return GoProcess{std::move(*memory), std::move(*file), std::move(*program), bias};
    }
    return Error{name, "its program is not mapped", "", ExitStatus::no_allocator};
}

bool is_go_process(pid_t pid) {
    return static_cast<bool>(open_go_process(pid));
}

}  // namespace memtrace
