// The arguments of an allocator function as text, `size=arg0,count=arg1`, in both directions, and the words for what a
// function does with them. Arguments are arg0 to arg5, as the function's declaration has them. Pure; uses base/.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "probes/allocators.hpp"

namespace memtrace {

/// What is wrong in a text that somebody wrote. `at` is the part of the text, perhaps empty, where it is wrong.
struct TextFault {
    std::string_view at;
    std::string why;
    std::string hint;
};

enum class ArgumentKey : uint8_t { size, count, ptr, result, null, returns, fails };
constexpr size_t argument_key_count = 7;

/// Arguments as they were written. Borrows the text.
struct WrittenArguments {
    mt_row row{};  // without an operation
    bool null_does_nothing = false;
    std::string_view text;
    std::array<std::string_view, argument_key_count> places{};  // KEY=VALUE of each key; empty: it is not there

    bool has(ArgumentKey key) const { return !places[static_cast<size_t>(key)].empty(); }
};

/// KEY=VALUE between commas, each key and each argument once: size=argN or a number of bytes, count=argN, ptr=argN,
/// result=*argN, null=nothing, returns=instructions, fails=frees.
std::variant<WrittenArguments, TextFault> parse_written_arguments(std::string_view text);

/// What is missing for an operation that a user's function can have, or too much for it. The operations of mappings and
/// delegates have no arguments of a user's choice: any is too much.
std::optional<TextFault> arguments_fault(const WrittenArguments& arguments, mt_operation operation);

/// The arguments of a row, which parse_written_arguments() reads back; "-" if it has none.
std::string arguments_text(const AllocatorFunction& function);

/// "allocate", "free", "allocate-out" ...; "none" for what is no operation.
std::string_view operation_name(uint8_t operation);
/// The operation of that name.
std::optional<mt_operation> operation_of(std::string_view name);
/// All names, "allocate, free ...", of the operations that a user's function can have.
std::string user_operation_names();

}  // namespace memtrace
