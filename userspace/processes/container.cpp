#include "processes/container.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <utility>

#include "base/text.hpp"
#include "processes/cgroup.hpp"
#include "processes/container_files.hpp"
#include "processes/executable.hpp"

namespace memtrace {
namespace {

constexpr size_t id_size = 64;
constexpr size_t candidates_named = 5;

using Names = std::pair<std::string_view, std::string_view>;

/// What stands before the id in the name of a scope, and whose it is.
constexpr std::array<Names, 5> scope_prefixes = {Names{"docker-", "docker"}, Names{"cri-containerd-", "containerd"},
                                                 Names{"nerdctl-", "containerd"}, Names{"crio-", "cri-o"},
                                                 Names{"libpod-", "podman"}};
/// The same for engines that put a directory named by the id into one of their own.
constexpr std::array<Names, 3> parents = {Names{"docker", "docker"}, Names{"libpod_parent", "podman"},
                                          Names{"crio", "cri-o"}};

bool take_prefix(std::string_view& text, std::string_view prefix) {
    if (!text.starts_with(prefix)) return false;
    text.remove_prefix(prefix.size());
    return true;
}

bool take_suffix(std::string_view& text, std::string_view suffix) {
    if (!text.ends_with(suffix)) return false;
    text.remove_suffix(suffix.size());
    return true;
}

bool is_id(std::string_view text) {
    return text.size() == id_size && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

/// systemd's \x2d is a '-' (systemd-escape(1)).
std::string without_escapes(std::string_view text) {
    std::string plain;
    for (size_t index = 0; index < text.size(); ++index) {
        unsigned value = 0;
        const std::string_view code = text.substr(index, 4);
        const bool is_code = code.size() == 4 && code.starts_with("\\x");
        if (is_code && std::from_chars(code.data() + 2, code.data() + 4, value, 16).ptr == code.data() + 4) {
            plain += static_cast<char>(value);
            index += 3;
        } else {
            plain += text[index];
        }
    }
    return plain;
}

std::optional<Container> named_container(std::string_view name, std::string_view engine) {
    if (name.empty()) return std::nullopt;
    Container container;
    container.id = without_escapes(name);
    container.name = container.id;
    container.engine = engine;
    return container;
}

/// Of one directory of a cgroup's path; `parent` is the one above it.
std::optional<Container> container_named_by(std::string_view component, std::string_view parent) {
    if (take_prefix(component, "lxc.payload.")) return named_container(component, "lxc");
    if (parent == "lxc") return named_container(component, "lxc");
    const bool is_scope = take_suffix(component, ".scope");
    Container container;
    for (const auto& [prefix, engine] : scope_prefixes)
        if (container.engine.empty() && take_prefix(component, prefix)) container.engine = engine;
    for (const auto& [directory, engine] : parents)
        if (container.engine.empty() && parent == directory) container.engine = engine;
    if (is_id(component)) {
        container.id = component;
        return container;
    }
    if (is_scope && take_prefix(component, "machine-")) return named_container(component, "systemd-nspawn");
    if (take_prefix(component, "systemd-nspawn@") && take_suffix(component, ".service"))
        return named_container(component, "systemd-nspawn");
    return std::nullopt;
}

std::string full_name(const Container& container) {
    const std::string name = container.pod.empty() ? container.name : container.pod + "/" + container.name;
    const std::string id = container.id.substr(0, 12);
    return printable(name.empty() || name == container.id ? id : fmt::format("{} ({})", id, name));
}

}  // namespace

std::optional<Container> container_in(std::string_view path) {
    while (!path.empty()) {
        const size_t slash = path.rfind('/');
        if (slash == std::string_view::npos) return std::nullopt;
        const std::string_view component = path.substr(slash + 1);
        path = path.substr(0, slash);
        if (component.find("conmon") != std::string_view::npos) return std::nullopt;
        if (auto container = container_named_by(component, path.substr(path.rfind('/') + 1))) return container;
    }
    return std::nullopt;
}

void read_container_names(Container& container, const std::string& host_root) {
    if (!is_id(container.id)) return;
    ContainerFileNames names = find_container_names(container.id, host_root);
    container.name = std::move(names.name);
    container.pod = std::move(names.pod);
    container.pod_namespace = std::move(names.pod_namespace);
}

std::optional<Container> container_of(pid_t pid, const std::string& proc, const std::string& host_root) {
    for (const std::string& path : cgroup_paths_of(pid, proc))
        if (auto container = container_in(path)) {
            read_container_names(*container, host_root);
            return container;
        }
    return std::nullopt;
}

std::vector<Container> list_containers(const std::string& proc, const std::string& host_root) {
    std::map<std::string, Container> by_id;
    for (const pid_t pid : list_processes(proc))
        for (const std::string& path : cgroup_paths_of(pid, proc))
            if (auto container = container_in(path)) by_id.try_emplace(container->id, *container);
    std::vector<Container> containers;
    for (auto& [id, container] : by_id) {
        read_container_names(container, host_root);
        containers.push_back(std::move(container));
    }
    return containers;
}

bool is_meant_container(const Container& container, std::string_view text) {
    if (text.empty()) return false;
    const bool begins_id = is_id(container.id) && container.id.starts_with(text);
    const bool is_in_pod = !container.pod.empty() && container.pod + "/" + container.name == text;
    return begins_id || container.id == text || container.name == text || is_in_pod;
}

Result<std::optional<Container>> choose_container(std::span<const Container> containers, const std::string& text) {
    std::vector<const Container*> meant;
    for (const Container& container : containers)
        if (is_meant_container(container, text)) meant.push_back(&container);
    const auto begins = [&](const Container* container) { return container->id != text && container->name != text; };
    if (!std::all_of(meant.begin(), meant.end(), begins)) std::erase_if(meant, begins);
    if (meant.empty()) return std::optional<Container>();
    if (meant.size() == 1) return std::optional<Container>(*meant.front());
    std::vector<std::string> names;
    for (const Container* container : meant)
        if (names.size() < candidates_named) names.push_back(full_name(*container));
    if (meant.size() > names.size()) names.push_back(fmt::format("{} more", meant.size() - names.size()));
    return Error{fmt::format("--container {}", printable(text)),
                 fmt::format("it may be each of {}", fmt::join(names, ", ")), "write more of the id",
                 ExitStatus::usage};
}

}  // namespace memtrace
