// Where the resident memory went: each part is what the program says that it touched, only what memtrace cannot see is
// unexplained; and next to nothing is on real programs.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <pwd.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <thread>

#include "catch.hpp"
#include "e2e/memtrace.hpp"
#include "e2e/second_counter.hpp"
#include "e2e/temporary_directory.hpp"

using namespace memtrace::e2e;

namespace {

constexpr int64_t page = 4096;

int64_t part(const Json& report, const char* name) {
    return report.at("memory").at("growth").at(name);
}

int64_t sum_of_parts(const Json& report) {
    int64_t sum = 0;
    for (const char* name : {"heap_live_bytes", "allocator_retained_bytes", "mappings_bytes", "stacks_bytes",
                             "files_bytes", "shared_bytes", "earlier_bytes", "unexplained_bytes"})
        sum += part(report, name);
    return sum;
}

void check_near(const Json& report, const char* name, int64_t expected, int64_t tolerance_bytes) {
    INFO(name << ": " << part(report, name) << ", expected " << expected << "; " << report.at("memory").dump());
    CHECK(std::abs(part(report, name) - expected) <= tolerance_bytes);
}

/// What the program touched, page by page; a page more for each mapping that is not whole.
void check_parts(const Json& truth, const Json& report) {
    const Json& figures = truth.at("figures");
    for (const char* name : {"mappings_bytes", "shared_bytes"})
        check_near(report, name, figures.at(name), page);
    // Code that is run for the first time is read from its file as well, some pages at a time.
    check_near(report, "files_bytes", figures.at("files_bytes"), 150 * page);
    check_near(report, "stacks_bytes", figures.at("stacks_bytes"), 4 * page);
    check_near(report, "unexplained_bytes", figures.at("unexplained_bytes"), 4 * page);
    const int64_t live_bytes = report.at("heap").at("live_bytes");
    check_near(report, "heap_live_bytes", live_bytes - figures.at("untouched_bytes").get<int64_t>(), 2 * page);
    // Blocks have headers, and the allocator takes memory in steps.
    check_near(report, "allocator_retained_bytes", figures.at("allocator_retained_bytes"), 64 * page);
    CHECK(sum_of_parts(report) == part(report, "total_bytes"));
}

/// A real program that grows: its growth is at least `least_bytes`, and 2 % of it at most are unexplained.
void check_explained(const Json& report, int64_t least_bytes) {
    INFO(report.at("memory").dump());
    const int64_t total = part(report, "total_bytes");
    CHECK(total >= least_bytes);
    CHECK(std::abs(part(report, "unexplained_bytes")) * 50 <= total);
    CHECK(sum_of_parts(report) == total);
}

class Connection {
  public:
    explicit Connection(uint16_t port) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_port = htons(port);
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        is_open_ = connect(fd_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
    }
    bool is_open() const { return is_open_; }
    /// Sends a line, and returns the first piece of the answer.
    std::string ask(const std::string& line) const {
        std::string answer(4096, '\0');
        if (send(fd_.get(), line.data(), line.size(), MSG_NOSIGNAL) < 0) return {};
        const ssize_t size = recv(fd_.get(), answer.data(), answer.size(), 0);
        return size > 0 ? answer.substr(0, static_cast<size_t>(size)) : std::string();
    }

  private:
    memtrace::Fd fd_;
    bool is_open_ = false;
};

uint16_t free_port() {
    const memtrace::Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    REQUIRE(bind(fd.get(), reinterpret_cast<sockaddr*>(&address), size) == 0);
    REQUIRE(getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0);
    return ntohs(address.sin_port);
}

template <typename IsReady>
void wait_until(const IsReady& is_ready, const Child& child) {
    for (int tries = 0; !is_ready(); ++tries) {
        if (tries == 1500) throw std::runtime_error("it does not get ready: " + child.errors() + child.output());
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
}

/// The newest of Debian's PostgreSQL servers; empty: none is installed.
std::string postgres_programs() {
    std::string newest;
    std::error_code no_error;
    for (const auto& version : std::filesystem::directory_iterator("/usr/lib/postgresql", no_error))
        if (std::filesystem::exists(version.path() / "bin" / "initdb"))
            newest = std::max(newest, (version.path() / "bin" / "").string());
    return newest;
}

/// It refuses to run as root.
std::vector<std::string> as_postgres(std::vector<std::string> command) {
    const std::vector<std::string> user = {"setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", "--"};
    command.insert(command.begin(), user.begin(), user.end());
    return command;
}

}  // namespace

TEST_CASE("growth is split as the program touched its memory, and what no probe saw is unexplained", "[e2e][memory]") {
    const std::vector<std::string> cases = {"every_kind_is_touched", "pages_are_given_back"};
    const bool is_resident = GENERATE(false, true);
    Workload workload(workload_path("memory_cases"), cases);
    std::vector<std::string> arguments = {"-T", "0", "-p", std::to_string(workload.pid()), "3600"};
    if (is_resident) arguments.insert(arguments.begin(), "--resident");
    Memtrace memtrace(arguments);
    memtrace.wait_attached();
    Json truth = workload.go();
    Json report = memtrace.report();
    CHECK(report.at("accuracy").at("complete") == true);
    CHECK(part(report, "total_bytes") == report.at("memory").at("rss_growth_bytes"));
    check_parts(truth, report);
    if (is_resident) {
        const int64_t untouched = truth.at("figures").at("untouched_bytes");
        for (const Json& site : report.at("sites"))
            if (site.at("kind") == "heap" && site.at("frames").at(0).at("function") == "allocates")
                CHECK(std::abs(site.at("resident_bytes").get<int64_t>() - site.at("live_bytes").get<int64_t>() +
                               (site.at("live_bytes") > untouched ? untouched : 0)) <= 2 * page);
    }
    truth = workload.go();
    report = memtrace.report();
    check_parts(truth, report);
    CHECK(memtrace.stop().status == 0);
}

TEST_CASE("pages that a child shares with its parent count once in their tree", "[e2e][memory]") {
    Workload workload(workload_path("memory_cases"), {"every_kind_is_touched", "a_child_shares_it"});
    Memtrace memtrace({"-f", "-T", "0", "-p", std::to_string(workload.pid()), "3600"});
    memtrace.wait_attached();
    const Json before = workload.go();
    check_parts(before, memtrace.report());
    const Json truth = workload.go();
    const Json report = memtrace.report();
    REQUIRE(report.at("scope").at("pids").size() == 2);
    CHECK(report.at("memory").at("growth").at("of") == "pss");
    const Json& figures = truth.at("figures");
    for (const char* name : {"mappings_bytes", "shared_bytes", "unexplained_bytes", "stacks_bytes"})
        check_near(report, name, figures.at(name), 16 * page);
    CHECK(sum_of_parts(report) == part(report, "total_bytes"));
    CHECK(memtrace.stop().status == 0);
}

TEST_CASE("mappings are put right after events of theirs were lost", "[e2e][memory][losses]") {
    Workload workload(workload_path("memory_cases"), {"an_unmapping_after_many"});
    Memtrace memtrace({"--ring-size", "4096", "-T", "0", "-p", std::to_string(workload.pid()), "3600"});
    memtrace.wait_attached();
    memtrace.child().send_signal(SIGSTOP);  // so that nobody empties the ring
    workload.go();
    memtrace.child().send_signal(SIGCONT);
    const Json report = memtrace.report();
    INFO(report.at("accuracy").dump());
    CHECK(report.at("accuracy").at("complete") == false);
    CHECK(report.at("accuracy").at("events_lost").get<int>() > 0);
    CHECK(report.at("mappings").at("mapped_bytes").get<int64_t>() >= 64 * page);
    CHECK(report.at("mappings").at("live_bytes") == 0);
    const MemtraceEnd end = memtrace.stop();
    CHECK(end.status == 0);
    CHECK_THAT(end.errors, ContainsSubstring("were lost: its mappings were read again"));
}

TEST_CASE("the growth of python3 is explained", "[e2e][memory]") {
    Child python({"python3", "-c",
                  "import sys\n"
                  "kept = []\n"
                  "print('ready', flush=True)\n"
                  "for line in sys.stdin:\n"
                  "    kept.append([bytes(1000 + i % 50) for i in range(20000)])\n"
                  "    kept.append([[i] for i in range(100000)])\n"
                  "    kept.append(bytearray(b'x') * 20000000)\n"
                  "    print('done', flush=True)\n"});
    REQUIRE(python.read_line() == "ready");
    Memtrace memtrace({"-p", std::to_string(python.pid()), "3600"});
    memtrace.wait_attached();
    for (int round = 0; round < 2; ++round) {
        python.write_line("go");
        REQUIRE(python.read_line() == "done");
        check_explained(memtrace.report(), 40'000'000);
    }
    CHECK(memtrace.stop().status == 0);
    python.send_signal(SIGTERM);
}

TEST_CASE("the growth of redis is explained", "[e2e][memory]") {
    const uint16_t port = free_port();
    const TemporaryDirectory directory;
    Child redis({"redis-server", "--port", std::to_string(port), "--save", "", "--dir", directory.path().string(),
                 "--enable-debug-command", "yes"});
    wait_until([&] { return Connection(port).is_open(); }, redis);
    Memtrace memtrace({"-p", std::to_string(redis.pid()), "3600"});
    memtrace.wait_attached();
    const Connection client(port);
    REQUIRE(client.ask("DEBUG POPULATE 10000 key 3000\r\n").starts_with("+OK"));
    check_explained(memtrace.report(), 20'000'000);
    // What it gives back is explained as well.
    REQUIRE(client.ask("FLUSHALL SYNC\r\n").starts_with("+OK"));
    REQUIRE(client.ask("DEBUG POPULATE 5000 other 6000\r\n").starts_with("+OK"));
    check_explained(memtrace.report(), 10'000'000);
    CHECK(memtrace.stop().status == 0);
    redis.send_signal(SIGTERM);
    CHECK(redis.wait() == 0);
}

TEST_CASE("the growth of postgres and its backends is explained", "[e2e][memory]") {
    const std::string programs = postgres_programs();
    const passwd* const user = getpwnam("postgres");
    if (programs.empty() || user == nullptr) {
        WARN("skipped: postgres is not installed");
        return;
    }
    const TemporaryDirectory directory;
    const std::string path = directory.path();
    REQUIRE(chown(path.c_str(), user->pw_uid, user->pw_gid) == 0);
    const std::string data = path + "/data";
    REQUIRE(
        run_to_end(as_postgres({programs + "initdb", "-D", data, "-A", "trust", "--no-sync", "--no-locale"})).status ==
        0);
    Child server(
        as_postgres({programs + "postgres", "-D", data, "-k", path, "-c", "listen_addresses=", "-c", "fsync=off"}));
    wait_until([&] { return server.wait_for_error_text("ready to accept connections"); }, server);
    Memtrace memtrace({"-f", "-p", std::to_string(server.pid()), "3600"});
    memtrace.wait_attached();
    Child client(as_postgres({"psql", "-q", "-h", path, "-d", "postgres"}));
    client.write_line("set work_mem = '200MB';");
    client.write_line("create table kept as select g, md5(g::text) t from generate_series(1, 100000) g;");
    client.write_line("select count(*) from (select t from kept order by t) sorted;");
    client.write_line("\\echo done");
    while (client.read_line() != "done")
        continue;
    check_explained(memtrace.report(), 2'000'000);
    client.write_line("\\q");
    CHECK(client.wait() == 0);
    CHECK(memtrace.stop().status == 0);
    server.send_signal(SIGINT);
    CHECK(server.wait() == 0);
}
