// `memtrace census` of glibc's malloc against what the program knows of itself: its own counts and mallinfo2().
#include <csignal>
#include <filesystem>

#include "catch.hpp"
#include "e2e/memtrace.hpp"
#include "e2e/series.hpp"

using namespace memtrace::e2e;

namespace {

/// census_churn, running.
class Churn {
  public:
    explicit Churn(std::vector<std::string> command) : child_(std::move(command)) {
        const std::string ready = child_.read_line();
        REQUIRE(ready.starts_with("ready "));
        pid_ = std::stoi(ready.substr(6));
    }
    std::string pid() const { return std::to_string(pid_); }
    std::string tell(const std::string& command) {
        child_.write_line(command);
        return child_.read_line();
    }
    int quit() {
        child_.write_line("quit");
        return child_.wait();
    }

  private:
    Child child_;
    pid_t pid_ = 0;
};

Json census_of(const Churn& churn) {
    const Finished end = run_to_end({memtrace_path(), "census", churn.pid(), "--format", "json"});
    INFO(end.errors);
    REQUIRE(end.status == 0);
    return Json::parse(end.output);
}

int64_t number(const Json& record, const std::string& key) {
    return record.at(key).get<int64_t>();
}

/// Blocks in chunks of that size; where a rest would be too small for a chunk, malloc gives it away with the block.
int64_t blocks_of(const Json& census, int64_t size) {
    const int64_t chunk = (size + 8 + 15) / 16 * 16;
    int64_t blocks = 0;
    for (const Json& entry : census.at("sizes"))
        if (!entry.at("mapped") &&
            (number(entry, "chunk_bytes") == chunk || number(entry, "chunk_bytes") == chunk + 16))
            blocks += number(entry, "live_blocks");
    return blocks;
}

void check_at_rest(const Json& census, const Json& truth) {
    CHECK(number(census, "system_bytes") == number(truth, "arena"));
    CHECK(number(census, "binned_bytes") + number(census, "fast_bytes") + number(census, "top_bytes") ==
          number(truth, "fordblks"));
    CHECK(number(census, "fast_bytes") == number(truth, "fsmblks"));
    CHECK(number(census, "mapped_blocks") == number(truth, "hblks"));
    CHECK(number(census, "mapped_bytes") == number(truth, "hblkhd"));
    CHECK(census.at("mapped_blocks_sized") == census.at("mapped_blocks"));
    CHECK(number(census, "not_found_bytes") == 0);
    // The smaller sizes are also what the C library has for itself.
    for (const int64_t size : {112, 200, 400, 2000, 6000, 20'000}) {
        INFO("blocks of " << size);
        const int64_t own = number(truth.at("sizes"), std::to_string(size));
        CHECK(blocks_of(census, size) >= own);
        CHECK(blocks_of(census, size) <= own + 3);
    }
    const int64_t kept = number(truth, "fordblks") + number(census, "thread_cached_bytes");
    CHECK(number(census, "retained_bytes") <= kept);
    CHECK(number(census, "retained_bytes") > kept / 4);
    CHECK(number(census, "trimmable_bytes") <= number(census, "retained_bytes"));
}

void check_program(const std::vector<std::string>& program) {
    for (const auto& [threads, arenas] : {std::pair("1", "0"), std::pair("4", "0"), std::pair("3", "1")}) {
        INFO(program.back() << ' ' << threads << " threads, " << arenas << " arenas");
        std::vector<std::string> command = program;
        command.insert(command.end(), {threads, arenas});
        Churn churn(command);
        churn.tell("leak 20000");
        const Json truth = Json::parse(churn.tell("still"));
        check_at_rest(census_of(churn), truth);
        CHECK(churn.quit() == 0);
    }
}

/// What `size` has grown by in a census of a series.
int64_t growth_of(const Json& census, int64_t size) {
    const int64_t chunk = (size + 8 + 15) / 16 * 16;
    int64_t blocks = 0;
    for (const Json& entry : census.at("sizes"))
        if (number(entry, "chunk_bytes") == chunk || number(entry, "chunk_bytes") == chunk + 16)
            blocks += number(entry, "growth_blocks");
    return blocks;
}

}  // namespace

TEST_CASE("a census has every chunk of a program that stands still", "[e2e][census]") {
    check_program({workload_path("census_churn")});
    check_program({workload_path("census_churn_static")});
}

TEST_CASE("a census of glibc 2.41 has every chunk", "[e2e][census]") {
    const std::string libc = MEMTRACE_BUILD_DIR "/trixie_libc/usr/lib/x86_64-linux-gnu/";
    if (!std::filesystem::exists(libc + "libc.so.6")) {
        WARN("skipped: `scripts/fetch_trixie_libc.sh build/trixie_libc` gets what is missing");
        return;
    }
    check_program({libc + "ld-linux-x86-64.so.2", "--library-path", libc, workload_path("census_churn")});
}

TEST_CASE("two censuses of a program at full speed tell which size grows", "[e2e][census]") {
    const std::string arenas = GENERATE("0", "1");
    Churn churn({workload_path("census_churn"), "3", arenas});
    churn.tell("leak 1000");
    Child memtrace({memtrace_path(), "census", churn.pid(), "100ms", "--format", "json"});
    const Json first = Json::parse(memtrace.read_line());
    CHECK(number(first, "seq") == 1);
    CHECK(first.at("growth_pattern") == "none");
    churn.tell("leak 40000");
    const Json later = next_from_now(memtrace);
    CHECK(later.at("growth_pattern") == "one_size");
    const Json& most = later.at("sizes").front();
    CHECK(number(most, "least_bytes") == 185);
    CHECK(number(most, "most_bytes") == 200);
    // What 3 * 200 slots hold of that size, and what is being read, moves.
    CHECK(growth_of(later, 200) > 38'000);
    CHECK(growth_of(later, 200) < 42'000);
    CHECK(number(later, "growth_bytes") > 35'000 * 208);
    memtrace.send_signal(SIGINT);
    CHECK(memtrace.wait() == 0);
    CHECK(churn.quit() == 0);
}

TEST_CASE("a census says what grows, and how to see who asks for it", "[e2e][census]") {
    Churn churn({workload_path("census_churn"), "1", "0"});
    Child memtrace({memtrace_path(), "census", churn.pid(), "100ms"});
    CHECK_THAT(memtrace.read_line(), ContainsSubstring(": glibc 2."));
    churn.tell("leak 40000");
    const std::string advice = "memtrace -p " + churn.pid() + " -z 185 -Z 200 --sort growth";
    while (memtrace.read_line().find(advice) == std::string::npos) {
    }
    CHECK_THAT(memtrace.output(), ContainsSubstring("Which size grows is told by a second census"));
    CHECK_THAT(memtrace.output(), ContainsSubstring("Blocks of 185 to 200 bytes grow: +"));
    memtrace.send_signal(SIGTERM);
    CHECK(memtrace.wait() == 0);
    CHECK(churn.quit() == 0);
}

TEST_CASE("a series of censuses ends with the process", "[e2e][census]") {
    Churn churn({workload_path("census_churn"), "1", "0"});
    Child memtrace({memtrace_path(), "census", churn.pid(), "100ms", "--format", "json"});
    memtrace.read_line();
    CHECK(churn.quit() == 0);
    CHECK(memtrace.wait() == 0);
}

TEST_CASE("a census of what it cannot read says so", "[e2e][census]") {
    CHECK(run_to_end({memtrace_path(), "census", "999999999"}).status == 3);
    CHECK(run_to_end({memtrace_path(), "census"}).status == 2);
    const std::string program = workload_path("jemalloc_api_linked");
    if (!std::filesystem::exists(program)) return;
    Workload workload(program);
    const Finished end = run_to_end({memtrace_path(), "census", std::to_string(workload.pid())});
    CHECK(end.status == 4);
    CHECK_THAT(end.errors, ContainsSubstring("uses another allocator"));
    CHECK_THAT(end.errors, ContainsSubstring("hint: "));
    CHECK(workload.quit(0) == 0);
}
