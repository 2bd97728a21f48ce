// memtrace's sums against those of a second, independent counter, on a program that nobody here wrote: python3, on a
// window in which it is quiet at both ends.
#include <fcntl.h>
#include <sys/mman.h>

#include <chrono>
#include <fstream>
#include <sstream>
#include <thread>

#include "catch.hpp"
#include "e2e/memtrace.hpp"
#include "e2e/temporary_directory.hpp"
#include "workloads/counting_preload.h"

using namespace memtrace::e2e;

namespace {

/// The figures that the preloaded counter of one process shares.
class SecondCounter {
  public:
    explicit SecondCounter(const std::filesystem::path& file) {
        const memtrace::Fd fd(open(file.c_str(), O_RDWR | O_CLOEXEC));
        void* memory = mmap(nullptr, sizeof(counting_figures), PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
        if (memory == MAP_FAILED) throw std::runtime_error("no counter file " + file.string());
        figures_ = static_cast<counting_figures*>(memory);
    }
    SecondCounter(const SecondCounter&) = delete;
    SecondCounter& operator=(const SecondCounter&) = delete;
    ~SecondCounter() { munmap(figures_, sizeof *figures_); }

    void start_window() {
        counting_figures zero{};
        zero.window = figures_->window + 1;
        *figures_ = zero;
    }
    counting_figures figures() const { return *figures_; }

  private:
    counting_figures* figures_;
};

/// Its only thread waits in a read: state S twice with the same count of switches.
void wait_until_quiet(pid_t pid) {
    const auto switches = [pid] {
        std::ifstream file("/proc/" + std::to_string(pid) + "/status");
        std::string state;
        std::string count;
        for (std::string line; std::getline(file, line);) {
            if (line.starts_with("State:")) state = line;
            if (line.starts_with("voluntary_ctxt_switches:")) count = line;
        }
        return state.find("S (sleeping)") == std::string::npos ? std::string() : count;
    };
    for (int i = 0; i < 3000; ++i) {
        const std::string before = switches();
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        if (!before.empty() && switches() == before) return;
    }
    throw std::runtime_error("the program does not become quiet");
}

constexpr const char* script = R"(
import sys, json, re, collections, os
print('ready', os.getpid(), flush=True)
for line in sys.stdin:
    if line.startswith('quit'): sys.exit(int(line[5:] or 0))
    data = {str(i): [i, str(i) * 5, {'key': i / 3}] for i in range(1500)}
    copy = json.loads(json.dumps(data))
    words = collections.Counter(re.findall(r'[0-9]+', json.dumps(copy)))
    kept = [bytearray(n) for n in range(0, 4000, 7)]
    text = '-'.join(sorted(words)).encode().decode('latin-1')
    print(len(text), flush=True)
)";

}  // namespace

TEST_CASE("the sums for python3 equal those of a preloaded counter", "[e2e][second_counter]") {
    require_root();
    on_every_rung([](const std::string& rung) {
        const TemporaryDirectory directory;
        Workload python("python3", {"-c", script},
                        {"PYTHONMALLOC=malloc", "LD_PRELOAD=" + workload_path("libcounting_preload.so"),
                         "COUNTING_PRELOAD_DIRECTORY=" + directory.path().string()});
        wait_until_quiet(python.pid());
        SecondCounter counter(directory.path() / std::to_string(python.pid()));
        counter.start_window();
        Memtrace memtrace(on_demand(rung, python.pid()));
        memtrace.wait_attached();
        python.child().write_line("go");
        python.child().read_line();
        wait_until_quiet(python.pid());
        const counting_figures expected = counter.figures();
        const Json report = memtrace.report();
        const Json& heap = report.at("heap");
        INFO(report.at("accuracy").dump());
        CHECK(expected.not_counted == 0);
        CHECK(expected.allocations > 10000);
        CHECK(heap.at("allocations") == expected.allocations);
        CHECK(heap.at("allocated_bytes") == expected.allocated_bytes);
        CHECK(heap.at("frees") == expected.frees);
        CHECK(heap.at("freed_bytes") == expected.freed_bytes);
        CHECK(report.at("accuracy").at("unknown_frees") == expected.unknown_frees);
        CHECK(report.at("accuracy").at("complete") == true);
        CHECK(memtrace.stop().status == 0);
        CHECK(python.quit(3) == 3);
    });
}
