#include "probes/user_functions.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <variant>

#include "probes/allocator_families.hpp"
#include "probes/allocator_table.hpp"
#include "probes/function_arguments.hpp"

namespace memtrace {
namespace {

constexpr std::string_view blanks = " \t\r";
constexpr std::string_view row_hint =
    "a line is FAMILY SYMBOL OPERATION KIND ARGUMENTS NAME, as memtrace list prints it";

/// Where the function is: `[FILE:]SYMBOL`.
struct Place {
    std::string_view file;
    std::string_view symbol;
};

/// Counts characters of UTF-8, from 1.
size_t character_number(std::string_view text, std::string_view at) {
    const std::string_view before = text.substr(0, static_cast<size_t>(at.data() - text.data()));
    return 1 + static_cast<size_t>(std::count_if(before.begin(), before.end(), [](char character) {
               return (static_cast<unsigned char>(character) & 0xc0) != 0x80;
           }));
}

Error option_error(std::string_view text, const TextFault& fault) {
    return Error{fmt::format("'{}'", text),
                 fmt::format("character {}: {}", character_number(text, fault.at), fault.why), fault.hint,
                 ExitStatus::usage};
}

std::optional<TextFault> symbol_fault(std::string_view symbol) {
    if (symbol.empty()) return TextFault{symbol, "the symbol is missing", "write SYMBOL or FILE:SYMBOL"};
    for (size_t index = 0; index < symbol.size(); ++index) {
        const char character = symbol[index];
        const std::string_view at = symbol.substr(index, 1);
        if (std::string_view("(<&[").find(character) != std::string_view::npos || symbol.substr(index, 2) == "::")
            return TextFault{at, "this is a demangled name", "write the mangled one, as nm FILE prints it"};
        if (character == '=' || character == ',')
            return TextFault{at, fmt::format("a symbol has no '{}'", character),
                             "keys follow a colon, with commas between: SYMBOL:size=arg0,count=arg1"};
        if (character == ':') return TextFault{at, "a symbol has no ':'", "write the symbol as nm FILE prints it"};
        if (character == '@') return TextFault{at, "a symbol has no '@' here", "leave the version out"};
        if (static_cast<unsigned char>(character) <= ' ' || character == 0x7f)
            return TextFault{at, "a symbol has no blanks and control characters",
                             "write the mangled name, as nm FILE prints it"};
    }
    return std::nullopt;
}

/// A file's name may have colons, a symbol has none.
std::variant<Place, TextFault> parse_place(std::string_view text) {
    const size_t colon = text.rfind(':');
    if (colon == std::string_view::npos) {
        if (auto fault = symbol_fault(text)) return *std::move(fault);
        return Place{{}, text};
    }
    const Place place{text.substr(0, colon), text.substr(colon + 1)};
    if (place.file.ends_with(':') && !place.symbol.empty()) {
        const size_t first = std::min(text.find("::"), colon - 1);
        return TextFault{text.substr(first), "'::' is of a demangled name",
                         "write the mangled one, as nm FILE prints it"};
    }
    if (auto fault = symbol_fault(place.symbol)) return *std::move(fault);
    if (place.file.empty())
        return TextFault{text, "the file before ':' is missing", "write FILE:SYMBOL or SYMBOL alone"};
    return place;
}

UserFunction user_function(const Place& place, mt_operation operation, const WrittenArguments& arguments) {
    UserFunction function;
    function.symbol = place.symbol;
    function.name = place.symbol;
    function.file = place.file;
    function.row = arguments.row;
    function.row.operation = static_cast<mt_u8>(operation);
    function.row.flags |= MT_ROW_RETURN_INSTRUCTIONS;
    function.null_does_nothing = arguments.null_does_nothing;
    return function;
}

std::variant<mt_operation, TextFault> operation_for(const WrittenArguments& arguments, UserFunctionKind kind) {
    if (kind == UserFunctionKind::frees) return MT_OP_FREE;
    const bool has_ptr = arguments.has(ArgumentKey::ptr);
    const bool has_result = arguments.has(ArgumentKey::result);
    if (has_ptr && has_result)
        return TextFault{arguments.places[static_cast<size_t>(ArgumentKey::result)],
                         "a function with 'ptr' returns its block", "leave out ptr or result"};
    if (has_result) return MT_OP_ALLOCATE_OUT;
    return has_ptr ? MT_OP_REALLOCATE : MT_OP_ALLOCATE;
}

std::variant<UserFunction, TextFault> parse_option(std::string_view text, UserFunctionKind kind) {
    const size_t colon = text.rfind(':');
    const bool has_arguments = colon != std::string_view::npos && text.find('=', colon) != std::string_view::npos;
    const std::string_view default_arguments = kind == UserFunctionKind::frees ? "ptr=arg0" : "size=arg0";
    const auto place = parse_place(has_arguments ? text.substr(0, colon) : text);
    if (const auto* fault = std::get_if<TextFault>(&place)) return *fault;
    const auto parsed = parse_written_arguments(has_arguments ? text.substr(colon + 1) : default_arguments);
    if (const auto* fault = std::get_if<TextFault>(&parsed)) return *fault;
    const auto& arguments = std::get<WrittenArguments>(parsed);
    const auto operation = operation_for(arguments, kind);
    if (const auto* fault = std::get_if<TextFault>(&operation)) return *fault;
    if (auto fault = arguments_fault(arguments, std::get<mt_operation>(operation))) return *std::move(fault);
    return user_function(std::get<Place>(place), std::get<mt_operation>(operation), arguments);
}

/// One line of a file of rows, cut at its blanks.
struct RowText {
    std::string_view family;
    std::string_view symbol;
    std::string_view operation;
    std::string_view kind;
    std::string_view arguments;
    std::string_view name;
};

std::string_view take_cell(std::string_view& rest) {
    rest.remove_prefix(std::min(rest.find_first_not_of(blanks), rest.size()));
    const std::string_view cell = rest.substr(0, rest.find_first_of(blanks));
    rest.remove_prefix(cell.size());
    return cell;
}

std::variant<RowText, TextFault> parse_cells(std::string_view line) {
    RowText row;
    std::string_view rest = line;
    const std::pair<std::string_view RowText::*, std::string_view> cells[] = {
        {&RowText::family, "the family is"},        {&RowText::symbol, "the symbol is"},
        {&RowText::operation, "the operation is"},  {&RowText::kind, "the kind is"},
        {&RowText::arguments, "the arguments are"},
    };
    for (const auto& [cell, name] : cells) {
        row.*cell = take_cell(rest);
        if ((row.*cell).empty()) return TextFault{rest, fmt::format("{} missing", name), std::string(row_hint)};
    }
    rest.remove_prefix(std::min(rest.find_first_not_of(blanks), rest.size()));
    if (rest.empty()) return TextFault{rest, "the name is missing", std::string(row_hint)};
    for (size_t index = 0; index < rest.size(); ++index)
        if (static_cast<unsigned char>(rest[index]) < ' ' || rest[index] == 0x7f)
            return TextFault{rest.substr(index), "a name has no control characters", std::string(row_hint)};
    row.name = rest;
    return row;
}

bool is_same_place(const UserFunction& left, const UserFunction& right) {
    return left.symbol == right.symbol && left.file == right.file;
}

constexpr std::string_view collected_kind = kind_name(BlockKind::gc);

bool is_mapping(mt_operation operation) {
    mt_row row{};
    row.operation = static_cast<mt_u8>(operation);
    return changes_mappings(row);
}

/// Of collectors as `memtrace list` writes them: a user has none of his own.
bool does_the_same(const RowText& text, const mt_row& row, const AllocatorFunction& function) {
    static_assert(std::has_unique_object_representations_v<mt_row>);
    if (function.kind != BlockKind::gc) return std::memcmp(&row, &function.row, sizeof(row)) == 0;
    return text.kind == collected_kind && text.operation == operation_name(function.row.operation) &&
           text.arguments == arguments_text(function);
}

bool is_built_in(const RowText& text, const mt_row& row, bool null_does_nothing) {
    const auto functions = built_in_functions();
    return std::any_of(functions.begin(), functions.end(), [&](const AllocatorFunction& function) {
        const bool is_of_family =
            text.family == function.family || (text.family == "*" && function.scope == RowScope::family);
        return is_of_family && text.symbol == function.symbol && text.name == function.name &&
               null_does_nothing == function.null_does_nothing && does_the_same(text, row, function);
    });
}

std::variant<mt_operation, TextFault> parse_operation(const RowText& text) {
    const auto operation = operation_of(text.operation);
    if (!operation)
        return TextFault{text.operation, fmt::format("unknown operation '{}'", text.operation),
                         "write one of " + user_operation_names()};
    const std::string_view kind = is_mapping(*operation) ? "mapping" : "heap";
    if (text.kind == collected_kind && !is_mapping(*operation)) return *operation;
    if (text.kind != kind)
        return TextFault{text.kind, fmt::format("'{}' is not the kind of {}", text.kind, text.operation),
                         fmt::format("write {}", kind)};
    return *operation;
}

/// Why a row that is not built in cannot be a user's.
std::optional<TextFault> own_row_fault(const RowText& text, mt_operation operation, const WrittenArguments& arguments) {
    if (is_mapping(operation))
        return TextFault{text.operation, "mappings are changed by functions of the C library, and memtrace knows them",
                         "leave the line out, or name what the function gives as blocks of the heap"};
    if (operation == MT_OP_DELEGATE)
        return TextFault{text.operation, "only operator new delegates, and memtrace knows it",
                         "write allocate: a function that throws is seen at its return instructions"};
    if (text.kind == collected_kind)
        return TextFault{text.kind, "only collectors that memtrace knows have blocks of that kind", "write heap"};
    if (text.family == "*")
        return TextFault{text.family, "'*' is for rows that are built in, and this is none of them",
                         "write a family, such as user"};
    return arguments_fault(arguments, operation);
}

/// No value: the row is built in.
std::variant<std::optional<UserFunction>, TextFault> parse_row(std::string_view line) {
    const auto cells = parse_cells(line);
    if (const auto* fault = std::get_if<TextFault>(&cells)) return *fault;
    const auto& text = std::get<RowText>(cells);
    const auto place = parse_place(text.symbol);
    if (const auto* fault = std::get_if<TextFault>(&place)) return *fault;
    const auto operation = parse_operation(text);
    if (const auto* fault = std::get_if<TextFault>(&operation)) return *fault;
    const auto parsed = parse_written_arguments(text.arguments);
    if (const auto* fault = std::get_if<TextFault>(&parsed)) return *fault;
    const auto& arguments = std::get<WrittenArguments>(parsed);

    mt_row row = arguments.row;
    row.operation = static_cast<mt_u8>(std::get<mt_operation>(operation));
    if (is_built_in(text, row, arguments.null_does_nothing)) return std::optional<UserFunction>();
    if (auto fault = own_row_fault(text, std::get<mt_operation>(operation), arguments)) return *std::move(fault);
    UserFunction function = user_function(std::get<Place>(place), std::get<mt_operation>(operation), arguments);
    function.family = text.family;
    function.name = text.name;
    return std::optional(std::move(function));
}

/// The rows of a file, line by line.
class RowReader {
  public:
    std::optional<TextFault> read_line(std::string_view line, size_t number);
    std::vector<UserFunction> functions() && { return std::move(functions_); }

  private:
    std::optional<TextFault> repetition_fault(std::string_view line) const;

    std::vector<UserFunction> functions_;
    std::vector<size_t> line_numbers_;  // of functions_
};

std::optional<TextFault> RowReader::read_line(std::string_view line, size_t number) {
    const size_t end = line.find_last_not_of(blanks);
    if (end == std::string_view::npos || line[line.find_first_not_of(blanks)] == '#') return std::nullopt;
    auto parsed = parse_row(line.substr(0, end + 1));
    if (auto* fault = std::get_if<TextFault>(&parsed)) return std::move(*fault);
    auto& function = std::get<std::optional<UserFunction>>(parsed);
    if (!function) return std::nullopt;
    functions_.push_back(*std::move(function));
    line_numbers_.push_back(number);
    if (functions_.size() > max_user_functions())
        return TextFault{line, fmt::format("there is room for {} functions and no more", max_user_functions()),
                         "leave out what the target does not call"};
    return repetition_fault(line);
}

std::optional<TextFault> RowReader::repetition_fault(std::string_view line) const {
    const UserFunction& last = functions_.back();
    const auto first = std::find_if(functions_.begin(), functions_.end(),
                                    [&](const UserFunction& function) { return is_same_place(function, last); });
    const auto index = static_cast<size_t>(first - functions_.begin());
    if (index + 1 == functions_.size()) return std::nullopt;
    take_cell(line);
    return TextFault{take_cell(line),
                     fmt::format("'{}' is here twice, as in line {}", last.symbol, line_numbers_[index]),
                     "leave out one of the two"};
}

}  // namespace

AllocatorFunction UserFunction::function() const {
    AllocatorFunction function;
    function.family = family;
    function.symbol = symbol;
    function.name = name;
    function.row = row;
    function.null_does_nothing = null_does_nothing;
    function.scope = RowScope::functions_of_a_user;
    function.file = file;
    return function;
}

size_t max_user_functions() {
    return MT_MAX_ROWS - built_in_functions().size() - AllocatorTable::jump_rows;
}

Result<UserFunction> parse_user_function(std::string_view text, UserFunctionKind kind) {
    auto parsed = parse_option(text, kind);
    if (const auto* fault = std::get_if<TextFault>(&parsed)) return option_error(text, *fault);
    return std::get<UserFunction>(std::move(parsed));
}

Result<std::vector<UserFunction>> parse_user_functions(std::string_view text, std::string_view file_name) {
    if (text.size() > max_user_functions_text_bytes)
        return Error{std::string(file_name), "longer than 1 MiB, so not a file of rows", std::string(row_hint),
                     ExitStatus::usage};
    RowReader reader;
    for (size_t number = 1; !text.empty(); ++number) {
        const std::string_view line = text.substr(0, text.find('\n'));
        if (auto fault = reader.read_line(line, number))
            return Error{fmt::format("{}:{}:{}", file_name, number, character_number(line, fault->at)), fault->why,
                         fault->hint, ExitStatus::usage};
        text.remove_prefix(std::min(line.size() + 1, text.size()));
    }
    return std::move(reader).functions();
}

Result<void> check_symbol(std::string_view text) {
    if (const auto fault = symbol_fault(text)) return option_error(text, *fault);
    return {};
}

const UserFunction* find_repeated(std::span<const UserFunction> functions) {
    for (size_t index = 1; index < functions.size(); ++index)
        for (size_t earlier = 0; earlier < index; ++earlier)
            if (is_same_place(functions[earlier], functions[index])) return &functions[index];
    return nullptr;
}

}  // namespace memtrace
