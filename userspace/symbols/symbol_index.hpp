// The functions of one ELF file by address. Uses libdwfl, libelf and probes (Go's own table of functions). Names belong
// to the Dwfl_Module, which must live as long as the index.
#pragma once

#include <elfutils/libdwfl.h>

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

namespace memtrace {

struct Symbol {
    uint64_t start = 0;
    uint64_t end = 0;
    const char* name = nullptr;
    int rank = 0;  // of several names of one function the highest is shown
};

class SymbolIndex {
  public:
    /// Of .symtab and .dynsym, of the file and of its debug file (libdwfl chooses); of a stripped Go program those of
    /// its .gopclntab.
    explicit SymbolIndex(Dwfl_Module* module);
    /// The innermost function that holds `address` (as libdwfl counts it); null if none.
    const Symbol* find(uint64_t address) const;

  private:
    void add_symbol(Dwfl_Module* module, int number);
    void add_go_functions(Dwfl_Module* module);

    std::deque<std::string> go_names_;
    std::vector<Symbol> functions_;  // by start, then rank
    std::vector<uint64_t> ends_;     // the greatest end of functions_[0..i]
    std::vector<Symbol> labels_;     // symbols without a size (assembler), to the end of their section
};

}  // namespace memtrace
