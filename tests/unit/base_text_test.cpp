#include "base/text.hpp"
#include "catch.hpp"

using namespace memtrace;

TEST_CASE("valid UTF-8 is shown as it is", "[base]") {
    for (const char* text : {"", "plain", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x90\x98", "a\xc2\xa0z",
                             "\xf4\x8f\xbf\xbf", "\xed\x9f\xbf", "\xee\x80\x80", "\\x41"})
        CHECK(printable(text) == text);
}

TEST_CASE("control characters become escapes, those of the C1 range too", "[base]") {
    CHECK(printable("a\nb") == "a\\x0ab");
    CHECK(printable("\x1b[31m") == "\\x1b[31m");
    CHECK(printable("\x7f") == "\\x7f");
    CHECK(printable(std::string_view("a\0b", 3)) == "a\\x00b");
    CHECK(printable("\xc2\x9b") == "\\xc2\\x9b");
}

TEST_CASE("bytes that are not UTF-8 become escapes and what follows is kept", "[base]") {
    CHECK(printable("\xff"
                    "a") == "\\xffa");
    CHECK(printable("\x80") == "\\x80");
    CHECK(printable("\xc0\xaf") == "\\xc0\\xaf");           // overlong
    CHECK(printable("\xe0\x80\xaf") == "\\xe0\\x80\\xaf");  // overlong
    CHECK(printable("\xf0\x80\x80\xaf") == "\\xf0\\x80\\x80\\xaf");
    CHECK(printable("\xed\xa0\x80") == "\\xed\\xa0\\x80");           // a surrogate
    CHECK(printable("\xf4\x90\x80\x80") == "\\xf4\\x90\\x80\\x80");  // behind U+10FFFF
    CHECK(printable("\xe2\x82") == "\\xe2\\x82");                    // cut off
    CHECK(printable("\xe2\x82"
                    "x\xc3\xa9") == "\\xe2\\x82x\xc3\xa9");
}
