#include "symbols/jit_files.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <optional>
#include <string_view>

namespace memtrace {
namespace {

constexpr size_t piece_bytes = 1 << 20;
constexpr uint64_t most_map_bytes = uint64_t{256} << 20;
constexpr uint64_t most_records = 4'000'000;

/// Takes a hexadecimal number and the blank after it from the front of `line`.
std::optional<uint64_t> take_number(std::string_view& line) {
    if (line.starts_with("0x")) line.remove_prefix(2);
    uint64_t number = 0;
    const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), number, 16);
    if (error != std::errc() || end == line.data() + line.size() || *end != ' ') return std::nullopt;
    line.remove_prefix(static_cast<size_t>(end - line.data()) + 1);
    return number;
}

void add_line(std::string_view line, JitNames& names) {
    const auto start = take_number(line);
    const auto size_bytes = start ? take_number(line) : std::nullopt;
    if (size_bytes) names.add(*start, *size_bytes, line);
}

// struct jitheader, jr_prefix, jr_code_load and jr_code_move of linux/tools/perf/util/jitdump.h.
constexpr uint32_t jit_magic = 0x4a695444;
struct JitHeader {
    uint32_t magic;
    uint32_t version;
    uint32_t total_size;
    uint32_t elf_machine;
    uint32_t padding;
    uint32_t pid;
    uint64_t time;
    uint64_t flags;
};
struct JitPrefix {
    uint32_t id;
    uint32_t total_size;
    uint64_t time;
};
struct JitCodeLoad {
    uint32_t pid;
    uint32_t tid;
    uint64_t virtual_address;
    uint64_t code_address;
    uint64_t code_size;
    uint64_t code_index;
};
struct JitCodeMove {
    uint32_t pid;
    uint32_t tid;
    uint64_t virtual_address;
    uint64_t old_code_address;
    uint64_t new_code_address;
    uint64_t code_size;
    uint64_t code_index;
};
constexpr uint32_t code_load_id = 0;
constexpr uint32_t code_move_id = 1;

template <typename T>
std::optional<T> read_at(int fd, uint64_t position) {
    T value;
    if (::pread(fd, &value, sizeof(value), static_cast<off_t>(position)) != sizeof(value)) return std::nullopt;
    return value;
}

void add_code_load(int fd, uint64_t position, uint32_t size, JitNames& names) {
    const auto load = read_at<JitCodeLoad>(fd, position);
    if (!load || size < sizeof(*load)) return;
    // The name ends with a NUL; the code follows it.
    char name[1024] = {};
    const size_t room = std::min<size_t>(sizeof(name) - 1, size - sizeof(*load));
    if (::pread(fd, name, room, static_cast<off_t>(position + sizeof(*load))) < 0) return;
    names.add(load->code_address, load->code_size, std::string_view(name, ::strnlen(name, room)));
}

void add_code_move(int fd, uint64_t position, uint32_t size, JitNames& names) {
    const auto move = read_at<JitCodeMove>(fd, position);
    if (!move || size < sizeof(*move)) return;
    const std::string name(names.find(move->old_code_address).name);
    names.add(move->new_code_address, move->code_size, name);
}

}  // namespace

bool GrowingFile::has_more() {
    struct stat status {};
    if (!fd_ || ::fstat(fd_.get(), &status) != 0) return false;
    const auto size = static_cast<uint64_t>(status.st_size);
    if (size < position) position = 0;
    return size > position;
}

std::vector<char> GrowingFile::piece() const {
    std::vector<char> bytes(piece_bytes);
    const ssize_t got = ::pread(fd_.get(), bytes.data(), bytes.size(), static_cast<off_t>(position));
    bytes.resize(got > 0 ? static_cast<size_t>(got) : 0);
    return bytes;
}

void read_perf_map(GrowingFile& file, JitNames& names) {
    while (!names.is_full()) {
        const std::vector<char> bytes = file.piece();
        if (!file.spend(bytes.size(), most_map_bytes)) return file.give_up();
        std::string_view text(bytes.data(), bytes.size());
        const size_t last = text.rfind('\n');
        if (last == std::string_view::npos && bytes.size() < piece_bytes) return;
        // A line that is longer than a piece names nothing.
        text = text.substr(0, last == std::string_view::npos ? bytes.size() : last + 1);
        file.position += text.size();
        while (!text.empty()) {
            const size_t end = std::min(text.find('\n'), text.size() - 1);
            add_line(text.substr(0, end), names);
            text.remove_prefix(end + 1);
        }
    }
}

void read_jit_dump(GrowingFile& file, JitNames& names) {
    struct stat status {};
    if (::fstat(file.fd(), &status) != 0) return;
    const auto end = static_cast<uint64_t>(status.st_size);
    if (file.position == 0) {
        const auto header = read_at<JitHeader>(file.fd(), 0);
        if (!header) return;
        if (header->magic != jit_magic || header->total_size < sizeof(*header)) return file.give_up();
        if (header->total_size > end) return;
        file.position = header->total_size;
    }
    while (!names.is_full()) {
        if (!file.spend(1, most_records)) return file.give_up();
        const auto prefix = read_at<JitPrefix>(file.fd(), file.position);
        if (!prefix) return;
        if (prefix->total_size < sizeof(*prefix)) return file.give_up();
        if (end - file.position < prefix->total_size) return;
        const uint64_t body = file.position + sizeof(*prefix);
        const auto body_size = static_cast<uint32_t>(prefix->total_size - sizeof(*prefix));
        if (prefix->id == code_load_id) add_code_load(file.fd(), body, body_size, names);
        if (prefix->id == code_move_id) add_code_move(file.fd(), body, body_size, names);
        file.position += prefix->total_size;
    }
}

}  // namespace memtrace
