#include "runtimes/census.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <unordered_map>

#include "memtrace/runtimes_abi.h"

namespace memtrace {
namespace {

using SizeAndKind = std::pair<uint64_t, bool>;  // bytes, pointer-free
/// Sizes that hostile memory can have; of what has another one the type is not told.
constexpr size_t max_sizes = 1 << 16;
using Counts = std::unordered_map<uint32_t, std::map<SizeAndKind, uint64_t>>;  // by first word

/// Crystal's string.cr: type, bytes, characters, the text and a 0. The collector rounds up by less than half.
bool is_string(const CensusObject& object) {
    constexpr uint64_t head_bytes = 13;
    constexpr uint64_t least_room = 64;
    const uint64_t needed = object.second_word + head_bytes;
    return needed <= object.size_bytes && object.size_bytes <= needed + std::max(least_room, needed / 2);
}

/// Objects of a class have one size, which the collector may round up in two ways, and all have pointers or none has.
bool is_object(const std::map<SizeAndKind, uint64_t>& sizes, const SizeAndKind& size) {
    const auto most = std::ranges::max_element(sizes, {}, [](const auto& entry) { return entry.second; });
    return size.second == most->first.second && size.first <= 2 * most->first.first &&
           2 * size.first >= most->first.first;
}

bool is_type(uint32_t word, const ProcessTypes& types) {
    if (word == 0 || word >= MT_MAX_TYPES || !types.is_crystal) return false;
    return !types.has_dump || types.names.contains(word);
}

std::string name_of(uint32_t type, const ProcessTypes& types) {
    const auto name = types.names.find(type);
    return name == types.names.end() ? fmt::format("type#{}", type) : name->second;
}

}  // namespace

std::optional<HeapCensus> count_objects(const BoehmHeap& heap, const ProcessTypes& types) {
    HeapCensus census;
    Counts counts;
    size_t known_sizes = 0;
    const auto figures = heap.census([&](const CensusObject& object) {
        ++census.objects;
        census.size_bytes += object.size_bytes;
        if (!is_type(object.first_word, types)) return;
        if (object.first_word == crystal_string_type && !is_string(object)) return;
        auto& of_type = counts[object.first_word];
        const SizeAndKind size{object.size_bytes, object.is_pointer_free};
        if (known_sizes == max_sizes && !of_type.contains(size)) return;
        const uint64_t count = ++of_type[size];
        known_sizes += count == 1 ? 1 : 0;
    });
    if (!figures) return std::nullopt;
    census.figures = *figures;
    std::map<std::string, TypeCount> by_name;
    for (const auto& [type, of_type] : counts)
        for (const auto& [size, count] : of_type) {
            if (type != crystal_string_type && !is_object(of_type, size)) continue;
            TypeCount& entry = by_name[name_of(type, types)];
            entry.objects += count;
            entry.size_bytes += count * size.first;
        }
    for (auto& [name, entry] : by_name) {
        entry.type = name;
        census.types.push_back(std::move(entry));
    }
    std::ranges::stable_sort(census.types, std::greater(),
                             [](const TypeCount& entry) { return std::tuple(entry.size_bytes, entry.objects); });
    return census;
}

}  // namespace memtrace
