// A command in one string, split as a shell would split it and not expanded.
#include "cli/values.hpp"

#include "catch.hpp"

using namespace memtrace;

namespace {

std::vector<std::string> words_of(std::string_view text) {
    Result<std::vector<std::string>> words = split_command(text);
    REQUIRE(words);
    return std::move(*words);
}

using Words = std::vector<std::string>;

}  // namespace

TEST_CASE("blanks separate words however many they are", "[cli]") {
    CHECK(words_of("ls") == Words{"ls"});
    CHECK(words_of("  ls\t-l \n /tmp ") == Words{"ls", "-l", "/tmp"});
}

TEST_CASE("quotes keep blanks and may stand inside a word", "[cli]") {
    CHECK(words_of("a 'b  c' \"d e\"") == Words{"a", "b  c", "d e"});
    CHECK(words_of("--name='x y'z") == Words{"--name=x yz"});
    CHECK(words_of("a '' \"\"") == Words{"a", "", ""});
    CHECK(words_of("'\"' \"'\"") == Words{"\"", "'"});
}

TEST_CASE("a backslash quotes as POSIX says", "[cli]") {
    CHECK(words_of("a\\ b \\' \\\\") == Words{"a b", "'", "\\"});
    CHECK(words_of("'a\\'") == Words{"a\\"});
    CHECK(words_of(R"("a\"b\\c\$d\n")") == Words{R"(a"b\c$d\n)"});
}

TEST_CASE("nothing in a command is expanded", "[cli]") {
    CHECK(words_of("echo $HOME *.c ~ `id` | a>b; c&") == Words{"echo", "$HOME", "*.c", "~", "`id`", "|", "a>b;", "c&"});
}

TEST_CASE("a quote without an end is an error", "[cli]") {
    for (const char* text : {"a 'b", "a \"b", "a \"b\\\"", "a\\"}) {
        CAPTURE(text);
        const auto words = split_command(text);
        REQUIRE_FALSE(words);
        CHECK(words.error().why == "a quote or backslash has no end");
        CHECK(words.error().status == ExitStatus::usage);
    }
    CHECK(split_command("").error().why == "no command in it");
    CHECK(split_command(" \t ").error().why == "no command in it");
}

TEST_CASE("a share is a percentage above 0", "[cli]") {
    CHECK(parse_share("5%").value() == Approx(0.05));
    CHECK(parse_share("0.5").value() == Approx(0.005));
    CHECK(parse_share("100%").value() == 1);
    for (const char* text : {"", "%", "0", "-1%", "101%", "5 %", "nan", "5%%"}) {
        INFO(text);
        CHECK_FALSE(parse_share(text));
    }
}

TEST_CASE("a sampling distance is from 1 byte to 1 GiB", "[cli]") {
    CHECK(parse_sampling_mean("512K").value() == 524288);
    CHECK(parse_sampling_mean("1").value() == 1);
    CHECK(parse_sampling_mean("1G").value() == 1u << 30);
    for (const char* text : {"0", "2G", "x"})
        CHECK_FALSE(parse_sampling_mean(text));
}
