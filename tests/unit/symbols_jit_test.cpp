// Names for code that a process makes while it runs: perf's map and jitdump files.
#include <time.h>
#include <unistd.h>

#include <filesystem>
#include <random>

#include "catch.hpp"
#include "symbols/jit_symbols.hpp"
#include "symbols/stack_store.hpp"
#include "symbols_test_modules.hpp"

using namespace memtrace;
using namespace memtrace::test;

namespace {

/// Makes code in anonymous memory and says where. For each line that it reads it appends one to its map: the first 64
/// bytes of the code are "first", then "second" as well.
constexpr auto compiler_source = R"(#include <cstdio>
#include <string>
#include <sys/mman.h>
#include <unistd.h>
int main() {
    auto* code = (unsigned char*)mmap(nullptr, 4096, PROT_READ | PROT_WRITE | PROT_EXEC,
                                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    code[0] = 0xc3;
    std::printf("%p\n", (void*)code);
    std::fflush(stdout);
    const std::string path = "/tmp/perf-" + std::to_string(getpid()) + ".map";
    for (const char* name : {"first", "_Z6secondi"}) {
        if (std::getchar() == EOF) return 0;
        std::FILE* map = std::fopen(path.c_str(), "a");
        std::fprintf(map, "%lx 40 %s\n", (unsigned long)code, name);
        std::fclose(map);
        std::printf("%s\n", path.c_str());
        std::fflush(stdout);
    }
    std::getchar();
}
)";

uint64_t now_ns() {
    timespec now{};
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

struct RemovedFile {
    ~RemovedFile() { ::unlink(path.c_str()); }
    std::string path;
};

GrowingFile open_growing(const std::string& path) {
    return GrowingFile(Fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC)));
}

template <typename T>
std::string bytes_of(T value) {
    return {reinterpret_cast<const char*>(&value), sizeof(value)};
}

std::string dump_header() {
    return bytes_of(uint32_t{0x4a695444}) + bytes_of(uint32_t{1}) + bytes_of(uint32_t{40}) + bytes_of(uint32_t{62}) +
           bytes_of(uint32_t{0}) + bytes_of(uint32_t{7}) + bytes_of(uint64_t{0}) + bytes_of(uint64_t{0});
}

std::string dump_record(uint32_t id, const std::string& body) {
    return bytes_of(id) + bytes_of(static_cast<uint32_t>(16 + body.size())) + bytes_of(uint64_t{0}) + body;
}

std::string code_load(uint64_t address, const std::string& name) {
    const std::string code(16, '\x90');
    return dump_record(0, bytes_of(uint32_t{7}) + bytes_of(uint32_t{7}) + bytes_of(address) + bytes_of(address) +
                              bytes_of(uint64_t{16}) + bytes_of(uint64_t{1}) + name + '\0' + code);
}

std::string code_move(uint64_t from, uint64_t to) {
    return dump_record(1, bytes_of(uint32_t{7}) + bytes_of(uint32_t{7}) + bytes_of(to) + bytes_of(from) + bytes_of(to) +
                              bytes_of(uint64_t{16}) + bytes_of(uint64_t{1}));
}

}  // namespace

TEST_CASE("of overlapping names the later one counts, and the rest of the earlier one stays", "[symbols]") {
    JitNames names;
    names.add(0x1000, 0x100, "old");
    names.add(0x1040, 0x20, "new");
    CHECK(names.find(0x103f).name == "old");
    CHECK(names.find(0x1040).name == "new");
    CHECK(names.find(0x1060).name == "old");
    CHECK(names.find(0x1060).start == 0x1000);
    CHECK(names.find(0x10ff).name == "old");
    CHECK(names.find(0x1100).name.empty());
    CHECK(names.find(0xfff).name.empty());
    names.add(0x0, 0x2000, "all");
    CHECK(names.find(0x1050).name == "all");
    names.add(~uint64_t{0} - 4, 100, "around the end");
    CHECK(names.find(~uint64_t{0} - 2).name.empty());
}

TEST_CASE("random names agree with a table of one entry for each address", "[symbols]") {
    std::mt19937 random(1);
    JitNames names;
    std::vector<std::string> table(300);
    for (int step = 0; step < 2000; ++step) {
        const size_t start = random() % 250, size = random() % 50;
        const std::string name = std::to_string(step);
        names.add(start, size, name);
        std::fill_n(table.begin() + static_cast<ptrdiff_t>(start), size, name);
        for (size_t address = 0; address < table.size(); address += 1 + random() % 7)
            REQUIRE(names.find(address).name == table[address]);
    }
}

TEST_CASE("a perf map is read on where it has grown, whole lines only", "[symbols]") {
    const TemporaryFolder folder;
    const std::string path = folder.write("map", "1000 10 one name with blanks\n0x2000 0x10 two\nnonsense\n\n3000 1");
    GrowingFile file = open_growing(path);
    JitNames names;
    REQUIRE(file.has_more());
    read_perf_map(file, names);
    CHECK(names.find(0x100f).name == "one name with blanks");
    CHECK(names.find(0x2000).name == "two");
    CHECK(names.find(0x3000).name.empty());
    std::ofstream(path, std::ios::app) << "0 three\n";
    REQUIRE(file.has_more());
    read_perf_map(file, names);
    CHECK(names.find(0x300f).name == "three");
    CHECK_FALSE(file.has_more());
}

TEST_CASE("hostile perf maps end", "[symbols]") {
    const TemporaryFolder folder;
    const std::string path = folder.write("map", "");
    std::filesystem::resize_file(path, uint64_t{1} << 40);
    GrowingFile endless = open_growing(path);
    JitNames names;
    read_perf_map(endless, names);
    CHECK(names.find(0).name.empty());

    const std::string long_line = "1000 10 " + std::string(3 << 20, 'x') + "\n2000 10 short\n";
    GrowingFile file = open_growing(folder.write("long", long_line));
    read_perf_map(file, names);
    CHECK(names.find(0x2000).name == "short");
    GrowingFile wild =
        open_growing(folder.write("wild", "ffffffffffffffff ffffffffffffffff x\n- - -\n10 \n\x01 \xff\n"));
    read_perf_map(wild, names);
    CHECK(names.find(0x2000).name == "short");
}

TEST_CASE("a jitdump names code that is loaded and moved, record by record", "[symbols]") {
    const TemporaryFolder folder;
    const std::string first = code_load(0x1000, "loaded") + dump_record(4, "not known to us");
    const std::string second = code_load(0x2000, "late") + code_move(0x1000, 0x5000);
    const std::string path = folder.write("jit-7.dump", dump_header() + first + second.substr(0, 30));
    GrowingFile file = open_growing(path);
    JitNames names;
    read_jit_dump(file, names);
    CHECK(names.find(0x100f).name == "loaded");
    CHECK(names.find(0x2000).name.empty());
    std::ofstream(path, std::ios::app | std::ios::binary) << second.substr(30);
    REQUIRE(file.has_more());
    read_jit_dump(file, names);
    CHECK(names.find(0x2008).name == "late");
    CHECK(names.find(0x5000).name == "loaded");
}

TEST_CASE("hostile jitdumps end", "[symbols]") {
    const TemporaryFolder folder;
    const std::string whole = dump_header() + code_load(0x1000, "loaded") + code_move(0x1000, 0x5000);
    for (size_t at = 0; at < whole.size(); ++at)
        for (const char value : {'\0', '\xff', '\x08'}) {
            std::string bytes = whole;
            bytes[at] = value;
            GrowingFile file = open_growing(folder.write("wild", bytes));
            JitNames names;
            while (file.has_more()) {
                const uint64_t before = file.position;
                read_jit_dump(file, names);
                if (file.position == before) break;
            }
            read_jit_dump(file, names);
        }
    std::string endless = dump_header() + dump_record(9, "");
    const std::string path = folder.write("endless", endless + std::string(16, '\0'));
    GrowingFile file = open_growing(path);
    JitNames names;
    read_jit_dump(file, names);
    CHECK_FALSE(file.has_more());
}

TEST_CASE("code that a process has compiled is named by its perf map, also when the map grows later", "[symbols]") {
    const TemporaryFolder folder;
    RunningProgram program(folder.compile("compiler", compiler_source, "-O1"));
    const uint64_t code = program.read_number();
    StackStore store;
    store.add_address_space(1, program.pid());
    const std::vector<uint64_t> stack = {code + 0x11};
    store.record_stack(1, 1, stack, now_ns());
    REQUIRE(store.frames(1).size() == 1);
    CHECK(store.frames(1)[0].function.empty());
    CHECK(store.frames(1)[0].kind == Frame::Kind::jit);
    CHECK(store.frames(1)[0].module == "[anon]");
    CHECK_FALSE(store.site_id(1, "heap", "malloc"));

    program.write_line();
    const RemovedFile map{program.read_line()};
    CHECK(store.frames(1)[0].function == "first");
    CHECK(store.frames(1)[0].function_offset == 0x10);
    CHECK(store.frames(1)[0].kind == Frame::Kind::jit);
    CHECK(store.site_id(1, "heap", "malloc"));

    program.write_line();
    program.read_line();
    const std::vector<uint64_t> other_stack = {code + 0x41, code + 0x1};
    store.record_stack(2, 1, other_stack, now_ns());
    program.end();
    std::filesystem::remove(map.path);
    const auto& frames = store.frames(2);
    REQUIRE(frames.size() == 2);
    CHECK(frames[0].function.empty());
    CHECK(frames[1].function == "second(int)");
}

TEST_CASE("a perf map that another user has written is not believed", "[symbols]") {
    if (::geteuid() != 0) {
        WARN("skipped: chown needs root");
        return;
    }
    const TemporaryFolder folder;
    RunningProgram program(folder.compile("compiler", compiler_source, "-O1"));
    const uint64_t code = program.read_number();
    program.write_line();
    const RemovedFile map{program.read_line()};
    REQUIRE(::chown(map.path.c_str(), 12345, 12345) == 0);
    StackStore store;
    store.add_address_space(1, program.pid());
    const std::vector<uint64_t> stack = {code + 1};
    store.record_stack(1, 1, stack, now_ns());
    CHECK(store.frames(1)[0].function.empty());
}

TEST_CASE("a perf map in a container carries the pid that the process has there", "[symbols]") {
    if (::geteuid() != 0) {
        WARN("skipped: namespaces need root");
        return;
    }
    const TemporaryFolder folder;
    std::filesystem::create_directories(folder / "root/tmp");
    folder.compile("root/compiler", compiler_source, "-O1 -static");
    RunningProgram launcher(folder.write_script(
        "launch",
        fmt::format("#!/bin/sh\nexec unshare --pid --fork --kill-child chroot '{}' /compiler\n", folder / "root")));
    const uint64_t code = launcher.read_number();
    launcher.write_line();
    CHECK(launcher.read_line() == "/tmp/perf-1.map");
    pid_t pid = 0;
    std::ifstream(fmt::format("/proc/{0}/task/{0}/children", launcher.pid())) >> pid;
    REQUIRE(pid > 0);
    StackStore store;
    store.add_address_space(1, pid);
    const std::vector<uint64_t> stack = {code + 1};
    store.record_stack(1, 1, stack, now_ns());
    launcher.end();
    CHECK(store.frames(1)[0].function == "first");
}

TEST_CASE("a jitdump is found by its executable mapping", "[symbols]") {
    const TemporaryFolder folder;
    folder.write("jit-1.dump", dump_header() + code_load(0x7000'0000, "from the dump"));
    RunningProgram program(folder.compile("program", R"(#include <cstdio>
#include <fcntl.h>
#include <sys/mman.h>
int main() {
    const int fd = open(")" + folder / "jit-1.dump" + R"(", O_RDONLY);
    mmap(nullptr, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
    mmap((void*)0x70000000, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    std::puts("ready");
    std::fflush(stdout);
    std::getchar();
})",
                                          "-O1"));
    REQUIRE(program.read_line() == "ready");
    StackStore store;
    store.add_address_space(1, program.pid());
    const std::vector<uint64_t> stack = {0x7000'0005};
    store.record_stack(1, 1, stack, now_ns());
    program.end();
    std::filesystem::remove(folder / "jit-1.dump");
    REQUIRE(store.frames(1).size() == 1);
    CHECK(store.frames(1)[0].function == "from the dump");
    CHECK(store.frames(1)[0].function_offset == 4);
}

TEST_CASE("functions that node compiles have names", "[symbols]") {
    if (!is_installed("node")) {
        WARN("skipped: no node (package nodejs)");
        return;
    }
    const TemporaryFolder folder;
    folder.write("hot.js", R"(
function hotFunction(n) { let sum = 0; for (let i = 0; i < n; ++i) sum += Math.sqrt(i); return sum; }
for (let i = 0; i < 3000; ++i) hotFunction(1000);
console.log(process.pid);
process.stdin.on('data', () => {});
)");
    for (const char* option : {"--perf-basic-prof", "--perf-prof"}) {
        INFO(option);
        RunningProgram program(folder.write_script(
            "run", fmt::format("#!/bin/sh\ncd '{}' && exec node {} hot.js\n", folder / "", option)));
        const auto pid = static_cast<pid_t>(program.read_number());
        REQUIRE(pid == program.pid());
        const RemovedFile map{fmt::format("/tmp/perf-{}.map", pid)};
        StackStore store;
        store.add_address_space(1, pid);
        const std::string expected = "hotFunction";
        // Where it is, said by another reader: awk, or perf's own map beside the dump.
        uint64_t address = 0;
        if (std::string_view(option) == "--perf-basic-prof") {
            TemporaryFolder::run(
                fmt::format("awk '/hotFunction/ {{ print $1 }}' {} | tail -1 > '{}'", map.path, folder / "address"));
            std::string digits;
            std::ifstream(folder / "address") >> digits;
            address = std::stoull(digits, nullptr, 16);
        } else {
            std::ifstream dump(folder / fmt::format("jit-{}.dump", pid), std::ios::binary);
            const std::string bytes{std::istreambuf_iterator<char>(dump), {}};
            // The code's address lies 32 bytes before its name (struct jr_code_load).
            const size_t at = bytes.rfind("hotFunction");
            REQUIRE(at != std::string::npos);
            const size_t name = bytes.rfind('\0', at) + 1;
            std::memcpy(&address, bytes.data() + name - 24, sizeof(address));
        }
        const std::vector<uint64_t> stack = {address + 1};
        store.record_stack(1, 1, stack, now_ns());
        program.end();
        REQUIRE(store.frames(1).size() == 1);
        CHECK_THAT(store.frames(1)[0].function, ContainsSubstring(expected));
        CHECK(store.frames(1)[0].kind == Frame::Kind::jit);
    }
}
