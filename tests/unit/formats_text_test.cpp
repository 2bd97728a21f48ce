// The text report against tests/golden/*.txt. MEMTRACE_UPDATE_GOLDEN=1 unit_tests "[golden]" writes them anew: look at
// the difference before you commit it.
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "catch.hpp"
#include "formats/columns.hpp"
#include "formats/list.hpp"
#include "sample_report.hpp"

using namespace memtrace;

namespace {

std::string text_of(const Record& record, WriterOptions options = {}) {
    setenv("TZ", "UTC", 1);
    std::ostringstream stream;
    find_format("text")->make(options)->write(record, stream);
    return stream.str();
}

void check_golden(const std::string& name, const std::string& text) {
    const std::string path = std::string(MEMTRACE_SOURCE_DIR) + "/tests/golden/" + name + ".txt";
    if (std::getenv("MEMTRACE_UPDATE_GOLDEN") != nullptr) std::ofstream(path, std::ios::binary) << text;
    std::ifstream file(path, std::ios::binary);
    std::ostringstream expected;
    expected << file.rdbuf();
    INFO(path);
    CHECK(text == expected.str());
}

std::vector<std::string> lines_of(const std::string& text) {
    std::vector<std::string> lines;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);)
        lines.push_back(line);
    return lines;
}

ReportRecord lossy_report() {
    ReportRecord report = test::sample_report();
    report.is_final = true;
    report.has_baseline = true;
    report.order = SiteOrder::growth;
    report.accuracy.blocks_live_table_full = 1'024;
    report.accuracy.blocks_calls_full = 2;
    report.accuracy.events_ring_full = 1;
    return report;
}

ReportRecord rate_report() {
    ReportRecord report = test::sample_report();
    report.order = SiteOrder::rate;
    report.older_ns = 500'000'000;
    report.accuracy.is_size_filtered = true;
    report.accuracy.blocks_filtered = 77;
    report.sites.resize(2);
    report.sites[0].blocks = {{{0x55d0c0a012e0, 2'048, 183'000'000'000}, {0x55d0c0a01ae0, 2'048, 12'000'000}}};
    report.sites[1].blocks.emplace();
    return report;
}

ReportRecord empty_report() {
    ReportRecord report;
    report.time_unix_ns = 1'795'975'205'000'000'000;
    report.scope = {"process", "idle", 7, {7}};
    return report;
}

}  // namespace

TEST_CASE("the text report reads as its golden file at each width", "[formats][golden]") {
    const ReportRecord report = test::sample_report();
    check_golden("report_80", text_of(report, {80, false}));
    check_golden("report_120", text_of(report, {120, false}));
    check_golden("report_no_terminal", text_of(report, {0, false}));
    check_golden("report_80_color", text_of(report, {80, true}));
}

TEST_CASE("where memory grew is one sentence and one bar", "[formats][golden]") {
    ReportRecord report = test::sample_report();
    constexpr int64_t mebibyte = 1 << 20;
    report.memory.growth = GrowthFigures{.total_bytes = 512 * mebibyte,
                                         .heap_live_bytes = 400 * mebibyte,
                                         .allocator_retained_bytes = 40 * mebibyte,
                                         .mappings_bytes = 31 * mebibyte,
                                         .files_bytes = 32 * mebibyte,
                                         .gc_heap_bytes = std::nullopt,
                                         .unexplained_bytes = 9 * mebibyte};
    report.mappings.parts = {.reserved_bytes = 64 << 20, .file_bytes = 4096, .shared_bytes = 8192, .stack_bytes = 0};
    report.sites[0].resident_bytes = 1 << 20;
    check_golden("growth_80", text_of(report, {80, false}));
    check_golden("growth_120_ascii", text_of(report, {120, false, false}));
    // Memory that was given back, and nothing that is known of the allocator.
    report.memory.growth = GrowthFigures{.is_shared_out = true,
                                         .total_bytes = -3 * mebibyte,
                                         .allocator_retained_bytes = std::nullopt,
                                         .files_bytes = -4 * mebibyte,
                                         .gc_heap_bytes = std::nullopt,
                                         .unexplained_bytes = mebibyte};
    CHECK_THAT(
        text_of(report),
        ContainsSubstring(
            "PSS shrank 3.0 MiB since the attach: 0 B explained by the call sites below, of the allocator nothing is "
            "known, -3.0 MiB elsewhere (-4.0 MiB files, 1.0 MiB unexplained)\n"));
    report.memory.growth = GrowthFigures{
        .total_bytes = 0, .heap_live_bytes = 10, .allocator_retained_bytes = -10, .gc_heap_bytes = std::nullopt};
    CHECK_THAT(text_of(report), ContainsSubstring("RSS did not grow since the attach: 10 B explained by the call sites "
                                                  "below, -10 B in memory that the allocator had before the attach"));
}

TEST_CASE("a tree's processes are drawn as they are related, and read as their golden files", "[formats][golden]") {
    const ReportRecord report = test::tree_report();
    check_golden("tree_80", text_of(report, {80, false}));
    check_golden("tree_no_terminal", text_of(report, {0, false}));
    check_golden("tree_120_color_ascii", text_of(report, {120, true, false}));
    ReportRecord few = report;
    few.top = 2;
    few.processes[5].figures.live_bytes = 4'194'304;
    check_golden("tree_top_80", text_of(few, {80, false}));
    ReportRecord flat = report;
    flat.scope = {"exe", "/usr/sbin/shop-server", std::nullopt, report.scope.pids};
    flat.top = 3;
    check_golden("exe_80", text_of(flat, {80, false}));
}

TEST_CASE("a process that seems to be its own ancestor is drawn once at most", "[formats]") {
    ReportRecord report = test::tree_report();
    report.processes[0].figures.ancestor = 104;
    CHECK_THAT(text_of(report), ContainsSubstring("Processes"));
}

TEST_CASE("what a tick does not show is one line", "[formats]") {
    CHECK(
        text_of(RestRecord{990, 12'582'912, -1'024, false}) ==
        "990 processes more: 12.0 MiB live, growth -1.0 KiB; -T 0 shows each, --by tree, exe or all adds them up\n\n");
    CHECK(text_of(RestRecord{1, 512, 0, true}) ==
          "1 process more ended since the report before, with 512 B live; -T 0 shows each, --by tree, exe or all adds "
          "them up\n\n");
}

TEST_CASE("a report with losses starts with them and ends with them", "[formats][golden]") {
    check_golden("lossy_80", text_of(lossy_report(), {80, false}));
    check_golden("lossy_120_color", text_of(lossy_report(), {120, true}));
    CHECK(text_of(lossy_report(), {0, false})
              .starts_with("NOT COMPLETE: 1,024 blocks not recorded (live table full): "
                           "raise --max-live-blocks\n"));
}

TEST_CASE("rates, blocks and an empty report read as their golden files", "[formats][golden]") {
    check_golden("rate_blocks_80", text_of(rate_report(), {80, false}));
    check_golden("empty_80", text_of(empty_report(), {80, false}));
}

TEST_CASE("a report names the allocators that were called and those that were not, where there are others than libc's",
          "[formats]") {
    ReportRecord report = test::sample_report();
    CHECK(text_of(report, {80, false}).find("  allocator") == std::string::npos);
    report.allocators = {{"jemalloc", 12, 960}, {"c++", 3, 30}, {"libc", 0, 0}};
    CHECK_THAT(text_of(report, {80, false}),
               ContainsSubstring("\n  allocator  jemalloc, c++; mapped, but not called: libc\n"));
    report.allocators = {{"mimalloc", 0, 0}};
    CHECK_THAT(text_of(report, {80, false}), ContainsSubstring("none called yet; mapped, but not called: mimalloc\n"));
}

TEST_CASE("no line is wider than the terminal", "[formats]") {
    ReportRecord report = test::tree_report();
    report.scope.name = "日本語のプロセス";
    report.processes[1].comm = "日本語のプロセス";
    report.sites[0].frames[1].function =
        "関数::とても長い名前の関数(引数::型 const&, 引数::型 const&, 引数::型 const&)";
    report.sites[0].frames[2].module = "a_module_with_quite_a_long_name_of_its_own.so.12.34.56";
    for (const size_t width : {80, 81, 100, 120, 160, 200}) {
        for (const std::string& line : lines_of(text_of(report, {width, false}))) {
            INFO(width << ": " << line);
            CHECK(display_width(line) <= width);
        }
    }
}

TEST_CASE("off a terminal nothing is truncated", "[formats]") {
    const ReportRecord report = test::sample_report();
    const std::string text = text_of(report);
    CHECK(text.find("…") == std::string::npos);
    for (const SiteEntry& site : report.sites)
        for (const Frame& frame : site.frames) {
            CHECK_THAT(text, ContainsSubstring(frame.function));
            CHECK_THAT(text, ContainsSubstring(frame.file));
        }
}

TEST_CASE("colors come only where they are allowed, and change nothing else", "[formats]") {
    std::string colored = text_of(lossy_report(), {80, true});
    const std::string plain = text_of(lossy_report(), {80, false});
    CHECK(plain.find('\x1b') == std::string::npos);
    CHECK(colored != plain);
    for (size_t start = colored.find('\x1b'); start != std::string::npos; start = colored.find('\x1b'))
        colored.erase(start, colored.find('m', start) - start + 1);
    CHECK(colored == plain);
}

TEST_CASE("hostile names stay on their line and send nothing to the terminal", "[formats]") {
    ReportRecord report = test::tree_report();
    const ReportRecord harmless = report;
    const std::string hostile = "evil\n\x1b]0;owned\x07\xff\xc2\x9b";
    report.scope.name = hostile;
    report.sites[0].function = hostile;
    report.sites[0].frames[1].function = hostile;
    report.sites[0].frames[1].file = hostile;
    report.sites[0].frames[1].module = hostile;
    report.sites[2].stack_error = hostile;
    report.processes[4].comm = hostile;  // in no line that is wrapped
    for (const size_t width : {0, 80}) {
        const std::string text = text_of(report, {width, false});
        CHECK(text.find('\x1b') == std::string::npos);
        CHECK(text.find('\x07') == std::string::npos);
        CHECK(text.find('\xff') == std::string::npos);
        CHECK(text.find("\xc2\x9b") == std::string::npos);
        CHECK(lines_of(text).size() == lines_of(text_of(harmless, {width, false})).size());
    }
    CHECK_THAT(text_of(report), ContainsSubstring("evil\\x0a\\x1b]0;owned\\x07\\xff\\xc2\\x9b[100]"));
}

TEST_CASE("sites that hold nothing and did not change are no news", "[formats]") {
    ReportRecord report = test::sample_report();
    report.sites[1].live_bytes = 0;
    report.sites[1].live_blocks = 0;
    CHECK(text_of(report).find("SSL_CTX_new_ex") == std::string::npos);
    CHECK_THAT(text_of(report), ContainsSubstring("Top 2 of 17 call sites by live bytes"));
    report.sites[1].growth_bytes = -1;
    CHECK_THAT(text_of(report), ContainsSubstring("SSL_CTX_new_ex"));
}

TEST_CASE("what is inherited is called so, and has no share of what is live", "[formats]") {
    ReportRecord report = test::sample_report();
    CHECK_THAT(text_of(report), !ContainsSubstring("inherited"));
    report.heap.inherited_bytes = 3'145'728;
    report.heap.inherited_blocks = 12;
    report.sites[1].is_inherited = true;
    const std::string text = text_of(report);
    CHECK_THAT(text, ContainsSubstring("  inherited  3.0 MiB in 12 blocks of parents, not in live\n"));
    CHECK_THAT(text, ContainsSubstring("malloc (inherited)\n"));
    for (const std::string& line : lines_of(text))
        if (line.find("malloc (inherited)") != std::string::npos)
            CHECK_THAT(line, ContainsSubstring(" 3.0 MiB      - "));
    CHECK_THAT(text, ContainsSubstring("operator new\n"));
}

TEST_CASE("an estimate has its error beside it", "[formats]") {
    ReportRecord report = test::sample_report();
    CHECK_THAT(text_of(report), !ContainsSubstring("±"));
    report.accuracy.is_sampled = true;
    report.accuracy.sampling_mean_bytes = 524288;
    report.heap.error_bytes = 1 << 20;
    report.sites[0].error_bytes = 2048;
    const std::string text = text_of(report);
    CHECK_THAT(text, ContainsSubstring(" ± 1.0 MiB in "));
    CHECK_THAT(text, ContainsSubstring("2.0 KiB"));
    CHECK_THAT(text, ContainsSubstring("one byte of 512.0 KiB is sampled"));
    CHECK_THAT(text, !ContainsSubstring("from before the attach"));
}

TEST_CASE("the price of tracing and its end are told", "[formats]") {
    ReportRecord report = test::sample_report();
    report.overhead = OverheadFigures{.hits_per_second = 41'000, .core_share = 0.0625, .max_core_share = 0.1};
    CHECK_THAT(text_of(report), ContainsSubstring("costs 6.2% of a core, 41,000 probe hits/s, 10.0% allowed"));
    report.stop = StopFigures{.elapsed_ns = 12'000'000'000, .reason = "too dear"};
    CHECK(text_of(report).starts_with("STOPPED: too dear; live, growth, mappings and call sites are those of 12s"));
}

TEST_CASE("traced events are lines of the text format, other records are not", "[formats]") {
    CHECK(text_of(BlockEventRecord{false, 12'345'678'901'234, 4242, 4243, "malloc", 0x55d0c0a012e0, 64, "9f2c51d0"}) ==
          "  12345.678901  4242/4243        alloc  0x55d0c0a012e0        64 B  malloc  9f2c51d0\n");
    CHECK(text_of(BlockEventRecord{true, 1'000'000, 1, 1, "free", 0x10, 0, std::nullopt}) ==
          "      0.001000  1/1              free   0x000000000010         0 B  free\n");
    CHECK(text_of(StartRecord{}).empty());
    CHECK(text_of(ProcessRecord{}).empty());
    CHECK(text_of(WarningRecord{}).empty());
    CHECK(text_of(EndRecord{}).empty());
}

TEST_CASE("the list of formats knows its names", "[formats]") {
    CHECK(formats().front().name == "text");
    CHECK(find_format("json") != nullptr);
    CHECK(find_format("yaml") == nullptr);
    for (const Format& format : formats())
        CHECK(find_format(format.name)->make({}) != nullptr);
}
