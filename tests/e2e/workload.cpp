#include "e2e/workload.hpp"

#include <sstream>
#include <stdexcept>

namespace memtrace::e2e {
namespace {

std::vector<std::string> command_of(const std::string& program, const std::vector<std::string>& arguments) {
    std::vector<std::string> command = {program};
    command.insert(command.end(), arguments.begin(), arguments.end());
    return command;
}

}  // namespace

std::string workload_path(const std::string& name) {
    return MEMTRACE_BUILD_DIR "/tests/workloads/" + name;
}

Workload::Workload(const std::string& program, const std::vector<std::string>& arguments,
                   std::vector<std::string> environment)
    : child_(command_of(program, arguments), std::move(environment)) {
    const std::string line = child_.read_line();
    if (!line.starts_with("ready ")) throw std::runtime_error(program + " says: " + line);
}

Json Workload::go() {
    child_.write_line("go");
    return Json::parse(child_.read_line());
}

int Workload::quit(int status) {
    child_.write_line("quit " + std::to_string(status));
    return child_.wait();
}

std::vector<std::string> cases_of(const std::string& program) {
    std::istringstream lines(run_to_end({program, "--list"}).output);
    std::vector<std::string> names;
    for (std::string name; std::getline(lines, name);)
        names.push_back(name);
    return names;
}

}  // namespace memtrace::e2e
