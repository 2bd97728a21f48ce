#include "cli/doctor_target.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <set>

#include "base/text.hpp"
#include "base/units.hpp"
#include "processes/traceability.hpp"
#include "unwind/unwind_table.hpp"

namespace memtrace {
namespace {

std::string base_name_of(const std::string& path) {
    return printable(path.substr(path.rfind('/') + 1));
}

std::string joined(const auto& parts) {
    return fmt::format("{}", fmt::join(parts, ", "));
}

/// "libc in libc.so.6 (22 probes), c++ in libstdc++.so.6 (8)".
std::string allocators_text(const ProcessPlan& plan) {
    std::vector<std::string> parts;
    for (const PlannedFile& file : plan.files)
        if (!file.probes->points.empty())
            parts.push_back(fmt::format("{} in {} ({} probes)", joined(file.probes->families), base_name_of(file.path),
                                        file.probes->points.size()));
    return parts.empty() ? "none" : joined(parts);
}

std::string placement_text(const ProcessPlan& plan) {
    size_t emulated = 0;
    std::set<std::string> stepped;
    for (const PlannedFile& file : plan.files)
        for (const ProbePoint& point : file.probes->points)
            if (point.placement.is_emulated)
                ++emulated;
            else
                stepped.insert(printable(point.symbol));
    std::string text = fmt::format("{} probes on instructions that the kernel emulates", emulated);
    if (!stepped.empty()) text += fmt::format("; stepped, at twice the price: {}", joined(stepped));
    return text;
}

/// Runtimes whose heaps or code need a word, by the names of their files.
std::string runtimes_text(const ProcessPlan& plan) {
    static constexpr std::array<std::pair<std::string_view, std::string_view>, 8> known = {
        {{"libjvm.so", "Java: its heap is not seen, only what native code allocates"},
         {"libgc.so", "Boehm GC: a block is live until a collection has found it dead"},
         {"libcoreclr.so", ".NET: its heap is not seen, only what native code allocates"},
         {"libmono", "Mono: its heap is not seen, only what native code allocates"},
         {"libpython", "Python: small objects are in arenas of its own (PYTHONMALLOC=malloc shows each)"},
         {"python3", "Python: small objects are in arenas of its own (PYTHONMALLOC=malloc shows each)"},
         {"libnode", "node: the heap of V8 is mappings, not blocks"},
         {"node", "node: the heap of V8 is mappings, not blocks"}}};
    std::set<std::string_view> found;
    for (const PlannedFile& file : plan.files)
        for (const auto& [name, meaning] : known)
            if (std::string_view(file.path).substr(file.path.rfind('/') + 1).starts_with(name)) found.insert(meaning);
    return found.empty() ? "" : joined(found);
}

std::string unwinder_text(const ProcessPlan& plan) {
    std::vector<std::string> without;
    size_t functions = 0;
    size_t malformed = 0;
    for (const PlannedFile& file : plan.files) {
        const auto table = build_unwind_table(file.fd.get(), -1, UnwindRows::call_sites);
        if (!table || table->rows.empty()) {
            without.push_back(base_name_of(file.path));
            continue;
        }
        functions += table->counts.functions;
        malformed += table->counts.functions_malformed;
    }
    std::string text = fmt::format("{} of {} files have call-frame information, of {} functions",
                                   plan.files.size() - without.size(), plan.files.size(), format_count(functions));
    if (malformed > 0) text += fmt::format(", {} of them broken", format_count(malformed));
    if (!without.empty()) text += fmt::format("; by frame pointers only: {}", joined(without));
    return text;
}

std::vector<std::string> dangers_of(const TraceFacts& facts, const ProcessPlan& plan) {
    std::vector<std::string> dangers;
    if (facts.is_seccomp_filtered)
        dangers.emplace_back("it has a seccomp filter; this kernel lets return probes pass it");
    if (facts.tracer > 0)
        dangers.push_back(
            fmt::format("process {} traces it (a debugger, strace): it may stop it at any time", facts.tracer));
    if (facts.has_changed_user)
        dangers.emplace_back("it is a set-user-ID program or has changed its user: its files are read as root would");
    for (const Error& unreadable : plan.unreadable)
        dangers.push_back(unreadable.what + " " + unreadable.why);
    return dangers;
}

}  // namespace

TargetDiagnosis diagnose_target(pid_t pid, ProbePlan& probe_plan, uint64_t bytes_a_thread) {
    const auto plan = probe_plan.of_process(pid);
    if (!plan) return {fmt::format("target {}\n  no    {}\n", pid, plan.error().why), plan.error()};
    const std::string name = fmt::format("{}[{}]", printable(plan->process.comm), pid);
    std::string text = fmt::format("target {}\n", name);
    if (const auto reason = reason_not_to_trace(pid))
        return {text + fmt::format("  no    {}\n", *reason),
                Error{name, *reason, "name another process", ExitStatus::no_allocator}};
    const TraceFacts facts = read_trace_facts(pid).value_or(TraceFacts{});
    text += fmt::format("  allocators   {}\n", allocators_text(*plan));
    if (plan->has_allocator()) text += fmt::format("  placement    {}\n", placement_text(*plan));
    if (const std::string runtimes = runtimes_text(*plan); !runtimes.empty())
        text += fmt::format("  runtimes     {}\n", runtimes);
    text += fmt::format("  stacks       {}\n", unwinder_text(*plan));
    text += fmt::format("  threads      {}, {} of kernel memory\n", facts.threads,
                        format_size(facts.threads * bytes_a_thread));
    for (const std::string& danger : dangers_of(facts, *plan))
        text += fmt::format("  danger       {}\n", danger);
    if (!plan->has_allocator())
        return {text, Error{name, "no allocator that can be traced", "name its functions: --alloc and --free",
                            ExitStatus::no_allocator}};
    return {text, std::nullopt};
}

}  // namespace memtrace
