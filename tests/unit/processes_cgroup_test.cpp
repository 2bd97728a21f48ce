// Cgroups from made-up files of /proc and made-up mounts; real ones need a root and are in tests/e2e.
#include "processes/cgroup.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "catch.hpp"
#include "processes_test_programs.hpp"

using namespace memtrace;
using namespace memtrace::test;

namespace {

CgroupMount mount_of(const std::string& mountinfo) {
    const TemporaryFolder folder;
    const auto mount = find_cgroup_mount(folder.write("mountinfo", mountinfo));
    REQUIRE(mount);
    return *mount;
}

using Paths = std::vector<std::string>;

}  // namespace

TEST_CASE("the mount of cgroup2 is found wherever it is", "[processes][cgroup]") {
    constexpr auto hybrid = R"(22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/root rw
31 22 0:27 / /sys/fs/cgroup ro,nosuid - tmpfs tmpfs ro
32 31 0:28 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
33 31 0:29 / /sys/fs/cgroup/unified rw,nosuid shared:7 master:2 - cgroup2 cgroup2 rw
)";
    CHECK(mount_of(hybrid).directory == "/sys/fs/cgroup/unified");
    CHECK(mount_of(hybrid).top == "/");
    const CgroupMount odd = mount_of("33 31 0:29 /a\\040b /mnt/c\\134d\\040e rw - cgroup2 none rw\n");
    CHECK(odd.directory == "/mnt/c\\d e");
    CHECK(odd.top == "/a b");
}

TEST_CASE("of several mounts the one that shows most is taken", "[processes][cgroup]") {
    CHECK(mount_of("1 1 0:1 /docker/x /a rw - cgroup2 none rw\n2 1 0:1 / /b rw - cgroup2 none rw\n").directory == "/b");
}

TEST_CASE("where nothing is mounted the hint says how", "[processes][cgroup]") {
    const TemporaryFolder folder;
    const auto mount = find_cgroup_mount(folder.write("mountinfo", "1 1 0:1 / / rw - ext4 /dev/cgroup2 rw\n"));
    REQUIRE_FALSE(mount);
    CHECK(mount.error().why == "no cgroup2 file system is mounted");
    CHECK_THAT(mount.error().hint, ContainsSubstring("mount -t cgroup2"));
    CHECK_FALSE(find_cgroup_mount(folder / "missing"));
}

TEST_CASE("a process's cgroup is that of version 2", "[processes][cgroup]") {
    const TemporaryFolder proc;
    for (const char* pid : {"5", "6", "7"})
        std::filesystem::create_directory(proc / pid);
    proc.write("5/cgroup", "12:memory:/docker/a\n1:name=systemd:/x:y\n0::/system.slice/a:b.service\n");
    proc.write("6/cgroup", "12:memory:/docker/a\n");
    proc.write("7/cgroup", "0::/gone (deleted)\n");
    CHECK(cgroup_of(5, proc / ".") == "/system.slice/a:b.service");
    CHECK(cgroup_paths_of(5, proc / ".") == Paths{"/system.slice/a:b.service", "/docker/a", "/x:y"});
    CHECK(cgroup_of(6, proc / ".") == std::nullopt);
    CHECK(cgroup_paths_of(6, proc / ".") == Paths{"/docker/a"});
    CHECK(cgroup_of(7, proc / ".") == "/gone");
    CHECK(cgroup_of(8, proc / ".") == std::nullopt);
    CHECK(cgroup_paths_of(8, proc / ".").empty());
}

TEST_CASE("below a cgroup is what has its whole name before it", "[processes][cgroup]") {
    CHECK(is_in_cgroup("/a", "/a"));
    CHECK(is_in_cgroup("/a/b/c", "/a/b"));
    CHECK(is_in_cgroup("/a", "/"));
    CHECK_FALSE(is_in_cgroup("/ab", "/a"));
    CHECK_FALSE(is_in_cgroup("/a", "/a/b"));
    CHECK_FALSE(is_in_cgroup("/b/a", "/a"));
}

TEST_CASE("a cgroup is named by its path or its directory", "[processes][cgroup]") {
    const TemporaryFolder folder;
    std::filesystem::create_directories(folder / "system.slice/x");
    folder.write("cgroup.procs", "");
    CgroupMount mount{.directory = std::filesystem::path(folder / "").parent_path().string(), .top = "/"};
    struct stat status {};
    REQUIRE(::stat((folder / "system.slice/x").c_str(), &status) == 0);
    for (const std::string& text : Paths{"/system.slice/x", "system.slice/x", "//system.slice//x/", "system.slice/./x",
                                         folder / "system.slice/x", folder / "system.slice/x/"}) {
        CAPTURE(text);
        const auto cgroup = find_cgroup(mount, text);
        REQUIRE(cgroup);
        CHECK(cgroup->path == "/system.slice/x");
        CHECK(cgroup->id == status.st_ino);
    }
    CHECK(find_cgroup(mount, "/")->path == "/");
    CHECK(find_cgroup(mount, mount.directory)->path == "/");
    for (const char* text : {"/nonexistent", "cgroup.procs", "system"}) {
        const auto cgroup = find_cgroup(mount, text);
        REQUIRE_FALSE(cgroup);
        CHECK(cgroup.error().status == ExitStatus::no_such_target);
        CHECK_THAT(cgroup.error().hint, ContainsSubstring(mount.directory));
    }
    CHECK(cgroup_id(mount, "/nonexistent") == std::nullopt);
}

TEST_CASE("a mount that shows a part only adds what is above it", "[processes][cgroup]") {
    const TemporaryFolder folder;
    std::filesystem::create_directories(folder / "x");
    CgroupMount mount{.directory = std::filesystem::path(folder / "").parent_path().string(), .top = "/docker/c"};
    CHECK(find_cgroup(mount, "x")->path == "/docker/c/x");
    CHECK(find_cgroup(mount, "/docker/c/x")->path == "/docker/c/x");
    CHECK(find_cgroup(mount, folder / "x")->path == "/docker/c/x");
    CHECK(find_cgroup(mount, mount.directory)->path == "/docker/c");
    CHECK(cgroup_id(mount, "/docker/c") != std::nullopt);
    CHECK(cgroup_id(mount, "/docker") == std::nullopt);
}

TEST_CASE("a real process's cgroup can be read", "[processes][cgroup]") {
    const auto mount = find_cgroup_mount();
    if (!mount) {
        WARN("skipped: no cgroup2 is mounted");
        return;
    }
    const auto path = cgroup_of(::getpid());
    REQUIRE(path);
    CHECK(cgroup_id(*mount, *path) != std::nullopt);
}
