// The names of the types of a Go program's objects, read once out of the running process: they are asked for after its
// end too. Uses processes and go_process.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtimes/go_process.hpp"

namespace memtrace {

class GoTypes {
  public:
    /// Where the runtime's description of the module is not found no type has a name.
    GoTypes(const GoProcess& go, pid_t pid);

    /// Of the type whose descriptor's address ends in the 32 bits `type`: "main.Dog", "type#0x4a1e20" where it has no
    /// name. 0 is memory without pointers that was asked for without a type.
    const std::string& name(uint32_t type);

  private:
    std::optional<std::string> read_name(uint32_t descriptor) const;

    uint64_t types_ = 0;            // address of the program's types; 0: not found
    std::vector<std::byte> bytes_;  // from there on
    std::unordered_map<uint32_t, std::string> names_;
};

}  // namespace memtrace
