#include "catch.hpp"
#include "symbols/demangle.hpp"

using namespace memtrace;

TEST_CASE("linkage names of each language are made readable", "[symbols]") {
    const std::pair<const char*, const char*> names[] = {
        {"_Z5leakyi", "leaky(int)"},
        {"_ZNSt6vectorIiSaIiEE9push_backERKi", "std::vector<int, std::allocator<int> >::push_back(int const&)"},
        {"_ZZ4mainENKUlvE_clEv", "main::{lambda()#1}::operator()() const"},
        {"_Z3foov.cold", "foo() [clone .cold]"},
        {"_Znwm", "operator new(unsigned long)"},
        {"_ZN5alloc3vec12Vec$LT$T$GT$4push17h0123456789abcdefE", "alloc::vec::Vec<T>::push"},
        {"_RNvC6_123foo3bar", "123foo::bar"},
        {"_RNvMNtCs1234_7mycrate3fooNtB2_3Bar3new", "<mycrate::foo::Bar>::new"},
        {"_D8demangle4testFiZv", "demangle.test(int)"},
        {"_Dmain", "D main"},
    };
    for (const auto& [linkage_name, readable] : names)
        CHECK(demangle(linkage_name) == readable);
}

TEST_CASE("a symbol's version is no part of its name", "[symbols]") {
    CHECK(demangle("pthread_mutex_trylock@@GLIBC_2.34") == "pthread_mutex_trylock");
    CHECK(demangle("memcpy@GLIBC_2.2.5") == "memcpy");
    CHECK(demangle("_ZNSs4swapERSs@@GLIBCXX_3.4").find("::swap(") != std::string::npos);
    CHECK(demangle("@") == "@");
}

TEST_CASE("names of no known mangling stay as they are", "[symbols]") {
    for (const char* name : {"malloc", "_start", "_Zzz", "_RZZ", "_D", "_ZN", "caml_alloc", "$s4main3fooyyF", "",
                             "main.main", "_ZN5alloc3vec17hzzzz"})
        CHECK(demangle(name) == name);
}

TEST_CASE("hostile names come out as text", "[symbols]") {
    CHECK(demangle("a\xff\n") == "a\\xff\\x0a");
    CHECK(demangle("\x1b[2J") == "\\x1b[2J");
    const std::string deep = "_Z" + std::string(100'000, 'P') + "i";
    CHECK(demangle(deep) == deep);
    CHECK_FALSE(demangle("_Z1f" + std::string(5000, 'P') + "i").empty());
}
