// JSON lines: the records exactly as the contract names them, one object a line. Strings pass through printable(), so
// that any bytes make valid JSON.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <ostream>
#include <string_view>

#include "base/text.hpp"
#include "formats/format.hpp"
#include "formats/json_memory.hpp"

namespace memtrace {
namespace {

using Json = nlohmann::ordered_json;

constexpr int schema = 1;

template <typename T>
Json number_or_null(const std::optional<T>& value) {
    return value ? Json(*value) : Json(nullptr);
}

Json text_or_null(const std::optional<std::string>& text) {
    return text ? Json(printable(*text)) : Json(nullptr);
}

/// For a name whose absence is an empty string.
Json name_or_null(std::string_view text) {
    return text.empty() ? Json(nullptr) : Json(printable(text));
}

std::string hexadecimal(uint64_t value) {
    return fmt::format("{:#x}", value);
}

Json texts(const std::vector<std::string>& values) {
    Json list = Json::array();
    for (const std::string& value : values)
        list.push_back(printable(value));
    return list;
}

std::string_view kind_name(Frame::Kind kind) {
    switch (kind) {
        case Frame::Kind::native:
            return "native";
        case Frame::Kind::jit:
            return "jit";
        case Frame::Kind::interpreted:
            return "interpreted";
        case Frame::Kind::kernel:
            return "kernel";
    }
    return "native";
}

Json json_of(const StartRecord& record) {
    return {{"type", "start"},
            {"schema", schema},
            {"time", rfc3339(record.time_unix_ns)},
            {"version", printable(record.version)},
            {"kernel", printable(record.kernel)},
            {"args", texts(record.args)},
            {"attach", record.attach},
            {"unwinder", record.unwinder}};
}

Json json_of(const ProcessRecord& record) {
    return {{"type", "process"},
            {"event", record.event},
            {"pid", record.pid},
            {"ppid", number_or_null(record.ppid)},
            {"comm", printable(record.comm)},
            {"exe", text_or_null(record.exe)},
            {"runtimes", texts(record.runtimes)},
            {"since_birth", number_or_null(record.since_birth)},
            {"window_ns", number_or_null(record.window_ns)},
            {"cgroup", text_or_null(record.cgroup)},
            {"container", text_or_null(record.container)},
            {"reason", text_or_null(record.reason)}};
}

Json json_of(const ReportScope& scope) {
    return {
        {"by", scope.by}, {"name", printable(scope.name)}, {"pid", number_or_null(scope.pid)}, {"pids", scope.pids}};
}

/// What stands beside figures that are estimates.
void add_error(Json& object, const std::optional<uint64_t>& error_bytes) {
    if (!error_bytes) return;
    object["estimate"] = true;
    object["error_bytes"] = *error_bytes;
}

Json json_of(const HeapFigures& heap) {
    Json object = {{"live_bytes", heap.live_bytes},
                   {"live_blocks", heap.live_blocks},
                   {"allocated_bytes", heap.totals.allocated_bytes},
                   {"allocations", heap.totals.allocations},
                   {"freed_bytes", heap.totals.freed_bytes},
                   {"frees", heap.totals.frees},
                   {"ended_bytes", heap.ended_bytes},
                   {"ended_blocks", heap.ended_blocks},
                   {"inherited_bytes", heap.inherited_bytes},
                   {"inherited_blocks", heap.inherited_blocks},
                   {"peak_live_bytes", heap.peak_live_bytes}};
    add_error(object, heap.error_bytes);
    return object;
}

Json json_of(const Accuracy& accuracy) {
    return {{"complete", accuracy.is_complete()},
            {"blocks_not_recorded", accuracy.blocks_not_recorded()},
            {"stacks_not_recorded", accuracy.stacks_not_recorded()},
            {"events_lost", accuracy.events_lost()},
            {"returns_missed", accuracy.returns_missed},
            {"frees_missed", accuracy.frees_missed},
            {"reallocs_unresolved", accuracy.reallocs_unresolved},
            {"inherited_lost", accuracy.inherited_lost},
            {"unknown_frees", accuracy.knows_unknown_frees() ? Json(accuracy.unknown_frees) : Json(nullptr)},
            {"calls_abandoned", accuracy.calls_abandoned},
            {"calls_suppressed", accuracy.calls_suppressed},
            {"stacks_truncated", accuracy.stacks_truncated},
            {"sampling_mean_bytes", accuracy.sampling_mean_bytes},
            {"children_not_seen", accuracy.children_not_seen},
            {"types_not_recorded", accuracy.types_not_recorded}};
}

Json json_of(const std::optional<OverheadFigures>& overhead) {
    if (!overhead) return nullptr;
    return {{"hits_per_second", overhead->hits_per_second},
            {"core_share", overhead->core_share},
            {"max_core_share", number_or_null(overhead->max_core_share)}};
}

Json json_of(const std::optional<StopFigures>& stop) {
    if (!stop) return nullptr;
    return {{"elapsed_ns", stop->elapsed_ns},
            {"reason", printable(stop->reason)},
            {"figures", {"heap", "mappings", "accuracy", "allocators", "sites"}}};
}

Json json_of(const std::optional<Ages>& ages) {
    if (!ages) return nullptr;
    return {{"min", ages->min_ns}, {"p50", ages->median_ns}, {"max", ages->max_ns}};
}

Json json_of(const Frame& frame) {
    return {{"function", name_or_null(frame.function)},
            {"file", name_or_null(frame.file)},
            {"line", frame.line == 0 ? Json(nullptr) : Json(frame.line)},
            {"module", name_or_null(frame.module)},
            {"offset", hexadecimal(frame.offset)},
            {"inlined", frame.is_inlined},
            {"kind", kind_name(frame.kind)}};
}

Json json_of(const BlockEntry& block) {
    return {{"address", hexadecimal(block.address)}, {"size", block.size_bytes}, {"age_ns", block.age_ns}};
}

Json json_of(const AllocatorEntry& allocator) {
    return {{"name", printable(allocator.name)},
            {"allocations", allocator.allocations},
            {"allocated_bytes", allocator.allocated_bytes}};
}

Json json_of(const SiteHolder& holder) {
    return {{"pid", holder.pid}, {"live_bytes", holder.live_bytes}, {"live_blocks", holder.live_blocks}};
}

Json json_of(const ProcessEntry& process) {
    const ProcessFigures& figures = process.figures;
    return {{"pid", figures.pid},
            {"ppid", number_or_null(process.ppid)},
            {"comm", printable(process.comm)},
            {"exe", text_or_null(process.exe)},
            {"since_birth", number_or_null(process.since_birth)},
            {"window_ns", number_or_null(process.window_ns)},
            {"started_ns", process.started_ns},
            {"ended_ns", number_or_null(process.ended_ns)},
            {"rss_bytes", number_or_null(process.rss_bytes)},
            {"live_bytes", figures.live_bytes},
            {"live_blocks", figures.live_blocks},
            {"allocated_bytes", figures.totals.allocated_bytes},
            {"allocations", figures.totals.allocations},
            {"freed_bytes", figures.totals.freed_bytes},
            {"frees", figures.totals.frees},
            {"ended_bytes", figures.ended_bytes},
            {"ended_blocks", figures.ended_blocks},
            {"growth_bytes", figures.growth_bytes},
            {"growth_since_baseline_bytes", figures.growth_since_baseline_bytes},
            {"mappings_live_bytes", figures.mappings_live_bytes}};
}

Json json_of(const EndedProcesses& ended) {
    return {{"count", ended.count},
            {"allocated_bytes", ended.totals.allocated_bytes},
            {"allocations", ended.totals.allocations},
            {"ended_bytes", ended.ended_bytes},
            {"ended_blocks", ended.ended_blocks}};
}

Json json_of(const TypeEntry& type) {
    return {{"type", printable(type.type)},
            {"live_bytes", number_or_null(type.live_bytes)},
            {"live_blocks", number_or_null(type.live_blocks)},
            {"allocated_bytes", type.allocated_bytes},
            {"allocations", type.allocations}};
}

Json json_of(const SiteEntry& site);
Json json_of(const CensusSite& site);

template <typename T>
Json list_of(const std::vector<T>& values) {
    Json list = Json::array();
    for (const T& value : values)
        list.push_back(json_of(value));
    return list;
}

Json json_of(const SiteEntry& site) {
    Json object = {{"id", text_or_null(site.id)},
                   {"kind", site.kind},
                   {"allocator", printable(site.allocator)},
                   {"function", printable(site.function)},
                   {"type", text_or_null(site.type)},
                   {"live_bytes", site.live_bytes},
                   {"live_blocks", site.live_blocks},
                   {"allocated_bytes", site.allocated_bytes},
                   {"allocations", site.allocations},
                   {"growth_bytes", site.growth_bytes},
                   {"growth_since_baseline_bytes", site.growth_since_baseline_bytes},
                   {"age_ns", json_of(site.ages)},
                   {"stack_error", text_or_null(site.stack_error)},
                   {"frames", list_of(site.frames)}};
    if (site.kind == "mapping") add_parts(object, site.parts);
    if (site.resident_bytes) object["resident_bytes"] = *site.resident_bytes;
    if (site.is_inherited) object["inherited"] = true;
    add_error(object, site.error_bytes);
    if (site.blocks) object["blocks"] = list_of(*site.blocks);
    return object;
}

Json json_of(const CensusSite& site) {
    return {{"live_bytes", site.live_bytes},           {"live_blocks", site.live_blocks},
            {"allocated_bytes", site.allocated_bytes}, {"allocations", site.allocations},
            {"live_samples", site.live_samples},       {"functions", texts(site.functions)}};
}

Json json_of(const BeforeAttachRecord& record) {
    Json sites = Json::array();
    for (const CensusSite& site : record.sites)
        sites.push_back({{"live_bytes", site.live_bytes},
                         {"live_blocks", site.live_blocks},
                         {"live_samples", site.live_samples},
                         {"functions", texts(site.functions)}});
    return {{"live_bytes", record.live_bytes},   {"live_blocks", record.live_blocks}, {"estimate", true},
            {"error_bytes", record.error_bytes}, {"sites_total", record.sites_total}, {"sites", sites}};
}

Json json_of(const ReportRecord& record) {
    Json object = {{"type", "report"},
                   {"seq", record.sequence},
                   {"final", record.is_final},
                   {"time", rfc3339(record.time_unix_ns)},
                   {"elapsed_ns", record.elapsed_ns},
                   {"scope", json_of(record.scope)},
                   {"heap", json_of(record.heap)},
                   {"mappings", json_of(record.mappings)},
                   {"memory", json_of(record.memory)},
                   {"accuracy", json_of(record.accuracy)},
                   {"overhead", json_of(record.overhead)},
                   {"stopped", json_of(record.stop)},
                   {"allocators", list_of(record.allocators)},
                   {"sites_total", record.sites_total},
                   {"sites", list_of(record.sites)}};
    if (record.types) object["types"] = list_of(*record.types);
    if (record.before_attach) object["before_attach"] = json_of(*record.before_attach);
    if (record.scope.by == "process") return object;
    object["processes"] = list_of(record.processes);
    object["ended_processes"] = json_of(record.ended_processes);
    for (size_t site = 0; site < record.sites.size(); ++site) {
        object["sites"][site]["processes"] = list_of(record.sites[site].holders);
        object["sites"][site]["processes_total"] = record.sites[site].holders_total;
    }
    return object;
}

/// Of Go's profile the call sites, of libgc's heap the types.
Json json_of(const CensusRecord& record) {
    Json object = {{"type", "census"},
                   {"time", rfc3339(record.time_unix_ns)},
                   {"pid", record.pid},
                   {"comm", printable(record.comm)},
                   {"collector", record.collector},
                   {"live_bytes", record.live_bytes},
                   {"live_blocks", record.live_blocks}};
    if (record.sampling_mean_bytes > 0) {
        object["estimate"] = true;
        object["error_bytes"] = record.error_bytes;
        object["sampling_mean_bytes"] = record.sampling_mean_bytes;
        object["live_samples"] = record.live_samples;
        object["sites_total"] = record.sites_total;
        object["sites"] = list_of(record.sites);
        return object;
    }
    Json types = Json::array();
    for (const TypeEntry& type : record.types)
        types.push_back({{"type", printable(type.type)},
                         {"live_bytes", number_or_null(type.live_bytes)},
                         {"live_blocks", number_or_null(type.live_blocks)}});
    object["collections"] = record.collections;
    object["typed_bytes"] = record.typed_bytes;
    object["typed_blocks"] = record.typed_blocks;
    object["blocks_not_read"] = record.blocks_not_read;
    object["types_total"] = record.types_total;
    object["types"] = types;
    return object;
}

Json json_of(const BlockEventRecord& record) {
    return {{"type", record.is_free ? "free" : "alloc"},
            {"time_ns", record.time_ns},
            {"pid", record.pid},
            {"tid", record.tid},
            {"function", printable(record.function)},
            {"address", hexadecimal(record.address)},
            {"size", record.size_bytes},
            {"site", text_or_null(record.site)}};
}

Json json_of(const RestRecord&) {
    return {};
}

Json json_of(const WarningRecord& record) {
    return {{"type", "warning"}, {"code", record.code}, {"message", printable(record.message)}};
}

Json json_of(const EndRecord& record) {
    return {{"type", "end"}, {"reason", record.reason}, {"status", record.status}};
}

class JsonWriter : public Writer {
  public:
    void write(const Record& record, std::ostream& stream) override {
        // For people: a program is given every report.
        if (std::holds_alternative<RestRecord>(record)) return;
        const Json object = std::visit([](const auto& any) { return json_of(any); }, record);
        stream << object.dump(-1, ' ', false, Json::error_handler_t::replace) << '\n' << std::flush;
    }
};

}  // namespace

std::unique_ptr<Writer> make_json_writer(const WriterOptions&) {
    return std::make_unique<JsonWriter>();
}

}  // namespace memtrace
