#include "e2e/faults.hpp"

#include <elf.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <stdexcept>
#include <thread>

#include "e2e/temporary_directory.hpp"

namespace memtrace::e2e {
namespace {

constexpr std::chrono::seconds watchdog{10};

[[noreturn]] void become(const std::vector<std::string>& arguments, const std::string& output,
                         const std::string& errors) {
    std::vector<char*> pointers;
    for (const std::string& argument : arguments)
        pointers.push_back(const_cast<char*>(argument.c_str()));
    pointers.push_back(nullptr);
    dup2(open(output.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600), STDOUT_FILENO);
    dup2(open(errors.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600), STDERR_FILENO);
    ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
    execv(pointers[0], pointers.data());
    _exit(127);
}

/// AT_ENTRY of the process.
uint64_t entry_of(pid_t pid) {
    std::ifstream file("/proc/" + std::to_string(pid) + "/auxv", std::ios::binary);
    Elf64_auxv_t value{};
    while (file.read(reinterpret_cast<char*>(&value), sizeof value))
        if (value.a_type == AT_ENTRY) return value.a_un.a_val;
    throw std::runtime_error("no entry of the program is known");
}

/// A child under ptrace.
class Traced {
  public:
    explicit Traced(pid_t pid) : pid_(pid) {}
    Traced(const Traced&) = delete;
    Traced& operator=(const Traced&) = delete;
    ~Traced() {
        if (pid_ <= 0) return;
        kill(pid_, SIGKILL);
        waitpid(pid_, nullptr, 0);
    }

    /// Waits for the next stop; false when it has ended.
    bool wait_for_stop() {
        if (waitpid(pid_, &raw_, 0) == pid_ && WIFSTOPPED(raw_)) return true;
        pid_ = -1;
        return false;
    }
    int stop_signal() const { return WSTOPSIG(raw_); }
    int status() const { return WIFSIGNALED(raw_) ? 128 + WTERMSIG(raw_) : WEXITSTATUS(raw_); }
    user_regs_struct registers() const {
        user_regs_struct values{};
        ptrace(PTRACE_GETREGS, pid_, nullptr, &values);
        return values;
    }
    void set_registers(user_regs_struct values) const { ptrace(PTRACE_SETREGS, pid_, nullptr, &values); }

    /// Runs it from its exec to the entry of the program.
    void run_to_entry() {
        if (!wait_for_stop()) throw std::runtime_error("the program cannot be run");
        ptrace(PTRACE_SETOPTIONS, pid_, nullptr, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL);
        const uint64_t entry = entry_of(pid_);
        const long word = ptrace(PTRACE_PEEKTEXT, pid_, entry, nullptr);
        constexpr long int3 = 0xcc;
        ptrace(PTRACE_POKETEXT, pid_, entry, (word & ~0xffL) | int3);
        ptrace(PTRACE_CONT, pid_, nullptr, nullptr);
        if (!wait_for_stop()) throw std::runtime_error("the program ends before its entry");
        ptrace(PTRACE_POKETEXT, pid_, entry, word);
        user_regs_struct values = registers();
        values.rip = entry;
        set_registers(values);
    }
    /// Goes on to the next stop at a system call, its begin and its end in turn; false when it has ended.
    bool run_to_system_call() {
        int signal_number = 0;
        do {
            ptrace(PTRACE_SYSCALL, pid_, nullptr, signal_number);
            if (!wait_for_stop()) return false;
            signal_number = stop_signal();
        } while (signal_number != (SIGTRAP | 0x80));
        return true;
    }
    void let_go() const { ptrace(PTRACE_DETACH, pid_, nullptr, nullptr); }
    /// False when it does not end in time; then it is killed.
    bool wait_for_end() {
        const auto deadline = std::chrono::steady_clock::now() + watchdog;
        while (waitpid(pid_, &raw_, WNOHANG) == 0) {
            if (std::chrono::steady_clock::now() > deadline) return false;
            std::this_thread::sleep_for(std::chrono::milliseconds(2));
        }
        pid_ = -1;
        return true;
    }

  private:
    pid_t pid_;
    int raw_ = 0;
};

}  // namespace

FaultyRun run_with_fault(const std::vector<std::string>& arguments, const ChooseFault& choose, Faults faults) {
    const TemporaryDirectory directory;
    const std::string output = directory.path() / "output";
    const std::string errors = directory.path() / "errors";
    FaultyRun run;
    const pid_t pid = fork();
    if (pid == 0) become(arguments, output, errors);
    Traced traced(pid);
    traced.run_to_entry();
    while ((!run.fault || faults == Faults::all) && traced.run_to_system_call()) {
        user_regs_struct values = traced.registers();
        const SystemCall call{++run.calls, static_cast<long>(values.orig_rax), values.rdi};
        const int error_number = choose(call);
        if (error_number != 0) {
            values.orig_rax = static_cast<unsigned long long>(-1);  // the kernel does nothing
            traced.set_registers(values);
            run.fault = call;
        }
        if (!traced.run_to_system_call()) break;
        if (error_number == 0) continue;
        values = traced.registers();
        values.rax = static_cast<unsigned long long>(-error_number);
        traced.set_registers(values);
        if (faults == Faults::all) continue;
        traced.let_go();
        run.hangs = !traced.wait_for_end();
    }
    run.status = traced.status();
    run.output = file_text(output);
    run.errors = file_text(errors);
    return run;
}

}  // namespace memtrace::e2e
