#include "processes/resident_pages.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "processes/proc_file.hpp"
#include "processes/process.hpp"

namespace memtrace {
namespace {

constexpr uint64_t present = 1ull << 63;  // Documentation/admin-guide/mm/pagemap.rst
constexpr size_t entries_at_once = 1 << 14;

}  // namespace

Result<ResidentPages> ResidentPages::open(pid_t pid) {
    Fd fd(::open(proc_path(pid, "pagemap").c_str(), O_RDONLY | O_CLOEXEC));
    if (!fd) return process_error("the pages of process " + std::to_string(pid), errno);
    return ResidentPages(std::move(fd));
}

void ResidentPages::load(uint64_t page) {
    first_page_ = page;
    entries_.assign(entries_at_once, 0);
    const size_t wanted = entries_.size() * sizeof(uint64_t);
    size_t done = 0;
    while (done < wanted) {
        const ssize_t count = pread(fd_.get(), reinterpret_cast<char*>(entries_.data()) + done, wanted - done,
                                    static_cast<off_t>(page * sizeof(uint64_t) + done));
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) return;
        done += static_cast<size_t>(count);
    }
}

bool ResidentPages::is_resident(uint64_t page) {
    if (page < first_page_ || page - first_page_ >= entries_.size()) load(page);
    return (entries_[page - first_page_] & present) != 0;
}

uint64_t ResidentPages::bytes(uint64_t begin, uint64_t end) {
    uint64_t sum = 0;
    for (uint64_t page = begin / page_bytes; page * page_bytes < end; ++page)
        if (is_resident(page)) sum += std::min(end, (page + 1) * page_bytes) - std::max(begin, page * page_bytes);
    return sum;
}

uint64_t ResidentPages::bytes_of_whole_pages(uint64_t begin, uint64_t end) {
    const uint64_t first = (begin + page_bytes - 1) & ~(page_bytes - 1);
    const uint64_t last = end & ~(page_bytes - 1);
    return first < last ? bytes(first, last) : 0;
}

}  // namespace memtrace
