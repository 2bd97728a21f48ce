// A Go program's own table of functions, .gopclntab, which stripping leaves in place. Uses probes (ElfFile) and libelf.
// The file may be anything: every offset is checked.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "probes/elf_file.hpp"

namespace memtrace {

/// Source: Go 1.18 to 1.19 (magic 0xfffffff0) and 1.20 on (0xfffffff1), src/internal/abi/symtab.go, runtime/symtab.go.
class GoProgram {
  public:
    struct Function {
        uint64_t start = 0;  // address in the file
        uint64_t end = 0;
        std::string name;
    };

    /// Errors: not a Go program, or one of a version whose table is of another form.
    static Result<GoProgram> read(const ElfFile& file);
    static Result<GoProgram> read(Elf* elf, const std::string& name);
    /// From the bytes of a .gopclntab; `name` stands for its file in messages.
    static Result<GoProgram> parse(std::string table, const std::string& name);

    /// Addresses in the file: of the table, and of the first Go function.
    uint64_t table_vaddr() const { return table_vaddr_; }
    uint64_t text_start() const { return text_start_; }
    /// Built by Go 1.20 or a later one.
    bool is_from_1_20() const { return is_from_1_20_; }

    /// "main.makeDogs"; none if there is no function of that name.
    std::optional<Function> find(std::string_view name) const;
    /// In the order of their addresses.
    std::vector<Function> functions_starting_with(std::string_view prefix) const;
    /// The function that `vaddr` is in; none outside of Go's code.
    std::optional<Function> at(uint64_t vaddr) const;

  private:
    template <typename Value>
    std::optional<Value> value_at(uint64_t offset) const;
    std::optional<Function> function(uint64_t number) const;

    std::string table_;
    uint64_t table_vaddr_ = 0;
    bool is_from_1_20_ = false;
    uint64_t function_count_ = 0;
    uint64_t text_start_ = 0;
    uint64_t names_ = 0;  // offsets in the table
    uint64_t functions_ = 0;
};

}  // namespace memtrace
