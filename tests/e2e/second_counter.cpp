#include "e2e/second_counter.hpp"

#include <fcntl.h>
#include <sys/mman.h>

#include <chrono>
#include <fstream>
#include <stdexcept>
#include <string>
#include <thread>

#include "base/fd.hpp"
#include "catch.hpp"

namespace memtrace::e2e {

SecondCounter::SecondCounter(const std::filesystem::path& file) {
    const Fd fd(open(file.c_str(), O_RDWR | O_CLOEXEC));
    void* memory = mmap(nullptr, sizeof(counting_figures), PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
    if (memory == MAP_FAILED) throw std::runtime_error("no counter file " + file.string());
    figures_ = static_cast<counting_figures*>(memory);
}

SecondCounter::~SecondCounter() {
    if (figures_ != nullptr) munmap(figures_, sizeof *figures_);
}

void SecondCounter::start_window() {
    counting_figures zero{};
    zero.window = figures_->window + 1;
    *figures_ = zero;
}

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

void check_equal(const counting_figures& expected, const Json& report) {
    const Json& heap = report.at("heap");
    INFO(report.at("accuracy").dump());
    CHECK(expected.not_counted == 0);
    CHECK(heap.at("allocations") == expected.allocations);
    CHECK(heap.at("allocated_bytes") == expected.allocated_bytes);
    CHECK(heap.at("frees") == expected.frees);
    CHECK(heap.at("freed_bytes") == expected.freed_bytes);
    CHECK(report.at("accuracy").at("unknown_frees") == expected.unknown_frees);
    CHECK(report.at("accuracy").at("complete") == true);
}

}  // namespace memtrace::e2e
