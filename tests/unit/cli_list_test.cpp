// `memtrace list` is for people and for programs that read it back.
#include <sstream>
#include <string>
#include <vector>

#include "catch.hpp"
#include "cli/list_command.hpp"
#include "probes/allocator_families.hpp"

using namespace memtrace;

namespace {

std::vector<std::string> lines_of(const std::string& text) {
    std::istringstream stream(text);
    std::vector<std::string> lines;
    for (std::string line; std::getline(stream, line);)
        lines.push_back(line);
    return lines;
}

std::string line_of(const std::string& symbol) {
    for (const std::string& line : lines_of(allocator_list()))
        if (line.find(" " + symbol + " ") != std::string::npos) return line;
    return "";
}

}  // namespace

TEST_CASE("list has one line for each function of the table and a header", "[cli]") {
    size_t functions = 0;
    for (const AllocatorFunction& function : built_in_functions())
        if (!is_reserved_row(function)) ++functions;
    const std::vector<std::string> lines = lines_of(allocator_list());
    REQUIRE(functions > 0);
    CHECK(lines.size() == functions + 1);
    CHECK(lines.front().front() == '#');
}

TEST_CASE("list's lines can be read back column by column", "[cli]") {
    const std::vector<std::string> lines = lines_of(allocator_list());
    size_t index = 1;
    for (const AllocatorFunction& function : built_in_functions()) {
        if (is_reserved_row(function)) continue;
        REQUIRE(index < lines.size());
        std::istringstream stream(lines[index++]);
        std::string family, symbol, operation, kind, arguments, name;
        stream >> family >> symbol >> operation >> kind >> arguments >> std::ws;
        std::getline(stream, name);
        CAPTURE(lines[index - 1]);
        CHECK(family == function.family);
        CHECK(symbol == function.symbol);
        CHECK(operation != "none");
        CHECK((kind == "mapping") == (function.kind == BlockKind::mapping));
        CHECK(arguments.find('=') != std::string::npos);
        CHECK(name == function.name);
    }
}

TEST_CASE("list says which argument is what", "[cli]") {
    CHECK_THAT(line_of("calloc"), ContainsSubstring("allocate"));
    CHECK_THAT(line_of("malloc"), ContainsSubstring("size=1"));
    CHECK_THAT(line_of("realloc"), ContainsSubstring("size=2,old=1"));
    CHECK_THAT(line_of("posix_memalign"), ContainsSubstring("size=3,out=1"));
}

TEST_CASE("list's columns are aligned", "[cli]") {
    const std::vector<std::string> lines = lines_of(allocator_list());
    const size_t column = lines.front().find("operation");
    for (const std::string& line : lines) {
        CAPTURE(line);
        REQUIRE(line.size() > column);
        CHECK(line[column] != ' ');
        CHECK(line[column - 1] == ' ');
    }
}
