// Which container a process is in, from the names that engines give to cgroups, and what the host's files call it. No
// engine is asked. Uses base only. Names are what others wrote: show them through base/text.hpp.
#pragma once

#include <sys/types.h>

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace memtrace {

struct Container {
    std::string id;      // 64 hex digits; of LXC and systemd-nspawn the name
    std::string engine;  // docker, containerd, cri-o, podman, lxc, systemd-nspawn; empty: not known
    std::string name;    // what follows is empty where no file of the host tells
    std::string pod;
    std::string pod_namespace;
};

/// Id and engine from a cgroup's path; the innermost container counts. Monitors of a container (conmon, lxc.monitor)
/// are not in it. Pure.
std::optional<Container> container_in(std::string_view cgroup_path);

/// Adds the names: Kubernetes' links in var/log/containers, Docker's config.v2.json, Podman's containers.json, all
/// below `host_root`. Files that cannot be read or understood tell nothing. Thread-safe.
void read_container_names(Container& container, const std::string& host_root = "/");

/// As the two above for a process, which may have ended meanwhile: none. Thread-safe.
std::optional<Container> container_of(pid_t pid, const std::string& proc = "/proc", const std::string& host_root = "/");

/// The containers of all processes, each once, by id.
std::vector<Container> list_containers(const std::string& proc = "/proc", const std::string& host_root = "/");

/// Does `text` mean this one? The id or its beginning, the name, or POD/NAME.
bool is_meant_container(const Container& container, std::string_view text);
/// The one of `containers` that `text` means, none when it means none. One whose id or name it is in full comes before
/// those whose id it begins. Several: an Error of status usage that names them.
Result<std::optional<Container>> choose_container(std::span<const Container> containers, const std::string& text);

}  // namespace memtrace
