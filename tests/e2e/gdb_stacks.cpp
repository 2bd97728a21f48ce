#include "e2e/gdb_stacks.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <sstream>

namespace memtrace::e2e {
namespace {

/// Below any block that is marked (tests/workloads/stacks/marker.c).
constexpr const char* min_size = "1000000";

/// Of a stack, without --max-stack.
constexpr size_t max_frames = 127;

std::vector<Json> read_stacks(Child& gdb) {
    std::vector<Json> stacks;
    while (const std::optional<std::string> line = gdb.read_line_or_end())
        if (line->starts_with("{\"size_bytes\"")) stacks.push_back(Json::parse(*line));
    return stacks;
}

void wait_ready(Child& gdb) {
    while (const std::optional<std::string> line = gdb.read_line_or_end())
        if (line->starts_with("{\"ready\"")) return;
    throw std::runtime_error("gdb does not attach: " + gdb.errors());
}

/// Site by the size of each of its blocks.
std::map<int64_t, Json> sites_by_block_size(const Json& report) {
    std::map<int64_t, Json> sites;
    for (const Json& site : report.at("sites")) {
        if (site.at("kind") != "heap") continue;
        for (const Json& block : site.at("blocks"))
            sites[block.at("size").get<int64_t>()] = site;
    }
    return sites;
}

/// A report between two passes lets tables that were asked for be loaded.
void run_passes(Workload& workload, Memtrace& memtrace, int passes) {
    if (passes == 0) workload.child().write_line("go");
    for (int pass = 0; pass < passes; ++pass) {
        workload.go();
        if (pass + 1 < passes) memtrace.report();
    }
    if (passes > 0) workload.quit(0);
}

std::string text_of(const std::vector<Json>& frames) {
    std::ostringstream text;
    for (const Json& frame : frames)
        text << ' ' << frame.at(0).get<std::string>() << "+0x" << std::hex << frame.at(1).get<uint64_t>();
    return text.str();
}

/// The frames down to that of `function`, all if it is none of them.
size_t count_to(const std::string& function, const Json& names) {
    const auto last = std::find(names.begin(), names.end(), Json(function));
    return static_cast<size_t>(last - names.begin()) + (last == names.end() ? 0 : 1);
}

bool is_in_function(const Json& frame, const Json& gdb) {
    const Json& bounds = gdb.at("function");
    return frame.at(0) == gdb.at("frames").at(0).at(0) && frame.at(1) > bounds.at(0) && frame.at(1) <= bounds.at(1);
}

}  // namespace

bool has_program(const std::string& name) {
    std::istringstream directories(std::getenv("PATH"));
    for (std::string directory; std::getline(directories, directory, ':');)
        if (access((directory + "/" + name).c_str(), X_OK) == 0) return true;
    return false;
}

std::vector<MarkedStack> run_marked(const MarkedProgram& program) {
    Workload workload(program.path, program.arguments, program.environment);
    const std::string pid = std::to_string(workload.pid());
    Memtrace memtrace({"-p", pid, "-T", "0", "--show-allocs", "--min-size", min_size, "3600"});
    memtrace.wait_attached();
    Child gdb({"gdb", "-nx", "-nh", "-batch", "-iex", "set auto-load off", "-p", pid, "-x",
               MEMTRACE_SOURCE_DIR "/tests/e2e/gdb_stacks.py"});
    wait_ready(gdb);
    run_passes(workload, memtrace, program.passes);
    const std::vector<Json> seen = read_stacks(gdb);
    const MemtraceEnd end = memtrace.wait();
    const std::map<int64_t, Json> sites = sites_by_block_size(end.final_report());
    std::vector<MarkedStack> stacks;
    for (const Json& gdb_stack : seen) {
        const auto site = sites.find(gdb_stack.at("size_bytes").get<int64_t>());
        const int pass =
            static_cast<int>(stacks.size() * static_cast<size_t>(std::max(program.passes, 1)) / seen.size());
        stacks.push_back(
            {gdb_stack.at("shape").get<std::string>(), pass, gdb_stack, site == sites.end() ? Json() : site->second});
    }
    return stacks;
}

std::vector<Json> physical_frames(const Json& site) {
    std::vector<Json> frames;
    for (const Json& frame : site.at("frames")) {
        if (frame.at("inlined") == true) continue;
        const uint64_t call = std::strtoull(frame.at("offset").get<std::string>().c_str(), nullptr, 16);
        frames.push_back(Json::array({frame.at("module"), call + 1}));
    }
    return frames;
}

std::string difference(const MarkedStack& stack, const std::string& last) {
    if (stack.site.is_null()) return stack.shape + ": memtrace has no such block\n";
    std::vector<Json> expected = stack.gdb.at("frames").get<std::vector<Json>>();
    std::vector<Json> seen = physical_frames(stack.site);
    const bool has_callee = seen.size() == expected.size() + 1 && stack.shape.find("dup") != std::string::npos;
    if (has_callee) seen.erase(seen.begin());
    if (!last.empty()) {
        expected.resize(count_to(last, stack.gdb.at("names")));
        seen.resize(std::min(seen.size(), expected.size()));
    }
    const Json& error = stack.site.at("stack_error");
    const bool is_cut = error == "more frames than --max-stack" && seen.size() == max_frames;
    if (is_cut) expected.resize(std::min(expected.size(), max_frames));
    const bool is_same = seen.size() == expected.size() && !seen.empty() && is_in_function(seen.front(), stack.gdb) &&
                         std::equal(seen.begin() + 1, seen.end(), expected.begin() + 1);
    if (is_same && (error.is_null() || is_cut || !last.empty())) return {};
    return stack.shape + ": stack_error " + error.dump() + "\n  memtrace:" + text_of(seen) +
           "\n  gdb:     " + text_of(expected) + "\n  " + stack.gdb.at("names").dump() + "\n";
}

}  // namespace memtrace::e2e
