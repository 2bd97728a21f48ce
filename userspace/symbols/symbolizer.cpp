#include "symbols/symbolizer.hpp"

#include <elfutils/libdwfl.h>
#include <fcntl.h>
#include <unistd.h>

#include <optional>

#include "base/text.hpp"
#include "symbols/debug_files.hpp"
#include "symbols/demangle.hpp"
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
    explicit ModuleSymbols(const Module& module) : module_(module) { open(); }

    const Frame& frame_at(uint64_t offset) {
        const auto known = frames_.find(offset);
        return known != frames_.end() ? known->second : frames_.emplace(offset, make_frame(offset)).first->second;
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
        if (dwfl_module_) index_.emplace(dwfl_module_);
    }

    Frame make_frame(uint64_t offset) const {
        Frame frame;
        frame.module = module_.name();
        frame.offset = offset;
        frame.kind = module_.is_jit() ? Frame::Kind::jit : Frame::Kind::native;
        const auto address = module_.virtual_address(offset);
        if (!index_ || !address) return frame;
        if (const Symbol* symbol = index_->find(*address)) {
            frame.function = demangle(symbol->name);
            frame.function_offset = *address - symbol->start;
        }
        add_line(frame, *address);
        return frame;
    }

    void add_line(Frame& frame, uint64_t address) const {
        Dwfl_Line* line = ::dwfl_module_getsrc(dwfl_module_, address);
        int number = 0;
        const char* file = line ? ::dwfl_lineinfo(line, nullptr, &number, nullptr, nullptr, nullptr) : nullptr;
        if (!file) return;
        frame.file = printable(file);
        frame.line = static_cast<uint32_t>(number);
    }

    const Module& module_;
    std::unique_ptr<Dwfl, DwflEnd> dwfl_;
    Dwfl_Module* dwfl_module_ = nullptr;  // owned by dwfl_
    std::optional<SymbolIndex> index_;
    std::unordered_map<uint64_t, Frame> frames_;
};

Symbolizer::Symbolizer() = default;
Symbolizer::Symbolizer(Symbolizer&&) noexcept = default;
Symbolizer& Symbolizer::operator=(Symbolizer&&) noexcept = default;
Symbolizer::~Symbolizer() = default;

const Frame& Symbolizer::frame_at(const CodeLocation& location) {
    auto& symbols = modules_[location.module];
    if (!symbols) symbols = std::make_unique<ModuleSymbols>(*location.module);
    return symbols->frame_at(location.offset);
}

}  // namespace memtrace
