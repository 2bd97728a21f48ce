#include "processes/mapping_events.hpp"

#include <fmt/format.h>
#include <linux/perf_event.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <string_view>

#include "base/capabilities.hpp"

#include "processes/perf_ring.hpp"

namespace memtrace {
namespace {

/// PERF_RECORD_MMAP2 without MISC_MMAP_BUILD_ID up to the name (perf_event_open(2)).
struct Mmap2Record {
    perf_event_header header;
    uint32_t pid, tid;
    uint64_t address, size_bytes, file_offset;
    uint32_t device_major, device_minor;
    uint64_t inode, inode_generation;
    uint32_t protection, flags;
};
static_assert(sizeof(Mmap2Record) == 72);

/// What sample_id_all appends for PERF_SAMPLE_TID | PERF_SAMPLE_TIME.
struct SampleId {
    uint32_t pid, tid;
    uint64_t time_ns;
};

struct LostRecord {
    perf_event_header header;
    uint64_t id, lost;
};

template <typename T>
T copy_at(std::span<const std::byte> bytes, size_t offset) {
    T value;
    std::memcpy(&value, bytes.data() + offset, sizeof(T));
    return value;
}

/// `size` bytes at position `position` of the ring, which may wrap.
std::vector<std::byte> copy_out(std::span<const std::byte> data, uint64_t position, size_t size) {
    std::vector<std::byte> bytes(size);
    const size_t begin = static_cast<size_t>(position & (data.size() - 1));
    const size_t first = std::min(size, data.size() - begin);
    std::memcpy(bytes.data(), data.data() + begin, first);
    std::memcpy(bytes.data() + first, data.data(), size - first);
    return bytes;
}

void take_record(std::span<const std::byte> record, MappingBatch& batch) {
    const auto header = copy_at<perf_event_header>(record, 0);
    if (header.type == PERF_RECORD_LOST) {
        batch.lost += record.size() >= sizeof(LostRecord) ? copy_at<LostRecord>(record, 0).lost : 1;
        return;
    }
    if (header.type != PERF_RECORD_MMAP2) return;
    auto event = parse_mapping_record(record);
    if (!event) {
        ++batch.lost;
        return;
    }
    // 0 and -1: a process that this pid namespace does not know, so it is nobody's target here.
    if (event->pid > 0) batch.events.push_back(*std::move(event));
}

/// Debian's and Android's kernels know a level 3, at which perf_event_open(2) asks for cap_sys_admin.
bool are_perf_events_kept_for_root() {
    std::ifstream file("/proc/sys/kernel/perf_event_paranoid");
    int level = 0;
    return (file >> level) && level > 2;
}

Error open_error(int error_number) {
    const std::string what = "watching for new libraries";
    const bool is_refused = error_number == EACCES || error_number == EPERM;
    if (is_refused && missing_capabilities(std::array{Capability::perfmon}).empty() && are_perf_events_kept_for_root())
        return {what, "perf_event_open: this kernel keeps it for root (kernel.perf_event_paranoid is above 2)",
                "run as root (sudo memtrace ...), or sysctl kernel.perf_event_paranoid=2", ExitStatus::not_privileged};
    if (is_refused)
        return {what, "perf_event_open: " + reason_of_refusal(std::array{Capability::perfmon}), privilege_hint(),
                ExitStatus::not_privileged};
    if (error_number == EMFILE) return {what, errno_text(error_number), "raise the limit of open files (ulimit -n)"};
    return {what, "perf_event_open: " + errno_text(error_number)};
}

}  // namespace

std::optional<MappingEvent> parse_mapping_record(std::span<const std::byte> record) {
    if (record.size() < sizeof(Mmap2Record) + sizeof(SampleId)) return std::nullopt;
    const auto mmap2 = copy_at<Mmap2Record>(record, 0);
    const bool has_build_id = (mmap2.header.misc & PERF_RECORD_MISC_MMAP_BUILD_ID) != 0;
    if (mmap2.header.type != PERF_RECORD_MMAP2 || has_build_id) return std::nullopt;
    if (mmap2.size_bytes == 0 || mmap2.address + mmap2.size_bytes < mmap2.address) return std::nullopt;

    const size_t name_end = record.size() - sizeof(SampleId);
    const std::string_view padded_name(reinterpret_cast<const char*>(record.data()) + sizeof(Mmap2Record),
                                       name_end - sizeof(Mmap2Record));
    MappingEvent event;
    event.pid = static_cast<pid_t>(mmap2.pid);
    event.tid = static_cast<pid_t>(mmap2.tid);
    event.time_ns = copy_at<SampleId>(record, name_end).time_ns;
    event.mapping.start = mmap2.address;
    event.mapping.end = mmap2.address + mmap2.size_bytes;
    event.mapping.file_offset = mmap2.file_offset;
    event.mapping.is_readable = (mmap2.protection & PROT_READ) != 0;
    event.mapping.is_writable = (mmap2.protection & PROT_WRITE) != 0;
    event.mapping.is_executable = (mmap2.protection & PROT_EXEC) != 0;
    event.mapping.is_shared = (mmap2.flags & MAP_SHARED) != 0;
    event.mapping.device = makedev(mmap2.device_major, mmap2.device_minor);
    event.mapping.inode = mmap2.inode;
    set_mapping_name(event.mapping, padded_name.substr(0, padded_name.find('\0')));
    return event;
}

void parse_ring(std::span<const std::byte> data, uint64_t tail, uint64_t head, MappingBatch& batch) {
    if (head - tail > data.size()) {
        ++batch.lost;
        return;
    }
    while (tail != head) {
        if (head - tail < sizeof(perf_event_header)) {
            ++batch.lost;
            return;
        }
        const auto header = copy_at<perf_event_header>(copy_out(data, tail, sizeof(perf_event_header)), 0);
        if (header.size < sizeof(perf_event_header) || header.size > head - tail) {
            ++batch.lost;
            return;
        }
        take_record(copy_out(data, tail, header.size), batch);
        tail += header.size;
    }
}

MappingEvents::MappingEvents() = default;
MappingEvents::MappingEvents(MappingEvents&&) noexcept = default;
MappingEvents& MappingEvents::operator=(MappingEvents&&) noexcept = default;
MappingEvents::~MappingEvents() = default;

Result<MappingEvents> MappingEvents::open() {
    MappingEvents events;
    events.epoll_ = Fd(::epoll_create1(EPOLL_CLOEXEC));
    if (!events.epoll_) return open_error(errno);
    const long cpus = ::sysconf(_SC_NPROCESSORS_CONF);
    for (int cpu = 0; cpu < cpus; ++cpu) {
        auto ring = PerfRing::open(cpu);
        if (const int* error_number = std::get_if<int>(&ring)) {
            if (*error_number == ENODEV) continue;  // offline
            return open_error(*error_number);
        }
        auto& opened = std::get<std::unique_ptr<PerfRing>>(ring);
        epoll_event wanted{};
        wanted.events = EPOLLIN;
        if (::epoll_ctl(events.epoll_.get(), EPOLL_CTL_ADD, opened->fd(), &wanted) != 0) return open_error(errno);
        events.rings_.push_back(std::move(opened));
    }
    if (events.rings_.empty()) return open_error(ENODEV);
    return events;
}

MappingBatch MappingEvents::read() {
    MappingBatch batch;
    for (const auto& ring : rings_)
        ring->read(batch);
    std::stable_sort(batch.events.begin(), batch.events.end(),
                     [](const MappingEvent& left, const MappingEvent& right) { return left.time_ns < right.time_ns; });
    return batch;
}

}  // namespace memtrace
