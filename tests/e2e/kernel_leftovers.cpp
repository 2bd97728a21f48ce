#include "e2e/kernel_leftovers.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <thread>
#include <vector>

#include "e2e/workload.hpp"

namespace memtrace::e2e {
namespace {

std::string hex(uint64_t number) {
    std::ostringstream text;
    text << "0x" << std::hex << number;
    return text.str();
}

/// A line of /proc/PID/maps that shows code of a file.
struct CodeMapping {
    uint64_t start = 0;
    uint64_t end = 0;
    uint64_t offset = 0;
    std::string path;
};

std::vector<CodeMapping> code_mappings(pid_t pid) {
    std::ifstream maps("/proc/" + std::to_string(pid) + "/maps");
    std::vector<CodeMapping> mappings;
    for (std::string line; std::getline(maps, line);) {
        std::istringstream words(line);
        std::string range, permissions, offset, device, inode;
        CodeMapping mapping;
        words >> range >> permissions >> offset >> device >> inode >> std::ws;
        std::getline(words, mapping.path);
        if (permissions.find('x') == std::string::npos || !mapping.path.starts_with('/')) continue;
        mapping.start = std::stoull(range, nullptr, 16);
        mapping.end = std::stoull(range.substr(range.find('-') + 1), nullptr, 16);
        mapping.offset = std::stoull(offset, nullptr, 16);
        mappings.push_back(mapping);
    }
    return mappings;
}

std::string bytes_at(const std::string& path, uint64_t offset, size_t size_bytes) {
    std::ifstream file(path, std::ios::binary);
    file.seekg(static_cast<std::streamoff>(offset));
    std::string bytes(size_bytes, '\0');
    file.read(bytes.data(), static_cast<std::streamsize>(size_bytes));
    bytes.resize(static_cast<size_t>(file.gcount()));
    return bytes;
}

}  // namespace

std::set<std::string> bpf_objects() {
    std::set<std::string> objects;
    for (const std::string kind : {"prog", "map", "link"}) {
        const Finished listed = run_to_end({BPFTOOL, "--json", kind, "show"});
        if (listed.status != 0) throw std::runtime_error("bpftool: " + listed.errors);
        for (const Json& object : Json::parse(listed.output)) {
            // Links have no name, and a type that bpftool does not know is a number.
            const Json name = object.value("name", object.value("type", Json("")));
            objects.insert(kind + ' ' + std::to_string(object.at("id").get<int64_t>()) + ' ' + name.dump());
        }
    }
    return objects;
}

std::string bpf_objects_left(const std::set<std::string>& before) {
    // Links of a killed process go one after the other, programs and maps after RCU grace periods.
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    for (;;) {
        std::string left;
        for (const std::string& object : bpf_objects())
            if (!before.contains(object)) left += object + '\n';
        if (left.empty() || std::chrono::steady_clock::now() >= deadline) return left;
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
}

std::string changed_code(pid_t pid) {
    const std::string memory = "/proc/" + std::to_string(pid) + "/mem";
    std::string changed;
    for (const CodeMapping& mapping : code_mappings(pid)) {
        const auto size_bytes = static_cast<size_t>(mapping.end - mapping.start);
        const std::string in_file = bytes_at(mapping.path, mapping.offset, size_bytes);
        const std::string in_memory = bytes_at(memory, mapping.start, in_file.size());
        const auto [here, there] = std::mismatch(in_memory.begin(), in_memory.end(), in_file.begin(), in_file.end());
        if (here != in_memory.end() || there != in_file.end())
            changed +=
                mapping.path + " at " + hex(mapping.offset + static_cast<uint64_t>(here - in_memory.begin())) + '\n';
    }
    return changed;
}

std::string process_state(pid_t pid) {
    std::ifstream status("/proc/" + std::to_string(pid) + "/status");
    for (std::string word; status >> word;)
        if (word == "State:" && status >> word) return word;
    return "";
}

}  // namespace memtrace::e2e
