#include "formats/text_processes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/text.hpp"
#include "base/units.hpp"
#include "formats/columns.hpp"
#include "formats/text_table.hpp"

namespace memtrace {
namespace {

uint64_t live_bytes_of(const ProcessEntry& process) {
    return process.figures.live_bytes + process.figures.mappings_live_bytes;
}

/// What is drawn in front of a process of the tree.
struct Branch {
    std::string_view child;
    std::string_view last_child;
    std::string_view passing_by;
};

constexpr Branch drawn = {"├─ ", "└─ ", "│  "};
constexpr Branch drawn_in_ascii = {"|- ", "`- ", "|  "};
constexpr std::string_view nothing_passing_by = "   ";

struct Row {
    const ProcessEntry* process = nullptr;
    std::string branch;
};

/// The rows of a report's table in their order: those that hold most, in a tree with all their ancestors.
class Rows {
  public:
    Rows(const ReportRecord& report, bool has_utf8) : branch_(has_utf8 ? drawn : drawn_in_ascii) {
        for (const ProcessEntry& process : report.processes)
            by_pid_[process.figures.pid] = &process;
        choose(report);
        if (report.scope.by != "tree") {
            for (const ProcessEntry* process : widest_)
                rows_.push_back({process, ""});
            return;
        }
        std::vector<const ProcessEntry*> roots;
        for (const ProcessEntry* process : widest_) {
            const pid_t ancestor = process->figures.ancestor;
            (ancestor == 0 ? roots : children_[ancestor]).push_back(process);
        }
        for (const ProcessEntry* root : roots)
            add_up(root);
        for (auto& [pid, children] : children_)
            widest_first(children);
        for (const ProcessEntry* root : roots)
            draw(root, "", "");
        // Pids that were used again may go round in a circle, which has no root.
        for (const ProcessEntry* process : widest_)
            draw(process, "", "");
    }

    const std::vector<Row>& rows() const { return rows_; }
    bool has(const ProcessEntry& process) const { return chosen_.contains(&process); }

  private:
    void choose(const ReportRecord& report) {
        std::vector<const ProcessEntry*> all;
        for (const ProcessEntry& process : report.processes)
            all.push_back(&process);
        std::ranges::stable_sort(all, std::greater(),
                                 [](const ProcessEntry* process) { return live_bytes_of(*process); });
        const size_t count = report.top == 0 ? all.size() : std::min(report.top, all.size());
        for (size_t index = 0; index < count; ++index)
            for (const ProcessEntry* process = all[index]; process && chosen_.insert(process).second;)
                process = report.scope.by == "tree" ? ancestor_of(*process) : nullptr;
        std::ranges::copy_if(all, std::back_inserter(widest_),
                             [&](const ProcessEntry* process) { return chosen_.contains(process); });
    }

    const ProcessEntry* ancestor_of(const ProcessEntry& process) const {
        const auto found = by_pid_.find(process.figures.ancestor);
        return found == by_pid_.end() ? nullptr : found->second;
    }

    /// Siblings are ordered by what they and all below them hold. Pids that were used again could go round in circles.
    uint64_t add_up(const ProcessEntry* process) {
        if (!live_bytes_below_.try_emplace(process, 0).second) return 0;
        uint64_t live_bytes = live_bytes_of(*process);
        if (const auto children = children_.find(process->figures.pid); children != children_.end())
            for (const ProcessEntry* child : children->second)
                live_bytes += add_up(child);
        return live_bytes_below_[process] = live_bytes;
    }

    void widest_first(std::vector<const ProcessEntry*>& processes) {
        std::ranges::stable_sort(processes, std::greater(),
                                 [&](const ProcessEntry* process) { return live_bytes_below_[process]; });
    }

    void draw(const ProcessEntry* process, const std::string& branch, const std::string& below) {
        if (!drawn_.insert(process).second) return;
        rows_.push_back({process, branch});
        const auto children = children_.find(process->figures.pid);
        if (children == children_.end()) return;
        for (const ProcessEntry* child : children->second) {
            const bool is_last = child == children->second.back();
            draw(child, below + std::string(is_last ? branch_.last_child : branch_.child),
                 below + std::string(is_last ? nothing_passing_by : branch_.passing_by));
        }
    }

    const Branch& branch_;
    std::unordered_map<pid_t, const ProcessEntry*> by_pid_;
    std::unordered_set<const ProcessEntry*> chosen_;
    std::unordered_set<const ProcessEntry*> drawn_;
    std::vector<const ProcessEntry*> widest_;
    std::unordered_map<pid_t, std::vector<const ProcessEntry*>> children_;
    std::unordered_map<const ProcessEntry*, uint64_t> live_bytes_below_;
    std::vector<Row> rows_;
};

/// What a careful reader wants to know of a process: that it is gone, and from when on it was seen.
std::string notes_of(const ProcessEntry& process) {
    std::string notes;
    if (process.ended_ns || process.figures.has_ended) notes = "ended";
    if (process.figures.ended_blocks > 0)
        notes += fmt::format("{}{} gone", notes.empty() ? "" : ", ", format_size(process.figures.ended_bytes));
    std::string_view separator = notes.empty() ? "" : ", ";
    if (process.since_birth == true) return notes + std::string(separator) + "from birth";
    if (process.window_ns)
        notes += fmt::format("{}{:.1f} ms late", separator, static_cast<double>(*process.window_ns) / 1e6);
    return notes;
}

std::string name_of(const ProcessEntry& process) {
    return fmt::format("{}[{}]", printable(process.comm), process.figures.pid);
}

class ProcessTable {
  public:
    explicit ProcessTable(const ReportRecord& report) : report_(report) {}

    void add(const Row& row) {
        const ProcessEntry& process = *row.process;
        const uint64_t traced_until_ns = process.ended_ns.value_or(report_.elapsed_ns);
        const bool is_over = process.ended_ns || process.figures.has_ended;
        live_.cells.push_back(format_size(process.figures.live_bytes));
        share_.cells.push_back(share_of(process.figures.live_bytes, report_.heap.live_bytes));
        growth_.cells.push_back(format_size_change(process.figures.growth_bytes));
        mappings_.cells.push_back(format_size(process.figures.mappings_live_bytes));
        resident_.cells.push_back(process.rss_bytes && !is_over ? format_size(*process.rss_bytes) : "-");
        traced_.cells.push_back(format_duration(traced_until_ns - std::min(traced_until_ns, process.started_ns)));
        const std::string notes = notes_of(process);
        names_.push_back(row.branch + name_of(process));
        notes_.push_back(notes.empty() ? "" : "  " + notes);
        has_mappings_ |= process.figures.mappings_live_bytes > 0;
    }

    /// What fits into `width` columns (0: all).
    std::vector<Column> columns(size_t width) const {
        std::vector<Column> columns = {live_, share_, growth_};
        if (has_mappings_) columns.push_back(mappings_);
        columns.insert(columns.end(), {resident_, traced_});
        size_t room = width;
        if (width > 0) {
            drop_columns(columns, width > least_name_columns ? width - least_name_columns : 1);
            const size_t used = line_width(columns) + column_gap;
            room = width > used ? width - used : 1;
        }
        columns.push_back({.title = "process", .is_left_aligned = true});
        for (size_t row = 0; row < names_.size(); ++row)
            columns.back().cells.push_back(width == 0 ? names_[row] + notes_[row] : fitted(row, room));
        return columns;
    }

  private:
    static constexpr size_t least_name_columns = 36;

    /// A name is cut before what is noted of it.
    std::string fitted(size_t row, size_t room) const {
        constexpr size_t least_columns = 16;
        const size_t notes = display_width(notes_[row]);
        const std::string name = shorten_middle(names_[row], std::max(room - std::min(room, notes), least_columns));
        return shorten_middle(name + notes_[row], room);
    }

    const ReportRecord& report_;
    bool has_mappings_ = false;
    Column live_{"        live", 0, Emphasis::headline};
    Column share_{"share", 2};
    Column growth_{"    growth", 0, Emphasis::growth};
    Column mappings_{"  mappings", 3};
    Column resident_{"  resident", 1};
    Column traced_{"traced", 4};
    std::vector<std::string> names_;
    std::vector<std::string> notes_;
};

std::string counted_processes(uint64_t count, std::string_view more) {
    return fmt::format("{}{} {}", format_count(count), more, count == 1 ? "process" : "processes");
}

/// What the table leaves out.
std::string rest_lines(const ReportRecord& report, const Rows& rows, size_t width) {
    uint64_t count = 0;
    uint64_t live_bytes = 0;
    int64_t growth_bytes = 0;
    for (const ProcessEntry& process : report.processes) {
        if (rows.has(process)) continue;
        count += 1;
        live_bytes += process.figures.live_bytes;
        growth_bytes += process.figures.growth_bytes;
    }
    std::string text;
    const auto add = [&](const std::string& line) {
        for (const std::string& part : wrap_words(line, width, 4))
            text += part + '\n';
    };
    if (count > 0)
        add(fmt::format("  and {} with {}, growth {}", counted_processes(count, " more"), format_size(live_bytes),
                        format_size_change(growth_bytes)));
    const EndedProcesses& ended = report.ended_processes;
    if (ended.count > 0)
        add(fmt::format("  and {} that ended before: {} allocated, {} gone with {}", counted_processes(ended.count, ""),
                        format_size(ended.totals.allocated_bytes), format_size(ended.ended_bytes),
                        ended.count == 1 ? "it" : "them"));
    return text;
}

}  // namespace

std::string process_section(const ReportRecord& report, const WriterOptions& options) {
    if (report.processes.size() + report.ended_processes.count < 2) return {};
    const Style style(options.has_colors);
    const Rows rows(report, options.has_utf8);
    ProcessTable table(report);
    for (const Row& row : rows.rows())
        table.add(row);
    const std::vector<Column> columns = table.columns(options.width);
    const bool shows_all = rows.rows().size() == report.processes.size();
    const std::string title = shows_all ? "Processes"
                                        : fmt::format("The {} of {} processes that hold most", rows.rows().size(),
                                                      format_count(report.processes.size()));
    std::string text = style.headline(title) + '\n' + table_head(columns, style);
    for (size_t row = 0; row < rows.rows().size(); ++row)
        text += table_row(columns, row, style);
    return text + rest_lines(report, rows, options.width);
}

std::string process_name(const ReportRecord& report, pid_t pid) {
    const auto found =
        std::ranges::find(report.processes, pid, [](const ProcessEntry& process) { return process.figures.pid; });
    return found == report.processes.end() ? fmt::format("[{}]", pid) : name_of(*found);
}

}  // namespace memtrace
