// The files in which a host's container engines write their containers' names. Uses base and a JSON reader.
#pragma once

#include <string>

namespace memtrace {

struct ContainerFileNames {
    std::string name;
    std::string pod;
    std::string pod_namespace;
};

/// Of the container with this id of 64 hex digits, from the first file below `host_root` that knows it. Thread-safe.
ContainerFileNames find_container_names(const std::string& id, const std::string& host_root);

}  // namespace memtrace
