#include "probes/function_arguments.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/units.hpp"

namespace memtrace {
namespace {

constexpr std::string_view string_size = "string";
constexpr std::string_view no_arguments = "-";
constexpr std::string_view keys_hint =
    "write size=arg0 (or 64K, string), count=, ptr=, result=*arg0, null=nothing, returns=instructions, fails=frees";

constexpr std::array<std::string_view, argument_key_count> key_names = {"size", "count",   "ptr",  "result",
                                                                        "null", "returns", "fails"};

constexpr uint32_t bit(ArgumentKey key) {
    return 1u << static_cast<uint32_t>(key);
}

/// What a function does, and the keys that it must and may have when it is a user's.
struct Operation {
    mt_operation number;
    std::string_view name;
    uint32_t required = 0;
    uint32_t optional = 0;
};

constexpr uint32_t count_and_returns = bit(ArgumentKey::count) | bit(ArgumentKey::returns);
constexpr std::array operations = {
    Operation{MT_OP_ALLOCATE, "allocate", bit(ArgumentKey::size), count_and_returns},
    Operation{MT_OP_FREE, "free", bit(ArgumentKey::ptr), bit(ArgumentKey::null) | bit(ArgumentKey::returns)},
    Operation{MT_OP_REALLOCATE, "reallocate", bit(ArgumentKey::size) | bit(ArgumentKey::ptr),
              count_and_returns | bit(ArgumentKey::fails)},
    Operation{MT_OP_ALLOCATE_OUT, "allocate-out", bit(ArgumentKey::size) | bit(ArgumentKey::result), count_and_returns},
    Operation{MT_OP_RESIZE, "resize", bit(ArgumentKey::size) | bit(ArgumentKey::ptr), count_and_returns},
    Operation{MT_OP_DELEGATE, "delegate"},
    Operation{MT_OP_MAP, "map"},
    Operation{MT_OP_UNMAP, "unmap"},
    Operation{MT_OP_REMAP, "remap"},
    Operation{MT_OP_BREAK, "break"},
    Operation{MT_OP_MOVE_BREAK, "move-break"},
    Operation{MT_OP_PROTECT, "protect"},
    Operation{MT_OP_ADVISE, "advise"},
    Operation{MT_OP_ATTACH, "attach"},
    Operation{MT_OP_DETACH, "detach"},
    Operation{MT_OP_THROW, "throw"},
    Operation{MT_OP_GO_ALLOCATE, "allocate"},
    Operation{MT_OP_GO_SAMPLE, "sample"},
    Operation{MT_OP_GO_SAMPLE_END, "free"},
};

const Operation* find_operation(uint8_t number) {
    const auto* found = std::find_if(operations.begin(), operations.end(),
                                     [&](const Operation& operation) { return operation.number == number; });
    return found == operations.end() ? nullptr : found;
}

bool is_digit(char character) {
    return character >= '0' && character <= '9';
}

/// Reads KEY=VALUE after KEY=VALUE into WrittenArguments.
class ArgumentReader {
  public:
    explicit ArgumentReader(std::string_view text) { arguments_.text = text; }

    std::optional<TextFault> read();
    const WrittenArguments& arguments() const { return arguments_; }

  private:
    std::optional<TextFault> read_item(std::string_view item);
    std::optional<TextFault> read_value(ArgumentKey key, std::string_view value);
    std::optional<TextFault> read_size(std::string_view value);
    std::optional<TextFault> read_argument(std::string_view key, std::string_view value, mt_u8& argument);
    static std::optional<TextFault> expect(std::string_view value, std::string_view word);

    WrittenArguments arguments_;
    std::array<std::string_view, 7> keys_by_argument_{};  // counted from 1
};

std::optional<TextFault> ArgumentReader::read() {
    std::string_view rest = arguments_.text;
    if (rest == no_arguments) return std::nullopt;
    while (true) {
        const size_t end = std::min(rest.find(','), rest.size());
        if (auto fault = read_item(rest.substr(0, end))) return fault;
        if (end == rest.size()) return std::nullopt;
        rest.remove_prefix(end + 1);
    }
}

std::optional<TextFault> ArgumentReader::read_item(std::string_view item) {
    const size_t equals = item.find('=');
    if (item.empty()) return TextFault{item, "KEY=VALUE is missing", std::string(keys_hint)};
    if (equals == std::string_view::npos)
        return TextFault{item, fmt::format("'{}' is not KEY=VALUE", item), std::string(keys_hint)};
    const std::string_view name = item.substr(0, equals);
    const auto* found = std::find(key_names.begin(), key_names.end(), name);
    if (found == key_names.end()) return TextFault{item, fmt::format("unknown key '{}'", name), std::string(keys_hint)};
    const auto index = static_cast<size_t>(found - key_names.begin());
    if (!arguments_.places[index].empty())
        return TextFault{item, fmt::format("'{}' is given twice", name), "write each key once"};
    arguments_.places[index] = item;
    return read_value(static_cast<ArgumentKey>(index), item.substr(equals + 1));
}

std::optional<TextFault> ArgumentReader::read_value(ArgumentKey key, std::string_view value) {
    mt_row& row = arguments_.row;
    switch (key) {
        case ArgumentKey::size:
            return read_size(value);
        case ArgumentKey::count:
            return read_argument("count", value, row.count_argument);
        case ArgumentKey::ptr:
            return read_argument("ptr", value, row.old_argument);
        case ArgumentKey::result:
            if (!value.starts_with('*'))
                return TextFault{value, fmt::format("'{}' does not begin with *", value),
                                 "write result=*arg0: the function stores its block where arg0 points to"};
            return read_argument("result", value.substr(1), row.out_argument);
        case ArgumentKey::null:
            arguments_.null_does_nothing = true;
            return expect(value, "nothing");
        case ArgumentKey::returns:
            row.flags |= MT_ROW_RETURN_INSTRUCTIONS;
            return expect(value, "instructions");
        case ArgumentKey::fails:
            row.flags |= MT_ROW_FREES_WHEN_FAILED;
            return expect(value, "frees");
    }
    return std::nullopt;
}

std::optional<TextFault> ArgumentReader::read_size(std::string_view value) {
    if (value == string_size) {
        arguments_.row.flags |= MT_ROW_SIZE_OF_STRING;
        return std::nullopt;
    }
    if (value.empty() || !is_digit(value.front())) return read_argument("size", value, arguments_.row.size_argument);
    const Result<uint64_t> size_bytes = parse_size(value);
    if (!size_bytes) return TextFault{value, fmt::format("'{}' is not a size", value), size_bytes.error().hint};
    if (*size_bytes == 0 || *size_bytes > std::numeric_limits<mt_u32>::max())
        return TextFault{value, "a size is from 1 byte to 4 GiB - 1", "write size=4096 or size=64K"};
    arguments_.row.constant_size_bytes = static_cast<mt_u32>(*size_bytes);
    return std::nullopt;
}

std::optional<TextFault> ArgumentReader::read_argument(std::string_view key, std::string_view value, mt_u8& argument) {
    const std::string_view star = key == "result" ? "*" : "";
    if (value.size() != 4 || !value.starts_with("arg") || !is_digit(value[3]))
        return TextFault{
            value, fmt::format("'{}' is not an argument", value),
            fmt::format("write {0}={1}arg0 to {0}={1}arg5, of which arg0 is the first argument", key, star)};
    const auto number = static_cast<mt_u8>(value[3] - '0' + 1);
    if (number > 6)
        return TextFault{value, fmt::format("'{}' is not in a register", value),
                         "arguments go from arg0, the first, to arg5"};
    if (!keys_by_argument_[number].empty())
        return TextFault{value, fmt::format("{} is {} already", value, keys_by_argument_[number]),
                         "write each argument once"};
    keys_by_argument_[number] = key;
    argument = number;
    return std::nullopt;
}

std::optional<TextFault> ArgumentReader::expect(std::string_view value, std::string_view word) {
    if (value == word) return std::nullopt;
    return TextFault{value, fmt::format("'{}' is not '{}'", value, word), fmt::format("write {}", word)};
}

std::string names_of(uint32_t keys) {
    std::string names;
    for (size_t key = 0; key < argument_key_count; ++key)
        if ((keys >> key & 1) != 0) names += fmt::format("{}{}", names.empty() ? "" : ", ", key_names[key]);
    return names;
}

}  // namespace

std::variant<WrittenArguments, TextFault> parse_written_arguments(std::string_view text) {
    ArgumentReader reader(text);
    if (auto fault = reader.read()) return *std::move(fault);
    return reader.arguments();
}

std::optional<TextFault> arguments_fault(const WrittenArguments& arguments, mt_operation number) {
    const Operation* operation = find_operation(static_cast<uint8_t>(number));
    if (operation == nullptr) return TextFault{arguments.text, "no operation", "write one"};
    const uint32_t known = operation->required | operation->optional;
    for (size_t key = 0; key < argument_key_count; ++key) {
        const std::string_view place = arguments.places[key];
        if (!place.empty() && (known >> key & 1) == 0)
            return TextFault{place, fmt::format("{} has no '{}'", operation->name, key_names[key]),
                             fmt::format("{} has {}", operation->name, names_of(known))};
        if (place.empty() && (operation->required >> key & 1) != 0)
            return TextFault{arguments.text.substr(arguments.text.size()),
                             fmt::format("{} needs '{}'", operation->name, key_names[key]),
                             fmt::format("{} needs {}", operation->name, names_of(operation->required))};
    }
    if (arguments.null_does_nothing && arguments.row.old_argument != 1)
        return TextFault{arguments.places[static_cast<size_t>(ArgumentKey::null)],
                         "null=nothing is only for functions that have ptr=arg0", "leave it out"};
    return std::nullopt;
}

std::string arguments_text(const AllocatorFunction& function) {
    const mt_row& row = function.row;
    std::string text;
    const auto append = [&text](std::string_view key, std::string_view value) {
        text += fmt::format("{}{}={}", text.empty() ? "" : ",", key, value);
    };
    const auto append_argument = [&](std::string_view key, std::string_view star, mt_u8 argument) {
        if (argument != 0) append(key, fmt::format("{}arg{}", star, argument - 1));
    };
    append_argument("size", "", row.size_argument);
    if (row.constant_size_bytes != 0) append("size", std::to_string(row.constant_size_bytes));
    if ((row.flags & MT_ROW_SIZE_OF_STRING) != 0) append("size", string_size);
    append_argument("count", "", row.count_argument);
    append_argument("ptr", "", row.old_argument);
    append_argument("result", "*", row.out_argument);
    if (function.null_does_nothing) append("null", "nothing");
    if ((row.flags & MT_ROW_FREES_WHEN_FAILED) != 0) append("fails", "frees");
    if (returns_by_instruction(row)) append("returns", "instructions");
    return text.empty() ? std::string(no_arguments) : text;
}

std::string_view operation_name(uint8_t number) {
    const Operation* operation = find_operation(number);
    return operation == nullptr ? "none" : operation->name;
}

std::optional<mt_operation> operation_of(std::string_view name) {
    for (const Operation& operation : operations)
        if (operation.name == name) return operation.number;
    return std::nullopt;
}

std::string user_operation_names() {
    std::string names;
    for (const Operation& operation : operations)
        if (operation.required != 0) names += fmt::format("{}{}", names.empty() ? "" : ", ", operation.name);
    return names;
}

}  // namespace memtrace
