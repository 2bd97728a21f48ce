#include "cli/help.hpp"

#include <utility>

namespace memtrace {

const std::string_view main_usage = R"(
Examples:
  memtrace -p 1234               what process 1234 allocates and does not free
  memtrace -p 1234 -o 1m 60 1    one report after 60 s, of blocks 1 minute old
  memtrace -x nginx -f           all of nginx and their children, later ones too
  memtrace -- ./server --fast    start a program, trace it from the beginning

Usage:
  memtrace TARGET... [OPTIONS] [INTERVAL [COUNT]]
  memtrace [OPTIONS] [INTERVAL [COUNT]] -- COMMAND [ARG...]
  memtrace census PID [--type-names FILE]
  memtrace list | doctor | selftest

  Targets add up. Numbers right after -p PID are processes if these run PID's
  program, as in -p $(pidof nginx), and INTERVAL and COUNT otherwise; 5s is
  always an interval.

)";

HelpFormatter::HelpFormatter(std::string usage) : usage_(std::move(usage)) {
    column_width(32);
    label("Positionals", "Reports");
    label("SUBCOMMAND", "COMMAND");
}

std::string HelpFormatter::make_usage(const CLI::App*, std::string) const {
    return usage_;
}

std::string HelpFormatter::make_group(std::string group, bool is_positional,
                                      std::vector<const CLI::Option*> options) const {
    // CLI11 puts a blank line before each group and after each but the last one.
    const std::string text = CLI::Formatter::make_group(std::move(group), is_positional, std::move(options)).substr(1);
    return is_positional ? text + "\n" : text;
}

std::string HelpFormatter::make_option_name(const CLI::Option* option, bool is_positional) const {
    if (is_positional) return option->get_name(true, false);
    const std::string long_name = "--" + option->get_lnames().front();
    if (option->get_snames().empty()) return "    " + long_name;
    return "-" + option->get_snames().front() + ", " + long_name;
}

std::string HelpFormatter::make_option_opts(const CLI::Option* option) const {
    return option->get_option_text().empty() ? "" : " " + option->get_option_text();
}

}  // namespace memtrace
