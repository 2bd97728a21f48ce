#include "probes/go_program.hpp"

#include <gelf.h>
#include <libelf.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>

namespace memtrace {
namespace {

constexpr uint32_t magic_1_18 = 0xfffffff0;
constexpr uint32_t magic_1_20 = 0xfffffff1;
constexpr uint64_t max_table_bytes = 1ull << 30;
constexpr uint64_t max_functions = 1 << 24;
constexpr size_t max_name_bytes = 4096;
// pcHeader: magic, 2 bytes of 0, pc quantum, pointer size, then words: functions, files, start of text, names, units,
// files, programs, functions' entries.
constexpr uint64_t pointer_size_offset = 7;
constexpr uint64_t count_offset = 8;
constexpr uint64_t text_offset = 24;
constexpr uint64_t names_offset = 32;
constexpr uint64_t functions_offset = 64;

struct Table {
    std::string bytes;
    uint64_t vaddr = 0;
};

/// .gopclntab; empty if the file has none.
Table read_table(Elf* elf) {
    size_t names = 0;
    if (elf == nullptr || elf_getshdrstrndx(elf, &names) != 0) return {};
    for (Elf_Scn* section = elf_nextscn(elf, nullptr); section != nullptr; section = elf_nextscn(elf, section)) {
        GElf_Shdr header;
        if (gelf_getshdr(section, &header) == nullptr || header.sh_type == SHT_NOBITS) continue;
        const char* name = elf_strptr(elf, names, header.sh_name);
        // A position-independent program has it as .data.rel.ro.gopclntab.
        if (name == nullptr || !std::string_view(name).ends_with(".gopclntab")) continue;
        if (header.sh_size > max_table_bytes) return {};
        const Elf_Data* data = elf_rawdata(section, nullptr);
        if (data == nullptr || data->d_buf == nullptr) return {};
        return {std::string(static_cast<const char*>(data->d_buf), data->d_size), header.sh_addr};
    }
    return {};
}

}  // namespace

template <typename Value>
std::optional<Value> GoProgram::value_at(uint64_t offset) const {
    if (offset > table_.size() || table_.size() - offset < sizeof(Value)) return std::nullopt;
    Value value;
    std::memcpy(&value, table_.data() + offset, sizeof value);
    return value;
}

Result<GoProgram> GoProgram::read(const ElfFile& file) {
    elf_version(EV_CURRENT);
    // Not mapped: the file may shrink meanwhile.
    const std::unique_ptr<Elf, int (*)(Elf*)> elf(elf_begin(file.fd(), ELF_C_READ, nullptr), &elf_end);
    return read(elf.get(), file.name());
}

Result<GoProgram> GoProgram::read(Elf* elf, const std::string& name) {
    Table table = read_table(elf);
    auto program = parse(std::move(table.bytes), name);
    if (program) program->table_vaddr_ = table.vaddr;
    return program;
}

Result<GoProgram> GoProgram::parse(std::string table, const std::string& name) {
    GoProgram program;
    program.table_ = std::move(table);
    if (program.table_.empty()) return Error{name, "not a Go program: it has no .gopclntab"};
    const uint32_t magic = program.value_at<uint32_t>(0).value_or(0);
    const auto pointer_size = program.value_at<uint8_t>(pointer_size_offset);
    if ((magic != magic_1_18 && magic != magic_1_20) || pointer_size != 8)
        return Error{name, "a Go program of a version before 1.18, or of a form that is not known"};
    program.is_from_1_20_ = magic == magic_1_20;
    program.function_count_ = program.value_at<uint64_t>(count_offset).value_or(0);
    program.text_start_ = program.value_at<uint64_t>(text_offset).value_or(0);
    program.names_ = program.value_at<uint64_t>(names_offset).value_or(0);
    program.functions_ = program.value_at<uint64_t>(functions_offset).value_or(0);
    const bool is_sane = program.function_count_ > 0 && program.function_count_ < max_functions &&
                         program.names_ < program.table_.size() && program.functions_ < program.table_.size();
    if (!is_sane) return Error{name, "its table of Go functions is damaged"};
    return program;
}

/// Entries of 8 bytes: start of the code, offset of the function's data; one more of them ends the last.
std::optional<GoProgram::Function> GoProgram::function(uint64_t number) const {
    const uint64_t entry = functions_ + 8 * number;
    const auto start = value_at<uint32_t>(entry);
    const auto data = value_at<uint32_t>(entry + 4);
    const auto end = value_at<uint32_t>(entry + 8);
    if (!start || !data || !end || *end < *start) return std::nullopt;
    const auto name_offset = value_at<uint32_t>(functions_ + *data + 4);
    if (!name_offset || names_ + *name_offset >= table_.size()) return std::nullopt;
    const char* name = table_.data() + names_ + *name_offset;
    const size_t room = std::min<size_t>(table_.size() - (names_ + *name_offset), max_name_bytes);
    return Function{text_start_ + *start, text_start_ + *end, std::string(name, strnlen(name, room))};
}

std::optional<GoProgram::Function> GoProgram::find(std::string_view name) const {
    for (uint64_t number = 0; number < function_count_; ++number)
        if (auto found = function(number); found && found->name == name) return found;
    return std::nullopt;
}

std::vector<GoProgram::Function> GoProgram::functions_starting_with(std::string_view prefix) const {
    std::vector<Function> functions;
    // The names of an honest table are a small part of it; a hostile one has one long name for all its functions.
    size_t bytes_left = table_.size();
    for (uint64_t number = 0; number < function_count_; ++number) {
        auto found = function(number);
        if (!found || !found->name.starts_with(prefix)) continue;
        if (found->name.size() > bytes_left) break;
        bytes_left -= found->name.size();
        functions.push_back(std::move(*found));
    }
    return functions;
}

std::optional<GoProgram::Function> GoProgram::at(uint64_t vaddr) const {
    if (vaddr < text_start_) return std::nullopt;
    uint64_t low = 0;
    uint64_t high = function_count_;
    while (low < high) {
        const uint64_t middle = low + (high - low) / 2;
        const auto start = value_at<uint32_t>(functions_ + 8 * middle);
        if (!start) return std::nullopt;
        if (text_start_ + *start <= vaddr)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == 0) return std::nullopt;
    auto found = function(low - 1);
    if (!found || vaddr >= found->end) return std::nullopt;
    return found;
}

}  // namespace memtrace
