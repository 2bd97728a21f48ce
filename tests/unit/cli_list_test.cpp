// `memtrace list` is for people and for --allocators, which reads it back.
#include <fmt/format.h>

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include "catch.hpp"
#include "cli/list_command.hpp"
#include "probes/allocator_families.hpp"
#include "probes/function_arguments.hpp"
#include "probes/user_functions.hpp"

using namespace memtrace;

namespace {

std::vector<std::string> lines_of(const std::string& text) {
    std::istringstream stream(text);
    std::vector<std::string> lines;
    for (std::string line; std::getline(stream, line);)
        lines.push_back(line);
    return lines;
}

/// Without the comments.
std::vector<std::string> rows_of(const std::string& text) {
    std::vector<std::string> lines = lines_of(text);
    std::erase_if(lines, [](const std::string& line) { return line.starts_with('#'); });
    return lines;
}

std::string line_of(const std::string& symbol) {
    for (const std::string& line : rows_of(allocator_list()))
        if (line.find(" " + symbol + " ") != std::string::npos) return line;
    return "";
}

}  // namespace

TEST_CASE("list shows each function of the table, those that all families have once", "[cli]") {
    std::vector<std::string> expected;
    for (const AllocatorFunction& function : built_in_functions()) {
        // Those of custom differ in how they are seen to return, which the first line says.
        if (is_reserved_row(function) || function.family == "custom") continue;
        const std::string line = fmt::format(
            "{}|{}|{}|{}|{}|{}", function.scope == RowScope::family ? "*" : function.family, function.symbol,
            operation_name(function.row.operation), kind_name(function.kind), arguments_text(function), function.name);
        if (std::find(expected.begin(), expected.end(), line) == expected.end()) expected.push_back(line);
    }
    std::vector<std::string> found;
    for (const std::string& line : rows_of(allocator_list())) {
        std::istringstream stream(line);
        std::string family, symbol, operation, kind, arguments, name;
        stream >> family >> symbol >> operation >> kind >> arguments >> std::ws;
        std::getline(stream, name);
        found.push_back(fmt::format("{}|{}|{}|{}|{}|{}", family, symbol, operation, kind, arguments, name));
    }
    CHECK(found == expected);
}

TEST_CASE("list says first which families and prefixes * stands for", "[cli]") {
    const std::string first = lines_of(allocator_list()).front();
    CHECK(first.starts_with("# *"));
    for (const AllocatorFamily& family : allocator_families()) {
        CHECK_THAT(first, ContainsSubstring(std::string(family.name)));
        for (const std::string_view prefix : family.prefixes)
            CHECK_THAT(first, ContainsSubstring(std::string(prefix)));
    }
}

TEST_CASE("what list prints is known when it is read back", "[cli]") {
    const Result<std::vector<UserFunction>> functions = parse_user_functions(allocator_list(), "list");
    if (!functions) FAIL(functions.error().what << ": " << functions.error().why);
    CHECK(functions->empty());
}

TEST_CASE("list says which argument is what", "[cli]") {
    CHECK_THAT(line_of("malloc"), ContainsSubstring(" allocate ") && ContainsSubstring(" size=arg0 "));
    CHECK_THAT(line_of("calloc"), ContainsSubstring(" size=arg1,count=arg0 "));
    CHECK_THAT(line_of("realloc"), ContainsSubstring(" size=arg1,ptr=arg0 "));
    CHECK_THAT(line_of("reallocf"), ContainsSubstring(" size=arg1,ptr=arg0,fails=frees "));
    CHECK_THAT(line_of("free"), ContainsSubstring(" ptr=arg0,null=nothing "));
    CHECK_THAT(line_of("posix_memalign"), ContainsSubstring(" size=arg2,result=*arg0 "));
    CHECK_THAT(line_of("_Znwm"), ContainsSubstring(" size=arg0,returns=instructions "));
}

TEST_CASE("list's columns are aligned", "[cli]") {
    const std::vector<std::string> lines = lines_of(allocator_list());
    REQUIRE(lines.size() > 2);
    const size_t column = lines[1].find("operation");
    REQUIRE(column != std::string::npos);
    for (size_t index = 1; index < lines.size(); ++index) {
        const std::string& line = lines[index];
        CAPTURE(line);
        REQUIRE(line.size() > column);
        CHECK(line[column] != ' ');
        CHECK(line[column - 1] == ' ');
    }
}
