// Servers with workers under load: what the tree, and each worker, holds is exact by the server's own account or by
// that of a second counter.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "catch.hpp"
#include "e2e/records.hpp"
#include "e2e/second_counter.hpp"
#include "e2e/temporary_directory.hpp"

using namespace memtrace::e2e;

namespace {

std::vector<std::string> tree_of(pid_t pid, const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"-f", "-p", std::to_string(pid), "-T", "0", "3600"};
    arguments.insert(arguments.begin(), more.begin(), more.end());
    return arguments;
}

int64_t live_bytes_of(const Json& report, const std::string& pid) {
    for (const Json& process : report.at("processes"))
        if (std::to_string(process.at("pid").get<pid_t>()) == pid) return process.at("live_bytes");
    return -1;
}

/// A request over a connection of its own to a local port; whether it was answered.
bool request_page(uint16_t port) {
    const memtrace::Fd connection(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (connect(connection.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) return false;
    const std::string_view request = "GET / HTTP/1.0\r\nHost: localhost\r\n\r\n";
    if (write(connection.get(), request.data(), request.size()) < 0) return false;
    std::string answer(4096, '\0');
    ssize_t total = 0;
    for (ssize_t size; (size = read(connection.get(), answer.data(), answer.size())) > 0; total += size)
        continue;
    return total > 0;
}

/// A port that nobody listens on.
uint16_t free_port() {
    const memtrace::Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    if (bind(fd.get(), reinterpret_cast<sockaddr*>(&address), size) != 0 ||
        getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0)
        throw std::runtime_error("no port");
    return ntohs(address.sin_port);
}

/// nginx with a master and two workers, counted by the second counter in every process.
class Nginx {
  public:
    Nginx() : port_(free_port()), child_(command(), environment()) {
        for (int tries = 0; !request_page(port_); ++tries) {
            if (tries == 500) throw std::runtime_error("nginx does not answer: " + child_.errors());
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
        }
        std::ifstream children("/proc/" + std::to_string(child_.pid()) + "/task/" + std::to_string(child_.pid()) +
                               "/children");
        for (pid_t pid; children >> pid;)
            workers_.push_back(pid);
    }
    ~Nginx() {
        child_.send_signal(SIGTERM);
        child_.wait();
    }
    Nginx(const Nginx&) = delete;
    Nginx& operator=(const Nginx&) = delete;

    pid_t pid() const { return child_.pid(); }
    const std::vector<pid_t>& workers() const { return workers_; }
    SecondCounter counter(pid_t pid) const { return SecondCounter(directory_.path() / std::to_string(pid)); }
    void wait_until_quiet() const {
        for (const pid_t pid : workers_)
            memtrace::e2e::wait_until_quiet(pid);
    }
    /// From some connections at once.
    void load(int requests) const {
        std::vector<std::thread> clients;
        for (int client = 0; client < 4; ++client)
            clients.emplace_back([&] {
                for (int i = 0; i < requests / 4; ++i)
                    request_page(port_);
            });
        for (std::thread& client : clients)
            client.join();
    }

  private:
    std::vector<std::string> command() const {
        const std::string file = directory_.path() / "nginx.conf";
        const std::string path = directory_.path();
        std::ofstream(directory_.path() / "index.html") << std::string(3000, 'x');
        std::ofstream(file) << "worker_processes 2; daemon off; error_log stderr; user root; pid " << path
                            << "/pid; events {} http { access_log off; gzip on; gzip_http_version 1.0; "
                            << "client_body_temp_path " << path << "; proxy_temp_path " << path
                            << "; fastcgi_temp_path " << path << "; uwsgi_temp_path " << path << "; scgi_temp_path "
                            << path << "; server { listen 127.0.0.1:" << port_ << "; root " << path << "; } }";
        return {"nginx", "-c", file, "-e", "stderr"};
    }
    std::vector<std::string> environment() const {
        return {"LD_PRELOAD=" + workload_path("libcounting_preload.so"),
                "COUNTING_PRELOAD_DIRECTORY=" + directory_.path().string(), "COUNTING_PRELOAD_CHILDREN=1"};
    }

    TemporaryDirectory directory_;
    uint16_t port_;
    Child child_;
    std::vector<pid_t> workers_;
};

bool is_installed(const std::string& program) {
    return run_to_end({"sh", "-c", "command -v " + program + " >/dev/null"}).status == 0;
}

}  // namespace

TEST_CASE("a pre-forking server that replaces its workers under load is exact from birth", "[e2e][servers]") {
    require_root();
    Workload server(workload_path("prefork_server"), {"4", "50"});
    Memtrace memtrace(tree_of(server.pid(), {"--from-birth"}));
    memtrace.wait_attached();
    const Json truth = tell(server, "load 1000");
    const Json report = memtrace.report();
    INFO(truth.dump());
    INFO(report.at("accuracy").dump());
    CHECK(truth.at("ended") > 10);
    CHECK(report.at("accuracy").at("complete") == true);
    const Json& heap = report.at("heap");
    CHECK(heap.at("allocations") == truth.at("allocations"));
    CHECK(heap.at("frees") == truth.at("frees"));
    CHECK(heap.at("live_bytes") == truth.at("live_bytes"));
    CHECK(heap.at("ended_bytes") == truth.at("ended_bytes"));
    CHECK(sites_called(report, "make_answer").live_bytes == truth.at("live_bytes"));
    for (const auto& [pid, worker] : truth.at("living").items())
        CHECK(live_bytes_of(report, pid) == worker.at("live_bytes"));
    CHECK(memtrace.stop().status == 0);
    CHECK(server.quit(0) == 0);
}

TEST_CASE("a pre-forking server: workers that were there at the attach are exact with links of their own",
          "[e2e][servers]") {
    require_root();
    Workload server(workload_path("prefork_server"), {"4", "100000"});
    Memtrace memtrace(tree_of(server.pid(), {}));
    memtrace.wait_attached();
    const Json truth = tell(server, "load 1000");
    const Json report = memtrace.report();
    INFO(report.at("accuracy").dump());
    CHECK(report.at("accuracy").at("complete") == true);
    CHECK(report.at("heap").at("allocations") == truth.at("allocations"));
    CHECK(report.at("heap").at("frees") == truth.at("frees"));
    CHECK(report.at("heap").at("live_bytes") == truth.at("live_bytes"));
    for (const auto& [pid, worker] : truth.at("living").items())
        CHECK(live_bytes_of(report, pid) == worker.at("live_bytes"));
    CHECK(memtrace.stop().status == 0);
    CHECK(server.quit(0) == 0);
}

TEST_CASE("nginx's workers under load: each exact by a second counter, and the tree is their sum", "[e2e][servers]") {
    require_root();
    if (!is_installed("nginx")) {
        WARN("skipped: nginx is not installed");
        return;
    }
    Nginx nginx;
    REQUIRE(nginx.workers().size() == 2);
    nginx.wait_until_quiet();
    std::vector<SecondCounter> counters;
    for (const pid_t pid : nginx.workers())
        counters.push_back(nginx.counter(pid));
    for (SecondCounter& counter : counters)
        counter.start_window();
    // By its path, for there may be others.
    Memtrace by_process(tree_of(nginx.pid(), {"--by", "process"}));
    by_process.wait_attached();
    nginx.load(2000);
    nginx.wait_until_quiet();
    const std::vector<Json> reports = by_process.reports(3);
    uint64_t allocations = 0;
    for (size_t index = 0; index < counters.size(); ++index) {
        check_equal(counters[index].figures(), report_of(reports, nginx.workers()[index]));
        allocations += counters[index].figures().allocations;
    }
    CHECK(allocations > 2000 * 3);
    CHECK(by_process.stop().status == 0);
    // The same as one tree: what its processes have is what it has.
    Memtrace tree(tree_of(nginx.pid(), {}));
    tree.wait_attached();
    nginx.load(200);
    nginx.wait_until_quiet();
    const Json report = tree.report();
    CHECK(report.at("accuracy").at("complete") == true);
    CHECK(report.at("processes").size() == 3);
    int64_t live_bytes = 0;
    for (const Json& process : report.at("processes"))
        live_bytes += process.at("live_bytes").get<int64_t>();
    CHECK(report.at("heap").at("live_bytes") == live_bytes);
    CHECK(tree.stop().status == 0);
}
