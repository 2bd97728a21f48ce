// Names of Crystal's types, and which first words are types at all.
#include "catch.hpp"
#include "runtimes/crystal_types.hpp"
#include "runtimes/object_types.hpp"

using namespace memtrace;

TEST_CASE("the numbers that the Crystal compiler prints are read", "[runtimes]") {
    const auto names = parse_type_names(
        "{0 - 176}: Object\n  {1 - 176}: Reference\n    {1 - 1}: String\n      {28 - 28}: Array(Dog)\n"
        "    {172 - 174}: Node\n      {172 - 172}: Node(Tuple(Int32, String))\nno type\n{x - y}: Odd\n{5 - }: Odd\n",
        "types.txt");
    REQUIRE(names);
    CHECK(names->at(1) == "String");
    CHECK(names->at(28) == "Array(Dog)");
    CHECK(names->at(172) == "Node(Tuple(Int32, String))");
    CHECK(names->at(174) == "Node");
    CHECK(names->at(176) == "Reference");
    CHECK(names->size() == 5);
}

TEST_CASE("the file that newer Crystal compilers write is read", "[runtimes]") {
    const auto names = parse_type_names(
        R"([{"id":7,"name":"Dog","instance_size":24},{"id":-1,"name":"Odd"},{"id":"8","name":"Odd"},{"name":"Odd"},3,
            {"id":4294967303,"name":"Odd"}])",
        "types.json");
    REQUIRE(names);
    CHECK(names->size() == 1);
    CHECK(names->at(7) == "Dog");
}

TEST_CASE("a file without types is an error that says what to do", "[runtimes]") {
    for (const char* text : {"", "hello\n", "[1, 2", "[]", "{172 - 172} Dog\n"}) {
        const auto names = parse_type_names(text, "types.txt");
        REQUIRE(!names);
        CHECK(names.error().hint.find("CRYSTAL_DUMP_TYPE_ID") != std::string::npos);
    }
}

TEST_CASE("a type's objects have one size", "[runtimes]") {
    ObjectTypes types;
    types.add(172, 24, 1000);
    types.add(172, 64, 2);
    types.add(173, 16, 5);
    types.add(173, 32, 5);
    CHECK(types.is_object(172, 24));
    CHECK(!types.is_object(172, 64));
    CHECK(!types.is_object(172, 32));
    CHECK(types.is_object(173, 16));  // of two that are as frequent the smaller
    CHECK(!types.is_object(173, 32));
    CHECK(!types.is_object(174, 16));
    CHECK(types.is_object(crystal_string_type, 13));
    CHECK(types.is_object(crystal_string_type, 4000));
    CHECK(!types.is_object(crystal_string_type, 12));
}
