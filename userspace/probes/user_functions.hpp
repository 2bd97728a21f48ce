// Allocator functions that the user names, on the command line or in a file. Pure; uses base/.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "probes/allocators.hpp"

namespace memtrace {

/// An allocator function that the user named. Owns its text. Its return is seen at its return instructions: it may
/// throw, and what a pool's free calls inside is its own.
struct UserFunction {
    std::string family = "user";
    std::string symbol;
    std::string name;  // as reports show it
    std::string file;  // path or name of the file that has it; empty: any
    mt_row row{};
    bool null_does_nothing = false;

    /// For AllocatorTable::add_function; borrows this object's text.
    AllocatorFunction function() const;
};

enum class UserFunctionKind { allocates, frees };

/// User functions that the table of allocators has room for.
size_t max_user_functions();

/// `[FILE:]SYMBOL[:KEY=VALUE,...]` of --alloc or --free, with the keys of function_arguments.hpp. With ptr, --alloc is
/// a reallocation; with result=*argN, the function stores its block there and returns 0 when it succeeded. Without keys
/// an allocation has size=arg0 and a free ptr=arg0. The Error says at which character what is wrong.
Result<UserFunction> parse_user_function(std::string_view text, UserFunctionKind kind);

/// The lines of a file of rows, `FAMILY [FILE:]SYMBOL OPERATION KIND ARGUMENTS NAME` as `memtrace list` prints them,
/// but for those that say the same as a row that is built in: these are known and not in the result. `file_name` stands
/// for the file in errors, which name line and column.
Result<std::vector<UserFunction>> parse_user_functions(std::string_view text, std::string_view file_name);
/// Longer ones are refused.
constexpr size_t max_user_functions_text_bytes = 1u << 20;

/// Whether `text` can be (the beginning of) an ELF symbol; the Error, with a place as in parse_user_function(), says
/// why not: above all that it is a demangled name.
Result<void> check_symbol(std::string_view text);

/// The first one whose symbol and file another one before it has; nullptr if there is none.
const UserFunction* find_repeated(std::span<const UserFunction> functions);

}  // namespace memtrace
