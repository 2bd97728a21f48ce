// Containers by the names of their cgroups, as engines write them, and by the files of a made-up host.
#include "processes/container.hpp"

#include <filesystem>

#include "catch.hpp"
#include "processes_test_programs.hpp"

using namespace memtrace;
using namespace memtrace::test;

namespace {

const std::string id_a(64, 'a');
const std::string id_b = std::string(20, 'a') + std::string(44, 'b');

struct Example {
    std::string cgroup;
    std::string id;  // empty: no container
    std::string engine;
};

Container container_with(const std::string& id, const std::string& name) {
    Container container;
    container.id = id;
    container.name = name;
    return container;
}

}  // namespace

TEST_CASE("a container is known by what its engine calls the cgroup", "[processes][container]") {
    const std::string slice = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod0_1.slice/";
    const std::vector<Example> examples = {
        {"/system.slice/docker-" + id_a + ".scope", id_a, "docker"},
        {"/docker/" + id_a, id_a, "docker"},
        {"/docker/" + id_a + "/init.scope", id_a, "docker"},
        {slice + "cri-containerd-" + id_a + ".scope", id_a, "containerd"},
        {slice + "crio-" + id_a + ".scope", id_a, "cri-o"},
        {slice + "crio-conmon-" + id_a + ".scope", "", ""},
        {"/kubepods/burstable/pod0-1/" + id_a, id_a, ""},
        {"/machine.slice/libpod-" + id_a + ".scope/container", id_a, "podman"},
        {"/machine.slice/libpod-conmon-" + id_a + ".scope", "", ""},
        {"/libpod_parent/" + id_a, id_a, "podman"},
        {"/lxc.payload.web-1/system.slice/nginx.service", "web-1", "lxc"},
        {"/lxc/web/init", "web", "lxc"},
        {"/lxc.monitor.web", "", ""},
        {"/machine.slice/machine-my\\x2dbox.scope/payload", "my-box", "systemd-nspawn"},
        {"/machine.slice/systemd-nspawn@box.service/payload", "box", "systemd-nspawn"},
        {"/lxc.payload.outer/docker/" + id_b, id_b, "docker"},
        {"/../../docker/" + id_b, id_b, "docker"},
        {"/system.slice/nginx.service", "", ""},
        {"/user.slice/user-0.slice/session-1.scope", "", ""},
        {"/docker/" + id_a.substr(1), "", ""},
        {"/docker/" + std::string(64, 'A'), "", ""},
        {"/lxc.payload.", "", ""},
        {"/", "", ""},
        {"", "", ""},
        {"no slash", "", ""},
    };
    for (const Example& example : examples) {
        CAPTURE(example.cgroup);
        const auto container = container_in(example.cgroup);
        CHECK(container.has_value() == !example.id.empty());
        if (!container) continue;
        CHECK(container->id == example.id);
        CHECK(container->engine == example.engine);
    }
}

TEST_CASE("names come from the files of the host", "[processes][container]") {
    const TemporaryFolder host;
    std::filesystem::create_directories(host / "var/log/containers");
    std::filesystem::create_directories(host / ("var/lib/docker/containers/" + id_b));
    std::filesystem::create_directories(host / "var/lib/containers/storage/overlay-containers");
    std::filesystem::create_symlink("/dangling", host / ("var/log/containers/web-0_shop_nginx-" + id_a + ".log"));
    host.write("var/log/containers/nonsense-" + id_b + ".log", "");
    host.write("var/lib/docker/containers/" + id_b + "/config.v2.json", R"({"ID":"x","Name":"/happy_curie"})");
    const std::string id_c(64, 'c');
    host.write("var/lib/containers/storage/overlay-containers/containers.json",
               R"([{"id":"1"},7,{"id":")" + id_c + R"(","names":["db"]}])");

    Container in_pod = container_with(id_a, "");
    read_container_names(in_pod, host / ".");
    CHECK(in_pod.name == "nginx");
    CHECK(in_pod.pod == "web-0");
    CHECK(in_pod.pod_namespace == "shop");
    Container of_docker = container_with(id_b, "");
    read_container_names(of_docker, host / ".");
    CHECK(of_docker.name == "happy_curie");
    CHECK(of_docker.pod.empty());
    Container of_podman = container_with(id_c, "");
    read_container_names(of_podman, host / ".");
    CHECK(of_podman.name == "db");
    Container of_lxc = container_with("web", "web");
    read_container_names(of_lxc, host / ".");
    CHECK(of_lxc.name == "web");
}

TEST_CASE("files that are missing or broken tell nothing", "[processes][container]") {
    const TemporaryFolder host;
    std::filesystem::create_directories(host / ("var/lib/docker/containers/" + id_a));
    std::filesystem::create_directories(host / "var/lib/containers/storage/overlay-containers");
    for (const char* text : {"", "{", "[]", "{\"Name\":5}", "{\"names\":[]}", "\xff\xfe"}) {
        CAPTURE(text);
        host.write("var/lib/docker/containers/" + id_a + "/config.v2.json", text);
        host.write("var/lib/containers/storage/overlay-containers/containers.json", text);
        Container container = container_with(id_a, "");
        read_container_names(container, host / ".");
        CHECK(container.name.empty());
    }
}

TEST_CASE("containers are listed once each, with version 1 too", "[processes][container]") {
    const TemporaryFolder proc;
    for (const char* pid : {"5", "6", "7", "8"})
        std::filesystem::create_directory(proc / pid);
    proc.write("5/cgroup", "0::/system.slice/docker-" + id_a + ".scope\n");
    proc.write("6/cgroup", "0::/system.slice/docker-" + id_a + ".scope/child\n");
    proc.write("7/cgroup", "9:memory:/docker/" + id_b + "\n0::/\n");
    proc.write("8/cgroup", "0::/\n");
    const auto containers = list_containers(proc / ".", proc / ".");
    REQUIRE(containers.size() == 2);
    CHECK(containers[0].id == id_a);
    CHECK(containers[1].id == id_b);
    CHECK(container_of(7, proc / ".", proc / ".")->id == id_b);
    CHECK_FALSE(container_of(8, proc / ".", proc / "."));
    CHECK_FALSE(container_of(9, proc / ".", proc / "."));
}

TEST_CASE("a container is chosen by the beginning of its id or by name", "[processes][container]") {
    Container in_pod = container_with(std::string(64, 'd'), "app");
    in_pod.pod = "web-0";
    const std::vector<Container> containers = {container_with(id_a, "one"), container_with(id_b, "aaa"), in_pod,
                                               container_with("web", "web"), container_with("web-2", "web-2")};
    const auto chosen = [&](const std::string& text) {
        const auto choice = choose_container(containers, text);
        REQUIRE(choice);
        return *choice ? (*choice)->id : "";
    };
    CHECK(chosen(id_a) == id_a);
    CHECK(chosen(id_a.substr(0, 21)) == id_a);
    CHECK(chosen(id_b.substr(0, 21)) == id_b);
    CHECK(chosen("one") == id_a);
    CHECK(chosen("aaa") == id_b);
    CHECK(chosen("web") == "web");
    CHECK(chosen("web-2") == "web-2");
    CHECK(chosen("web-0/app") == in_pod.id);
    CHECK(chosen("dddd") == in_pod.id);
    CHECK(chosen("we").empty());
    CHECK(chosen("nope").empty());
    CHECK(chosen("").empty());

    const auto ambiguous = choose_container(containers, std::string(12, 'a'));
    REQUIRE_FALSE(ambiguous);
    CHECK(ambiguous.error().status == ExitStatus::usage);
    CHECK(ambiguous.error().why == "it may be each of aaaaaaaaaaaa (one), aaaaaaaaaaaa (aaa)");
}
