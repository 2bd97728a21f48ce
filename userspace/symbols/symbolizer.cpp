#include "symbols/symbolizer.hpp"

#include <elfutils/libdwfl.h>
#include <fcntl.h>
#include <unistd.h>

#include <optional>

#include "base/text.hpp"
#include "symbols/debug_files.hpp"
#include "symbols/debuginfod.hpp"
#include "symbols/demangle.hpp"
#include "symbols/inline_index.hpp"
#include "symbols/module.hpp"
#include "symbols/symbol_index.hpp"

namespace memtrace {
namespace {

struct DwflEnd {
    void operator()(Dwfl* dwfl) const { ::dwfl_end(dwfl); }
};

const Dwfl_Callbacks* callbacks() {
    static const Dwfl_Callbacks constant{nullptr, &find_debug_file, nullptr, nullptr};
    return &constant;
}

}  // namespace

/// Everything that was read to name one module's code.
class ModuleSymbols {
  public:
    ModuleSymbols(const Module& module, Debuginfod& servers) : module_(module), search_{&module, &servers} { open(); }

    const std::vector<Frame>& frames_at(uint64_t offset) {
        const auto known = frames_.find(offset);
        return known != frames_.end() ? known->second : frames_.emplace(offset, make_frames(offset)).first->second;
    }

  private:
    void open() {
        if (!module_.is_elf()) return;
        dwfl_.reset(::dwfl_begin(callbacks()));
        const int fd = ::fcntl(module_.fd(), F_DUPFD_CLOEXEC, 0);
        if (!dwfl_ || fd < 0) return;
        // Base 0: libdwfl's addresses are then the file's own virtual addresses.
        dwfl_module_ = ::dwfl_report_elf(dwfl_.get(), module_.name().c_str(), module_.path().c_str(), fd, 0, true);
        if (!dwfl_module_) ::close(fd);
        ::dwfl_report_end(dwfl_.get(), nullptr, nullptr);
        if (!dwfl_module_) return;
        void** user_data = nullptr;
        ::dwfl_module_info(dwfl_module_, &user_data, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr);
        *user_data = &search_;
        symbols_.emplace(dwfl_module_);
    }

    /// What is known without reading anything.
    Frame bare_frame(uint64_t offset) const {
        Frame frame;
        frame.module = module_.name();
        frame.offset = offset;
        frame.kind = module_.is_jit() ? Frame::Kind::jit : Frame::Kind::native;
        return frame;
    }

    std::vector<Frame> make_frames(uint64_t offset) {
        std::vector<Frame> frames;
        const auto address = module_.virtual_address(offset);
        if (!symbols_ || !address) return {bare_frame(offset)};
        for (const SourceFrame& source : source_frames(*address)) {
            Frame& frame = frames.emplace_back(bare_frame(offset));
            if (source.function) frame.function = demangle(source.function);
            if (source.file) frame.file = printable(source.file);
            frame.line = source.line;
            frame.is_inlined = source.is_inlined;
        }
        if (frames.empty()) frames.push_back(bare_frame(offset));
        // The symbol tells clones apart ("foo.cold"), and knows the name that the program calls.
        if (const Symbol* symbol = symbols_->find(*address)) {
            frames.back().function = demangle(symbol->name);
            frames.back().function_offset = *address - symbol->start;
        }
        return frames;
    }

    std::vector<SourceFrame> source_frames(uint64_t address) {
        if (!has_looked_for_lines_) {
            has_looked_for_lines_ = true;
            if (Dwarf* dwarf = ::dwfl_module_getdwarf(dwfl_module_, &dwarf_bias_)) lines_.emplace(dwarf);
        }
        return lines_ ? lines_->frames_at(address - dwarf_bias_) : std::vector<SourceFrame>();
    }

    const Module& module_;
    DebugFileSearch search_;
    std::unique_ptr<Dwfl, DwflEnd> dwfl_;
    Dwfl_Module* dwfl_module_ = nullptr;  // owned by dwfl_
    std::optional<SymbolIndex> symbols_;
    std::optional<InlineIndex> lines_;
    bool has_looked_for_lines_ = false;
    Dwarf_Addr dwarf_bias_ = 0;
    std::unordered_map<uint64_t, std::vector<Frame>> frames_;  // by file offset
};

Symbolizer::Symbolizer() : servers_(std::make_unique<Debuginfod>()) {}
Symbolizer::Symbolizer(Symbolizer&&) noexcept = default;
Symbolizer& Symbolizer::operator=(Symbolizer&&) noexcept = default;
Symbolizer::~Symbolizer() = default;

const std::vector<Frame>& Symbolizer::frames_at(const CodeLocation& location) {
    auto& symbols = modules_[location.module];
    if (!symbols) symbols = std::make_unique<ModuleSymbols>(*location.module, *servers_);
    return symbols->frames_at(location.offset);
}

}  // namespace memtrace
