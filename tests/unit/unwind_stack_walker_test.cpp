// Copies of this thread's own stack, walked by tables, beside what the C++ runtime's unwinder says.
#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>
#include <unwind.h>

#include <cstdlib>
#include <map>

#include "base/fd.hpp"
#include "catch.hpp"
#include "processes/mappings.hpp"
#include "unwind/elf_image.hpp"
#include "unwind/stack_walker.hpp"

using namespace memtrace;

namespace {

/// The code that this process maps, with tables of every address.
class OwnCode {
  public:
    OwnCode() : mappings_(read_mappings(getpid()).value()) {}

    CodeAt at(uint64_t pc) {
        for (const Mapping& mapping : mappings_) {
            if (pc < mapping.start || pc >= mapping.end || !mapping.has_file()) continue;
            File& file = file_of(mapping.path);
            const uint64_t offset = pc - mapping.start + mapping.file_offset;
            for (const CodeSegment& segment : file.segments)
                if (offset - segment.offset < segment.size_bytes)
                    return {&file.table, offset - segment.offset + segment.vaddr};
        }
        return {};
    }

  private:
    struct File {
        UnwindTable table;
        std::vector<CodeSegment> segments;
    };
    File& file_of(const std::string& path) {
        const auto [entry, is_new] = files_.try_emplace(path);
        if (is_new) {
            const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
            entry->second.table = build_unwind_table(fd.get(), -1, UnwindRows::all).value();
            entry->second.segments = ElfImage::open(fd.get())->code_segments();
        }
        return entry->second;
    }

    std::vector<Mapping> mappings_;
    std::map<std::string, File> files_;
};

uint64_t stack_end() {
    pthread_attr_t attributes;
    void* start = nullptr;
    size_t size_bytes = 0;
    REQUIRE(pthread_getattr_np(pthread_self(), &attributes) == 0);
    pthread_attr_getstack(&attributes, &start, &size_bytes);
    pthread_attr_destroy(&attributes);
    return reinterpret_cast<uint64_t>(start) + size_bytes;
}

_Unwind_Reason_Code note_frame(_Unwind_Context* context, void* frames) {
    static_cast<std::vector<uint64_t>*>(frames)->push_back(_Unwind_GetIP(context));
    return _URC_NO_REASON;
}

struct Taken {
    StackCopy stack;
    std::vector<uint8_t> bytes;
    std::vector<uint64_t> expected;  // return addresses of the runtime's unwinder
};

/// Of the stack as it is here, from this function's frame up.
__attribute__((noipa)) void take(Taken& taken) {
    _Unwind_Backtrace(note_frame, &taken.expected);
    // Of this function itself, which is where the walk starts.
    taken.expected.erase(taken.expected.begin());
    while (!taken.expected.empty() && taken.expected.back() == 0)
        taken.expected.pop_back();
    uint64_t pc = 0;
    uint64_t stack_pointer = 0;
    uint64_t frame_pointer = 0;
    asm volatile("lea 0(%%rip), %0\n mov %%rsp, %1\n mov %%rbp, %2"
                 : "=r"(pc), "=r"(stack_pointer), "=r"(frame_pointer));
    taken.bytes.resize(stack_end() - stack_pointer);
    // By the kernel: to AddressSanitizer a copy of all frames is an error.
    const Fd memory(::open("/proc/self/mem", O_RDONLY | O_CLOEXEC));
    const ssize_t copied =
        pread(memory.get(), taken.bytes.data(), taken.bytes.size(), static_cast<off_t>(stack_pointer));
    REQUIRE(copied == static_cast<ssize_t>(taken.bytes.size()));
    taken.stack = {pc, stack_pointer, frame_pointer, taken.bytes};
}

void check(const Taken& taken) {
    OwnCode code;
    std::vector<uint64_t> walked;
    const WalkEnd end = walk_stack(
        taken.stack, [&](uint64_t pc) { return code.at(pc); }, 1000, walked);
    CHECK(end == WalkEnd::thread_start);
    CHECK(walked == taken.expected);
    CHECK(walked.size() > 5);
}

int compare_and_take(const void* left, const void* right) {
    static thread_local Taken* taken = nullptr;
    if (right == nullptr) {
        taken = const_cast<Taken*>(static_cast<const Taken*>(left));
        return 0;
    }
    if (taken->bytes.empty()) take(*taken);
    return *static_cast<const int*>(left) - *static_cast<const int*>(right);
}

}  // namespace

TEST_CASE("a copied stack is walked to the thread's start as the runtime's unwinder does", "[unwind]") {
    Taken taken;
    take(taken);
    check(taken);
}

TEST_CASE("a copied stack is walked through a callback of the C library", "[unwind]") {
    Taken taken;
    compare_and_take(&taken, nullptr);
    int numbers[] = {3, 1, 2};
    std::qsort(numbers, 3, sizeof numbers[0], compare_and_take);
    check(taken);
}

TEST_CASE("a copy that ends early ends the walk there, and one of nothing at once", "[unwind]") {
    Taken taken;
    take(taken);
    OwnCode code;
    const auto at = [&](uint64_t pc) { return code.at(pc); };
    for (const size_t bytes : {size_t{0}, size_t{64}, size_t{512}}) {
        StackCopy stack = taken.stack;
        stack.bytes = stack.bytes.first(bytes);
        std::vector<uint64_t> walked;
        CHECK(walk_stack(stack, at, 1000, walked) == WalkEnd::outside_copy);
        CHECK(walked.size() < taken.expected.size());
        CHECK(std::equal(walked.begin(), walked.end(), taken.expected.begin()));
    }
    std::vector<uint64_t> walked;
    CHECK(walk_stack(taken.stack, at, 3, walked) == WalkEnd::too_many_frames);
    CHECK(walked.size() == 3);
}

TEST_CASE("code without a table is walked by a frame pointer that can be one", "[unwind]") {
    std::vector<uint64_t> words(8, 0);
    const uint64_t base = 0x7000;
    words[2] = base + 40;  // the caller's rbp
    words[3] = 0x401000;
    words[5] = 0;
    words[6] = 0x402000;
    const std::span bytes(reinterpret_cast<const uint8_t*>(words.data()), words.size() * 8);
    const auto nothing = [](uint64_t) { return CodeAt{}; };
    std::vector<uint64_t> walked;
    CHECK(walk_stack({0x400000, base, base + 16, bytes}, nothing, 10, walked) == WalkEnd::thread_start);
    CHECK(walked == std::vector<uint64_t>{0x401000, 0x402000});
    walked.clear();
    CHECK(walk_stack({0x400000, base, base + 17, bytes}, nothing, 10, walked) == WalkEnd::no_cfi);
    CHECK(walk_stack({0x400000, base, base - 8, bytes}, nothing, 10, walked) == WalkEnd::no_cfi);
    CHECK(walked.empty());
}
