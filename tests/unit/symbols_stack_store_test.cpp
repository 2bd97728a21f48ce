#include <time.h>
#include <unistd.h>

#include <filesystem>

#include "catch.hpp"
#include "processes/mapping_events.hpp"
#include "processes_test_programs.hpp"
#include "symbols/stack_store.hpp"

using namespace memtrace;
using namespace memtrace::test;

namespace {

constexpr uint32_t owner = 1;

/// Prints the addresses of `outer` and `inner`; for each line that it reads it loads ./plugin.so and prints `plugin`'s.
std::string host_source(const TemporaryFolder& folder) {
    return R"(
#include <cstdio>
#include <dlfcn.h>
__attribute__((noinline)) int outer(int n) { asm volatile("nop; nop; nop; nop"); return n; }
__attribute__((noinline)) int inner(int n) { asm volatile("nop; nop; nop; nop"); return n; }
int main() {
    std::printf("%p\n%p\n", (void*)&outer, (void*)&inner);
    std::fflush(stdout);
    while (std::getchar() != EOF) {
        std::printf("%p\n", dlsym(dlopen(")" +
           folder / "plugin.so" + R"(", RTLD_NOW), "plugin"));
        std::fflush(stdout);
    }
})";
}

uint64_t now_ns() {
    timespec now{};
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

/// A running host and the return addresses of the stack inner <- outer.
struct Host {
    explicit Host(const std::string& path) : program(path) {
        const uint64_t outer = program.read_number();
        const uint64_t inner = program.read_number();
        stack = {inner + 3, outer + 3};
    }
    uint64_t load_plugin() {
        program.write_line();
        return program.read_number();
    }
    RunningProgram program;
    std::vector<uint64_t> stack;
};

void compile_plugin(const TemporaryFolder& folder) {
    folder.compile("plugin.so", "extern \"C\" int plugin() { asm volatile(\"nop; nop; nop; nop\"); return 1; }",
                   "-shared -fPIC");
}

/// The id of the host's stack in a fresh store.
std::optional<std::string> id_of(const std::string& path, std::string_view kind, std::string_view function) {
    Host host(path);
    StackStore store;
    store.add_address_space(owner, host.program.pid());
    store.record_stack(1, owner, host.stack, now_ns());
    host.program.end();
    return store.site_id(1, kind, function);
}

}  // namespace

TEST_CASE("a stack is named after its process and its file are gone", "[symbols]") {
    const TemporaryFolder folder;
    const std::string path = folder.compile("host", host_source(folder), "-g -O1");
    Host host(path);
    StackStore store;
    std::filesystem::remove(path);
    store.add_address_space(owner, host.program.pid());
    if (store.losses().modules_not_opened > 0 && ::geteuid() != 0) {
        WARN("skipped: map_files needs root");
        return;
    }
    store.record_stack(7, owner, host.stack, now_ns());
    host.program.end();

    const auto& frames = store.frames(7);
    REQUIRE(frames.size() == 2);
    CHECK(frames[0].function == "inner(int)");
    CHECK(frames[1].function == "outer(int)");
    CHECK_THAT(frames[0].file, ContainsSubstring("host.cc"));
    CHECK(frames[0].line == 5);
    CHECK(frames[1].line == 4);
    CHECK(frames[0].module == "host");
    CHECK(frames[0].function_offset == 2);
    CHECK_FALSE(store.stack_error(7));
    CHECK(&store.frames(7) == &frames);
    CHECK(store.losses().modules_not_opened == 0);
}

TEST_CASE("a stack ends at the first address outside code, and says so", "[symbols]") {
    const TemporaryFolder folder;
    Host host(folder.compile("host", host_source(folder), "-O1"));
    StackStore store;
    store.add_address_space(owner, host.program.pid());
    const std::vector<uint64_t> garbage{host.stack[0], 0x1234, host.stack[1]};
    store.record_stack(1, owner, garbage, now_ns());
    CHECK(store.frames(1).size() == 1);
    CHECK(store.stack_error(1) == "frame pointer chain ends outside code");
    CHECK(store.losses().stacks_cut == 1);

    const std::vector<uint64_t> ended{host.stack[0], 0, 0x1234};
    store.record_stack(1, owner, ended, now_ns());
    CHECK(store.frames(1).size() == 1);
    CHECK_FALSE(store.stack_error(1));
}

TEST_CASE("a library that was loaded since is found by reading the mappings again", "[symbols]") {
    const TemporaryFolder folder;
    compile_plugin(folder);
    Host host(folder.compile("host", host_source(folder), "-O1"));
    StackStore store;
    store.add_address_space(owner, host.program.pid());
    const std::vector<uint64_t> stack{host.load_plugin() + 3, host.stack[0]};
    store.record_stack(1, owner, stack, now_ns());

    SECTION("while the process lives") {
        REQUIRE(store.frames(1).size() == 2);
        CHECK(store.frames(1)[0].function == "plugin");
        CHECK(store.frames(1)[0].module == "plugin.so");
        CHECK_FALSE(store.stack_error(1));
        CHECK(store.losses().stacks_cut == 0);
    }
    SECTION("and what was recorded before it was there is not named after it") {
        store.frames(1);
        store.refresh(owner);
        store.record_stack(2, owner, stack, 1);
        CHECK(store.frames(2).empty());
        CHECK(store.stack_error(2));
    }
}

TEST_CASE("a mapping event names a library of a process that has died before it was looked at", "[symbols]") {
    const TemporaryFolder folder;
    compile_plugin(folder);
    Host host(folder.compile("host", host_source(folder), "-O1"));
    StackStore store;
    auto events = MappingEvents::open();
    if (!events) {
        WARN("skipped: " << events.error().why);
        return;
    }
    const pid_t pid = host.program.pid();
    const std::vector<uint64_t> stack{host.load_plugin() + 3};
    for (const MappingEvent& event : events->read().events)
        if (event.pid == pid) store.add_mapping(pid, event.mapping, event.time_ns);
    const uint64_t time_ns = now_ns();
    host.program.end();
    store.add_address_space(owner, pid);
    store.record_stack(1, owner, stack, time_ns);
    REQUIRE(store.frames(1).size() == 1);
    CHECK(store.frames(1)[0].function == "plugin");
}

TEST_CASE("a process that dies before its first event is handled is named by what was read when it was added",
          "[symbols]") {
    const TemporaryFolder folder;
    Host host(folder.compile("host", host_source(folder), "-O1"));
    StackStore store;
    store.add_process(host.program.pid());
    const pid_t pid = host.program.pid();
    host.program.end();
    store.add_address_space(owner, pid);
    store.record_stack(1, owner, host.stack, now_ns());
    REQUIRE(store.frames(1).size() == 2);
    CHECK(store.frames(1)[1].function == "outer(int)");
    CHECK(store.site_id(1, "heap", "malloc"));
}

TEST_CASE("an exec ends an address space, and both keep their own stacks", "[symbols]") {
    const TemporaryFolder folder;
    const std::string path = folder.compile("host", host_source(folder), "-O1 -no-pie");
    const std::string launcher = folder.compile("launcher", R"(
#include <cstdio>
#include <unistd.h>
__attribute__((noinline)) int launch(int n) { asm volatile("nop; nop; nop; nop"); return n; }
int main() {
    std::printf("%p\n", (void*)&launch); std::fflush(stdout); std::getchar();
    return execl(")" + path + R"(", "host", nullptr);
})",
                                                "-O1 -no-pie");
    RunningProgram program(launcher);
    const std::vector<uint64_t> before{program.read_number() + 3};
    StackStore store;
    store.add_address_space(1, program.pid());
    store.record_stack(1, 1, before, now_ns());
    program.write_line();
    program.read_number();
    const std::vector<uint64_t> after{program.read_number() + 3};
    store.end_address_space(1, now_ns());
    store.add_address_space(2, program.pid());
    store.record_stack(2, 2, after, now_ns());
    program.end();
    REQUIRE(store.frames(1).size() == 1);
    REQUIRE(store.frames(2).size() == 1);
    CHECK(store.frames(1)[0].function == "launch(int)");
    CHECK(store.frames(2)[0].function == "inner(int)");
}

TEST_CASE("what an exec started and what died at once is named by the events of its process", "[symbols]") {
    const TemporaryFolder folder;
    Host host(folder.compile("host", host_source(folder), "-O1"));
    const pid_t pid = host.program.pid();
    const auto mappings = read_mappings(pid);
    REQUIRE(mappings);
    StackStore store;
    store.add_address_space(1, pid);
    for (const Mapping& mapping : *mappings)
        store.add_mapping(pid, mapping, now_ns());
    const uint64_t time_ns = now_ns();
    host.program.end();
    store.end_address_space(1, now_ns());
    store.add_address_space(2, pid);
    store.record_stack(1, 2, host.stack, time_ns);
    REQUIRE(store.frames(1).size() == 2);
    CHECK(store.frames(1)[0].function == "inner(int)");
}

TEST_CASE("of several execs that are told of late each has the stacks of its own program", "[symbols]") {
    const TemporaryFolder folder;
    Host first(folder.compile("first", host_source(folder), "-O1"));
    Host second(folder.compile("second", host_source(folder), "-O1"));
    Host last(folder.compile("last", host_source(folder), "-O1"));
    const pid_t pid = last.program.pid();
    StackStore store;
    store.add_address_space(1, pid);
    uint64_t time_ns = now_ns();
    // As if the process had run `first` and `second` meanwhile, and is at `last` when the first exec is told of.
    std::vector<uint64_t> end_times_ns;
    for (Host* host : {&first, &second, &last}) {
        const auto mappings = read_mappings(host->program.pid());
        REQUIRE(mappings);
        for (const Mapping& mapping : *mappings)
            store.add_mapping(pid, mapping, ++time_ns);
        end_times_ns.push_back(++time_ns);
    }
    for (uint32_t space = 2; Host * host : {&first, &second, &last}) {
        store.end_address_space(space - 1, end_times_ns[space - 2]);
        store.add_address_space(space, pid);
        store.record_stack(space, space, host->stack, end_times_ns[space - 2]);
        ++space;
    }
    for (uint32_t site = 2; site <= 4; ++site) {
        INFO("space " << site << ": " << store.stack_error(site).value_or("whole"));
        REQUIRE(store.frames(site).size() == 2);
        CHECK(store.frames(site)[0].module == std::array{"first", "second", "last"}[site - 2]);
    }
}

TEST_CASE("sites that differ in one place of the code have different ids", "[symbols]") {
    const TemporaryFolder folder;
    Host host(folder.compile("host", host_source(folder), "-O1"));
    StackStore store;
    store.add_address_space(owner, host.program.pid());
    const std::vector<uint64_t> other{host.stack[0] + 1, host.stack[1]};
    const std::vector<uint64_t> shorter{host.stack[0]};
    store.record_stack(1, owner, host.stack, now_ns());
    store.record_stack(2, owner, other, now_ns());
    store.record_stack(3, owner, shorter, now_ns());
    CHECK(store.site_id(1, "heap", "malloc"));
    CHECK(store.site_id(1, "heap", "malloc") != store.site_id(2, "heap", "malloc"));
    CHECK(store.site_id(1, "heap", "malloc") != store.site_id(3, "heap", "malloc"));
}

TEST_CASE("a stack is known by the same hash in every process that runs the same code", "[symbols]") {
    const TemporaryFolder folder;
    const std::string path = folder.compile("host", host_source(folder), "-O1");
    std::filesystem::copy_file(path, folder / "copy");
    Host host(path);
    Host same(path);
    Host copy(folder / "copy");
    StackStore store;
    uint32_t site = 0;
    for (Host* each : {&host, &same, &copy}) {
        store.add_address_space(++site, each->program.pid());
        store.record_stack(site, site, each->stack, now_ns());
    }
    const std::vector<uint64_t> other{host.stack[0] + 1, host.stack[1]};
    store.record_stack(4, 1, other, now_ns());
    CHECK(store.stack_hash(1)[0] != 0);
    CHECK(store.stack_hash(2) == store.stack_hash(1));
    CHECK(store.stack_hash(3) == store.stack_hash(1));
    CHECK(store.stack_hash(4) != store.stack_hash(1));
    CHECK(store.stack_hash(5)[0] == 0);
}

TEST_CASE("a stack that is kept is named after its address space is forgotten, and kept once", "[symbols]") {
    const TemporaryFolder folder;
    const std::string path = folder.compile("host", host_source(folder), "-O1");
    StackStore store;
    KeptStack first;
    for (uint32_t site = 1; site <= 3; ++site) {
        Host host(path);
        store.add_address_space(site, host.program.pid());
        store.record_stack(site, site, host.stack, now_ns());
        const auto id = store.site_id(site, "heap", "malloc");
        const KeptStack kept = store.keep(site);
        if (site == 1) first = kept;
        CHECK(kept.site == first.site);
        CHECK(kept.hash == store.stack_hash(site));
        store.forget(site);
        CHECK(store.frames(site).empty());
        REQUIRE(store.frames(kept.site).size() == 2);
        CHECK(store.frames(kept.site)[0].function == "inner(int)");
        CHECK(store.site_id(kept.site, "heap", "malloc") == id);
        CHECK(store.stack_hash(kept.site) == kept.hash);
    }
    CHECK(store.keep(99).site == 0);
}

TEST_CASE("a site's id is the same in every run and tells sites apart", "[symbols]") {
    const TemporaryFolder folder;
    for (const char* flags : {"-O1", "-O1 -Wl,--build-id=none"}) {
        INFO(flags);
        const std::string path = folder.compile("host", host_source(folder), flags);
        const auto id = id_of(path, "heap", "malloc");
        REQUIRE(id);
        CHECK(id->size() == 16);
        CHECK(id->find_first_not_of("0123456789abcdef") == std::string::npos);
        CHECK(id_of(path, "heap", "malloc") == id);
        CHECK(id_of(path, "heap", "calloc") != id);
        CHECK(id_of(path, "mapping", "malloc") != id);
        std::filesystem::create_directories(folder / "elsewhere");
        std::filesystem::rename(path, folder / "elsewhere/renamed");
        CHECK(id_of(folder / "elsewhere/renamed", "heap", "malloc") == id);
    }
}

TEST_CASE("stripping a program with a build-id does not change the ids of its sites", "[symbols]") {
    const TemporaryFolder folder;
    const std::string path = folder.compile("host", host_source(folder), "-O1 -g");
    const auto id = id_of(path, "heap", "malloc");
    TemporaryFolder::run("strip '" + path + "'");
    REQUIRE(id);
    CHECK(id_of(path, "heap", "malloc") == id);
}

TEST_CASE("what cannot be named has no id", "[symbols]") {
    StackStore store;
    CHECK_FALSE(store.site_id(1, "heap", "malloc"));
    CHECK(store.frames(1).empty());
    CHECK(store.stack_error(1) == "stack not recorded");
    const std::vector<uint64_t> stack{0x1000};
    store.record_stack(1, 99, stack, 5);
    CHECK_FALSE(store.site_id(1, "heap", "malloc"));
    CHECK(store.stack_error(1));

    Mapping anonymous;
    anonymous.start = 0x1000;
    anonymous.end = 0x2000;
    anonymous.is_executable = true;
    store.add_mapping(0x7ffffff0, anonymous, 1);
    store.add_address_space(owner, 0x7ffffff0);
    const std::vector<uint64_t> in_jit{0x1800};
    store.record_stack(2, owner, in_jit, 5);
    REQUIRE(store.frames(2).size() == 1);
    CHECK(store.frames(2)[0].module == "[anon]");
    CHECK(store.frames(2)[0].kind == Frame::Kind::jit);
    CHECK_FALSE(store.site_id(2, "heap", "malloc"));
}

TEST_CASE("a stack that comes before its address space is known waits for it", "[symbols]") {
    const TemporaryFolder folder;
    Host host(folder.compile("host", host_source(folder), "-O1"));
    StackStore store;
    store.record_stack(1, owner, host.stack, now_ns());
    store.add_address_space(owner, host.program.pid());
    host.program.end();
    REQUIRE(store.frames(1).size() == 2);
    CHECK(store.frames(1)[0].function == "inner(int)");
}

TEST_CASE("thousands of stacks are named in little time", "[symbols]") {
    const TemporaryFolder folder;
    Host host(folder.compile("host", host_source(folder), "-g -O1"));
    StackStore store;
    store.add_address_space(owner, host.program.pid());
    std::vector<uint64_t> stack = host.stack;
    for (int i = 0; i < 40; ++i)
        stack.push_back(host.stack[static_cast<size_t>(i % 2)]);
    stack.push_back(0x10);
    const uint64_t begin = now_ns();
    for (uint32_t site = 1; site <= 10'000; ++site)
        store.record_stack(site, owner, stack, now_ns());
    for (uint32_t site = 1; site <= 10'000; ++site)
        REQUIRE(store.frames(site).size() == 42);
    CHECK(now_ns() - begin < 5'000'000'000);
    CHECK(store.losses().stacks_cut == 10'000);
}
