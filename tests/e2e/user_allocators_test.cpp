// Allocators that memtrace must be told of (--alloc, --free, --symbols-prefix), and those whose symbols lie in a debug
// file.
#include <filesystem>

#include "catch.hpp"
#include "e2e/check_cases.hpp"
#include "e2e/temporary_directory.hpp"

using namespace memtrace::e2e;
namespace fs = std::filesystem;

namespace {

/// The pool of tests/workloads/pool.h; `file` is empty or "FILE:".
std::vector<std::string> pool_options(const std::string& file) {
    return {"--alloc", file + "pool_get:size=arg1",
            "--alloc", file + "pool_get_array:count=arg0,size=arg1",
            "--alloc", file + "pool_get_into:size=arg2,result=*arg1",
            "--alloc", file + "pool_resize:ptr=arg1,size=arg2",
            "--free",  file + "pool_put:ptr=arg1"};
}

/// The build-id of the file in hexadecimal.
std::string build_id_of(const std::string& path) {
    const std::string notes = run_to_end({"readelf", "--notes", path}).output;
    const std::string label = "Build ID: ";
    const size_t at = notes.find(label);
    REQUIRE(at != std::string::npos);
    const size_t begin = at + label.size();
    return notes.substr(begin, notes.find('\n', begin) - begin);
}

/// A debug file in the system's directory of them, as a package would put it there; gone at the end.
class InstalledDebugFile {
  public:
    InstalledDebugFile(const fs::path& debug_file, const std::string& build_id) {
        const fs::path directory = fs::path("/usr/lib/debug/.build-id") / build_id.substr(0, 2);
        fs::create_directories(directory);
        path_ = directory / (build_id.substr(2) + ".debug");
        fs::copy_file(debug_file, path_, fs::copy_options::overwrite_existing);
    }
    InstalledDebugFile(const InstalledDebugFile&) = delete;
    InstalledDebugFile& operator=(const InstalledDebugFile&) = delete;
    ~InstalledDebugFile() {
        std::error_code ignored;
        fs::remove(path_, ignored);
        fs::remove(path_.parent_path(), ignored);  // unless others are in it
    }

  private:
    fs::path path_;
};

bool has_workload(const std::string& name) {
    if (fs::exists(workload_path(name))) return true;
    WARN("skipped: " << name << " was not built, for a package is missing");
    return false;
}

}  // namespace

TEST_CASE("a pool on malloc counts at the pool when memtrace is told of it", "[e2e][allocators]") {
    on_every_rung([](const std::string& rung) {
        check_cases({workload_path("pool_cases"), {}, {}, pool_options("")}, rung);
    });
}

TEST_CASE("what leaf functions keep below the stack pointer around a nop stays", "[e2e][allocators]") {
    on_every_rung([](const std::string& rung) {
        const std::vector<std::string> options = {"--alloc", "inside_get:size=arg0", "--alloc", "first_get:size=arg0",
                                                  "--free",  "inside_put:ptr=arg0"};
        check_cases({workload_path("red_zone_cases"), {}, {}, options, true}, rung);
    });
}

TEST_CASE("a pool in a library is found by the library's name", "[e2e][allocators]") {
    const std::string name = "libworkload_pool.so";
    for (const std::string& file : {name, workload_path(name)}) {
        DYNAMIC_SECTION(file) {
            check_cases({workload_path("pool_library_cases"), {}, {}, pool_options(file + ":")}, rungs().front());
        }
    }
}

TEST_CASE("a jemalloc with a prefix of its own is traced with --symbols-prefix", "[e2e][allocators]") {
    if (!has_workload("prefixed_jemalloc_cases")) return;
    check_cases({workload_path("prefixed_jemalloc_cases"), {}, {}, {"-S", "app_"}}, rungs().front());
}

TEST_CASE("a static program without symbols is traced by the debug file beside it", "[e2e][allocators]") {
    check_cases({workload_path("stripped_static")}, rungs().front());
}

TEST_CASE("a static program without symbols is traced by the debug file of its build-id", "[e2e][allocators]") {
    require_root();
    const TemporaryDirectory directory;
    const fs::path program = directory.path() / "program";
    fs::copy_file(workload_path("stripped_static"), program);
    const InstalledDebugFile installed(workload_path("stripped_static.debug"), build_id_of(program));
    check_cases({program}, rungs().front());
}

TEST_CASE("a static program without any symbols gives 4 and says where memtrace looked", "[e2e][allocators]") {
    require_root();
    const TemporaryDirectory directory;
    const fs::path program = directory.path() / "program";
    fs::copy_file(workload_path("stripped_static"), program);
    Workload workload(program);
    const Finished run = run_to_end({memtrace_path(), "-p", std::to_string(workload.pid())});
    INFO(run.errors);
    CHECK(run.status == 4);
    CHECK_THAT(run.errors, ContainsSubstring(program.string()));
    CHECK_THAT(run.errors, ContainsSubstring("\nhint: "));
    CHECK(workload.quit(7) == 7);
}
