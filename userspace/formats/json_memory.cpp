#include "formats/json_memory.hpp"

#include <fmt/format.h>

#include <ctime>

#include "base/text.hpp"

namespace memtrace {

using Json = nlohmann::ordered_json;

namespace {

template <typename T>
Json number_or_null(const std::optional<T>& value) {
    return value ? Json(*value) : Json(nullptr);
}

Json json_of(const std::optional<GrowthFigures>& growth) {
    if (!growth) return nullptr;
    return {{"of", growth->is_shared_out ? "pss" : "rss"},
            {"total_bytes", growth->total_bytes},
            {"heap_live_bytes", growth->heap_live_bytes},
            {"allocator_retained_bytes", number_or_null(growth->allocator_retained_bytes)},
            {"mappings_bytes", growth->mappings_bytes},
            {"stacks_bytes", growth->stacks_bytes},
            {"files_bytes", growth->files_bytes},
            {"shared_bytes", growth->shared_bytes},
            {"earlier_bytes", growth->earlier_bytes},
            {"gc_heap_bytes", number_or_null(growth->gc_heap_bytes)},
            {"unexplained_bytes", growth->unexplained_bytes}};
}

Json json_of(const GrowthEntry& entry) {
    return {{"use", entry.use},
            {"rss_bytes", entry.rss_bytes},
            {"rss_growth_bytes", entry.rss_growth_bytes},
            {"mapped_bytes", entry.mapped_bytes},
            {"mapped_growth_bytes", entry.mapped_growth_bytes},
            {"slope_bytes_per_second", number_or_null(entry.slope_bytes_per_second)},
            {"pattern", entry.pattern}};
}

Json json_of(const ChunkSizeEntry& size) {
    return {{"chunk_bytes", size.chunk_bytes},
            {"least_bytes", size.least_bytes},
            {"most_bytes", size.most_bytes},
            {"mapped", size.is_mapped},
            {"live_bytes", size.live_bytes},
            {"live_blocks", size.live_blocks},
            {"free_bytes", size.free_bytes},
            {"free_blocks", size.free_blocks},
            {"growth_bytes", size.growth_bytes},
            {"growth_blocks", size.growth_blocks},
            {"grown_each_time", size.has_grown_each_time}};
}

}  // namespace

void add_parts(Json& object, const MappingParts& parts) {
    object["reserved_bytes"] = parts.reserved_bytes;
    object["file_bytes"] = parts.file_bytes;
    object["shared_bytes"] = parts.shared_bytes;
    object["stack_bytes"] = parts.stack_bytes;
}

Json json_of(const MappingTotals& mappings) {
    Json object = {{"live_bytes", mappings.live_bytes},
                   {"live_count", mappings.live_count},
                   {"mapped_bytes", mappings.mapped_bytes},
                   {"unmapped_bytes", mappings.unmapped_bytes},
                   {"inherited_bytes", mappings.inherited_bytes}};
    add_parts(object, mappings.parts);
    object["discarded_bytes"] = mappings.discarded_bytes;
    return object;
}

Json json_of(const MemoryFigures& memory) {
    return {{"rss_bytes", number_or_null(memory.rss_bytes)},
            {"pss_bytes", number_or_null(memory.pss_bytes)},
            {"rss_growth_bytes", number_or_null(memory.rss_growth_bytes)},
            {"mapped_bytes", number_or_null(memory.mapped_bytes)},
            {"growth", json_of(memory.growth)}};
}

Json json_of(const MallocCensusRecord& record) {
    Json sizes = Json::array();
    for (const ChunkSizeEntry& size : record.sizes)
        sizes.push_back(json_of(size));
    return {{"type", "census"},
            {"seq", record.sequence},
            {"time", rfc3339(record.time_unix_ns)},
            {"elapsed_ns", record.elapsed_ns},
            {"read_ns", record.read_ns},
            {"pid", record.pid},
            {"comm", printable(record.comm)},
            {"allocator", record.allocator},
            {"allocator_version", record.version ? Json(printable(*record.version)) : Json(nullptr)},
            {"arenas", record.arenas},
            {"system_bytes", record.system_bytes},
            {"live_bytes", record.live_bytes},
            {"live_blocks", record.live_blocks},
            {"mapped_bytes", number_or_null(record.mapped_bytes)},
            {"mapped_blocks", number_or_null(record.mapped_blocks)},
            {"mapped_blocks_sized", record.mapped_blocks_sized},
            {"thread_cached_bytes", record.thread_cached_bytes},
            {"thread_cached_blocks", record.thread_cached_blocks},
            {"fast_bytes", record.fast_bytes},
            {"fast_blocks", record.fast_blocks},
            {"binned_bytes", record.binned_bytes},
            {"binned_blocks", record.binned_blocks},
            {"top_bytes", record.top_bytes},
            {"not_found_bytes", record.not_found_bytes},
            {"fast_complete", record.has_all_fast},
            {"retained_bytes", record.retained_bytes},
            {"trimmable_bytes", record.trimmable_bytes},
            {"growth_bytes", record.growth_bytes},
            {"risen_bytes", record.risen_bytes},
            {"growth_pattern", record.growth_pattern},
            {"sizes_total", record.sizes_total},
            {"sizes", sizes}};
}

Json json_of(const GrowthRecord& record) {
    Json uses = Json::array();
    for (const GrowthEntry& entry : record.uses)
        uses.push_back(json_of(entry));
    Json object = {{"type", "growth"},
                   {"seq", record.sequence},
                   {"time", rfc3339(record.time_unix_ns)},
                   {"elapsed_ns", record.elapsed_ns},
                   {"window_ns", record.window_ns},
                   {"pid", record.pid},
                   {"comm", printable(record.comm)}};
    object.update(json_of(record.all));
    object.erase("use");
    object["uses"] = uses;
    return object;
}

/// RFC 3339 in UTC with milliseconds.
std::string rfc3339(int64_t time_unix_ns) {
    const std::time_t seconds = time_unix_ns / 1'000'000'000;
    std::tm parts{};
    gmtime_r(&seconds, &parts);
    return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z", parts.tm_year + 1900, parts.tm_mon + 1,
                       parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec, time_unix_ns / 1'000'000 % 1'000);
}

}  // namespace memtrace
