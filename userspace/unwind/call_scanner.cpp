#include "unwind/call_scanner.hpp"

#include <algorithm>
#include <cstring>

namespace memtrace {
namespace {

constexpr size_t window_bytes = 64 << 10;
// FF /2 with a SIB byte and a 32-bit displacement.
constexpr uint64_t max_call_bytes = 7;

constexpr uint8_t call_relative = 0xe8;
constexpr uint8_t group_5 = 0xff;
constexpr uint8_t group_5_call = 2;
constexpr size_t relative_call_bytes = 5;

/// Bytes of `FF /2` by its ModRM and SIB bytes (Intel SDM volume 2, tables 2-2 and 2-3); 0 if it is no call.
size_t indirect_call_bytes(std::span<const uint8_t> code) {
    if (code.size() < 2) return 0;
    const uint8_t mode = code[1] >> 6;
    const uint8_t operation = (code[1] >> 3) & 7;
    const uint8_t base = code[1] & 7;
    if (operation != group_5_call) return 0;
    if (mode == 3) return 2;
    const bool has_sib = base == 4;
    if (has_sib && code.size() < 3) return 0;
    const bool has_no_base = mode == 0 && (has_sib ? (code[2] & 7) == 5 : base == 5);
    const size_t displacement_bytes = mode == 1 ? 1 : (mode == 2 || has_no_base) ? 4 : 0;
    const size_t size_bytes = 2 + (has_sib ? 1 : 0) + displacement_bytes;
    return size_bytes <= code.size() ? size_bytes : 0;
}

}  // namespace

std::span<const uint8_t> CallScanner::code_at(const CodeSegment& segment, uint64_t vaddr) {
    const uint64_t held_end = window_vaddr_ + window_.size();
    const uint64_t wanted_end = std::min(vaddr + max_call_bytes, segment.end_vaddr());
    if (vaddr < window_vaddr_ || wanted_end > held_end) {
        const uint64_t size_bytes = std::min<uint64_t>(window_bytes, segment.end_vaddr() - vaddr);
        window_.resize(size_bytes);
        window_vaddr_ = vaddr;
        if (image_.read(segment.offset + (vaddr - segment.vaddr), window_) < size_bytes) window_.clear();
    }
    return window_.empty() ? std::span<const uint8_t>{}
                           : std::span<const uint8_t>(window_).subspan(vaddr - window_vaddr_);
}

size_t CallScanner::call_bytes(std::span<const uint8_t> code, uint64_t vaddr) const {
    if (code[0] == group_5) return indirect_call_bytes(code);
    if (code[0] != call_relative || code.size() < relative_call_bytes) return 0;
    int32_t distance = 0;
    std::memcpy(&distance, code.data() + 1, sizeof distance);
    const uint64_t target = vaddr + relative_call_bytes + static_cast<uint64_t>(int64_t{distance});
    // A linker resolves such a call within its file; most E8 bytes that are no call lead out of it (a sixth of the
    // rows).
    return has_fixed_code_ && image_.code_segment(target) == nullptr ? 0 : relative_call_bytes;
}

bool CallScanner::may_end_call(uint64_t start_vaddr, uint64_t end_vaddr) {
    const CodeSegment* segment = image_.code_segment(start_vaddr);
    if (segment == nullptr) return true;
    const uint64_t end = std::min(end_vaddr, segment->end_vaddr());
    // Hand-written CFI can change its mind within a call.
    uint64_t vaddr = std::max(segment->vaddr, start_vaddr - std::min(start_vaddr, max_call_bytes - 1));
    while (vaddr < end) {
        const std::span<const uint8_t> code = code_at(*segment, vaddr);
        if (code.empty()) return true;
        const bool is_last = vaddr + code.size() == segment->end_vaddr();
        const uint64_t count =
            std::min<uint64_t>(end - vaddr, is_last ? code.size() : code.size() - max_call_bytes + 1);
        for (uint64_t index = 0; index < count; ++index) {
            const size_t size_bytes = call_bytes(code.subspan(index), vaddr + index);
            const uint64_t call_end = vaddr + index + size_bytes;
            if (size_bytes > 0 && call_end > start_vaddr && call_end <= end) return true;
        }
        vaddr += count;
    }
    return false;
}

}  // namespace memtrace
