// Each way in which debug information that is not in the file itself is found.
#include <netinet/in.h>
#include <sys/socket.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "catch.hpp"
#include "symbols/debuginfod.hpp"
#include "symbols/separate_debug_file.hpp"
#include "symbols/stack_store.hpp"
#include "symbols_test_modules.hpp"

using namespace memtrace;
using namespace memtrace::test;

namespace {

namespace fs = std::filesystem;

constexpr auto source = R"(#include <cstdio>
namespace shop {
[[gnu::noinline]] int pay(int count) { asm volatile(""); return count + 1; }
[[gnu::always_inline]] inline int wrap(int count) { return pay(count) * 2; }
[[gnu::noinline]] int buy(int count) { return wrap(count) + 1; }
}
int main(int n, char**) {
    std::printf("%p\n", (void*)&shop::buy);
    std::fflush(stdout);
    std::getchar();
    return shop::buy(n);
}
)";

const std::string buy = "_ZN4shop3buyEi";

struct SetVariable {
    SetVariable(const char* name, const std::string& value) : name_(name) { ::setenv(name, value.c_str(), 1); }
    SetVariable(const SetVariable&) = delete;
    SetVariable& operator=(const SetVariable&) = delete;
    ~SetVariable() { ::unsetenv(name_); }

  private:
    const char* name_;
};

/// Of the call in `buy`, which wrap() was inlined into: two frames with lines when the debug file was found.
struct Call {
    Call(const TemporaryFolder& folder, const std::string& path) {
        TemporaryFolder::run("objdump -d --disassemble=" + buy + " '" + path + "' | grep -A1 call > '" +
                             folder / "call.out'");
        std::string line;
        std::ifstream listing(folder / "call.out");
        std::getline(listing, line) && std::getline(listing, line);
        offset = *module_at(path).file_offset(std::stoull(line, nullptr, 16) - 1);
    }
    uint64_t offset = 0;
};

void check_whole(const std::vector<Frame>& frames) {
    REQUIRE(frames.size() == 2);
    CHECK(frames[0].function == "shop::wrap(int)");
    CHECK(frames[0].is_inlined);
    CHECK(frames[0].line == 4);
    CHECK(frames[1].function == "shop::buy(int)");
    CHECK_FALSE(frames[1].is_inlined);
    CHECK(frames[1].line == 5);
}

std::vector<Frame> frames_in(const std::string& path, uint64_t offset) {
    const Module module = module_at(path);
    Symbolizer symbolizer;
    return symbolizer.frames_at({&module, offset});
}

/// The path of the debug file of `path` below a build-id directory; the directories are made.
std::string place_by_build_id(const std::string& root, const std::string& path) {
    const Module module = module_at(path);
    std::string digits;
    for (const char byte : module.build_id())
        digits += fmt::format("{:02x}", static_cast<uint8_t>(byte));
    const std::string directory = root + "/usr/lib/debug/.build-id/" + digits.substr(0, 2);
    fs::create_directories(directory);
    return directory + "/" + digits.substr(2) + ".debug";
}

/// A free port of the loopback, and a socket that listens there and never answers.
struct SilentServer {
    SilentServer() : socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        socklen_t size = sizeof(address);
        auto* any = reinterpret_cast<sockaddr*>(&address);
        if (::bind(socket.get(), any, size) != 0 || ::listen(socket.get(), 8) != 0 ||
            ::getsockname(socket.get(), any, &size) != 0)
            throw std::runtime_error("no free port");
        port = ntohs(address.sin_port);
    }
    Fd socket;
    uint16_t port = 0;
};

/// What is written to standard error until this ends.
class CapturedErrors {
  public:
    explicit CapturedErrors(std::string path) : path_(std::move(path)), before_(::dup(STDERR_FILENO)) {
        const Fd file(::open(path_.c_str(), O_CREAT | O_WRONLY | O_APPEND | O_CLOEXEC, 0600));
        ::dup2(file.get(), STDERR_FILENO);
    }
    CapturedErrors(const CapturedErrors&) = delete;
    CapturedErrors& operator=(const CapturedErrors&) = delete;
    ~CapturedErrors() { ::dup2(before_.get(), STDERR_FILENO); }
    std::string text() const {
        std::ifstream file(path_);
        return {std::istreambuf_iterator<char>(file), {}};
    }

  private:
    std::string path_;
    Fd before_;
};

size_t count_of(const std::string& text, const std::string& part) {
    size_t count = 0;
    for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
        ++count;
    return count;
}

}  // namespace

TEST_CASE("what eu-strip moves to another file is found by its link, with inlined frames", "[symbols]") {
    if (!is_installed("eu-strip")) {
        WARN("skipped: no eu-strip (package elfutils)");
        return;
    }
    const TemporaryFolder folder;
    const std::string path = folder.compile("program", source, "-g -O2");
    const Call call(folder, path);
    for (const std::string place : {"program.debug", ".debug/program.debug"}) {
        INFO(place);
        const std::string copy = folder / "copy" + std::to_string(place.size());
        fs::create_directory(folder / ".debug");
        TemporaryFolder::run(fmt::format("cd '{}' && eu-strip -f '{}' -o '{}' program", folder / "", place, copy));
        check_whole(frames_in(copy, call.offset));
        fs::remove(folder / place);
        CHECK(frames_in(copy, call.offset).size() == 1);
    }
}

TEST_CASE("the debug file of a stripped file is opened for who needs its symbols", "[symbols]") {
    const TemporaryFolder folder;
    const std::string path = folder.compile("program", source, "-g -O2");
    const auto symbols_beside = [&] {
        const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
        const Fd debug = open_separate_debug_file(file.get(), path);
        if (!debug) return false;
        const std::string names = fmt::format("nm /proc/{}/fd/{} | grep -q {}", ::getpid(), debug.get(), buy);
        return std::system(names.c_str()) == 0;
    };
    CHECK_FALSE(symbols_beside());
    TemporaryFolder::run(
        fmt::format("cd '{}' && objcopy --only-keep-debug program program.debug && strip program && "
                    "objcopy --add-gnu-debuglink=program.debug program",
                    folder / ""));
    CHECK(symbols_beside());
    fs::remove(folder / "program.debug");
    CHECK_FALSE(symbols_beside());
}

TEST_CASE("the common file of dwz is found by its link", "[symbols]") {
    if (!is_installed("dwz")) {
        WARN("skipped: no dwz (package dwz)");
        return;
    }
    const TemporaryFolder folder;
    const std::string path = folder.compile("program", source, "-g -O2");
    const Call call(folder, path);
    fs::copy(path, folder / "other");
    TemporaryFolder::run(fmt::format("cd '{}' && dwz -m common -M common program other", folder / ""));
    check_whole(frames_in(path, call.offset));
    // Also where the file with the link is a debug file itself.
    TemporaryFolder::run(
        fmt::format("cd '{}' && objcopy --only-keep-debug program program.debug && strip program && "
                    "objcopy --add-gnu-debuglink=program.debug program",
                    folder / ""));
    check_whole(frames_in(path, call.offset));
    // A file of the same name from another build is not used.
    TemporaryFolder::run(
        fmt::format("cd '{}' && objcopy --only-keep-debug --remove-section=.note.gnu.build-id other "
                    "common",
                    folder / ""));
    const auto without = frames_in(path, call.offset);
    CHECK(without.back().function == "shop::buy(int)");
}

TEST_CASE("functions of a stripped file are named by its MiniDebugInfo", "[symbols]") {
    const TemporaryFolder folder;
    const std::string path = folder.compile("program", source, "-g -O2");
    const Call call(folder, path);
    TemporaryFolder::run(
        fmt::format("cd '{}' && objcopy -S --remove-section .comment --keep-symbol={} program mini && "
                    "xz mini && strip program && objcopy --add-section .gnu_debugdata=mini.xz program",
                    folder / "", buy));
    const auto frames = frames_in(path, call.offset);
    REQUIRE(frames.size() == 1);
    CHECK(frames[0].function == "shop::buy(int)");
    CHECK(frames[0].line == 0);
}

TEST_CASE("debug files in a container are found by build-id and by link after its process has ended", "[symbols]") {
    if (::geteuid() != 0) {
        WARN("skipped: chroot needs root");
        return;
    }
    const TemporaryFolder folder;
    const std::string whole = folder.compile("program", source, "-g -O2 -static -Wl,--build-id");
    const Call call(folder, whole);
    const std::string by = GENERATE(as<std::string>(), "build-id", "symbolic link", "debuglink");
    INFO(by);
    const std::string root = folder / "root";
    fs::create_directories(root + "/opt/.debug");
    const std::string path = root + "/opt/app";
    const std::string debug = by == "build-id"        ? place_by_build_id(root, whole)
                              : by == "symbolic link" ? root + "/real.debug"
                                                      : root + "/opt/.debug/app.debug";
    // An absolute link inside the container means the container's file.
    if (by == "symbolic link") fs::create_symlink("/real.debug", place_by_build_id(root, whole));
    TemporaryFolder::run(
        fmt::format("objcopy --only-keep-debug '{0}' '{1}' && objcopy --strip-all '{0}' '{2}'", whole, debug, path));
    if (by == "debuglink") TemporaryFolder::run(fmt::format("objcopy --add-gnu-debuglink='{}' '{}'", debug, path));
    const std::string launcher =
        folder.write_script("launch", fmt::format("#!/bin/sh\nexec chroot '{}' /opt/app\n", root));
    RunningProgram program(launcher);
    const uint64_t start = program.read_number();
    StackStore store;
    store.add_address_space(1, program.pid());
    const uint64_t offset_in_function = call.offset - offset_of(folder, whole, buy);
    const std::vector<uint64_t> stack = {start + offset_in_function + 1};
    store.record_stack(1, 1, stack, ~uint64_t{0} / 2);
    program.end();
    check_whole(store.frames(1));
}

TEST_CASE("a debug file comes from a debuginfod server", "[symbols]") {
    if (!is_installed("debuginfod")) {
        WARN("skipped: no debuginfod (package debuginfod)");
        return;
    }
    const TemporaryFolder folder;
    const std::string path = folder.compile("program", source, "-g -O2 -Wl,--build-id");
    const Call call(folder, path);
    fs::create_directory(folder / "served");
    TemporaryFolder::run(
        fmt::format("cd '{}' && objcopy --only-keep-debug program served/program.debug && "
                    "strip program",
                    folder / ""));
    CHECK(frames_in(path, call.offset).size() == 1);
    uint16_t port = 0;
    {
        const SilentServer free;
        port = free.port;
    }
    const std::string launcher =
        folder.write_script("serve", fmt::format("#!/bin/sh\nexec debuginfod -vv -F -p {} -d '{}' '{}' 2>&1\n", port,
                                                 folder / "index", folder / "served"));
    RunningProgram server(launcher);
    std::string log;
    // It says so when it has looked through all files.
    for (std::string line = server.read_line(); !line.empty(); line = server.read_line()) {
        log += line + "\n";
        if (line.find("groomed") != std::string::npos) break;
    }
    INFO(log);
    const SetVariable urls("DEBUGINFOD_URLS", fmt::format("http://127.0.0.1:{}", port));
    const SetVariable cache("DEBUGINFOD_CACHE_PATH", folder / "cache");
    check_whole(frames_in(path, call.offset));
    server.end();
    // The client keeps what it has got.
    check_whole(frames_in(path, call.offset));
}

TEST_CASE("a debuginfod server that does not answer is waited for once, and a warning says so", "[symbols]") {
    const TemporaryFolder folder;
    const std::string path = folder.compile("program", source, "-g -O2 -Wl,--build-id");
    const std::string other = folder.compile("other", std::string(source) + "int more;", "-g -O2 -Wl,--build-id");
    const Call call(folder, path);
    TemporaryFolder::run("strip '" + path + "' '" + other + "'");
    const SilentServer server;
    const SetVariable urls("DEBUGINFOD_URLS", fmt::format("http://127.0.0.1:{}", server.port));
    const SetVariable cache("DEBUGINFOD_CACHE_PATH", folder / "cache");
    const SetVariable timeout("DEBUGINFOD_TIMEOUT", "1");
    const auto start = std::chrono::steady_clock::now();
    const CapturedErrors errors(folder / "errors");
    Symbolizer symbolizer;
    const Module module = module_at(path), other_module = module_at(other);
    CHECK(symbolizer.frames_at({&module, call.offset}).size() == 1);
    CHECK(symbolizer.frames_at({&other_module, call.offset}).size() == 1);
    CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(8));
    CHECK(count_of(errors.text(), "memtrace: warning: debuginfod: ") == 1);
}

// The client's own limit is far away: ours ends it.
TEST_CASE("neither silence nor a trickle holds a report up for longer than patience says", "[symbols]") {
    const bool does_trickle = GENERATE(false, true);
    INFO((does_trickle ? "trickle" : "silence"));
    const TemporaryFolder folder;
    const SilentServer server;
    const SetVariable urls("DEBUGINFOD_URLS", fmt::format("http://127.0.0.1:{}", server.port));
    const SetVariable cache("DEBUGINFOD_CACHE_PATH", folder / "cache");
    const SetVariable timeout("DEBUGINFOD_TIMEOUT", "60");
    std::thread trickle([&] {
        if (!does_trickle) return;
        const Fd peer(::accept4(server.socket.get(), nullptr, nullptr, SOCK_CLOEXEC));
        const std::string head = "HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n";
        // Until the client hangs up.
        for (std::string bytes = head; ::send(peer.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) > 0; bytes = "x")
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
    });
    const CapturedErrors errors(folder / "errors");
    Debuginfod client(std::chrono::milliseconds(300));
    const auto start = std::chrono::steady_clock::now();
    CHECK_FALSE(client.find(std::string(20, '\x42')));
    CHECK_FALSE(client.find(std::string(20, '\x43')));
    CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(10));
    CHECK(count_of(errors.text(), "memtrace: warning: debuginfod: ") == 1);
    trickle.join();
}
