#include "formats/columns.hpp"

#include "catch.hpp"

using namespace memtrace;

TEST_CASE("display width counts columns and not bytes", "[formats]") {
    CHECK(display_width("") == 0);
    CHECK(display_width("malloc") == 6);
    CHECK(display_width("größe") == 5);
    CHECK(display_width("…") == 1);
    CHECK(display_width("日本") == 4);
    CHECK(display_width("e\xcc\x81") == 1);
    CHECK(display_width("\xf0\x9f\x98\x80") == 2);
}

TEST_CASE("a long name keeps its ends", "[formats]") {
    CHECK(shorten_middle("malloc", 6) == "malloc");
    CHECK(shorten_middle("operator new", 7) == "ope…new");
    CHECK(shorten_middle("operator new", 8) == "oper…new");
    CHECK(shorten_middle("operator new", 1) == "…");
    CHECK(shorten_middle("operator new", 0).empty());
    CHECK(display_width(shorten_middle("日本語日本語日本語", 8)) <= 8);
    CHECK(shorten_middle("größe_größe", 7) == "grö…öße");
}

TEST_CASE("a long path loses its first folders", "[formats]") {
    CHECK(shorten_path("/a/b/c.cpp:1", 12) == "/a/b/c.cpp:1");
    CHECK(shorten_path("/home/build/src/leak.cc:42", 16) == "…/src/leak.cc:42");
    CHECK(shorten_path("/home/build/src/leak.cc:42", 15) == "…/leak.cc:42");
    CHECK(shorten_path("/src/session_cache.cpp:142", 12) == "…che.cpp:142");
    CHECK(shorten_path("/src/leak.cc", 0).empty());
}

TEST_CASE("padding is by columns", "[formats]") {
    CHECK(pad_right("öl", 4) == "öl  ");
    CHECK(pad_left("日本", 5) == " 日本");
    CHECK(pad_left("malloc", 3) == "malloc");
}

TEST_CASE("words are wrapped with an indent and never broken", "[formats]") {
    using Lines = std::vector<std::string>;
    CHECK(wrap_words("one two three", 8, 2) == Lines{"one two", "  three"});
    CHECK(wrap_words("one two three", 0, 2) == Lines{"one two three"});
    CHECK(wrap_words("incomprehensibilities are long", 8, 2) == Lines{"incomprehensibilities", "  are", "  long"});
    CHECK(wrap_words("", 8, 2) == Lines{""});
}
