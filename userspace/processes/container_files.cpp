#include "processes/container_files.hpp"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>

#include "processes/proc_file.hpp"

namespace memtrace {
namespace {

using Json = nlohmann::json;

Json read_json(const std::string& path) {
    const auto content = read_whole_file(path);
    if (std::holds_alternative<int>(content)) return {};
    Json json = Json::parse(std::get<std::string>(content), nullptr, false);
    return json.is_discarded() ? Json() : json;
}

std::string text_of(const Json& json) {
    return json.is_string() ? json.get<std::string>() : "";
}

/// The kubelet's link POD_NAMESPACE_CONTAINER-ID.log; Kubernetes allows no '_' in these names.
ContainerFileNames names_of_link(std::string_view link) {
    const size_t first = link.find('_');
    const size_t second = link.find('_', first + 1);
    if (first == std::string_view::npos || second == std::string_view::npos) return {};
    return {.name = std::string(link.substr(second + 1)),
            .pod = std::string(link.substr(0, first)),
            .pod_namespace = std::string(link.substr(first + 1, second - first - 1))};
}

ContainerFileNames kubernetes_names(const std::string& id, const std::string& host_root) {
    const std::string suffix = "-" + id + ".log";
    std::error_code failed;
    std::filesystem::directory_iterator entry(host_root + "/var/log/containers", failed);
    for (; !failed && entry != std::filesystem::directory_iterator(); entry.increment(failed)) {
        const std::string link = entry->path().filename().string();
        if (link.ends_with(suffix)) return names_of_link(std::string_view(link).substr(0, link.size() - suffix.size()));
    }
    return {};
}

ContainerFileNames docker_names(const std::string& id, const std::string& host_root) {
    const Json json = read_json(host_root + "/var/lib/docker/containers/" + id + "/config.v2.json");
    std::string name = json.is_object() && json.contains("Name") ? text_of(json["Name"]) : "";
    if (name.starts_with('/')) name.erase(0, 1);
    return {.name = std::move(name), .pod = "", .pod_namespace = ""};
}

ContainerFileNames podman_names(const std::string& id, const std::string& host_root) {
    const Json json = read_json(host_root + "/var/lib/containers/storage/overlay-containers/containers.json");
    if (!json.is_array()) return {};
    for (const Json& container : json) {
        const bool is_it = container.is_object() && container.contains("id") && text_of(container["id"]) == id;
        if (!is_it || !container.contains("names")) continue;
        const Json& names = container["names"];
        if (names.is_array() && !names.empty()) return {.name = text_of(names[0]), .pod = "", .pod_namespace = ""};
    }
    return {};
}

}  // namespace

ContainerFileNames find_container_names(const std::string& id, const std::string& host_root) {
    for (const auto read : {kubernetes_names, docker_names, podman_names})
        if (ContainerFileNames names = read(id, host_root); !names.name.empty()) return names;
    return {};
}

}  // namespace memtrace
