#include "bench/tracers.hpp"

#include <fmt/format.h>
#include <signal.h>

#include <array>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <utility>

#include "bench/empty_probes.hpp"

namespace memtrace {
namespace {

class NoTracer : public Tracer {
  public:
    std::string_view name() const override { return "none"; }
    Result<void> attach(const TargetProcess&) override { return {}; }
    Result<void> detach(const TargetProcess&) override { return {}; }
};

class EmptyTracer : public Tracer {
  public:
    explicit EmptyTracer(AttachRung rung) : rung_(rung) {}
    std::string_view name() const override { return "empty"; }
    Result<void> attach(const TargetProcess& target) override {
        auto probes = EmptyProbes::attach(rung_, {target.library().string()}, target.pid());
        if (!probes) return probes.error();
        probes_ = std::move(*probes);
        return {};
    }
    Result<void> detach(const TargetProcess&) override {
        probes_->detach();
        probes_.reset();
        return {};
    }

  private:
    AttachRung rung_;
    std::unique_ptr<EmptyProbes> probes_;
};

class DetachedTracer : public EmptyTracer {
  public:
    using EmptyTracer::EmptyTracer;
    std::string_view name() const override { return "detached"; }
    Result<void> attach(const TargetProcess& target) override {
        if (auto attached = EmptyTracer::attach(target); !attached) return attached;
        return EmptyTracer::detach(target);
    }
    Result<void> detach(const TargetProcess&) override { return {}; }
};

class Memtrace : public Tracer {
  public:
    Memtrace(std::string path, AttachRung rung, std::optional<std::string> sample)
        : path_(std::move(path)), rung_(rung), sample_(std::move(sample)) {}
    std::string_view name() const override { return sample_ ? "sampled" : "memtrace"; }
    Result<void> attach(const TargetProcess& target) override;
    Result<void> detach(const TargetProcess& target) override;

  private:
    /// The next line of its output, none at its end.
    std::optional<std::string> read_line();

    std::string path_;
    AttachRung rung_;
    std::optional<std::string> sample_;
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
    std::vector<std::string> arguments = {path_,
                                          "-p",
                                          fmt::format("{}", target.pid()),
                                          "--attach",
                                          std::string(rung_name(rung_)),
                                          "--format",
                                          "json",
                                          "--quiet",
                                          "--no-forecast",
                                          "3600"};
    if (sample_) arguments.insert(arguments.end(), {"--sample", *sample_});
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
    // An estimate says that it lost nothing, and that is all.
    if ((recorded == expected || sample_) && report["accuracy"]["complete"].get<bool>()) return {};
    return Error{"memtrace did not see everything", fmt::format("{} of {} allocations", recorded, expected)};
}

}  // namespace

std::unique_ptr<Tracer> make_no_tracer() {
    return std::make_unique<NoTracer>();
}

std::unique_ptr<Tracer> make_empty_probes(AttachRung rung) {
    return std::make_unique<EmptyTracer>(rung);
}

std::unique_ptr<Tracer> make_detached(AttachRung rung) {
    return std::make_unique<DetachedTracer>(rung);
}

std::unique_ptr<Tracer> make_memtrace(std::string path, AttachRung rung, std::optional<std::string> sample) {
    return std::make_unique<Memtrace>(std::move(path), rung, std::move(sample));
}

}  // namespace memtrace
