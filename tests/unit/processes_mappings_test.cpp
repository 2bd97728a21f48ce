#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <filesystem>

#include "catch.hpp"
#include "processes/mappings.hpp"
#include "processes_test_programs.hpp"

using namespace memtrace;
using namespace memtrace::test;

namespace {

Mapping only_mapping(const std::string& line) {
    const auto mappings = parse_mappings(line);
    INFO(line);
    REQUIRE(mappings);
    REQUIRE(mappings->size() == 1);
    return mappings->front();
}

/// The executable mapping of `path` in `pid`.
Mapping code_of(pid_t pid, const std::string& path) {
    const auto mappings = read_mappings(pid);
    REQUIRE(mappings);
    for (const Mapping& mapping : *mappings)
        if (mapping.is_executable && mapping.path == path) return mapping;
    FAIL("no code of " << path);
    return {};
}

std::string first_bytes(int fd) {
    std::string bytes(4, '\0');
    CHECK(::pread(fd, bytes.data(), bytes.size(), 0) == 4);
    return bytes;
}

}  // namespace

TEST_CASE("a line of maps is taken apart", "[processes]") {
    const Mapping mapping =
        only_mapping("7f1c8a028000-7f1c8a1bd000 r-xp 00028000 fd:03 1311 /usr/lib/x86_64-linux-gnu/libc.so.6\n");
    CHECK(mapping.start == 0x7f1c8a028000);
    CHECK(mapping.end == 0x7f1c8a1bd000);
    CHECK(mapping.file_offset == 0x28000);
    CHECK(mapping.is_readable);
    CHECK_FALSE(mapping.is_writable);
    CHECK(mapping.is_executable);
    CHECK_FALSE(mapping.is_shared);
    CHECK(mapping.device == makedev(0xfd, 3));
    CHECK(mapping.inode == 1311);
    CHECK(mapping.path == "/usr/lib/x86_64-linux-gnu/libc.so.6");
    CHECK(mapping.has_file());
}

TEST_CASE("odd names of mappings are kept byte for byte", "[processes]") {
    const std::string head = "1000-2000 rw-s 00000000 08:01 7";
    CHECK(only_mapping(head + "      /a b  c\n").path == "/a b  c");
    CHECK(only_mapping(head + " /new\\012line\\012").path == "/new\nline\n");
    CHECK(only_mapping(head + " /back\\slash\\01").path == "/back\\slash\\01");
    CHECK(only_mapping(head + " /\xff\x01 tail ").path == "/\xff\x01 tail ");
    CHECK(only_mapping(head + " /x (deleted)").path == "/x");
    CHECK(only_mapping(head + " /x (deleted)").is_deleted);
    CHECK_FALSE(only_mapping(head + " /x(deleted)").is_deleted);
    CHECK(only_mapping(head).path.empty());
    CHECK(only_mapping(head + " ").path.empty());
    CHECK(only_mapping(head).is_shared);

    const Mapping vdso = only_mapping("7ffc0000-7ffc2000 r-xp 00000000 00:00 0                          [vdso]\n");
    CHECK(vdso.path == "[vdso]");
    CHECK_FALSE(vdso.has_file());
    const Mapping vsyscall = only_mapping("ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0 [vsyscall]\n");
    CHECK(vsyscall.end == 0xffffffffff601000);
    CHECK_FALSE(vsyscall.is_readable);
}

TEST_CASE("a line that is no mapping is an error that names it", "[processes]") {
    const std::string good = "1000-2000 r-xp 00000000 08:01 7 /x\n";
    for (const std::string bad :
         {"", " ", "x", "1000", "1000-", "1000-2000", "1000-2000 r-x", "1000-2000 r-xq 0 8:1 7 /x",
          "2000-1000 r-xp 00000000 08:01 7 /x", "1000-1000 r-xp 00000000 08:01 7 /x", "1000-2000 r-xp 0 0801 7 /x",
          "1000-2000 r-xp 00000000 08:01 /x", "1000-2000 r-xp 00000000 08:01 7/x",
          "11111111111111111-2 r-xp 00000000 08:01 7 /x", "-1000-2000 r-xp 00000000 08:01 7 /x"}) {
        INFO(bad);
        const auto mappings = parse_mappings(good + bad + "\n" + good);
        REQUIRE_FALSE(mappings);
        CHECK_THAT(mappings.error().why, ContainsSubstring("line 2 is no mapping"));
    }
    CHECK(parse_mappings("")->empty());
    CHECK_THAT(parse_mappings("\x1b[31m\n").error().why, ContainsSubstring("\\x1b[31m"));
}

TEST_CASE("own mappings hold own code", "[processes]") {
    const std::string exe = std::filesystem::read_symlink("/proc/self/exe").string();
    const Mapping code = code_of(::getpid(), exe);
    const auto address = reinterpret_cast<uint64_t>(&only_mapping);
    CHECK(code.start <= address);
    CHECK(address < code.end);
    const auto missing = read_mappings(0x7ffffff0);
    REQUIRE_FALSE(missing);
    CHECK(missing.error().status == ExitStatus::no_such_target);
}

TEST_CASE("a mapped file is opened while it is there", "[processes]") {
    const std::string exe = std::filesystem::read_symlink("/proc/self/exe").string();
    Mapping code = code_of(::getpid(), exe);
    struct stat expected {
    }, actual{};
    REQUIRE(::stat(exe.c_str(), &expected) == 0);
    const auto file = open_mapped_file(::getpid(), code);
    REQUIRE(file);
    REQUIRE(::fstat(file->get(), &actual) == 0);
    CHECK(actual.st_ino == expected.st_ino);

    SECTION("also when the mapping's ends have moved since") {
        code.start += static_cast<uint64_t>(::getpagesize());
        CHECK(open_mapped_file(::getpid(), code));
    }
    SECTION("but another file at its path is refused, and the error tells what was tried") {
        code.start = 0x1000;
        code.end = 0x2000;
        code.inode += 1;
        const auto other = open_mapped_file(::getpid(), code);
        REQUIRE_FALSE(other);
        CHECK_THAT(other.error().why, ContainsSubstring("/map_files/1000-2000"));
        CHECK_THAT(other.error().why, ContainsSubstring("/root/"));
        CHECK_THAT(other.error().why, ContainsSubstring("another file"));
    }
}

TEST_CASE("a FIFO at a mapped file's path neither blocks nor is opened", "[processes]") {
    const TemporaryFolder folder;
    const std::string fifo = folder / "fifo";
    REQUIRE(::mkfifo(fifo.c_str(), 0600) == 0);
    struct stat status {};
    REQUIRE(::stat(fifo.c_str(), &status) == 0);
    const Mapping mapping{0x1000, 0x2000, 0, true, false, true, false, false, status.st_dev, status.st_ino, fifo};
    const auto file = open_mapped_file(::getpid(), mapping);
    REQUIRE_FALSE(file);
    CHECK_THAT(file.error().why, ContainsSubstring("no regular file"));
}

TEST_CASE("a program's file is opened after it was removed and replaced", "[processes]") {
    const TemporaryFolder folder;
    const std::string path = folder.compile(
        "removed",
        "#include <cstdio>\nint main() { std::puts(\"ready\"); std::fflush(stdout); return std::getchar(); }", "");
    RunningProgram program(path);
    REQUIRE(program.read_line() == "ready");
    std::filesystem::remove(path);
    folder.write("removed", "another");
    const Mapping code = code_of(program.pid(), path);
    CHECK(code.is_deleted);
    const auto file = open_mapped_file(program.pid(), code);
    if (!file && ::geteuid() != 0) {
        WARN("skipped: map_files needs root: " << file.error().why);
        return;
    }
    REQUIRE(file);
    CHECK(first_bytes(file->get()) ==
          "\x7f"
          "ELF");
}
