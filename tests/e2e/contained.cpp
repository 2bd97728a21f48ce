#include "e2e/contained.hpp"

#include <fmt/format.h>

#include <fstream>
#include <sstream>
#include <stdexcept>

namespace memtrace::e2e {
namespace {

/// Everything at once but a user namespace: the root is the merged directory of an overlay, whose upper layer is a
/// tmpfs because $TMPDIR may be an overlay itself, which cannot be one.
constexpr auto overlay_script = R"(
set -e
mount -t tmpfs none "$0/layers"
mkdir "$0/layers/upper" "$0/layers/work" "$0/layers/merged"
mount -t overlay none -o "lowerdir=$0,upperdir=$0/layers/upper,workdir=$0/layers/work" "$0/layers/merged"
exec chroot "$0/layers/merged" "$@"
)";

std::vector<std::string> in_namespaces(const std::vector<std::string>& more, const std::vector<std::string>& command) {
    std::vector<std::string> words = {"unshare", "--mount", "--pid", "--fork", "--kill-child"};
    words.insert(words.end(), more.begin(), more.end());
    words.insert(words.end(), command.begin(), command.end());
    return words;
}

std::vector<std::string> arguments_of(const Place& place, const std::string& program,
                                      const std::vector<std::string>& arguments) {
    std::vector<std::string> words(place.command.begin() + 1, place.command.end());
    words.push_back(program);
    words.insert(words.end(), arguments.begin(), arguments.end());
    return words;
}

pid_t only_child_of(pid_t parent) {
    std::ifstream children(fmt::format("/proc/{0}/task/{0}/children", parent));
    pid_t child = 0;
    if (!(children >> child)) throw std::runtime_error("no child");
    return child;
}

}  // namespace

SmallRoot::SmallRoot() {
    std::filesystem::create_directories(path() / "tmp");
    std::filesystem::create_directories(path() / "layers");
    std::filesystem::permissions(path(), std::filesystem::perms(0755));
    std::filesystem::permissions(path() / "tmp", std::filesystem::perms(0777));
}

void SmallRoot::copy(const std::string& path_on_host) {
    const std::filesystem::path target = path() / path_on_host.substr(1);
    std::filesystem::create_directories(target.parent_path());
    std::filesystem::copy_file(path_on_host, target, std::filesystem::copy_options::skip_existing);
}

std::string SmallRoot::add(const std::string& program) {
    const std::string name = std::filesystem::path(program).filename().string();
    std::filesystem::copy_file(program, path() / name);
    std::istringstream words(run_to_end({"ldd", program}).output);
    for (std::string word; words >> word;)
        if (word.starts_with('/') && std::filesystem::is_regular_file(word)) copy(word);
    return "/" + name;
}

std::string SmallRoot::add(const std::string& program, const std::filesystem::path& libraries) {
    const std::string name = std::filesystem::path(program).filename().string();
    std::filesystem::copy_file(program, path() / name);
    std::istringstream words(run_to_end({"ldd", program}).output);
    for (std::string word; words >> word;) {
        if (!word.starts_with('/') || !std::filesystem::is_regular_file(word)) continue;
        const std::filesystem::path target = path() / word.substr(1);
        std::filesystem::create_directories(target.parent_path());
        std::filesystem::copy_file(libraries / "usr" / word.substr(1), target);
    }
    return "/" + name;
}

std::vector<Place> places_of(const SmallRoot& root) {
    const std::string path = root.path().string();
    return {{"a chroot", {"chroot", path}, false},
            {"mount and pid namespaces", in_namespaces({}, {"chroot", path}), true},
            {"a user namespace too", in_namespaces({"--user", "--map-root-user"}, {"chroot", path}), true},
            {"an overlay file system", in_namespaces({}, {"sh", "-c", overlay_script, path}), true}};
}

ContainedWorkload::ContainedWorkload(const Place& place, const std::string& program,
                                     const std::vector<std::string>& arguments)
    : workload_(place.command.front(), arguments_of(place, program, arguments)),
      pid_(place.has_parent ? only_child_of(workload_.pid()) : workload_.pid()) {}

}  // namespace memtrace::e2e
