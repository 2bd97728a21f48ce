#include "bpf/target_process.hpp"

#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <new>
#include <stdexcept>

namespace memtrace::test {
namespace {

constexpr int step_limit_ms = 60'000;

struct Pipe {
    Fd read_end;
    Fd write_end;
};

Pipe make_pipe() {
    int ends[2];
    if (pipe(ends) != 0) throw std::runtime_error("no pipe for the target");
    return {Fd(ends[0]), Fd(ends[1])};
}

Shared* map_shared() {
    void* memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::runtime_error("no memory to share with the target");
    return new (memory) Shared;
}

[[noreturn]] void obey(Shared& shared, int orders, int answers) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    Step step = nullptr;
    while (read(orders, &step, sizeof step) == static_cast<ssize_t>(sizeof step)) {
        step(shared);
        if (write(answers, "", 1) != 1) break;
    }
    _exit(0);
}

}  // namespace

void Shared::hold(void* block, uint64_t size_bytes) {
    const uint32_t index = block_count.fetch_add(1);
    if (index >= max_blocks) _exit(1);
    blocks[index] = {reinterpret_cast<uint64_t>(block), size_bytes};
}

TargetProcess::TargetProcess() : shared_(map_shared()) {
    Pipe orders = make_pipe();
    Pipe answers = make_pipe();
    pid_ = fork();
    if (pid_ < 0) throw std::runtime_error("no process for the target");
    if (pid_ == 0) {
        orders.write_end.reset();
        answers.read_end.reset();
        obey(*shared_, orders.read_end.get(), answers.write_end.get());
    }
    orders_ = std::move(orders.write_end);
    answers_ = std::move(answers.read_end);
}

TargetProcess::~TargetProcess() {
    if (pid_ > 0) {
        kill(pid_, SIGKILL);
        waitpid(pid_, nullptr, 0);
    }
    munmap(shared_, sizeof(Shared));
}

void TargetProcess::run(Step step) {
    start(step);
    finish();
}

void TargetProcess::start(Step step) {
    if (write(orders_.get(), &step, sizeof step) != static_cast<ssize_t>(sizeof step))
        throw std::runtime_error("the target takes no step any more");
}

void TargetProcess::finish() {
    pollfd answer{answers_.get(), POLLIN, 0};
    if (poll(&answer, 1, step_limit_ms) != 1) throw std::runtime_error("the target hangs");
    char byte;
    if (read(answers_.get(), &byte, 1) != 1) throw std::runtime_error("the target died");
}

int TargetProcess::wait_for_end(Step last_step) {
    start(last_step);
    int status = 0;
    if (waitpid(pid_, &status, 0) != pid_) throw std::runtime_error("the target is gone");
    pid_ = -1;
    return status;
}

}  // namespace memtrace::test
