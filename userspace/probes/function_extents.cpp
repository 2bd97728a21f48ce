#include "probes/function_extents.hpp"

#include <algorithm>

#include "unwind/elf_image.hpp"
#include "unwind/frame_section.hpp"

namespace memtrace {
namespace {

std::vector<FunctionExtent> extents_of_frames(int fd) {
    std::vector<FunctionExtent> extents;
    const auto image = ElfImage::open(fd);
    if (!image) return extents;
    const auto section = image->eh_frame();
    if (!section) return extents;
    const uint64_t base = image->first_code_page();
    FrameRows rows(*image, base);
    for (const FrameFunction& function : rows.read(*section, FrameSectionKind::eh_frame))
        extents.push_back({base + function.start, base + function.end});
    return extents;
}

std::optional<FunctionExtent> find_in(const std::vector<FunctionExtent>& extents, uint64_t vaddr) {
    const auto next = std::ranges::upper_bound(extents, vaddr, {}, &FunctionExtent::start);
    if (next == extents.begin() || vaddr >= std::prev(next)->end) return std::nullopt;
    return *std::prev(next);
}

}  // namespace

FunctionExtents FunctionExtents::read(const ElfFile& file, const std::vector<FunctionSymbol>& symbols) {
    FunctionExtents extents;
    extents.by_frame_ = extents_of_frames(file.fd());
    for (const FunctionSymbol& symbol : symbols)
        if (symbol.size_bytes != 0) extents.by_symbol_.push_back({symbol.vaddr, symbol.vaddr + symbol.size_bytes});
    std::ranges::sort(extents.by_frame_, {}, &FunctionExtent::start);
    std::ranges::sort(extents.by_symbol_, {}, &FunctionExtent::start);
    return extents;
}

std::optional<FunctionExtent> FunctionExtents::find(uint64_t vaddr) const {
    if (const auto extent = find_in(by_frame_, vaddr)) return extent;
    return find_in(by_symbol_, vaddr);
}

}  // namespace memtrace
