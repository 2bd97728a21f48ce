#include "unwind/unwind_table.hpp"

#include <algorithm>
#include <optional>

#include "unwind/call_scanner.hpp"
#include "unwind/elf_image.hpp"
#include "unwind/frame_section.hpp"
#include "unwind/function_layout.hpp"

namespace memtrace {
namespace {

constexpr uint64_t page_bytes = 1ull << MT_UNWIND_PAGE_SHIFT;
constexpr uint32_t low_mask = 0xffff;
constexpr unsigned rule_shift = 16;

bool is_special(mt_u16 rule) {
    return (rule & MT_UNWIND_SPECIAL) != 0;
}

/// Drops plain rows in which no call can end: the row before takes their addresses, and nobody asks for them. The first
/// row stays, for the table starts with it.
void keep_call_sites(std::vector<UnwindRow>& rows, uint64_t base_vaddr, const ElfImage& image) {
    CallScanner scanner(image);
    size_t kept = 0;
    for (size_t index = 0; index < rows.size(); ++index) {
        const UnwindRow row = rows[index];
        if (kept > 0 && rows[kept - 1].rule == row.rule) continue;
        const bool is_bound = index == 0 || index + 1 == rows.size();
        if (!is_bound && !is_special(row.rule) &&
            !scanner.may_end_call(base_vaddr + row.offset, base_vaddr + rows[index + 1].offset))
            continue;
        rows[kept++] = row;
    }
    rows.resize(kept);
}

/// Fills rows, page index and first page. The last page is that of the last row.
void pack(UnwindTable& table, const std::vector<UnwindRow>& rows, uint64_t base_vaddr) {
    if (rows.empty()) return;
    const uint32_t first_page = rows.front().offset >> MT_UNWIND_PAGE_SHIFT;
    table.first_page_vaddr = base_vaddr + first_page * page_bytes;
    table.rows.reserve(rows.size());
    for (const UnwindRow& row : rows) {
        const uint32_t page = (row.offset >> MT_UNWIND_PAGE_SHIFT) - first_page;
        while (table.page_index.size() <= page)
            table.page_index.push_back(static_cast<uint32_t>(table.rows.size()));
        const auto low = static_cast<uint32_t>((base_vaddr + row.offset) & low_mask);
        table.rows.push_back(low | uint32_t{row.rule} << rule_shift);
    }
    table.page_index.push_back(static_cast<uint32_t>(table.rows.size()));
}

/// Adds the functions of one section, where no earlier one has any.
Result<void> add_section(std::vector<FunctionPart>& parts, FrameRows& frames, const Result<FrameSection>& section,
                         FrameSectionKind kind) {
    if (!section) return section.error();
    if (!section->bytes.empty()) parts = add_functions(std::move(parts), frames.read(*section, kind));
    return {};
}

Result<UnwindTable> build(const ElfImage& image, const ElfImage* debug_image, UnwindRows which) {
    const uint64_t base_vaddr = image.first_code_page();
    FrameRows frames(image, base_vaddr);
    std::vector<FunctionPart> parts;
    Result<void> added = add_section(parts, frames, image.eh_frame(), FrameSectionKind::eh_frame);
    if (added && !image.is_go()) {
        added = add_section(parts, frames, image.debug_frame(), FrameSectionKind::debug_frame);
        if (added && debug_image != nullptr)
            added = add_section(parts, frames, debug_image->debug_frame(), FrameSectionKind::debug_frame);
    }
    if (!added) return added.error();
    UnwindTable table;
    std::vector<UnwindRow> rows = lay_out(parts, frames.rows());
    if (which == UnwindRows::call_sites) keep_call_sites(rows, base_vaddr, image);
    pack(table, rows, base_vaddr);
    table.rules = frames.encoder().rules();
    table.counts = frames.counts();
    table.counts.rules_full = frames.encoder().times_full();
    for (const CodeSegment& segment : image.code_segments())
        table.text_bytes += segment.size_bytes;
    return table;
}

}  // namespace

mt_u16 UnwindTable::rule_at(uint64_t vaddr) const {
    if (vaddr < first_page_vaddr) return MT_UNWIND_GAP;
    const uint64_t page = (vaddr - first_page_vaddr) >> MT_UNWIND_PAGE_SHIFT;
    if (page + 1 >= page_index.size()) return MT_UNWIND_GAP;
    const auto low = static_cast<uint32_t>(vaddr & low_mask);
    const auto first = rows.begin() + page_index[page];
    const auto end = rows.begin() + page_index[page + 1];
    const auto is_after = [](uint32_t wanted, uint32_t row) { return wanted < (row & low_mask); };
    const auto after = std::upper_bound(first, end, low, is_after);
    return static_cast<mt_u16>(*std::prev(after) >> rule_shift);
}

uint64_t UnwindTable::size_bytes() const {
    return (rows.size() + page_index.size()) * sizeof(uint32_t) + rules.size() * sizeof(mt_unwind_rule);
}

Result<UnwindTable> build_unwind_table(int fd, int debug_fd, UnwindRows rows) {
    const Result<ElfImage> image = ElfImage::open(fd);
    if (!image) return image.error();
    if (debug_fd < 0) return build(*image, nullptr, rows);
    const Result<ElfImage> debug_image = ElfImage::open(debug_fd);
    if (!debug_image) return debug_image.error();
    return build(*image, &*debug_image, rows);
}

Result<UnwindTable> build_unwind_table(std::span<const uint8_t> image, UnwindRows rows) {
    const Result<ElfImage> opened = ElfImage::open(image);
    if (!opened) return opened.error();
    return build(*opened, nullptr, rows);
}

}  // namespace memtrace
