// How --help looks. Uses CLI11.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace memtrace {

/// What --help says before the options: examples and how a command line is built.
extern const std::string_view main_usage;

/// Examples and usage as they are given, then the options by group, each as `-p, --pid PID  what it does`.
class HelpFormatter : public CLI::Formatter {
  public:
    explicit HelpFormatter(std::string usage);

    std::string make_usage(const CLI::App* app, std::string name) const override;
    std::string make_group(std::string group, bool is_positional,
                           std::vector<const CLI::Option*> options) const override;
    std::string make_option_name(const CLI::Option* option, bool is_positional) const override;
    std::string make_option_opts(const CLI::Option* option) const override;

  private:
    std::string usage_;
};

}  // namespace memtrace
