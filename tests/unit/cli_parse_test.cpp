// The command line as people write it, the mistakes too: every error is one sentence, a hint and status 2.
#include "cli/parse.hpp"

#include <initializer_list>
#include <string>
#include <vector>

#include "catch.hpp"

using namespace memtrace;

namespace {

Result<Request> parse(std::initializer_list<const char*> arguments) {
    return parse_arguments(std::span<const char* const>(arguments.begin(), arguments.size()));
}

Options options_of(std::initializer_list<const char*> arguments) {
    const Result<Request> request = parse(arguments);
    if (!request) FAIL(request.error().what << ": " << request.error().why);
    REQUIRE(std::holds_alternative<Options>(*request));
    return std::get<Options>(*request);
}

Error error_of(std::initializer_list<const char*> arguments) {
    const Result<Request> request = parse(arguments);
    REQUIRE_FALSE(request);
    const Error& error = request.error();
    CHECK(error.status == ExitStatus::usage);
    CHECK_FALSE(error.why.empty());
    CHECK_FALSE(error.hint.empty());
    CHECK((error.what + error.why + error.hint).find('\n') == std::string::npos);
    return error;
}

std::string text_of(std::initializer_list<const char*> arguments) {
    const Result<Request> request = parse(arguments);
    REQUIRE(request);
    REQUIRE(std::holds_alternative<ShowText>(*request));
    return std::get<ShowText>(*request).text;
}

using Pids = std::vector<pid_t>;
using Words = std::vector<std::string>;

}  // namespace

TEST_CASE("without options the defaults of the contract hold", "[cli]") {
    const Options options = options_of({"-p", "12"});
    CHECK(options.pids == Pids{12});
    CHECK(options.command.empty());
    CHECK(options.interval_ns == 5'000'000'000);
    CHECK_FALSE(options.count);
    CHECK(options.older_ns == 0);
    CHECK(options.top == 10);
    CHECK(options.sort == SortOrder::live);
    CHECK(options.format == OutputFormat::text);
    CHECK(options.color == ColorChoice::automatic);
    CHECK(options.attach == AttachChoice::best);
    CHECK(options.min_size_bytes == 0);
    CHECK(options.max_size_bytes == UINT64_MAX);
    CHECK(options.max_live_blocks == 1048576);
    CHECK(options.call_sites() == 131072);
    CHECK_FALSE(options.max_process_blocks);
    CHECK_FALSE(options.max_process_sites);
    CHECK(options.ring_bytes() == 8 * 1024 * 1024);
    CHECK(options.max_stack_frames == 127);
    CHECK(options.output_path.empty());
    CHECK_FALSE(options.shows_blocks);
    CHECK_FALSE(options.traces_events);
    CHECK_FALSE(options.shows_resident);
    CHECK_FALSE(options.is_quiet);
    CHECK_FALSE(options.is_strict);
    CHECK(options.symbol_prefixes.empty());
    CHECK(options.user_functions.empty());
    CHECK(options.allocators_path.empty());
}

TEST_CASE("a process id never swallows INTERVAL and COUNT", "[cli]") {
    const Options blanks_outside = options_of({"-p", "1", "2", "3"});
    CHECK(blanks_outside.pids == Pids{1});
    CHECK(blanks_outside.interval_ns == 2'000'000'000);
    CHECK(blanks_outside.count == 3u);

    const Options blanks_inside = options_of({"-p", "1 2"});
    CHECK(blanks_inside.pids == Pids{1, 2});
    CHECK_FALSE(blanks_inside.count);

    const Options commas = options_of({"-p", "1,2", "5", "10"});
    CHECK(commas.pids == Pids{1, 2});
    CHECK(commas.interval_ns == 5'000'000'000);
    CHECK(commas.count == 10u);
}

TEST_CASE("process ids add up and each is one target", "[cli]") {
    CHECK(options_of({"-p", "1", "--pid=2,3", "-p4", "-p", "3, 1"}).pids == Pids{1, 2, 3, 4});
    CHECK(options_of({"500ms", "-p", "7", "2"}).interval_ns == 500'000'000);
}

TEST_CASE("what is no process id is named", "[cli]") {
    CHECK(error_of({"-p", "haha"}).what == "--pid 'haha'");
    CHECK(error_of({"-p", "1,x2"}).what == "--pid 'x2'");
    for (const char* text : {"0", "-1", "1.5", "2147483648", "99999999999999999999", "0x10", "1;2"}) {
        CAPTURE(text);
        CHECK(error_of({"-p", text}).why == "not a process id");
    }
    CHECK(error_of({"-p", ""}).why == "no process id in it");
    CHECK(error_of({"-p", " , "}).why == "no process id in it");
    CHECK(error_of({"-p"}).why == "its value is missing");
}

TEST_CASE("no target is an error that knows what was meant", "[cli]") {
    CHECK_THAT(error_of({}).hint, ContainsSubstring("memtrace -p PID"));
    CHECK(error_of({"1234"}).hint == "did you mean memtrace -p 1234?");
    CHECK(error_of({"-T", "3", "--strict"}).what == "no target");
}

TEST_CASE("INTERVAL is a time above 0 and COUNT a number above 0", "[cli]") {
    CHECK(options_of({"-p", "1", "0.25"}).interval_ns == 250'000'000);
    CHECK(options_of({"-p", "1", "5m"}).interval_ns == 300'000'000'000);
    CHECK(error_of({"-p", "1", "0"}).why == "an interval is above 0");
    CHECK(error_of({"-p", "1", "0ms"}).why == "an interval is above 0");
    for (const char* text : {"-5", "soon", "5x", "", "99999999999999999999999", "nan"}) {
        CAPTURE(text);
        CHECK(error_of({"-p", "1", text}).what == "INTERVAL '" + std::string(text) + "'");
    }
    for (const char* text : {"0", "-1", "two", "1.5", "18446744073709551616"}) {
        CAPTURE(text);
        CHECK(error_of({"-p", "1", "5", text}).what == "COUNT '" + std::string(text) + "'");
    }
    CHECK(error_of({"-p", "1", "2", "3", "4"}).what == "'4'");
}

TEST_CASE("a command comes after -- untouched", "[cli]") {
    const Options options = options_of({"-T", "3", "2", "--", "ls", "-p", "1 2", "--", ""});
    CHECK(options.command == Words{"ls", "-p", "1 2", "--", ""});
    CHECK(options.pids.empty());
    CHECK(options.top == 3);
    CHECK(options.interval_ns == 2'000'000'000);
    CHECK(error_of({"--"}).why == "no command follows");
}

TEST_CASE("a command and processes add up, two commands do not", "[cli]") {
    const Options options = options_of({"-p", "9", "-c", "sleep '1 2'", "3"});
    CHECK(options.pids == Pids{9});
    CHECK(options.command == Words{"sleep", "1 2"});
    CHECK(options.interval_ns == 3'000'000'000);
    CHECK(error_of({"-c", "ls", "--", "ls"}).what == "--command");
    CHECK(error_of({"-c", "ls", "-c", "ls"}).why == "given twice");
    CHECK(error_of({"-c", " "}).what == "--command ' '");
}

TEST_CASE("each option reaches its value", "[cli]") {
    const Options options = options_of({"-p", "1", "-o", "250", "-T", "0", "-z", "64K", "-Z", "1MiB", "-a", "-t"});
    CHECK(options.older_ns == 250'000'000);
    CHECK(options.top == 0);
    CHECK(options.min_size_bytes == 65536);
    CHECK(options.max_size_bytes == 1048576);
    CHECK(options.shows_blocks);
    CHECK(options.traces_events);
    CHECK(options_of({"-p", "1", "--resident"}).shows_resident);

    const Options others = options_of({"-p", "1", "--older=10s", "--sort", "rate", "--format", "json", "--output",
                                       "a b", "--attach", "perf", "--color", "never", "-q", "--strict"});
    CHECK(others.older_ns == 10'000'000'000);
    CHECK(others.sort == SortOrder::rate);
    CHECK(others.format == OutputFormat::json);
    CHECK(others.output_path == "a b");
    CHECK(others.attach == AttachChoice::perf);
    CHECK(others.color == ColorChoice::never);
    CHECK(others.is_quiet);
    CHECK(others.is_strict);

    CHECK_FALSE(others.by);
    CHECK(options_of({"-p", "1", "--by", "tree"}).by == ReportBy::tree);
    CHECK(options_of({"-p", "1", "--by=all"}).report_by() == ReportBy::all);
    CHECK(options_of({"-p", "1"}).report_by() == ReportBy::process);
    CHECK(options_of({"-p", "1", "-f"}).report_by() == ReportBy::tree);
    CHECK(options_of({"-A"}).report_by() == ReportBy::all);
    CHECK(options_of({"-A"}).call_sites() == 524288);
    CHECK(options_of({"-A"}).ring_bytes() == 32 * 1024 * 1024);
    CHECK(options_of({"-A", "--max-sites", "7"}).call_sites() == 7);
    CHECK(options_of({"-A", "-f", "--by", "exe"}).report_by() == ReportBy::exe);

    const Options limits = options_of({"-p", "1", "--max-live-blocks", "1", "--max-sites", "2", "--ring-size", "4K",
                                       "--max-stack", "1", "-T", "1", "-T", "2"});
    CHECK(limits.max_live_blocks == 1);
    CHECK(limits.call_sites() == 2);
    CHECK(limits.ring_bytes() == 4096);
    CHECK(limits.max_stack_frames == 1);
    CHECK(limits.top == 2);
}

TEST_CASE("a value that makes no sense is refused with the option's name", "[cli]") {
    const std::vector<std::pair<const char*, std::vector<const char*>>> wrong = {
        {"--top", {"-1", "ten", "4294967296", ""}},
        {"--older", {"-1", "out.txt", "5 s"}},
        {"--min-size", {"-1", "1Q", "99999999999999T"}},
        {"--max-size", {"-1", "big"}},
        {"--sort", {"size", "", "LIVE"}},
        {"--by", {"pid", "", "Tree"}},
        {"--format", {"xml"}},
        {"--attach", {"best", "kprobe"}},
        {"--color", {"yes"}},
        {"--max-stack", {"0", "128"}},
        {"--max-live-blocks", {"0", "268435457", "4M"}},
        {"--max-sites", {"0", "16777217"}},
        {"--max-process-blocks", {"0", "268435457", "half"}},
        {"--max-process-sites", {"0", "16777217"}},
        {"--ring-size", {"0", "5000", "3M", "2G", "2K"}},
        {"--output", {""}},
    };
    for (const auto& [option, texts] : wrong)
        for (const char* text : texts) {
            CAPTURE(option, text);
            CHECK(error_of({"-p", "1", option, text}).what == std::string(option) + " '" + text + "'");
        }
    CHECK_THAT(error_of({"-p", "1", "-o", "out.txt"}).hint, ContainsSubstring("--output"));
    CHECK_THAT(error_of({"-p", "1", "--sort", "x"}).hint, ContainsSubstring("live, count, growth, age, rate"));
    CHECK(error_of({"-p", "1", "--strict=5"}).what == "--strict");
    CHECK(error_of({"-p", "1", "-z", "2", "-Z", "1"}).what == "--min-size");
    CHECK(options_of({"-p", "1", "-z", "2", "-Z", "2"}).max_size_bytes == 2);
}

TEST_CASE("functions of the user's own come in their order, those without a file with that of --obj", "[cli]") {
    const Options options =
        options_of({"--alloc", "pool_get:size=arg1,count=arg0", "--free=b.so:pool_put", "--alloc", "pool_new", "-O",
                    "a.so", "-S", "je_", "--symbols-prefix=x_", "--allocators", "rows", "-p", "1", "2"});
    REQUIRE(options.user_functions.size() == 3);
    const auto function_of = [&](std::string_view symbol) {
        for (const UserFunction& function : options.user_functions)
            if (function.symbol == symbol) return function;
        return UserFunction{};
    };
    CHECK(function_of("pool_get").file == "a.so");
    CHECK(function_of("pool_get").row.size_argument == 2);
    CHECK(function_of("pool_get").row.count_argument == 1);
    CHECK(function_of("pool_new").file == "a.so");
    CHECK(function_of("pool_put").file == "b.so");
    CHECK(function_of("pool_put").row.operation == MT_OP_FREE);
    CHECK(options.symbol_prefixes == Words{"je_", "x_"});
    CHECK(options.allocators_path == "rows");
    CHECK(options.interval_ns == 2'000'000'000);
    CHECK(options_of({"-p", "1", "--alloc", "pool_get"}).user_functions.size() == 1);
    CHECK(options_of({"-p", "1", "--free", "pool_put"}).user_functions.front().file.empty());
}

TEST_CASE("what is wrong with a function of the user's is told with its option and place", "[cli]") {
    CHECK(error_of({"-p", "1", "--alloc", "pool_get:sise=arg0"}).what == "--alloc 'pool_get:sise=arg0'");
    CHECK(error_of({"-p", "1", "--alloc", "pool_get:sise=arg0"}).why == "character 10: unknown key 'sise'");
    CHECK(error_of({"-p", "1", "--free", "Pool::put(void*)"}).what == "--free 'Pool::put(void*)'");
    CHECK(error_of({"-p", "1", "--free", "good", "--free", "b d"}).what == "--free 'b d'");
    CHECK(error_of({"-p", "1", "--alloc", "[a,b]"}).what == "--alloc '[a,b]'");
    CHECK(error_of({"-p", "1", "--alloc", ""}).what == "--alloc ''");
    CHECK(error_of({"-p", "1", "--alloc"}).what == "--alloc");
    CHECK(error_of({"-p", "1", "-S", ""}).what == "--symbols-prefix ''");
    CHECK(error_of({"-p", "1", "-S", "a b"}).what == "--symbols-prefix 'a b'");
    CHECK(error_of({"-p", "1", "--allocators", ""}).what == "--allocators ''");
    CHECK(error_of({"-p", "1", "-O", "", "--alloc", "f"}).what == "--obj ''");
}

TEST_CASE("a file without functions and a function that is named twice are refused", "[cli]") {
    CHECK(error_of({"-p", "1", "-O", "a.so"}).what == "--obj");
    CHECK(error_of({"-p", "1", "-O", "a.so", "--allocators", "rows"}).what == "--obj");
    CHECK(error_of({"-p", "1", "--alloc", "f", "--free", "f"}).what == "'f'");
    CHECK(error_of({"-p", "1", "--alloc", "f", "--alloc", "a.so:f", "-O", "a.so"}).what == "'f'");
    CHECK(options_of({"-p", "1", "--alloc", "f", "--alloc", "a.so:f"}).user_functions.size() == 2);
    CHECK(error_of({"list", "--alloc", "f"}).what == "'--alloc'");
}

TEST_CASE("an unknown option is named", "[cli]") {
    CHECK(error_of({"-p", "1", "--foo"}).what == "'--foo'");
    CHECK(error_of({"-X", "-p", "1"}).what == "'-X'");
}

TEST_CASE("sampling, a budget and the forecast are options", "[cli]") {
    const Options plain = options_of({"-p", "1"});
    CHECK_FALSE(plain.sample_bytes);
    CHECK_FALSE(plain.max_overhead);
    CHECK(plain.predicts_cost);
    const Options options = options_of({"-p", "1", "--sample", "512K", "--max-overhead", "5%", "--no-forecast"});
    CHECK(options.sample_bytes == 524288u);
    CHECK(options.max_overhead == 0.05);
    CHECK_FALSE(options.predicts_cost);
    CHECK(error_of({"-p", "1", "--sample", "0"}).what == "--sample '0'");
    CHECK(error_of({"-p", "1", "--max-overhead", "0%"}).what == "--max-overhead '0%'");
}

TEST_CASE("list --placement wants processes, doctor may have some", "[cli]") {
    const Result<Request> list = parse({"list", "--placement", "-p", "3,4"});
    REQUIRE(list);
    CHECK(std::get<ListPlacement>(*list).pids == Pids{3, 4});
    CHECK(error_of({"list", "--placement"}).what == "list");
    CHECK(error_of({"list", "-p", "3"}).what == "list");
    const Result<Request> doctor = parse({"--max-live-blocks", "5000", "doctor"});
    REQUIRE(doctor);
    CHECK(std::get<Doctor>(*doctor).options.max_live_blocks == 5000);
    const Result<Request> of_process = parse({"doctor", "-p", "3"});
    REQUIRE(of_process);
    CHECK(std::get<Doctor>(*of_process).options.pids == Pids{3});
    CHECK(error_of({"doctor", "-x", "nginx"}).why == "does not take exe");
    CHECK(error_of({"doctor", "--sample", "512K"}).why == "does not take sample");
    const Result<Request> dry = parse({"-p", "3", "--dry-run"});
    REQUIRE(dry);
    CHECK(std::get<Options>(*dry).is_dry_run);
}

TEST_CASE("selftest takes what sizes and attaches the tracing, and nothing that changes what is counted", "[cli]") {
    using Strings = std::vector<std::string>;
    const Result<Request> plain = parse({"selftest"});
    REQUIRE(plain);
    CHECK(std::get<SelfTest>(*plain).options ==
          Strings{"--max-live-blocks", "1048576", "--max-sites", "131072", "--ring-size", "8388608"});
    for (const Result<Request>& forced :
         {parse({"selftest", "--attach", "multi"}), parse({"--attach", "multi", "selftest"})}) {
        REQUIRE(forced);
        const Strings& options = std::get<SelfTest>(*forced).options;
        REQUIRE(options.size() == 8);
        CHECK(options[0] == "--attach");
        CHECK(options[1] == "multi");
    }
    CHECK(error_of({"selftest", "-p", "3"}).why == "does not take pid");
    CHECK(error_of({"selftest", "-z", "3"}).why == "does not take min-size");
    CHECK(error_of({"selftest", "5"}).what == "selftest");
    CHECK(error_of({"selftest", "--", "true"}).why == "does not take command");
}

TEST_CASE("list stands alone", "[cli]") {
    const Result<Request> request = parse({"list"});
    REQUIRE(request);
    CHECK(std::holds_alternative<ListAllocators>(*request));
    CHECK(error_of({"-p", "1", "list"}).what == "list");
    CHECK(error_of({"list", "-a"}).what == "'-a'");
    CHECK(error_of({"list", "--", "ls"}).what == "list");
}

TEST_CASE("help shows examples first and every option of the contract, within 80 columns", "[cli]") {
    const std::string help = text_of({"-h"});
    CHECK(help == text_of({"-p", "haha", "--help"}));
    CHECK(help.find("Examples:") < help.find("Usage:"));
    CHECK(help.find("Usage:") < help.find("-p, --pid PID[,PID...]"));
    for (const char* name : {"--pid",
                             "--exe",
                             "--follow",
                             "--cgroup",
                             "--container",
                             "--all",
                             "--from-birth",
                             "--no-wait",
                             "--command",
                             "--older",
                             "--top",
                             "--min-size",
                             "--max-size",
                             "--show-allocs",
                             "--resident",
                             "--trace",
                             "--sort",
                             "--by",
                             "--format",
                             "--output",
                             "--attach",
                             "--max-live-blocks",
                             "--max-sites",
                             "--max-process-blocks",
                             "--max-process-sites",
                             "--ring-size",
                             "--max-stack",
                             "--strict",
                             "--quiet",
                             "--version",
                             "--color",
                             "INTERVAL",
                             "COUNT",
                             "list",
                             "--symbols-prefix",
                             "--obj",
                             "--alloc",
                             "--free",
                             "--allocators"}) {
        CAPTURE(name);
        CHECK_THAT(help, ContainsSubstring(name));
    }
    size_t widest = 0;
    for (size_t begin = 0; begin < help.size();) {
        const size_t end = help.find('\n', begin);
        REQUIRE(end != std::string::npos);
        widest = std::max(widest, end - begin);
        begin = end + 1;
    }
    CHECK(widest <= 80);
}

TEST_CASE("version is the project's", "[cli]") {
    CHECK(text_of({"--version"}) == "memtrace " MEMTRACE_VERSION "\n");
}
