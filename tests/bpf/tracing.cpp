#include "bpf/tracing.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <map>
#include <ostream>

#include "probes/allocator_table.hpp"
#include "probes/elf_file.hpp"

namespace memtrace::test {
namespace {

const AllocatorTable& table() {
    static const AllocatorTable table;
    return table;
}

constexpr const char* own_path = "/proc/self/exe";

Fd open_file(const std::string& path) {
    Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    INFO(path);
    REQUIRE(fd.get() >= 0);
    return fd;
}

template <typename T>
T value_of(Result<T> result) {
    if (!result) FAIL(result.error().what << ": " << result.error().why);
    return std::move(result).value();
}

ProbePoint own_point(const ElfFile& file, const std::vector<FunctionSymbol>& functions, const OwnProbe& probe) {
    INFO("own function " << probe.function);
    const auto symbol = std::ranges::find(functions, probe.function, &FunctionSymbol::name);
    REQUIRE(symbol != functions.end());
    const uint32_t row = row_of(probe.row);
    const auto code = value_of(file.code(symbol->vaddr, symbol->size_bytes));
    const auto placement = place_probe(code, symbol->vaddr, {argument_registers(table()[row].row), false});
    const auto offset = file.file_offset(symbol->vaddr);
    REQUIRE(placement.has_value());
    REQUIRE(offset.has_value());
    return {.row = row,
            .symbol = std::string(probe.function),
            .symbol_vaddr = symbol->vaddr,
            .file_offset = *offset + placement->offset,
            .function_size = symbol->size_bytes,
            .placement = *placement};
}

}  // namespace

std::vector<mt_file> files_of_this_program() {
    std::ifstream maps("/proc/self/maps");
    std::vector<mt_file> files;
    for (std::string line; std::getline(maps, line);) {
        unsigned major = 0;
        unsigned minor = 0;
        unsigned long inode = 0;
        char access[5] = {};
        if (std::sscanf(line.c_str(), "%*x-%*x %4s %*x %x:%x %lu", access, &major, &minor, &inode) != 4) continue;
        if (access[2] == 'x' && inode != 0) files.push_back({uint64_t{major} << 20 | minor, inode});
    }
    return files;
}

bool can_trace(AttachRung rung) {
    if (geteuid() != 0) {
        WARN("skipped: needs root");
        return false;
    }
    if (kernel_has_rung(rung)) return true;
    WARN("skipped: this kernel cannot attach by " << rung_name(rung));
    return false;
}

uint32_t row_of(std::string_view symbol) {
    const uint32_t row = table().find(symbol, {"libc", !symbol.starts_with("_Zn")}, "");
    REQUIRE(row != 0);
    return row;
}

std::ostream& operator<<(std::ostream& out, const LiveBlock& block) {
    return out << fmt::format("{:#x}:{}", block.address, block.size_bytes);
}

std::ostream& operator<<(std::ostream& out, const Count& count) {
    return out << fmt::format("counter {}={}", static_cast<int>(count.counter), count.value);
}

SiteTotals Reading::totals() const {
    SiteTotals sum;
    for (const Site& site : snapshot.sites)
        sum += site.totals;
    return sum;
}

std::vector<LiveBlock> Reading::blocks() const {
    std::vector<LiveBlock> blocks;
    for (const Block& block : snapshot.blocks)
        blocks.push_back({block.address, block.size_bytes});
    std::ranges::sort(blocks);
    return blocks;
}

Counts Reading::counts() const {
    Counts counts;
    for (int counter = 0; counter < MT_COUNTERS; ++counter)
        if (const uint64_t value = count(static_cast<mt_counter>(counter)); value != 0)
            counts.push_back({static_cast<mt_counter>(counter), value});
    return counts;
}

uint64_t Reading::count(mt_counter counter) const {
    uint64_t sum = 0;
    for (const AddressSpace& space : snapshot.address_spaces)
        sum += space.counters[counter];
    return sum;
}

std::vector<Site> Reading::sites(std::string_view row) const {
    std::vector<Site> sites;
    for (const Site& site : snapshot.sites)
        if (site.row == row_of(row) && site.totals.allocations > 0) sites.push_back(site);
    return sites;
}

void Events::on_site(const mt_event&, uint32_t site, std::span<const uint64_t> return_addresses) {
    stacks.push_back({site, {return_addresses.begin(), return_addresses.end()}});
}

const Events::Stack* Events::stack_of(uint32_t site) const {
    const auto stack = std::ranges::find(stacks, site, &Stack::site);
    return stack == stacks.end() ? nullptr : &*stack;
}

SessionOptions small_tables() {
    SessionOptions options;
    options.table = &table();
    options.max_live_blocks = 8192;
    options.max_sites = 1024;
    options.ring_size_bytes = 1u << 20;
    return options;
}

std::vector<ProbePoint> own_points(const std::vector<OwnProbe>& probes) {
    const Fd fd = open_file(own_path);
    const auto file = value_of(ElfFile::open(fd.get(), own_path));
    const auto functions = value_of(file.functions());
    std::vector<ProbePoint> points;
    for (const OwnProbe& probe : probes)
        points.push_back(own_point(file, functions, probe));
    return points;
}

std::vector<ProbePoint> points_of_file(const std::string& path) {
    return points_of_file(path, table());
}

std::vector<ProbePoint> points_of_file(const std::string& path, const AllocatorTable& table) {
    const Fd fd = open_file(path);
    const ProbePoints found = value_of(find_probe_points(value_of(ElfFile::open(fd.get(), path)), table));
    for (const SkippedFunction& skipped : found.skipped)
        FAIL_CHECK(skipped.symbol << ": " << skipped.reason);
    return found.points;
}

Tracing::Tracing(AttachRung rung, const SessionOptions& options) {
    SessionOptions with_rung = options;
    with_rung.rung = rung;
    session_ = value_of(Session::open(with_rung));
    // Frame pointers will do, and the user side that loads tables is not part of these tests.
    for (const mt_file& file : files_of_this_program())
        REQUIRE(session_->add_file_without_cfi(file));
}

Tracing::Tracing(AttachRung rung, const std::vector<OwnProbe>& probes, const SessionOptions& options)
    : Tracing(rung, options) {
    attach(probes);
    add_target(MT_TARGET_ARMED);
    session_->arm();
}

Tracing::~Tracing() {
    session_->disarm();
}

void Tracing::attach(const std::vector<OwnProbe>& probes) {
    attach_file(own_path, own_points(probes));
}

void Tracing::attach_to_all(const std::vector<OwnProbe>& probes) {
    attach_for(own_path, own_points(probes), 0);
}

void Tracing::attach_file(const std::string& path, const std::vector<ProbePoint>& points) {
    attach_for(path, points, target_.pid());
}

void Tracing::attach_for(const std::string& path, const std::vector<ProbePoint>& points, pid_t pid) {
    const Fd fd = open_file(path);
    probes_.push_back(value_of(session_->attach(fd.get(), points, pid)));
}

void Tracing::add_target(mt_target_state state) {
    REQUIRE(session_->add_target(target_.pid(), state));
}

Reading Tracing::read() const {
    Reading reading{session_->read_snapshot()};
    std::map<uint32_t, SiteTotals> live;
    for (const Block& block : reading.snapshot.blocks)
        live[block.site] += {.allocated_bytes = block.size_bytes, .allocations = 1, .freed_bytes = 0, .frees = 0};
    for (const Site& site : reading.snapshot.sites) {
        INFO("site " << site.index);
        CHECK(site.totals.live_blocks() == live[site.index].allocations);
        CHECK(site.totals.live_bytes() == live[site.index].allocated_bytes);
    }
    return reading;
}

Events Tracing::drain() {
    Events events;
    session_->drain_events(events);
    return events;
}

}  // namespace memtrace::test
