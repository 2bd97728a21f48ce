// The options of collected heaps, and `memtrace census`.
#include "catch.hpp"
#include "cli/parse.hpp"

using namespace memtrace;

namespace {

Result<Request> parse(std::initializer_list<const char*> arguments) {
    return parse_arguments(std::span<const char* const>(arguments.begin(), arguments.size()));
}

std::string complaint(std::initializer_list<const char*> arguments) {
    const auto request = parse(arguments);
    REQUIRE(!request);
    CHECK(request.error().status == ExitStatus::usage);
    CHECK(!request.error().hint.empty());
    return request.error().what + ": " + request.error().why;
}

}  // namespace

TEST_CASE("a census is of one process", "[cli]") {
    const auto request =
        parse({"census", "12", "--format", "json", "-T", "3", "--min-count", "5", "--type-names", "f"});
    REQUIRE(request);
    const auto& census = std::get<Census>(*request);
    CHECK(census.pid == 12);
    CHECK(census.format == OutputFormat::json);
    CHECK(census.top == 3);
    CHECK(census.min_count == 5);
    CHECK(census.type_names_path == "f");
    CHECK(complaint({"census"}) == "census: no process is given");
    CHECK(complaint({"census", "1,2"}) == "census: takes one process");
    CHECK(!census.interval_ns);
    CHECK(!census.count);
    CHECK(complaint({"census", "1", "2", "3", "4"}) == "'4': one argument too many");
    CHECK(complaint({"census", "1", "soon"}).find("'soon'") == 0);
    CHECK(complaint({"census", "1", "5", "0"}).find("COUNT '0'") == 0);
    CHECK(complaint({"census", "one"}).find("'one'") == 0);
    CHECK(complaint({"census", "1", "--format", "xml"}).find("--format 'xml'") == 0);
    CHECK(complaint({"census", "1", "--min-count", "x"}).find("--min-count 'x'") == 0);
    CHECK(complaint({"-p", "1", "census", "1"}) == "census: takes no options of a session");
}

TEST_CASE("a census can be one of a series", "[cli]") {
    const auto request = parse({"census", "12", "500ms", "3"});
    REQUIRE(request);
    const auto& census = std::get<Census>(*request);
    CHECK(census.interval_ns == 500'000'000u);
    CHECK(census.count == 3u);
    CHECK(!census.top);
}

TEST_CASE("the options of types are read", "[cli]") {
    const auto request = parse(
        {"-p", "1", "--types", "--type", "Array(String)", "--depth", "4", "--min-count", "100", "--type-names", "f"});
    REQUIRE(request);
    const auto& options = std::get<Options>(*request);
    CHECK(options.shows_types);
    CHECK(options.only_type == "Array(String)");
    CHECK(options.depth == 4);
    CHECK(options.min_count == 100);
    CHECK(options.type_names_path == "f");
    CHECK(complaint({"-p", "1", "--depth", "0"}).find("--depth '0'") == 0);
    CHECK(complaint({"-p", "1", "--depth", "128"}).find("--depth '128'") == 0);
    CHECK(complaint({"-p", "1", "--min-count", "many"}).find("--min-count 'many'") == 0);
}
