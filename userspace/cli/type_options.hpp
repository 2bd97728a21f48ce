// The options of collected heaps, and --growth. Uses CLI11.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "base/result.hpp"
#include "cli/options.hpp"

namespace memtrace {

/// Registers the options; CLI11 fills them while the line is read.
class TypeOptions {
  public:
    TypeOptions(CLI::App& app, Options& options);
    TypeOptions(const TypeOptions&) = delete;
    TypeOptions& operator=(const TypeOptions&) = delete;

    /// Stores what was read in `options`, checked.
    Result<void> check(Options& options) const;

  private:
    std::string min_count_ = "0";
    std::string depth_;
};

}  // namespace memtrace
