// The kernel's room for unwind tables: taken, full, given back.
#include <fcntl.h>

#include "bpf/tracing.hpp"

using namespace memtrace;
using namespace memtrace::test;

namespace {

constexpr uint64_t a_device = 1;

struct LibcTable {
    UnwindTable table;
    std::vector<CodeSegment> segments;
};

std::optional<LibcTable> libc_table() {
    const Fd fd(::open("/lib/x86_64-linux-gnu/libc.so.6", O_RDONLY | O_CLOEXEC));
    auto table = build_unwind_table(fd.get(), -1, UnwindRows::all);
    auto image = ElfImage::open(fd.get());
    if (!table || !image) {
        WARN("skipped: no libc.so.6 with unwind information");
        return std::nullopt;
    }
    return LibcTable{std::move(*table), image->code_segments()};
}

/// Adds the table as that of files 1, 2 ... until there is no room; how many were added.
uint64_t fill(Session& session, const LibcTable& libc) {
    uint64_t added = 0;
    while (session.add_unwind_table({a_device, added + 1}, libc.table, libc.segments))
        ++added;
    return added;
}

}  // namespace

TEST_CASE("unwind tables that are full say so, and have room again when files are gone", "[bpf]") {
    const auto rung = AttachRung::session;
    if (!can_trace(rung)) return;
    const auto libc = libc_table();
    if (!libc) return;
    Tracing tracing(rung);
    Session& session = tracing.session();
    const uint64_t room = fill(session, *libc);
    REQUIRE(room > 3);
    const auto refused = session.add_unwind_table({a_device, 1'000'000}, libc->table, libc->segments);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().why == "the tables are full");
    // Not neighbours, so that each gap must serve by itself.
    session.remove_unwind_table({a_device, 1});
    session.remove_unwind_table({a_device, 3});
    CHECK(session.add_unwind_table({a_device, 2'000'000}, libc->table, libc->segments));
    CHECK(session.add_unwind_table({a_device, 2'000'001}, libc->table, libc->segments));
    CHECK_FALSE(session.add_unwind_table({a_device, 2'000'002}, libc->table, libc->segments));
    // The same file again takes the place of its old table.
    CHECK(session.add_unwind_table({a_device, 2'000'000}, libc->table, libc->segments));
}
