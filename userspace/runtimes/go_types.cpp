#include "runtimes/go_types.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <vector>

#include "processes/mappings.hpp"

namespace memtrace {
namespace {

// runtime/type.go, struct _type (internal/abi.Type from 1.21 on).
constexpr uint64_t flags_offset = 20;
constexpr uint64_t name_offset = 40;
constexpr uint8_t has_extra_star = 2;
// runtime/symtab.go, struct moduledata: words before `types` and `etypes`, without and with 1.20's coverage counters.
constexpr size_t types_word = 35;
constexpr size_t types_word_1_20 = 37;
constexpr size_t module_words = 40;
constexpr size_t text_word = 22;
constexpr uint64_t max_data_bytes = 256 << 20;
constexpr size_t max_name_bytes = 1024;

/// Addresses in the process of words that are `value`, in the program's own writable data.
std::vector<uint64_t> find_words(const GoProcess& go, const Mapping& mapping, uint64_t value) {
    constexpr size_t piece_words = 8192;
    std::vector<uint64_t> found;
    std::vector<uint64_t> piece(piece_words);
    for (uint64_t address = mapping.start; address < mapping.end && address - mapping.start < max_data_bytes;
         address += piece_words * sizeof value) {
        const size_t bytes = go.memory.read(address, std::as_writable_bytes(std::span(piece)));
        for (size_t index = 0; index < bytes / sizeof value; ++index)
            if (piece[index] == value) found.push_back(address + index * sizeof value);
    }
    return found;
}

using Module = std::array<uint64_t, module_words>;

/// The description of the program begins with the address of its table of functions; then come slices inside of it.
std::optional<Module> find_module(const GoProcess& go, pid_t pid) {
    const auto mappings = read_mappings(pid);
    if (!mappings) return std::nullopt;
    const uint64_t table = go.bias + go.program.table_vaddr();
    for (const Mapping& mapping : *mappings) {
        if (!mapping.is_writable || mapping.path != go.file.name()) continue;
        for (const uint64_t address : find_words(go, mapping, table)) {
            Module module{};
            if (go.memory.read(address, std::as_writable_bytes(std::span(module))) != sizeof module) continue;
            const bool is_module = module[1] > table && module[1] - table < max_data_bytes &&
                                   module[text_word] == go.bias + go.program.text_start();
            if (is_module) return module;
        }
    }
    return std::nullopt;
}

}  // namespace

GoTypes::GoTypes(const GoProcess& go, pid_t pid) {
    const auto module = find_module(go, pid);
    if (!module) return;
    const size_t word = go.program.is_from_1_20() ? types_word_1_20 : types_word;
    const uint64_t start = (*module)[word];
    const uint64_t end = (*module)[word + 1];
    if (start >= end || end - start > max_data_bytes) return;
    types_ = start;
    bytes_.resize(end - start);
    bytes_.resize(go.memory.read(start, bytes_));
}

/// `descriptor` is an offset in the types, as the offset of the name in it is.
std::optional<std::string> GoTypes::read_name(uint32_t descriptor) const {
    constexpr size_t descriptor_bytes = 48;
    if (descriptor > bytes_.size() || bytes_.size() - descriptor < descriptor_bytes) return std::nullopt;
    const auto flags = static_cast<uint8_t>(bytes_[descriptor + flags_offset]);
    uint32_t at = 0;
    std::memcpy(&at, bytes_.data() + descriptor + name_offset, sizeof at);
    if (at == 0 || at >= bytes_.size()) return std::nullopt;
    // A byte of flags, the length in groups of 7 bits, the text.
    const auto rest = std::span(bytes_).subspan(at + 1);
    size_t length = 0;
    size_t digits = 0;
    bool has_more = true;
    for (; has_more && digits < std::min<size_t>(rest.size(), 3); ++digits) {
        const auto byte = static_cast<uint8_t>(rest[digits]);
        length |= static_cast<size_t>(byte & 0x7f) << (7 * digits);
        has_more = (byte & 0x80) != 0;
    }
    if (has_more || length == 0 || length > max_name_bytes || length > rest.size() - digits) return std::nullopt;
    std::string name(reinterpret_cast<const char*>(rest.data()) + digits, length);
    if ((flags & has_extra_star) != 0 && name.front() == '*') name.erase(0, 1);
    return name;
}

const std::string& GoTypes::name(uint32_t type) {
    const auto [entry, is_new] = names_.try_emplace(type);
    if (!is_new) return entry->second;
    // The types of one program are within 4 GiB.
    std::optional<std::string> name;
    if (type != 0) name = read_name(type - static_cast<uint32_t>(types_));
    if (type == 0) name = "bytes without a type";
    entry->second = name.value_or(fmt::format("type#{:#x}", type));
    return entry->second;
}

}  // namespace memtrace
