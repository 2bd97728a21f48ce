#include "symbols/symbol_index.hpp"

#include <gelf.h>

#include <algorithm>
#include <cstring>

#include "probes/go_program.hpp"

namespace memtrace {
namespace {

bool is_before(const Symbol& left, const Symbol& right) {
    if (left.start != right.start) return left.start < right.start;
    if (left.rank != right.rank) return left.rank < right.rank;
    return std::strcmp(left.name, right.name) > 0;
}

/// What the program calls a function comes before what its author calls it inside: malloc before __libc_malloc.
int rank_of(const GElf_Sym& symbol, const char* name) {
    const int binding = GELF_ST_BIND(symbol.st_info);
    const int visible = binding == STB_LOCAL ? 0 : binding == STB_WEAK ? 1 : 2;
    const int underscores = static_cast<int>(std::min<size_t>(std::strspn(name, "_"), 3));
    return (name[0] == '_' && name[1] != 'Z' ? -10 * underscores : 0) + visible;
}

/// Its section when it holds code.
bool code_section_of(Elf* elf, GElf_Word index, GElf_Shdr& header) {
    Elf_Scn* section = elf ? ::elf_getscn(elf, index) : nullptr;
    return section && ::gelf_getshdr(section, &header) && (header.sh_flags & SHF_EXECINSTR) != 0;
}

/// The last symbol that starts at or before `address`, as an index plus one.
size_t count_up_to(const std::vector<Symbol>& symbols, uint64_t address) {
    const auto after = std::upper_bound(symbols.begin(), symbols.end(), address,
                                        [](uint64_t wanted, const Symbol& symbol) { return wanted < symbol.start; });
    return static_cast<size_t>(after - symbols.begin());
}

}  // namespace

SymbolIndex::SymbolIndex(Dwfl_Module* module) {
    const int count = ::dwfl_module_getsymtab(module);
    for (int number = 1; number < count; ++number)
        add_symbol(module, number);
    if (functions_.empty()) add_go_functions(module);
    std::sort(functions_.begin(), functions_.end(), is_before);
    std::sort(labels_.begin(), labels_.end(), is_before);
    uint64_t end = 0;
    for (const Symbol& function : functions_)
        ends_.push_back(end = std::max(end, function.end));
}

void SymbolIndex::add_go_functions(Dwfl_Module* module) {
    GElf_Addr bias = 0;
    const auto program = GoProgram::read(::dwfl_module_getelf(module, &bias), "");
    if (!program) return;
    for (GoProgram::Function& function : program->functions_starting_with("")) {
        go_names_.push_back(std::move(function.name));
        functions_.push_back({bias + function.start, bias + function.end, go_names_.back().c_str(), 0});
    }
}

void SymbolIndex::add_symbol(Dwfl_Module* module, int number) {
    GElf_Sym symbol;
    GElf_Addr start = 0;
    GElf_Word section = 0;
    Elf* elf = nullptr;
    Dwarf_Addr bias = 0;
    const char* name = ::dwfl_module_getsym_info(module, number, &symbol, &start, &section, &elf, &bias);
    if (!name || !*name || section == SHN_UNDEF || section == SHN_ABS) return;
    const int type = GELF_ST_TYPE(symbol.st_info);
    const bool is_function = type == STT_FUNC || type == STT_GNU_IFUNC;
    if (!is_function && type != STT_NOTYPE) return;
    if (is_function && symbol.st_size != 0) {
        functions_.push_back({start, start + symbol.st_size, name, rank_of(symbol, name)});
        return;
    }
    GElf_Shdr header;
    if (!code_section_of(elf, section, header)) return;
    if (symbol.st_size != 0)
        functions_.push_back({start, start + symbol.st_size, name, rank_of(symbol, name)});
    else
        labels_.push_back({start, header.sh_addr + bias + header.sh_size, name, rank_of(symbol, name)});
}

const Symbol* SymbolIndex::find(uint64_t address) const {
    const size_t functions = count_up_to(functions_, address);
    for (size_t i = functions; i > 0 && ends_[i - 1] > address; --i)
        if (functions_[i - 1].end > address) return &functions_[i - 1];
    const size_t labels = count_up_to(labels_, address);
    if (labels == 0) return nullptr;
    const Symbol& label = labels_[labels - 1];
    // A function that ends between the label and the address shows that the label does not reach so far.
    const bool is_interrupted = functions > 0 && functions_[functions - 1].start >= label.start;
    return label.end > address && !is_interrupted ? &label : nullptr;
}

}  // namespace memtrace
