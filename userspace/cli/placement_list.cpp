#include "cli/placement_list.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/log.hpp"
#include "base/text.hpp"
#include "cli/probe_plan.hpp"
#include "kernel/links.hpp"
#include "probes/allocator_table.hpp"

namespace memtrace {
namespace {

using Columns = std::array<std::string, 6>;

AttachRung best_rung() {
    for (const AttachRung rung : {AttachRung::session, AttachRung::multi})
        if (kernel_has_rung(rung)) return rung;
    return AttachRung::perf;
}

std::string place_text(const ProbePoint& point) {
    const std::string symbol = point.symbol.empty() ? "?" : printable(point.symbol);
    return fmt::format("{}+{:#x}", symbol, point.placement.offset);
}

bool has_return_probe(const ProbePoint& point, const AllocatorTable& table) {
    return point.kind == PointKind::entry && is_return_probed(table[point.row].row);
}

std::string return_text(const ProbePoint& point, const AllocatorTable& table) {
    if (!is_entry(point.kind)) return "is one";
    if (table[point.row].row.operation == MT_OP_GO_ALLOCATE) return "by instruction";
    if (returns_by_instruction(table[point.row].row)) return "by instruction";
    return has_return_probe(point, table) ? "probed" : "not needed";
}

/// Of a call that is recorded. A stepped instruction costs a second trap.
std::string cost_text(const ProbePoint& point, const AllocatorTable& table, const std::optional<TrapPrice>& price) {
    const bool returns = has_return_probe(point, table);
    if (!price) return fmt::format("{} traps", (point.placement.is_emulated ? 1 : 2) + (returns ? 1 : 0));
    const double entry_ns = price->entry_ns(point.placement.is_emulated);
    return fmt::format("{:.2f} us", (entry_ns + (returns ? price->return_ns : 0)) / 1000);
}

std::string text_of(const std::vector<Columns>& lines) {
    std::array<size_t, std::tuple_size_v<Columns>> widths{};
    for (const Columns& line : lines)
        for (size_t index = 0; index < line.size(); ++index)
            widths[index] = std::max(widths[index], line[index].size());
    std::string text;
    for (const Columns& line : lines) {
        for (size_t index = 0; index + 1 < line.size(); ++index)
            text += fmt::format("{:<{}}  ", line[index], widths[index]);
        text += line.back() + '\n';
    }
    return text;
}

Result<void> add_probes_of(pid_t pid, ProbePlan& plan, std::vector<PlacedProbe>& probes) {
    const auto planned = plan.of_process(pid);
    if (!planned) return planned.error();
    for (const Error& unreadable : planned->unreadable)
        log_warning(unreadable.what + ": " + unreadable.why);
    for (const PlannedFile& file : planned->files)
        for (const ProbePoint& point : file.is_new ? file.probes->points : std::vector<ProbePoint>())
            probes.push_back({file.path.substr(file.path.rfind('/') + 1), point});
    return {};
}

}  // namespace

std::string placement_table(std::span<const PlacedProbe> probes, const AllocatorTable& table,
                            const std::optional<TrapPrice>& price) {
    std::vector<Columns> lines = {{"# file", "probe", "instruction", "executed", "return", "a call costs"}};
    for (const auto& [file, point] : probes)
        lines.push_back({printable(file), place_text(point), point.placement.instruction,
                         point.placement.is_emulated ? "emulated" : "stepped", return_text(point, table),
                         cost_text(point, table, price)});
    return text_of(lines);
}

Result<std::string> placement_list(const std::vector<pid_t>& pids) {
    const AllocatorTable table;
    ProbePlan plan(table);
    std::vector<PlacedProbe> probes;
    for (const pid_t pid : pids)
        if (auto added = add_probes_of(pid, plan, probes); !added) return std::move(added).error();
    if (probes.empty())
        return Error{"no probe", "none of the files that are mapped has a function of the table",
                     "memtrace list shows the functions", ExitStatus::no_allocator};
    std::optional<TrapPrice> price;
    if (const auto measured = measure_trap_price(best_rung()))
        price = *measured;
    else
        log_info(measured.error().what + ": " + measured.error().why);
    return placement_table(probes, table, price);
}

}  // namespace memtrace
