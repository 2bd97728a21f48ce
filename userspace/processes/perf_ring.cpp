#include "processes/perf_ring.hpp"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace memtrace {
namespace {

// Powers of two; 38 events a page, of all processes of the cpu. More than the lesser needs CAP_IPC_LOCK or room in
// kernel.perf_event_mlock_kb.
constexpr size_t wanted_pages = 512;
constexpr size_t fewest_pages = 32;

perf_event_attr mapping_event_attributes() {
    perf_event_attr attributes{};
    attributes.size = sizeof(attributes);
    attributes.type = PERF_TYPE_SOFTWARE;
    attributes.config = PERF_COUNT_SW_DUMMY;
    attributes.sample_type = PERF_SAMPLE_TID | PERF_SAMPLE_TIME;
    attributes.mmap = 1;
    attributes.mmap2 = 1;
    attributes.sample_id_all = 1;
    attributes.use_clockid = 1;
    attributes.clockid = CLOCK_MONOTONIC;
    attributes.watermark = 1;
    attributes.wakeup_watermark = 1;
    return attributes;
}

}  // namespace

std::variant<std::unique_ptr<PerfRing>, int> PerfRing::open(int cpu) {
    perf_event_attr attributes = mapping_event_attributes();
    const long opened = ::syscall(SYS_perf_event_open, &attributes, -1, cpu, -1, PERF_FLAG_FD_CLOEXEC);
    if (opened < 0) return errno;
    Fd fd(static_cast<int>(opened));
    const auto page_size = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
    size_t pages = wanted_pages;
    void* memory = MAP_FAILED;
    for (; memory == MAP_FAILED && pages >= fewest_pages; pages /= 4)
        memory = ::mmap(nullptr, (1 + pages) * page_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
    if (memory == MAP_FAILED) return errno;
    pages *= 4;
    const auto* data = static_cast<const std::byte*>(memory) + page_size;
    return std::unique_ptr<PerfRing>(
        new PerfRing(std::move(fd), static_cast<perf_event_mmap_page*>(memory), std::span(data, pages * page_size)));
}

PerfRing::~PerfRing() {
    ::munmap(page_, data_.size() + static_cast<size_t>(::sysconf(_SC_PAGESIZE)));
}

void PerfRing::read(MappingBatch& batch) {
    // data_head is stored with release by the kernel, and data_tail tells it that we are done (perf_event_open(2)).
    const uint64_t head = __atomic_load_n(&page_->data_head, __ATOMIC_ACQUIRE);
    const uint64_t tail = page_->data_tail;
    if (head == tail) return;
    parse_ring(data_, tail, head, batch);
    __atomic_store_n(&page_->data_tail, head, __ATOMIC_RELEASE);
}

}  // namespace memtrace
