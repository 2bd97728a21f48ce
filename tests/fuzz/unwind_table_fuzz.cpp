// Any bytes as an ELF file: a table or an Error, and a rule for every address. Run by libFuzzer; what it found once is
// in unwind_table_corpus. A byte in front of the file chooses the rows and whether the file is its own debug file.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>

#include "base/fd.hpp"
#include "unwind/unwind_table.hpp"

using namespace memtrace;

namespace {

/// Asks for rules around every page's start and row, as the kernel side would.
void look_up(const UnwindTable& table) {
    for (size_t page = 0; page < table.page_index.size(); ++page) {
        const uint64_t start = table.first_page_vaddr + (page << MT_UNWIND_PAGE_SHIFT);
        for (const uint64_t vaddr : {start - 1, start, start + 1, start + 0x800}) {
            const mt_u16 rule = table.rule_at(vaddr);
            const bool is_entry = (rule & MT_UNWIND_DICTIONARY_BITS) == MT_UNWIND_DICTIONARY;
            if (is_entry ? (rule & MT_UNWIND_INDEX_MASK) >= table.rules.size() : rule > MT_UNWIND_UNSUPPORTED)
                std::abort();
        }
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size_bytes) {
    if (size_bytes == 0) return 0;
    const UnwindRows rows = (data[0] & 1) != 0 ? UnwindRows::call_sites : UnwindRows::all;
    const bool has_debug_file = (data[0] & 2) != 0;
    const std::span<const uint8_t> image(data + 1, size_bytes - 1);
    if (!has_debug_file) {
        if (const Result<UnwindTable> table = build_unwind_table(image, rows)) look_up(*table);
        return 0;
    }
    const Fd file(::memfd_create("unwind_table_fuzz", MFD_CLOEXEC));
    if (::write(file.get(), image.data(), image.size()) != static_cast<ssize_t>(image.size())) return 0;
    if (const Result<UnwindTable> table = build_unwind_table(file.get(), file.get(), rows)) look_up(*table);
    return 0;
}
