// Functions that the user names: what is written is what is probed, and what is wrong is refused at its place.
#include "probes/user_functions.hpp"

#include <fmt/format.h>

#include <cstring>
#include <string>
#include <vector>

#include "catch.hpp"
#include "probes/allocator_families.hpp"
#include "probes/allocator_table.hpp"
#include "probes/function_arguments.hpp"

using namespace memtrace;

namespace {

constexpr auto allocates = UserFunctionKind::allocates;
constexpr auto frees_blocks = UserFunctionKind::frees;

UserFunction parsed(std::string_view text, UserFunctionKind kind) {
    const Result<UserFunction> function = parse_user_function(text, kind);
    if (!function) FAIL(text << ": " << function.error().why);
    CHECK(is_right_row(function->function()));
    CHECK(returns_by_instruction(function->row));
    return *function;
}

/// "size 1, count 2, old 3, out 4, bytes 5": operation and arguments of a row in short.
std::string row_of(std::string_view text, UserFunctionKind kind) {
    const mt_row row = parsed(text, kind).row;
    std::string numbers;
    for (const unsigned number : {unsigned{row.size_argument}, unsigned{row.count_argument}, unsigned{row.old_argument},
                                  unsigned{row.out_argument}, row.constant_size_bytes})
        numbers += " " + std::to_string(number);
    return std::string(operation_name(row.operation)) + numbers;
}

Error error_of(std::string_view text, UserFunctionKind kind) {
    const Result<UserFunction> function = parse_user_function(text, kind);
    REQUIRE_FALSE(function);
    const Error& error = function.error();
    CHECK(error.what == "'" + std::string(text) + "'");
    CHECK(error.status == ExitStatus::usage);
    CHECK_FALSE(error.hint.empty());
    return error;
}

std::vector<UserFunction> rows_of(std::string_view text) {
    const Result<std::vector<UserFunction>> rows = parse_user_functions(text, "rows");
    if (!rows) FAIL(rows.error().what << ": " << rows.error().why);
    return *rows;
}

/// "LINE:COLUMN WHY".
std::string fault_of(std::string_view text) {
    const Result<std::vector<UserFunction>> rows = parse_user_functions(text, "rows");
    REQUIRE_FALSE(rows);
    CHECK(rows.error().status == ExitStatus::usage);
    CHECK_FALSE(rows.error().hint.empty());
    REQUIRE(rows.error().what.starts_with("rows:"));
    return rows.error().what.substr(5) + " " + rows.error().why;
}

}  // namespace

TEST_CASE("a function without keys has its size or its block as the first argument", "[probes][user]") {
    CHECK(row_of("pool_get", allocates) == "allocate 1 0 0 0 0");
    CHECK(row_of("pool_put", frees_blocks) == "free 0 0 1 0 0");
    const UserFunction function = parsed("pool_get", allocates);
    CHECK(function.symbol == "pool_get");
    CHECK(function.name == "pool_get");
    CHECK(function.family == "user");
    CHECK(function.file.empty());
    CHECK_FALSE(function.null_does_nothing);
}

TEST_CASE("keys say what the arguments are", "[probes][user]") {
    CHECK(row_of("pool_get:size=arg1", allocates) == "allocate 2 0 0 0 0");
    CHECK(row_of("pool_get:count=arg0,size=arg5", allocates) == "allocate 6 1 0 0 0");
    CHECK(row_of("pool_get:size=64K", allocates) == "allocate 0 0 0 0 65536");
    CHECK(row_of("pool_get:size=4294967295", allocates) == "allocate 0 0 0 0 4294967295");
    CHECK(row_of("pool_get:size=48,count=arg1", allocates) == "allocate 0 2 0 0 48");
    CHECK(row_of("pool_get:result=*arg0,size=arg2", allocates) == "allocate-out 3 0 0 1 0");
    CHECK(row_of("pool_grow:ptr=arg1,size=arg2", allocates) == "reallocate 3 0 2 0 0");
    CHECK(row_of("pool_put:ptr=arg1", frees_blocks) == "free 0 0 2 0 0");
    CHECK(parsed("pool_put:ptr=arg0,null=nothing", frees_blocks).null_does_nothing);
    CHECK(parsed("pool_grow:ptr=arg0,size=arg1,fails=frees", allocates).row.flags ==
          (MT_ROW_RETURN_INSTRUCTIONS | MT_ROW_FREES_WHEN_FAILED));
    CHECK(row_of("pool_get:size=arg0,returns=instructions", allocates) == "allocate 1 0 0 0 0");
}

TEST_CASE("what stands before the last colon of the name is the file", "[probes][user]") {
    CHECK(parsed("libpool.so:pool_get:size=arg1", allocates).file == "libpool.so");
    CHECK(parsed("libpool.so:pool_get:size=arg1", allocates).symbol == "pool_get");
    CHECK(parsed("/opt/a b/lib:pool.so.1:_ZN4Pool3putEPv", frees_blocks).file == "/opt/a b/lib:pool.so.1");
    CHECK(parsed("/opt/a=b/pool:pool_put", frees_blocks).file == "/opt/a=b/pool");
}

TEST_CASE("a user's function is a row that the table takes", "[probes][user]") {
    AllocatorTable table;
    const FileAllocator allocator{};
    REQUIRE(table.find("pool_get", allocator, "/usr/lib/libpool.so") == 0);
    REQUIRE(table.add_function(parsed("libpool.so:pool_get:size=arg1", allocates).function()));
    const uint32_t row = table.find("pool_get", allocator, "/usr/lib/libpool.so");
    REQUIRE(row != 0);
    CHECK(table[row].row.size_argument == 2);
    CHECK(table.find("pool_get", allocator, "/usr/lib/other.so") == 0);
}

TEST_CASE("a fault in an option is told with its character", "[probes][user]") {
    const std::vector<std::pair<const char*, const char*>> faults = {
        {"", "character 1: the symbol is missing"},
        {":size=arg0", "character 1: the symbol is missing"},
        {"pool_get:", "character 10: the symbol is missing"},
        {"pool_get::size=arg0", "character 10: the symbol is missing"},
        {":pool_get:size=arg0", "character 1: the file before ':' is missing"},
        {"pool get", "character 5: a symbol has no blanks and control characters"},
        {"pool_get@V1", "character 9: a symbol has no '@' here"},
        {"pool_get,size=arg0", "character 9: a symbol has no ','"},
        {"pool_get:size=arg0:count=arg1", "character 14: a symbol has no '='"},
        {"pool_get:sise=arg1", "character 10: unknown key 'sise'"},
        {"pööl_get:sise=arg1", "character 10: unknown key 'sise'"},
        {"pool_get:size=arg1,", "character 20: KEY=VALUE is missing"},
        {"pool_get:size=arg1,count", "character 20: 'count' is not KEY=VALUE"},
        {"pool_get:size=arg1,size=64", "character 20: 'size' is given twice"},
        {"pool_get:size=arg1,count=arg1", "character 26: arg1 is size already"},
        {"pool_get:size=arg6", "character 15: 'arg6' is not in a register"},
        {"pool_get:size=arg", "character 15: 'arg' is not an argument"},
        {"pool_get:size=", "character 15: '' is not an argument"},
        {"pool_get:size=1", nullptr},
        {"pool_get:size=0", "character 15: a size is from 1 byte to 4 GiB - 1"},
        {"pool_get:size=4G", "character 15: a size is from 1 byte to 4 GiB - 1"},
        {"pool_get:size=64Q", "character 15: '64Q' is not a size"},
        {"pool_get:count=7,size=arg0", "character 16: '7' is not an argument"},
        {"pool_get:count=arg0", "character 20: allocate needs 'size'"},
        {"pool_get:size=arg1,result=arg0", "character 27: 'arg0' does not begin with *"},
        {"pool_get:size=arg1,result=*arg9", "character 28: 'arg9' is not in a register"},
        {"pool_get:size=arg1,ptr=arg0,result=*arg2", "character 29: a function with 'ptr' returns its block"},
        {"pool_get:ptr=arg0", "character 18: reallocate needs 'size'"},
        {"pool_get:size=arg0,null=nothing", "character 20: allocate has no 'null'"},
        {"pool_get:size=arg0,fails=frees", "character 20: allocate has no 'fails'"},
        {"pool_get:size=arg0,returns=never", "character 28: 'never' is not 'instructions'"},
    };
    for (const auto& [text, why] : faults) {
        CAPTURE(text);
        if (why == nullptr)
            parsed(text, allocates);
        else
            CHECK(error_of(text, allocates).why == why);
    }
    CHECK(error_of("pool_put:size=arg0", frees_blocks).why == "character 10: free has no 'size'");
    CHECK(error_of("pool_put:null=nothing", frees_blocks).why == "character 22: free needs 'ptr'");
    CHECK(error_of("pool_put:ptr=arg1,null=nothing", frees_blocks).why ==
          "character 19: null=nothing is only for functions that have ptr=arg0");
    CHECK(error_of("pool_put:ptr=*arg0", frees_blocks).why == "character 14: '*arg0' is not an argument");
}

TEST_CASE("a demangled name gets the hint to write the mangled one", "[probes][user]") {
    for (const char* text : {"Pool::get", "Pool::get:size=arg1", "Pool::get(unsigned long):size=arg1", "get(int)",
                             "ns::get(std::string)", "get(std::string)", "operator new", "libpool.so:Pool::get",
                             "Pool<int>::get", "get<int>", "ns::Pool::operator()(int)"}) {
        CAPTURE(text);
        CHECK_THAT(error_of(text, allocates).hint, ContainsSubstring("nm"));
    }
    CHECK(error_of("Pool::get:size=arg1", allocates).why == "character 5: '::' is of a demangled name");
}

TEST_CASE("a file of rows is read line by line, without comments and blank lines", "[probes][user]") {
    const std::vector<UserFunction> rows = rows_of(
        "# my pool\n\n  \t\r\n"
        "pool  pool_get        allocate    heap size=arg1,count=arg2 Pool get \r\n"
        "pool  libp.so:pool_put free heap ptr=arg0,null=nothing\tput\n"
        "pool pool_grow reallocate heap size=arg2,ptr=arg1,fails=frees grow\n"
        "  # more\n"
        "pool pool_new allocate-out heap size=64K,result=*arg0 new\n"
        "pool pool_fit resize heap size=arg1,ptr=arg0 fit");
    REQUIRE(rows.size() == 5);
    CHECK(rows[0].family == "pool");
    CHECK(rows[0].name == "Pool get");
    CHECK(rows[0].row.size_argument == 2);
    CHECK(rows[0].row.count_argument == 3);
    CHECK(rows[1].file == "libp.so");
    CHECK(rows[1].symbol == "pool_put");
    CHECK(rows[1].null_does_nothing);
    CHECK(rows[2].row.flags == (MT_ROW_RETURN_INSTRUCTIONS | MT_ROW_FREES_WHEN_FAILED));
    CHECK(rows[3].row.constant_size_bytes == 65536);
    CHECK(rows[4].row.operation == MT_OP_RESIZE);
    for (const UserFunction& row : rows) {
        CAPTURE(row.symbol);
        CHECK(is_right_row(row.function()));
        CHECK(returns_by_instruction(row.row));
    }
    CHECK(rows_of("").empty());
}

TEST_CASE("each built-in row, written under its family, is known", "[probes][user]") {
    for (const AllocatorFunction& function : built_in_functions()) {
        if (is_reserved_row(function)) continue;
        const std::string start =
            fmt::format("{} {} {}", function.symbol, operation_name(function.row.operation), kind_name(function.kind));
        const std::string end = fmt::format("{} {}", arguments_text(function), function.name);
        CAPTURE(start, end);
        CHECK(rows_of(fmt::format("{} {} {}", function.family, start, end)).empty());
        const std::string other = fmt::format("{} x_{} {}", function.family, start, end);
        if (function.kind != BlockKind::heap || function.row.operation == MT_OP_DELEGATE) {
            CHECK_FALSE(parse_user_functions(other, "rows"));
            continue;
        }
        const std::vector<UserFunction> rows = rows_of(other);
        REQUIRE(rows.size() == 1);
        mt_row expected = function.row;
        expected.flags |= MT_ROW_RETURN_INSTRUCTIONS;
        CHECK(std::memcmp(&rows[0].row, &expected, sizeof(expected)) == 0);
        CHECK(rows[0].family == function.family);
        CHECK(rows[0].symbol == "x_" + std::string(function.symbol));
        CHECK(rows[0].name == function.name);
        CHECK(rows[0].null_does_nothing == function.null_does_nothing);
    }
}

TEST_CASE("a row that differs from the built-in one is the user's", "[probes][user]") {
    CHECK(rows_of("* malloc allocate heap size=arg0 malloc").empty());
    CHECK(rows_of("libc malloc allocate heap size=arg1 malloc").size() == 1);
    CHECK(rows_of("libc malloc allocate heap size=arg0 my malloc").size() == 1);
    CHECK(rows_of("libc libc.so.6:malloc allocate heap size=arg0 malloc").size() == 1);
    CHECK(rows_of("libc free free heap ptr=arg0 free").size() == 1);
}

TEST_CASE("a fault in a file of rows is told with its line and column", "[probes][user]") {
    CHECK(fault_of("\n#\nuser") == "3:5 the symbol is missing");
    CHECK(fault_of("user get ") == "1:9 the operation is missing");
    CHECK(fault_of("user get allocate") == "1:18 the kind is missing");
    CHECK(fault_of("user get allocate heap") == "1:23 the arguments are missing");
    CHECK(fault_of("user get allocate heap size=arg0\nuser") == "1:33 the name is missing");
    CHECK(fault_of("user get alloc heap size=arg0 get") == "1:10 unknown operation 'alloc'");
    CHECK(fault_of("user get none heap size=arg0 get") == "1:10 unknown operation 'none'");
    CHECK(fault_of("user get allocate mapping size=arg0 get") == "1:19 'mapping' is not the kind of allocate");
    CHECK(fault_of("user get allocate  heap  size=arg0,cuont=arg1 get") == "1:36 unknown key 'cuont'");
    CHECK(fault_of("user get free heap ptr=arg0,size=arg1 get") == "1:29 free has no 'size'");
    CHECK(fault_of("user get allocate heap - get") == "1:25 allocate needs 'size'");
    CHECK(fault_of("user A::get allocate heap size=arg0 get") == "1:7 '::' is of a demangled name");
    CHECK(fault_of("* get allocate heap size=arg0 get") ==
          "1:1 '*' is for rows that are built in, and this is none of them");
    CHECK(fault_of("user get allocate heap size=arg0 g\x01t") == "1:35 a name has no control characters");
    CHECK(fault_of(std::string("user g\0t allocate heap size=arg0 get", 36)) ==
          "1:7 a symbol has no blanks and control characters");
    CHECK(fault_of("user get allocate heap size=arg0 get\nuser put free heap ptr=arg0 put\n"
                   "user get allocate heap size=arg1 get\n") == "3:6 'get' is here twice, as in line 1");
}

TEST_CASE("a user has no mappings and no delegates", "[probes][user]") {
    CHECK(fault_of("libc mymap map mapping size=arg1 mymap") ==
          "1:12 mappings are changed by functions of the C library, and memtrace knows them");
    CHECK(fault_of("libc mmap map mapping size=arg0 mmap") ==
          "1:11 mappings are changed by functions of the C library, and memtrace knows them");
    CHECK(fault_of("c++ mynew delegate heap size=arg0 mynew") ==
          "1:11 only operator new delegates, and memtrace knows it");
}

TEST_CASE("a file of rows is bounded by the room for them and in its length", "[probes][user]") {
    std::string text;
    for (size_t index = 0; index < max_user_functions(); ++index)
        text += fmt::format("user get{} allocate heap size=arg0 get\n", index);
    CHECK(rows_of(text).size() == max_user_functions());
    CHECK(fault_of(text + "user one_more allocate heap size=arg0 get") ==
          std::to_string(max_user_functions() + 1) + ":1 there is room for " + std::to_string(max_user_functions()) +
              " functions and no more");
    CHECK(rows_of(std::string(max_user_functions_text_bytes, '\n')).empty());
    const auto longer = parse_user_functions(std::string(max_user_functions_text_bytes + 1, '\n'), "rows");
    REQUIRE_FALSE(longer);
    CHECK(longer.error().what == "rows");
}

TEST_CASE("what begins a symbol is no demangled name", "[probes][user]") {
    CHECK(check_symbol("je_"));
    for (const char* text : {"", "je:_", "a b", "ns::", "f("}) {
        CAPTURE(text);
        CHECK_FALSE(check_symbol(text));
    }
}
