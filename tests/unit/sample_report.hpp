// A report with something of everything, for the tests of the formats.
#pragma once

#include "reports/document.hpp"

namespace memtrace::test {

inline Frame frame(std::string function, std::string file, uint32_t line, std::string module, uint64_t offset) {
    Frame result;
    result.function = std::move(function);
    result.file = std::move(file);
    result.line = line;
    result.module = std::move(module);
    result.offset = offset;
    return result;
}

inline std::vector<Frame> thread_start() {
    return {frame("main", "/home/build/shop/src/main.cpp", 88, "shop-server", 0x4410),
            frame("__libc_start_call_main", "", 0, "libc.so.6", 0x27249),
            frame("__libc_start_main_impl", "", 0, "libc.so.6", 0x27304),
            frame("_start", "", 0, "shop-server", 0x10f0)};
}

inline SiteEntry leaking_site() {
    SiteEntry site;
    site.id = "9f2c51d07ab3e846";
    site.kind = "heap";
    site.allocator = "c++";
    site.function = "operator new";
    site.live_bytes = 8'650'752;
    site.live_blocks = 4'224;
    site.allocated_bytes = 9'000'960;
    site.allocations = 4'395;
    site.growth_bytes = 2'097'152;
    site.growth_since_baseline_bytes = 8'650'752;
    site.allocated_since_previous_bytes = 2'200'000;
    site.ages = Ages{12'000'000, 6'100'000'000, 183'000'000'000};
    Frame inlined = frame(
        "std::_Rb_tree<std::__cxx11::basic_string<char>, std::pair<std::__cxx11::basic_string<char> const, "
        "shop::Session>, std::_Select1st<std::pair<std::__cxx11::basic_string<char> const, shop::Session> > "
        ">::_M_insert_(std::_Rb_tree_node_base*, std::_Rb_tree_node_base*)",
        "/usr/include/c++/12/bits/stl_tree.h", 1827, "shop-server", 0x9a41);
    inlined.is_inlined = true;
    site.frames = {inlined,
                   frame("shop::SessionCache::remember(shop::Session const&)",
                         "/home/build/shop/src/session/session_cache.cpp", 142, "shop-server", 0x9a41),
                   frame("shop::handle_request(shop::Request const&)", "/home/build/shop/src/server.cpp", 57,
                         "shop-server", 0x71c3)};
    for (const Frame& below : thread_start())
        site.frames.push_back(below);
    return site;
}

inline SiteEntry steady_site() {
    SiteEntry site;
    site.id = "03ad9be11c27f5d0";
    site.kind = "heap";
    site.allocator = "libc";
    site.function = "malloc";
    site.live_bytes = 3'145'728;
    site.live_blocks = 12;
    site.allocated_bytes = 3'145'728;
    site.allocations = 12;
    site.growth_since_baseline_bytes = 3'145'728;
    site.ages = Ages{183'000'000'000, 183'400'000'000, 184'000'000'000};
    site.frames = {frame("", "", 0, "libssl.so.3", 0x2b158), frame("SSL_CTX_new_ex", "", 0, "libssl.so.3", 0x31a07)};
    for (const Frame& below : thread_start())
        site.frames.push_back(below);
    return site;
}

inline SiteEntry stackless_site() {
    SiteEntry site;
    site.kind = "heap";
    site.allocator = "libc";
    site.function = "posix_memalign";
    site.live_bytes = 4'096;
    site.live_blocks = 1;
    site.allocated_bytes = 12'288;
    site.allocations = 3;
    site.growth_bytes = -8'192;
    site.growth_since_baseline_bytes = 4'096;
    site.stack_error = "stack not recorded";
    return site;
}

inline SiteEntry mapping_site() {
    SiteEntry site;
    site.id = "5be0c7719d4412af";
    site.kind = "mapping";
    site.allocator = "libc";
    site.function = "mmap";
    site.live_bytes = 67'108'864;
    site.live_blocks = 2;
    site.allocated_bytes = 83'886'080;
    site.allocations = 3;
    site.growth_since_baseline_bytes = 67'108'864;
    site.ages = Ages{170'000'000'000, 170'000'000'000, 183'000'000'000};
    site.frames = {
        frame("shop::Arena::grow(unsigned long)", "/home/build/shop/src/arena.cpp", 33, "shop-server", 0x51f2)};
    for (const Frame& below : thread_start())
        site.frames.push_back(below);
    return site;
}

inline HeapFigures sample_heap() {
    HeapFigures heap;
    heap.totals = {15'728'640, 61'000, 3'403'776, 56'713};
    heap.live_bytes = 11'800'576;
    heap.live_blocks = 4'237;
    heap.ended_bytes = 524'288;
    heap.ended_blocks = 50;
    heap.peak_live_bytes = 12'058'624;
    heap.growth_bytes = 2'088'960;
    heap.growth_since_baseline_bytes = 11'800'576;
    return heap;
}

inline ReportRecord sample_report() {
    ReportRecord report;
    report.sequence = 3;
    report.time_unix_ns = 1'795'975'205'123'456'789;  // 2026-11-29T18:00:05.123Z
    report.elapsed_ns = 185'000'000'000;
    report.scope = {"process", "shop-server", 48'213, {48'213}};
    report.heap = sample_heap();
    report.mappings = {67'108'864, 2, 83'886'080, 16'777'216, 0, 0, {}, 0};
    report.memory = {50'528'256, std::nullopt, 1'048'576, std::nullopt, std::nullopt};
    report.accuracy.unknown_frees = 3;
    report.accuracy.calls_abandoned = 1;
    report.accuracy.calls_suppressed = 4'395;
    report.allocators = {{"libc", 1'200'000, 96'000'000}, {"c++", 80, 6'400}};
    report.sites_total = 18;
    report.heap_sites_total = 17;
    report.sites = {leaking_site(), steady_site(), stackless_site(), mapping_site()};
    report.interval = {5'000'000'000, 15'500'000, 206'000, 13'411'040, 204'555};
    return report;
}

inline ProcessEntry process_entry(pid_t pid, pid_t ancestor, std::string comm, uint64_t live_bytes) {
    ProcessEntry entry;
    entry.figures.number = static_cast<uint64_t>(pid);
    entry.figures.pid = pid;
    entry.figures.ancestor = ancestor;
    entry.figures.totals = {live_bytes + 1'024, 40, 1'024, 2};
    entry.figures.live_bytes = live_bytes;
    entry.figures.live_blocks = 38;
    entry.ppid = ancestor;
    entry.comm = std::move(comm);
    entry.exe = "/usr/sbin/" + entry.comm;
    entry.rss_bytes = 8'388'608;
    return entry;
}

/// A server with its workers: one of them has just ended, others long before.
inline ReportRecord tree_report() {
    ReportRecord report = sample_report();
    report.scope = {"tree", "shop-server", 100, {100, 101, 102, 104, 105}};
    report.processes = {process_entry(100, 0, "shop-server", 2'097'152), process_entry(101, 100, "worker", 1'048'576),
                        process_entry(102, 100, "worker", 8'388'608),    process_entry(103, 100, "sh", 0),
                        process_entry(104, 102, "convert", 4'096),       process_entry(105, 102, "convert", 262'144)};
    report.processes[2].figures.growth_bytes = 2'097'152;
    report.processes[2].figures.mappings_live_bytes = 67'108'864;
    report.processes[2].since_birth = true;
    ProcessEntry& ended = report.processes[3];
    ended.started_ns = 60'000'000'000;
    ended.ended_ns = 183'000'000'000;
    ended.rss_bytes.reset();
    ended.figures.has_ended = true;
    ended.figures.ended_bytes = 12'288;
    ended.figures.ended_blocks = 3;
    ended.figures.growth_bytes = -12'288;
    ended.window_ns = 450'000;
    report.processes[5].started_ns = 180'000'000'000;
    report.processes[5].window_ns = 1'230'000;
    report.ended_processes = {2'041, {90'000'000, 81'640, 89'500'000, 81'000}, 500'000, 640};
    report.sites[0].holders = {{102, 8'388'608, 4'096}, {101, 262'144, 128}};
    report.sites[0].holders_total = 2;
    report.sites[1].holders = {{100, 1'048'576, 4}, {101, 1'048'576, 4}};
    report.sites[1].holders_total = 7;
    report.top = 10;
    return report;
}

}  // namespace memtrace::test
