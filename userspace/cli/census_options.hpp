// The command line of `memtrace census`. Uses CLI11.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "base/result.hpp"
#include "cli/options.hpp"

namespace memtrace {

/// Registers the subcommand; CLI11 fills it while the line is read.
class CensusOptions {
  public:
    explicit CensusOptions(CLI::App& app);
    CensusOptions(const CensusOptions&) = delete;
    CensusOptions& operator=(const CensusOptions&) = delete;

    bool is_asked_for() const { return command_->parsed(); }
    /// What was read, checked.
    Result<Request> checked() const;

  private:
    CLI::App* command_;
    std::string pid_;
    std::string interval_;
    std::string count_;
    std::string type_names_path_;
    std::string format_ = "text";
    std::string top_;
    std::string min_count_ = "0";
};

}  // namespace memtrace
