// Records of a memtrace that looks again and again by itself.
#pragma once

#include <ctime>
#include <string>

#include "e2e/workload.hpp"

namespace memtrace::e2e {

/// The next record whose reading began after this call.
inline Json next_from_now(Child& memtrace) {
    timespec now{};
    clock_gettime(CLOCK_REALTIME, &now);
    std::tm parts{};
    gmtime_r(&now.tv_sec, &parts);
    std::string text(32, '\0');
    text.resize(std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%S.", &parts));
    const std::string milliseconds = std::to_string(1000 + now.tv_nsec / 1'000'000);
    text += milliseconds.substr(1) + 'Z';
    // One that was written after this moment may have begun before it.
    while (Json::parse(memtrace.read_line()).at("time").get<std::string>() <= text) {
    }
    return Json::parse(memtrace.read_line());
}

}  // namespace memtrace::e2e
