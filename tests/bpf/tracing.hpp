// The real session on a target process of the test: what each test of this folder starts from.
#pragma once

#include <compare>
#include <iosfwd>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bpf/own_functions.hpp"
#include "bpf/target_process.hpp"
#include "catch.hpp"
#include "heap/snapshot.hpp"
#include "kernel/session.hpp"

namespace memtrace::test {

/// Whether tests can run on `rung` here; says why when they cannot.
bool can_trace(AttachRung rung);

/// For GENERATE: all rungs.
inline auto every_rung() {
    return Catch::Generators::values({AttachRung::session, AttachRung::multi, AttachRung::perf});
}

/// An own function that is probed as the function `row` of the table of allocators.
struct OwnProbe {
    std::string_view row;
    std::string_view function;
};

inline constexpr OwnProbe malloc_probe{"malloc", "own_malloc"};
inline constexpr OwnProbe memalign_probe{"memalign", "own_memalign"};
inline constexpr OwnProbe calloc_probe{"calloc", "own_calloc"};
inline constexpr OwnProbe realloc_probe{"realloc", "own_realloc"};
inline constexpr OwnProbe reallocarray_probe{"reallocarray", "own_reallocarray"};
inline constexpr OwnProbe free_probe{"free", "own_free"};
inline constexpr OwnProbe posix_memalign_probe{"posix_memalign", "own_posix_memalign"};
inline constexpr OwnProbe new_probe{"_Znwm", "own_new"};
inline constexpr OwnProbe new_array_probe{"_Znam", "own_new_array"};
inline constexpr OwnProbe mmap_probe{"mmap", "own_mmap"};
inline constexpr OwnProbe munmap_probe{"munmap", "own_munmap"};
inline constexpr OwnProbe mremap_probe{"mremap", "own_mremap"};

/// Number of the row of the table with this ELF name.
uint32_t row_of(std::string_view symbol);
/// Address of a function of the test program, in the test and in its target.
template <typename Function>
uint64_t address_of(Function* function) {
    return reinterpret_cast<uint64_t>(function);
}

struct LiveBlock {
    uint64_t address;
    uint64_t size_bytes;
    auto operator<=>(const LiveBlock&) const = default;
};
std::ostream& operator<<(std::ostream& out, const LiveBlock& block);

/// A counter that is not 0.
struct Count {
    mt_counter counter;
    uint64_t value;
    auto operator<=>(const Count&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Count& count);
using Counts = std::vector<Count>;

/// A snapshot of a target that stands still.
struct Reading {
    Snapshot snapshot;

    /// Sum of all sites.
    SiteTotals totals() const;
    /// By address.
    std::vector<LiveBlock> blocks() const;
    /// Counters that are not 0, of all address spaces, in the order of enum mt_counter.
    Counts counts() const;
    uint64_t count(mt_counter counter) const;
    /// Sites of a row that have allocations.
    std::vector<Site> sites(std::string_view row) const;
};

/// Keeps all events.
struct Events : EventSink {
    struct Stack {
        uint32_t site;
        std::vector<uint64_t> return_addresses;
    };
    std::vector<Stack> stacks;
    std::vector<mt_mapping_event> mappings;
    std::vector<mt_block_event> blocks;
    std::vector<mt_process_event> processes;
    std::vector<mt_raw_stack_event> raw_stacks;
    std::vector<mt_file_event> files;

    void on_site(const mt_event& event, uint32_t site, std::span<const uint64_t> return_addresses) override;
    void on_raw_stack(const mt_raw_stack_event& event) override { raw_stacks.push_back(event); }
    void on_file(const mt_file_event& event) override { files.push_back(event); }
    void on_mapping(const mt_mapping_event& event) override { mappings.push_back(event); }
    void on_block(const mt_block_event& event) override { blocks.push_back(event); }
    void on_process(const mt_process_event& event) override { processes.push_back(event); }
    const Stack* stack_of(uint32_t site) const;
};

/// The files whose code the test program maps, as the kernel numbers them.
std::vector<mt_file> files_of_this_program();
/// Small tables: they are made anew for each test.
SessionOptions small_tables();

/// Probe points of own functions of the test program.
std::vector<ProbePoint> own_points(const std::vector<OwnProbe>& probes);
/// The rows of the table that the file at `path` defines.
std::vector<ProbePoint> points_of_file(const std::string& path);
std::vector<ProbePoint> points_of_file(const std::string& path, const AllocatorTable& table);

/// A target and a session; what goes wrong in the making fails the test. The destructor disarms, detaches, ends the
/// target.
class Tracing {
  public:
    explicit Tracing(AttachRung rung, const SessionOptions& options = small_tables());
    /// With these own functions attached, the target added and armed.
    Tracing(AttachRung rung, const std::vector<OwnProbe>& probes, const SessionOptions& options = small_tables());
    ~Tracing();

    TargetProcess& target() { return target_; }
    Session& session() { return *session_; }
    void attach(const std::vector<OwnProbe>& probes);
    /// Not for the target only.
    void attach_to_all(const std::vector<OwnProbe>& probes);
    void attach_file(const std::string& path, const std::vector<ProbePoint>& points);
    void add_target(mt_target_state state);
    void run(Step step) { target_.run(step); }
    /// Checks as well that sites and blocks agree: allocated - freed = live, site by site.
    Reading read() const;
    Events drain();

  private:
    void attach_for(const std::string& path, const std::vector<ProbePoint>& points, pid_t pid);

    TargetProcess target_;
    std::unique_ptr<Session> session_;
    std::vector<FileProbes> probes_;
};

}  // namespace memtrace::test
