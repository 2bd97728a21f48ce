#include "bench/tracers.hpp"

#include <bpf/libbpf.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>

#include <array>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <utility>

#include "bench_empty.skel.h"
#include "probes/elf_file.hpp"
#include "probes/resolve.hpp"

namespace memtrace {
namespace {

class NoTracer : public Tracer {
  public:
    std::string_view name() const override { return "none"; }
    Result<void> attach(const TargetProcess&) override { return {}; }
    Result<void> detach(const TargetProcess&) override { return {}; }
};

struct SkeletonDeleter {
    void operator()(bench_empty_bpf* skeleton) const { bench_empty_bpf__destroy(skeleton); }
};
using Skeleton = std::unique_ptr<bench_empty_bpf, SkeletonDeleter>;

class EmptyProbes : public Tracer {
  public:
    EmptyProbes(AttachRung rung, Skeleton skeleton) : rung_(rung), skeleton_(std::move(skeleton)) {}
    std::string_view name() const override { return "empty"; }
    Result<void> attach(const TargetProcess& target) override;
    Result<void> detach(const TargetProcess&) override {
        probes_.reset();
        return {};
    }

  private:
    AttachRung rung_;
    Skeleton skeleton_;
    std::optional<FileProbes> probes_;
};

// include/uapi/linux/bpf.h of Linux 6.6 and 6.13; Debian 12's headers do not know them.
constexpr auto bpf_trace_uprobe_multi = static_cast<bpf_attach_type>(48);
constexpr auto bpf_trace_uprobe_session = static_cast<bpf_attach_type>(57);

/// As memtrace loads its own programs for the rung.
void choose_programs(bench_empty_bpf& skeleton, AttachRung rung) {
    const bool is_session = rung == AttachRung::session;
    bpf_program__set_autoload(skeleton.progs.on_call_or_return, is_session);
    bpf_program__set_autoload(skeleton.progs.on_return, !is_session);
    if (rung == AttachRung::perf) return;
    bpf_program__set_expected_attach_type(skeleton.progs.on_call, bpf_trace_uprobe_multi);
    bpf_program__set_expected_attach_type(skeleton.progs.on_return, bpf_trace_uprobe_multi);
    bpf_program__set_expected_attach_type(skeleton.progs.on_call_or_return, bpf_trace_uprobe_session);
}

Result<void> EmptyProbes::attach(const TargetProcess& target) {
    const Fd library(open(target.library().c_str(), O_RDONLY | O_CLOEXEC));
    const Result<ElfFile> file = ElfFile::open(library.get(), target.library().string());
    if (!file) return file.error();
    const AllocatorTable table;
    const Result<ProbePoints> found = find_probe_points(*file, table);
    if (!found) return found.error();
    const RungPrograms programs = {skeleton_->progs.on_call, skeleton_->progs.on_return,
                                   skeleton_->progs.on_call_or_return, skeleton_->progs.on_call};
    Result<FileProbes> probes = FileProbes::attach(rung_, programs, table, library.get(), found->points, target.pid());
    if (!probes) return probes.error();
    probes_.emplace(std::move(*probes));
    return {};
}

class Memtrace : public Tracer {
  public:
    Memtrace(std::string path, AttachRung rung) : path_(std::move(path)), rung_(rung) {}
    std::string_view name() const override { return "memtrace"; }
    Result<void> attach(const TargetProcess& target) override;
    Result<void> detach(const TargetProcess& target) override;

  private:
    /// The next line of its output, none at its end.
    std::optional<std::string> read_line();

    std::string path_;
    AttachRung rung_;
    std::optional<ChildProcess> process_;
    std::string buffer_;
    uint64_t first_pair_ = 0;
};

std::optional<std::string> Memtrace::read_line() {
    size_t end = buffer_.find('\n');
    while (end == std::string::npos) {
        std::array<char, 4096> bytes{};
        const ssize_t count = read(process_->output(), bytes.data(), bytes.size());
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) return std::nullopt;
        buffer_.append(bytes.data(), static_cast<size_t>(count));
        end = buffer_.find('\n');
    }
    std::string line = buffer_.substr(0, end);
    buffer_.erase(0, end + 1);
    return line;
}

Result<void> Memtrace::attach(const TargetProcess& target) {
    const std::vector<std::string> arguments = {path_,
                                                "-p",
                                                fmt::format("{}", target.pid()),
                                                "--attach",
                                                std::string(rung_name(rung_)),
                                                "--format",
                                                "json",
                                                "--quiet",
                                                "3600"};
    Result<ChildProcess> process = ChildProcess::start(arguments, {});
    if (!process) return process.error();
    process_.emplace(std::move(*process));
    first_pair_ = target.pairs();
    // The answer to a request for a report is the sign that it records.
    while (const std::optional<std::string> line = read_line()) {
        const nlohmann::json record = nlohmann::json::parse(*line, nullptr, false);
        const std::string type = record.value("type", "");
        if (type == "process" && record.value("event", "") == "attach") kill(process_->pid(), SIGUSR1);
        if (type == "report") return {};
    }
    return Error{"memtrace ended before it attached", fmt::format("status {}", process_->wait())};
}

Result<void> Memtrace::detach(const TargetProcess& target) {
    kill(process_->pid(), SIGINT);
    nlohmann::json report;
    while (const std::optional<std::string> line = read_line()) {
        nlohmann::json record = nlohmann::json::parse(*line, nullptr, false);
        if (record.value("type", "") == "report") report = std::move(record);
    }
    const int status = process_->wait();
    process_.reset();
    buffer_.clear();
    if (status != 0 || report.is_null()) return Error{"memtrace gave no last report", fmt::format("status {}", status)};
    const uint64_t expected = target.pairs() - first_pair_;
    const auto recorded = report["heap"]["allocations"].get<uint64_t>();
    if (recorded == expected && report["accuracy"]["complete"].get<bool>()) return {};
    return Error{"memtrace did not see everything", fmt::format("{} of {} allocations", recorded, expected)};
}

}  // namespace

std::unique_ptr<Tracer> make_no_tracer() {
    return std::make_unique<NoTracer>();
}

Result<std::unique_ptr<Tracer>> make_empty_probes(AttachRung rung) {
    Skeleton skeleton(bench_empty_bpf__open());
    if (!skeleton) return Error{"cannot open the empty probes", errno_text(errno)};
    choose_programs(*skeleton, rung);
    if (const int error = bench_empty_bpf__load(skeleton.get()); error != 0)
        return Error{"cannot load the empty probes", errno_text(-error), "run as root", ExitStatus::not_privileged};
    return std::unique_ptr<Tracer>(std::make_unique<EmptyProbes>(rung, std::move(skeleton)));
}

std::unique_ptr<Tracer> make_memtrace(std::string path, AttachRung rung) {
    return std::make_unique<Memtrace>(std::move(path), rung);
}

}  // namespace memtrace
