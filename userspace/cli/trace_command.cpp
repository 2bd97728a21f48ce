#include "cli/trace_command.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <signal.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <optional>

#include "base/clock.hpp"
#include "base/log.hpp"
#include "cli/collected_census.hpp"
#include "cli/cost_watch.hpp"
#include "cli/event_loop.hpp"
#include "cli/output.hpp"
#include "cli/reporter.hpp"
#include "cli/session_setup.hpp"
#include "probes/allocator_table.hpp"
#include "processes/loaded_files.hpp"
#include "tracing/command.hpp"
#include "tracing/end_status.hpp"
#include "tracing/tracer.hpp"

namespace memtrace {
namespace {

StartRecord start_record(std::span<const char* const> arguments, AttachRung rung) {
    utsname system{};
    uname(&system);
    return {.time_unix_ns = unix_now_ns(),
            .version = MEMTRACE_VERSION,
            .kernel = system.release,
            .args = {arguments.begin(), arguments.end()},
            .attach = std::string(rung_name(rung)),
            .unwinder = "cfi"};
}

/// One session from the first probe to the last report.
class LiveSession : private TracerListener {
  public:
    LiveSession(const Options& options, std::span<const char* const> arguments, EventLoop& loop, Output& output)
        : options_(options), arguments_(arguments), loop_(loop), output_(output) {}

    int run();

  private:
    Result<void> start();
    Result<void> prepare_command();
    Result<void> add_targets();
    void say_what_is_traced();
    Result<void> begin_recording();
    Result<void> loop();
    Result<void> handle_signals(const Wakeup& wakeup);
    Result<void> handle_tick(uint64_t ticks);
    Result<void> report(bool is_final);
    Result<void> handle_exits();
    Result<void> handle_exits_when_due();
    int wait_ms() const;
    void watch_cost();
    Result<void> end_by_signal(const signalfd_siginfo& info);
    void reap_command();
    int finish(const Result<void>& outcome);
    int exit_status(const Result<void>& outcome) const;
    void keep_error(Result<void> outcome);

    void on_record(const Record& record) override { keep_error(output_.write(record)); }
    void on_exit(pid_t pid) override;

    const Options& options_;
    std::span<const char* const> arguments_;
    EventLoop& loop_;
    Output& output_;
    AllocatorTable table_;
    std::unique_ptr<Tracer> tracer_;
    std::optional<Reporter> reporter_;
    std::optional<CostWatch> cost_watch_;
    std::optional<Command> command_;
    std::string command_path_;
    std::optional<int> command_status_;  // as a shell has it
    std::optional<int> start_failure_;   // 126 or 127
    std::vector<pid_t> exited_;
    uint64_t exits_due_ns_ = 0;  // not before: those that have ended are taken together
    std::optional<Error> listener_error_;
    uint64_t reports_ = 0;
    std::string end_reason_;  // set: the session is over
    bool is_interrupted_ = false;
    bool is_interrupted_twice_ = false;
};

void LiveSession::keep_error(Result<void> outcome) {
    if (!outcome && !listener_error_) listener_error_ = std::move(outcome).error();
}

void LiveSession::on_exit(pid_t pid) {
    exited_.push_back(pid);
}

Result<void> LiveSession::prepare_command() {
    if (options_.command.empty()) return {};
    const CommandPath found = find_command(options_.command.front(), environ);
    if (found.status != CommandStatus::found) {
        start_failure_ = static_cast<int>(found.status);
        return command_error(options_.command.front(), found.status);
    }
    command_path_ = found.path;
    auto command = Command::prepare(command_path_, options_.command);
    if (!command) return std::move(command).error();
    command_ = std::move(command).value();
    return {};
}

Result<void> LiveSession::add_targets() {
    std::optional<Error> first_error;
    for (const pid_t pid : options_.pids) {
        auto result = tracer_->add_process(pid);
        if (result) continue;
        // With several targets, those that cannot be traced are named and the others are traced.
        if (options_.pids.size() > 1 || command_ || tracer_->may_find_targets())
            Targets::skip(pid, "", result.error(), *this);
        if (!first_error) first_error = std::move(result).error();
    }
    if (command_) {
        auto files = files_loaded_by(command_path_, environ);
        if (!files) return std::move(files).error();
        if (auto result = tracer_->add_command(command_->pid(), *files); !result) return result;
    }
    if (auto result = tracer_->add_scope(*this); !result) return result;
    if (!tracer_->targets().empty()) return {};
    if (first_error) return std::move(*first_error);
    if (!options_.waits_for_targets)
        return Error{"no such target", "nothing that runs is to be traced", "leave --no-wait out to wait for it",
                     ExitStatus::no_such_target};
    return {};
}

/// Who reads one of these lines may count on every allocation from then on.
void LiveSession::say_what_is_traced() {
    std::vector<std::string> names;
    for (const auto& [pid, target] : tracer_->targets()) {
        const bool is_command = command_ && command_->pid() == pid;
        names.push_back(is_command ? fmt::format("{}[{}]", options_.command.front(), pid)
                                   : fmt::format("{}[{}]", target.process.comm, pid));
        if (!is_command) on_record(tracer_->attach_record(pid));
    }
    for (const std::string& missing : tracer_->missing())
        log_info(missing + " does not exist yet: waiting for it");
    if (names.empty())
        log_info("nothing that runs is to be traced yet: waiting for it; ^C ends");
    else
        log_info(fmt::format("attached to {}; what was allocated before is not seen; ^C ends with a last report",
                             fmt::join(names, ", ")));
}

Result<void> LiveSession::begin_recording() {
    if (!cost_watch_->stop_reason()) tracer_->arm();
    reporter_.emplace(options_, *tracer_, output_);
    if (cost_watch_->stop_reason()) reporter_->note_stop(*cost_watch_->stop_reason());
    say_what_is_traced();
    if (command_)
        if (auto started = command_->run(); !started) {
            start_failure_ = static_cast<int>(CommandStatus::not_executable);
            return started;
        }
    if (auto started = cost_watch_->start(); !started) return started;
    return loop_.start_ticks(options_.interval_ns);
}

Result<void> LiveSession::start() {
    if (auto filled = fill_table(options_, table_); !filled) return filled;
    if (auto prepared = prepare_command(); !prepared) return prepared;
    auto type_names = read_type_names(options_.type_names_path);
    if (!type_names) return std::move(type_names).error();
    auto tracer = Tracer::open(session_options(options_, table_), scope_options(options_), std::move(*type_names));
    if (!tracer) return std::move(tracer).error();
    tracer_ = std::move(tracer).value();
    for (const int fd : {tracer_->event_fd(), tracer_->mapping_fd()})
        if (auto watched = loop_.watch(fd); !watched) return watched;
    on_record(start_record(arguments_, tracer_->rung()));
    if (auto added = add_targets(); !added) return added;
    cost_watch_.emplace(options_, *tracer_);
    if (auto predicted = cost_watch_->predict(); !predicted) return predicted;
    if (auto watched = loop_.watch(cost_watch_->fd()); !watched) return watched;
    // Before recording starts threads of its own, which have what this one has.
    if (auto kept = keep_only(needed_capabilities(options_)); !kept) return kept;
    return begin_recording();
}

void LiveSession::reap_command() {
    int status = 0;
    if (command_ && !command_status_ && waitpid(command_->pid(), &status, WNOHANG) == command_->pid())
        command_status_ = shell_status(static_cast<uint32_t>(status));
}

Result<void> LiveSession::end_by_signal(const signalfd_siginfo& info) {
    if (is_interrupted_) {
        is_interrupted_twice_ = true;
        end_reason_ = "signal";
        return {};
    }
    is_interrupted_ = true;
    if (!command_ || command_status_) {
        end_reason_ = "signal";
        return {};
    }
    // A terminal has sent its ^C to the command as well (si_code SI_KERNEL): it must not come twice.
    if (info.ssi_code != SI_KERNEL) kill(command_->pid(), static_cast<int>(info.ssi_signo));
    return {};
}

Result<void> LiveSession::handle_signals(const Wakeup& wakeup) {
    for (const signalfd_siginfo& info : wakeup.signals) {
        Result<void> handled;
        if (info.ssi_signo == SIGINT || info.ssi_signo == SIGTERM) handled = end_by_signal(info);
        if (info.ssi_signo == SIGUSR1) handled = report(false);
        if (info.ssi_signo == SIGUSR2) reporter_->set_baseline();
        if (!handled) return handled;
    }
    reap_command();
    return {};
}

Result<void> LiveSession::handle_tick(uint64_t ticks) {
    if (ticks == 0 || tracer_->targets().empty()) return {};
    ++reports_;
    const bool is_last = options_.count && reports_ >= *options_.count;
    // A command goes on without its tracer's reports: its end is waited for all the same.
    if (is_last) end_reason_ = "count";
    if (is_last) tracer_->disarm();
    return report(is_last);
}

/// What has ended is told of first, then what has had its process id since; in a storm there is no end of it.
Result<void> LiveSession::report(bool is_final) {
    const uint64_t until_ns = monotonic_now_ns() + (is_final ? 5'000'000'000 : 500'000'000);
    do {
        if (auto handled = handle_exits(); !handled) return handled;
    } while (!exited_.empty() && monotonic_now_ns() < until_ns);
    return reporter_->report(is_final);
}

/// Each time costs a reading of the sums: in a storm a tenth of the time goes there, and nobody waits long.
Result<void> LiveSession::handle_exits_when_due() {
    constexpr uint64_t rest_to_work = 9;
    constexpr uint64_t longest_rest_ns = 200'000'000;
    const uint64_t begin_ns = monotonic_now_ns();
    if (exited_.empty() || begin_ns < exits_due_ns_) return {};
    auto handled = handle_exits();
    const uint64_t end_ns = monotonic_now_ns();
    exits_due_ns_ = end_ns + std::min(rest_to_work * (end_ns - begin_ns), longest_rest_ns);
    return handled;
}

int LiveSession::wait_ms() const {
    constexpr uint64_t ns_per_ms = 1'000'000;
    // An event that was delayed on its way may come later than look_again_ns(), and unannounced.
    constexpr uint64_t longest_wait_ns = 1000 * ns_per_ms;
    const uint64_t now_ns = monotonic_now_ns();
    uint64_t due_ns = now_ns + longest_wait_ns;
    if (now_ns < tracer_->look_again_ns()) due_ns = std::min(due_ns, tracer_->look_again_ns());
    if (!exited_.empty()) due_ns = std::min(due_ns, exits_due_ns_);
    return now_ns >= due_ns ? 0 : static_cast<int>((due_ns - now_ns) / ns_per_ms + 1);
}

Result<void> LiveSession::handle_exits() {
    std::vector<pid_t> ended = std::exchange(exited_, {});
    std::erase_if(ended, [&](pid_t pid) { return !tracer_->targets().contains(pid); });
    if (auto reported = reporter_->report_ends(ended); !reported) return reported;
    for (const pid_t pid : ended) {
        const Target& target = tracer_->targets().at(pid);
        // Processes that come and go are told of by records.
        if (!target.is_found_later)
            log_info(fmt::format("{}[{}] {}", target.process.comm, pid, describe_end(target.exit_code.value_or(0))));
        tracer_->forget(pid);
    }
    if (tracer_->targets().empty() && !tracer_->may_find_targets() && end_reason_.empty()) end_reason_ = "exited";
    return {};
}

void LiveSession::watch_cost() {
    if (const auto change = cost_watch_->on_wakeup()) {
        log_warning(*change);
        on_record(WarningRecord{.code = "overhead", .message = *change});
        if (cost_watch_->stop_reason()) reporter_->note_stop(*cost_watch_->stop_reason());
    }
    reporter_->set_overhead(cost_watch_->figures());
}

Result<void> LiveSession::loop() {
    while (end_reason_.empty()) {
        const Wakeup wakeup = loop_.wait(wait_ms());
        tracer_->drain(*this);
        watch_cost();
        if (listener_error_) return *listener_error_;
        if (auto handled = handle_exits_when_due(); !handled) return handled;
        reporter_->release_ended();
        if (!end_reason_.empty()) break;
        if (auto handled = handle_signals(wakeup); !handled) return handled;
        if (!end_reason_.empty()) break;
        if (auto handled = handle_tick(wakeup.ticks); !handled) return handled;
    }
    return {};
}

int LiveSession::exit_status(const Result<void>& outcome) const {
    if (start_failure_) return *start_failure_;
    if (!outcome) return output_.is_closed_by_reader() ? 0 : static_cast<int>(outcome.error().status);
    if (is_interrupted_twice_) return static_cast<int>(ExitStatus::interrupted_twice);
    if (options_.is_strict && reporter_ && reporter_->has_losses()) return static_cast<int>(ExitStatus::failure);
    return command_status_.value_or(0);
}

int LiveSession::finish(const Result<void>& outcome) {
    if (tracer_) tracer_->disarm();
    if (outcome && end_reason_ == "signal" && reporter_ && !is_interrupted_twice_) {
        tracer_->drain(*this);
        keep_error(report(true));
    }
    if (!outcome && !output_.is_closed_by_reader()) log_error(outcome.error());
    tracer_.reset();
    // Whatever became of the tracing, a command that was started is waited for: its status is ours.
    if (command_ && !command_status_ && !start_failure_ && reporter_) {
        int status = 0;
        while (waitpid(command_->pid(), &status, 0) < 0 && errno == EINTR)
            continue;
        command_status_ = shell_status(static_cast<uint32_t>(status));
    }
    const int status = exit_status(outcome);
    (void)output_.write(EndRecord{.reason = outcome ? end_reason_ : "error", .status = status});
    return status;
}

int LiveSession::run() {
    Result<void> outcome = start();
    if (outcome) outcome = loop();
    return finish(outcome);
}

}  // namespace

int run_trace_command(const Options& options, std::span<const char* const> arguments) {
    set_log_quiet(options.is_quiet);
    auto loop = EventLoop::open();
    if (!loop) {
        log_error(loop.error());
        return static_cast<int>(loop.error().status);
    }
    auto output = Output::open(options);
    if (!output) {
        log_error(output.error());
        return static_cast<int>(output.error().status);
    }
    return LiveSession(options, arguments, *loop, **output).run();
}

}  // namespace memtrace
