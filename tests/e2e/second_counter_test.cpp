// memtrace's sums against those of a second, independent counter, on a program that nobody here wrote: python3, on a
// window in which it is quiet at both ends.
#include "e2e/second_counter.hpp"
#include "catch.hpp"
#include "e2e/memtrace.hpp"
#include "e2e/temporary_directory.hpp"

using namespace memtrace::e2e;

namespace {

constexpr const char* script = R"(
import sys, json, re, collections, os
print('ready', os.getpid(), flush=True)
for line in sys.stdin:
    if line.startswith('quit'): sys.exit(int(line[5:] or 0))
    data = {str(i): [i, str(i) * 5, {'key': i / 3}] for i in range(1500)}
    copy = json.loads(json.dumps(data))
    words = collections.Counter(re.findall(r'[0-9]+', json.dumps(copy)))
    kept = [bytearray(n) for n in range(0, 4000, 7)]
    text = '-'.join(sorted(words)).encode().decode('latin-1')
    print(len(text), flush=True)
)";

}  // namespace

TEST_CASE("the sums for python3 equal those of a preloaded counter", "[e2e][second_counter]") {
    require_root();
    on_every_rung([](const std::string& rung) {
        const TemporaryDirectory directory;
        Workload python("python3", {"-c", script},
                        {"PYTHONMALLOC=malloc", "LD_PRELOAD=" + workload_path("libcounting_preload.so"),
                         "COUNTING_PRELOAD_DIRECTORY=" + directory.path().string()});
        wait_until_quiet(python.pid());
        SecondCounter counter(directory.path() / std::to_string(python.pid()));
        counter.start_window();
        Memtrace memtrace(on_demand(rung, python.pid()));
        memtrace.wait_attached();
        python.child().write_line("go");
        python.child().read_line();
        wait_until_quiet(python.pid());
        const counting_figures expected = counter.figures();
        const Json report = memtrace.report();
        CHECK(expected.allocations > 10000);
        check_equal(expected, report);
        CHECK(memtrace.stop().status == 0);
        CHECK(python.quit(3) == 3);
    });
}
