#include "catch.hpp"
#include "probes/placement.hpp"
#include "probes/uprobe_instructions.hpp"

#include <Zydis/Zydis.h>

#include <optional>
#include <random>
#include <string>
#include <vector>

using namespace memtrace;

namespace {

constexpr uint32_t argument_1 = 0b1;
constexpr uint32_t arguments_1_2 = 0b11;
constexpr uint32_t all_arguments = 0b111111;

std::vector<uint8_t> bytes_of(std::string_view hex) {
    std::vector<uint8_t> bytes;
    for (size_t index = 0; index < hex.size();) {
        if (hex[index] == ' ') {
            ++index;
            continue;
        }
        bytes.push_back(static_cast<uint8_t>(std::stoul(std::string(hex.substr(index, 2)), nullptr, 16)));
        index += 2;
    }
    return bytes;
}

/// "+9 push %rbp", "+0 stepped mov ...", or "none".
std::string place(std::string_view hex, PlacementRules rules = {argument_1, false}) {
    const auto placement = place_probe(bytes_of(hex), 0x100000, rules);
    if (!placement) return "none";
    return "+" + std::to_string(placement->offset) + (placement->is_emulated ? " " : " stepped ") +
           placement->instruction;
}

UprobeHandling handling(std::string_view hex) {
    return uprobe_handling(bytes_of(hex));
}

/// Whether the instructions from the first byte on meet `offset`.
bool is_boundary(const std::vector<uint8_t>& code, uint64_t offset) {
    ZydisDecoder decoder;
    ZydisDecoderInit(&decoder, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
    ZydisDecodedInstruction instruction;
    uint64_t here = 0;
    while (here < offset && ZYAN_SUCCESS(ZydisDecoderDecodeInstruction(&decoder, nullptr, code.data() + here,
                                                                       code.size() - here, &instruction)))
        here += instruction.length;
    return here == offset && offset < code.size();
}

// glibc 2.36-9+deb12u14 of Debian 12.
constexpr std::string_view glibc_free =
    "4885ff 0f84bf000000 55 488d77f0 53 4883ec18 488b1dd69e1300 488b47f8 648b2b a802 755b 488b155c9e1300";
constexpr std::string_view glibc_malloc = "4154 55 53 4889fb 4883ec10 803d461b140000 0f84f8010000 4885db 0f88fd010000";
constexpr std::string_view glibc_calloc = "4155 4889f8 4154 55 53 4883ec18 48f7e6 4889c3 0f90c0 4885db 0f88d9020000";
constexpr std::string_view glibc_realloc = "4157 4156 4155 4154 55 4889f5 53 4889fb 4883ec28 803d3d13140000";
constexpr std::string_view glibc_posix_memalign = "803d0102140000 4154 4989d4 55 4889fd 53 4889f3 745a 4889da";
constexpr std::string_view glibc_aligned_alloc = "803d710e140000 7407 e932f6ffff 6690 4883ec18 4889742408";
constexpr std::string_view glibc_reallocarray = "4889f0 48f7e2 4889c6 7005 e940b8f8ff 488b05e9851300 31c0 c3";
constexpr std::string_view glibc_mmap = "4189ca 41f7c1ff0f0000 7514 b809000000 0f05 483d00f0ffff 7725 c3";
constexpr std::string_view glibc_munmap = "b80b000000 0f05 483d01f0ffff 7301 c3 488b0dc9130d00 f7d8 648901 4883c8ff c3";
constexpr std::string_view glibc_mremap = "4883ec58 4c89442440 64488b042528000000 4889442418 31c0 83f907 775a";
// libstdc++ 12 of Debian 12.
constexpr std::string_view operator_new = "f30f1efa 4885ff b801000000 53 480f45c7 4889c3 4889df e86408ffff 4885c0 7402";
constexpr std::string_view operator_new_nothrow = "f30f1efa 4883ec08 e81303ffff 4883c408 c3";
constexpr std::string_view operator_delete = "f30f1efa e9872fffff";
// jemalloc 5.3.0-1 of Debian 12.
constexpr std::string_view jemalloc_free =
    "4889f8 488b150e530a00 4889f9 48c1e81a 4881e1000000c0 25f0000000 6448030425 00000000 4801d0 483b88b0010000"
    "0f858a000000 4889fe 4c8b80b8010000 48c1ee0c 81e6ffff0300 4d8b0cf0 c3";

}  // namespace

TEST_CASE("glibc's allocators are probed on their first emulated instruction", "[probes]") {
    CHECK(place(glibc_malloc) == "+0 push %r12");
    CHECK(place(glibc_calloc, {arguments_1_2}) == "+0 push %r13");
    CHECK(place(glibc_realloc, {arguments_1_2}) == "+0 push %r15");
    CHECK(place(glibc_posix_memalign, {0b101}) == "+7 push %r12");
    CHECK(place(glibc_aligned_alloc, {0b10}) == "+7 jz 0x100010");
    CHECK(place(glibc_mmap, {all_arguments}) == "+10 jnz 0x100020");
}

TEST_CASE("a free that does nothing for NULL is probed behind its NULL test", "[probes]") {
    CHECK(place(glibc_free, {argument_1, true}) == "+9 push %rbp");
    CHECK(place("4883ff00 7406 55 4889e5 5d c3 c3", {argument_1, true}) == "+6 push %rbp");
}

TEST_CASE("the jump of a NULL test carries the probe where nothing behind it can", "[probes]") {
    CHECK(place("4885ff 7405 4883ec08 c3", {argument_1, true}) == "+3 jz 0x10000a");
    CHECK(place(glibc_free, {argument_1, false}) == "+3 jz 0x1000c8");
}

TEST_CASE("no other conditional jump is passed", "[probes]") {
    CHECK(place("4885ff 7503 55 c3 c3", {argument_1, true}) == "+3 jnz 0x100008");      // jne
    CHECK(place("4885f6 7402 55 c3 c3", {argument_1, true}) == "+3 jz 0x100007");       // of another register
    CHECK(place("85ff 7402 55 c3 c3", {argument_1, true}) == "+2 jz 0x100006");         // of half of it
    CHECK(place("4883ff01 7402 55 c3 c3", {argument_1, true}) == "+4 jz 0x100008");     // not with NULL
    CHECK(place("4885ff 90 7402 55 c3 c3", {argument_1, true}) == "+3 nop");            // not directly behind it
    CHECK(place("4885ff 89c0 7402 55 c3 c3", {argument_1, true}) == "+5 jz 0x100009");  // likewise
}

TEST_CASE("a probe stands where the arguments and the stack pointer are untouched, or steps the first byte",
          "[probes]") {
    CHECK(place(glibc_mremap, {0b11111}) == "+0 stepped sub $0x58, %rsp");
    CHECK(place(glibc_reallocarray, {0b111}) == "+0 stepped mov %rsi, %rax");  // mul writes %rdx
    CHECK(place(glibc_reallocarray, {0b001}) == "+9 jo 0x100010");
    CHECK(place("31ff 55 c3") == "+0 stepped xor %edi, %edi");        // half of an argument
    CHECK(place("40b701 55 c3") == "+0 stepped mov $0x01, %dil");     // a byte of it
    CHECK(place("480f44fe 55 c3") == "+0 stepped cmovz %rsi, %rdi");  // perhaps
    CHECK(place("4887fe 55 c3") == "+0 stepped xchg %rdi, %rsi");
    CHECK(place("4889fe 55 c3") == "+3 push %rbp");  // another argument
    CHECK(place("4889fe 55 c3", {arguments_1_2}) == "+0 stepped mov %rdi, %rsi");
    CHECK(place("f3a4 55 c3") == "+0 stepped rep movsb");                    // writes %rdi without naming it
    CHECK(place("48897c24f8 55 c3") == "+0 stepped mov %rdi, -0x08(%rsp)");  // into the red zone
    CHECK(place("5a 55 c3") == "+0 stepped pop %rdx");
}

TEST_CASE("a straight line ends at a system call, a call, a return and a jump", "[probes]") {
    CHECK(place(glibc_munmap, {arguments_1_2}) == "+0 stepped mov $0x0b, %eax");
    CHECK(place("31c0 c3 55") == "+0 stepped xor %eax, %eax");
    CHECK(place("31c0 ffe0 55") == "+0 stepped xor %eax, %eax");
    CHECK(place("31c0 ffd0 55") == "+0 stepped xor %eax, %eax");
    CHECK(place("31c0 e3fe 55") == "+0 stepped xor %eax, %eax");  // jrcxz
    CHECK(place("31c0 e2fe 55") == "+0 stepped xor %eax, %eax");  // loop
    CHECK(place("31c0 0f0b 55") == "+0 stepped xor %eax, %eax");  // ud2
    CHECK(place("31c0 cc 55") == "+0 stepped xor %eax, %eax");    // int3
    CHECK(place("31c0 f4 55") == "+0 stepped xor %eax, %eax");    // hlt
    CHECK(place("31c0 e810000000 55") == "+2 call 0x100017");
    CHECK(place("31c0 e910000000 55") == "+2 jmp 0x100017");
}

TEST_CASE("code that begins with endbr64 is probed behind it", "[probes]") {
    CHECK(place(operator_new) == "+12 push %rbx");
    CHECK(place(operator_new_nothrow) == "+0 stepped endbr64");
    CHECK(place(operator_delete) == "+4 jmp 0xf2f90");
    CHECK(place("f30f1efa 55 c3") == "+4 push %rbp");
    CHECK(place("f30f1efa 0f1f4000 55 c3") == "+4 nop %eax, (%rax)");
}

TEST_CASE("no probe stands on a nop that Linux 6.18 replaces by a call", "[probes]") {
    // At the start, behind endbr64, several of them: what comes next, emulated or not.
    CHECK(place("0f1f440000 55 c3") == "+5 push %rbp");
    CHECK(place("f30f1efa 0f1f440000 55 c3") == "+9 push %rbp");
    CHECK(place("0f1f440000 48897c24f8 c3") == "+5 stepped mov %rdi, -0x08(%rsp)");
    CHECK(place("0f1f440000 0f1f440000 c3") == "+10 stepped ret");
    // Behind a store below the stack pointer, by whatever register: lea -8(%rsp),%rax; mov %rdi,(%rax).
    CHECK(place("488d4424f8 488938 0f1f440000 c3") == "+0 stepped lea -0x08(%rsp), %rax");
    CHECK(place("4889c0 0f1f440000 55 c3") == "+8 push %rbp");
    // Nothing that a probe could stand on, or a jump to behind the nop: a loop would be taken for calls.
    CHECK(place("0f1f440000") == "none");
    CHECK(place("0f1f440000 0f0b") == "none");
    CHECK(place("0f1f440000 4889c0 ebfb") == "none");
    CHECK(handling("0f1f440000") == UprobeHandling::replaced);
}

TEST_CASE("jemalloc's free keeps its argument until a jump that can carry the probe", "[probes]") {
    CHECK(place(jemalloc_free, {argument_1, true}) == "+48 jnz 0x1000c0");
    // The table of the decision in the design, made with all argument registers, has no place.
    CHECK(place(jemalloc_free, {0b111, true}) == "+0 stepped mov %rdi, %rax");
}

TEST_CASE("no probe stands at or behind an instruction that is a branch's target", "[probes]") {
    // 0: mov %rax,%rax; 3: push %rbp; 4: jmp 3 or jmp 4
    CHECK(place("4889c0 55 ebfe") == "+3 push %rbp");
    CHECK(place("4889c0 55 ebfd") == "+0 stepped mov %rax, %rax");
    // into the middle of what is decoded: 0: mov; 3: mov; 6: push; 7: jne 4
    CHECK(place("4889c0 4889c0 55 75fb") == "+0 stepped mov %rax, %rax");
    // a target before the place: 3: push would be reached by the loop to 2 as well
    CHECK(place("89c0 90 55 c3 ebfc") == "+2 nop");
    CHECK(place("89c0 89c9 55 c3 ebfa") == "+0 stepped mov %eax, %eax");
    // a jump back to the first byte is no reason to prefer it
    CHECK(place("89c0 55 c3 ebfa") == "+2 push %rbp");
    // far behind the prologue, and by a long jump
    CHECK(place("4889c0 55 5d c3 909090909090 0f84f1ffffff") == "+0 stepped mov %rax, %rax");
}

TEST_CASE("what uprobes emulate is decided as the kernel does", "[probes]") {
    using enum UprobeHandling;
    for (const char* push : {"50", "55", "57", "4150", "4154", "4157"})
        CHECK(handling(push) == emulated);
    for (const char* push : {"6655", "4055", "4855", "664155", "ff30", "6a00", "6800000000", "9c"})
        CHECK(handling(push) == stepped);
    for (const char* nop :
         {"90", "6690", "666690", "f390", "0f1f00", "0f1f4000", "660f1f440000", "0f1f8000000000", "0f1f840000000000"})
        CHECK(handling(nop) == emulated);
    for (const char* nop : {"660f1f00", "0f1fc0", "0f1f4008", "660f1f840000000000", "0f1f4400 01"})
        CHECK(handling(nop) == stepped);
    for (const char* branch :
         {"7405", "7f05", "0f8400000000", "0f8f00000000", "eb00", "e900000000", "e800000000", "f2e900000000"})
        CHECK(handling(branch) == emulated);
    for (const char* branch : {"c3", "ffe0", "ffd0", "ff2500000000", "e300", "e200", "0f05aa"})
        CHECK(handling(branch) != emulated);
}

TEST_CASE("what the kernel refuses or would emulate wrongly carries no probe", "[probes]") {
    using enum UprobeHandling;
    // A prefix that is_prefix_bad() knows, or an operand size on a branch.
    for (const char* hex : {"2e7405", "3e7405", "3ee900000000", "f07405", "667405", "66e90000", "66e80000",
                            "662e0f1f840000000000", "2e0f1f840000000000", "f0480fb10f"})
        CHECK(handling(hex) == refused);
    CHECK(handling("4190") == refused);  // xchg %r8,%rax
    for (const char* hex : {"cc", "cd80", "f4", "0f05", "0f0b"})
        CHECK(handling(hex) == refused);
    CHECK(place("4889c0 2e7400 55 c3") == "+0 stepped mov %rax, %rax");
    CHECK(place("4889c0 4190 55 c3") == "+5 push %rbp");
}

TEST_CASE("a function without a first instruction that can carry a probe gets none", "[probes]") {
    CHECK(place("") == "none");
    CHECK(place("06") == "none");    // no instruction
    CHECK(place("4885") == "none");  // cut off
    CHECK(place("0f05 c3") == "none");
    CHECK(place("66e90000") == "none");
    CHECK(place("4889c0 06 55") == "+0 stepped mov %rax, %rax");
    CHECK(place("4889c0 4889") == "+0 stepped mov %rax, %rax");
}

TEST_CASE("any bytes give an instruction's boundary or none", "[probes]") {
    std::mt19937 random(20260);  // NOLINT(cert-msc51-cpp): the same bytes in every run
    // Common first bytes of instructions, so that lines get long.
    const std::vector<uint8_t> likely =
        bytes_of("48 89 8b f8 c0 0f 1f 85 ff 74 75 55 53 41 54 90 66 e8 eb c3 31 00 02 f3 1e fa");
    size_t placed_behind_first = 0;
    for (int round = 0; round < 20000; ++round) {
        std::vector<uint8_t> code(random() % 48);
        for (uint8_t& byte : code)
            byte = random() % 8 == 0 ? static_cast<uint8_t>(random()) : likely[random() % likely.size()];
        const PlacementRules rules = {static_cast<uint32_t>(random() % 64), random() % 2 == 0};
        const auto placement = place_probe(code, 0, rules);
        if (!placement || placement->offset == 0) continue;
        ++placed_behind_first;
        REQUIRE(placement->is_emulated);
        REQUIRE(is_boundary(code, placement->offset));
    }
    CHECK(placed_behind_first > 1000);
}
