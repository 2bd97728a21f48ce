#include "kernel/trap_price.hpp"

#include <bpf/bpf.h>
#include <fcntl.h>
#include <link.h>
#include <linux/perf_event.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <optional>
#include <span>
#include <vector>

#include "base/clock.hpp"
#include "kernel/uprobe_multi.hpp"

// Functions that are called through their symbols: what carries the probe is their first instruction.
extern "C" {
void memtrace_priced_emulated(void);
void memtrace_priced_stepped(void);
}
asm(R"(
.text
.type memtrace_priced_emulated, @function
.globl memtrace_priced_emulated
memtrace_priced_emulated:
  push %rbp
  pop %rbp
  ret
.size memtrace_priced_emulated, .-memtrace_priced_emulated
.type memtrace_priced_stepped, @function
.globl memtrace_priced_stepped
memtrace_priced_stepped:
  test %rdi, %rdi
  ret
.size memtrace_priced_stepped, .-memtrace_priced_stepped
)");

namespace memtrace {
namespace {

using Function = void (*)();

constexpr int calls_a_slice = 40;
constexpr int slices = 15;

/// The median slice, so that whoever else gets the processor meanwhile is left out.
double time_call_ns(Function function) {
    std::vector<double> times;
    for (int slice = 0; slice < slices; ++slice) {
        const uint64_t start_ns = monotonic_now_ns();
        for (int call = 0; call < calls_a_slice; ++call)
            function();
        times.push_back(static_cast<double>(monotonic_now_ns() - start_ns) / calls_a_slice);
    }
    std::nth_element(times.begin(), times.begin() + slices / 2, times.end());
    return times[slices / 2];
}

/// Where the code of this program is in its file.
std::optional<uint64_t> file_offset_of(Function function) {
    struct Search {
        uint64_t address;
        std::optional<uint64_t> offset;
    } search{reinterpret_cast<uint64_t>(function), std::nullopt};
    dl_iterate_phdr(
        [](dl_phdr_info* info, size_t, void* context) {
            Search& wanted = *static_cast<Search*>(context);
            const uint64_t vaddr = wanted.address - info->dlpi_addr;
            for (const ElfW(Phdr) & segment : std::span(info->dlpi_phdr, info->dlpi_phnum))
                if (segment.p_type == PT_LOAD && vaddr >= segment.p_vaddr && vaddr < segment.p_vaddr + segment.p_filesz)
                    wanted.offset = vaddr - segment.p_vaddr + segment.p_offset;
            return 1;  // the program itself is the first
        },
        &search);
    return search.offset;
}

enum class Probe { entry, entry_and_return };

bpf_attach_type attach_type_of(AttachRung rung, Probe probe) {
    const bool is_session = rung == AttachRung::session && probe == Probe::entry_and_return;
    return static_cast<bpf_attach_type>(is_session ? bpf_trace_uprobe_session : bpf_trace_uprobe_multi);
}

Fd load_empty_program(AttachRung rung, Probe probe) {
    LIBBPF_OPTS(bpf_prog_load_opts, options);
    if (rung != AttachRung::perf) options.expected_attach_type = attach_type_of(rung, probe);
    return Fd(bpf_prog_load(BPF_PROG_TYPE_KPROBE, nullptr, "GPL", return_zero, std::size(return_zero), &options));
}

Fd attach_multi(AttachRung rung, Probe probe, int program_fd, uint64_t offset) {
    UprobeMultiAttributes attributes;
    attributes.program_fd = static_cast<uint32_t>(program_fd);
    attributes.attach_type = static_cast<uint32_t>(attach_type_of(rung, probe));
    attributes.path = as_u64("/proc/self/exe");
    attributes.offsets = as_u64(&offset);
    attributes.count = 1;
    attributes.multi_flags =
        rung == AttachRung::multi && probe == Probe::entry_and_return ? bpf_f_uprobe_multi_return : 0;
    attributes.pid = static_cast<uint32_t>(getpid());
    return Fd(create_link(attributes));
}

/// A perf event of this thread; Documentation/ABI/testing/sysfs-bus-event_source-devices-uprobe: config bit 0 is
/// "return", config1 the path, config2 the offset.
Fd attach_perf(Probe probe, int program_fd, uint64_t offset) {
    uint32_t type = 0;
    std::ifstream("/sys/bus/event_source/devices/uprobe/type") >> type;
    perf_event_attr attributes{};
    attributes.size = sizeof attributes;
    attributes.type = type;
    attributes.config = probe == Probe::entry_and_return ? 1 : 0;
    attributes.config1 = as_u64("/proc/self/exe");
    attributes.config2 = offset;
    Fd event(static_cast<int>(syscall(SYS_perf_event_open, &attributes, 0, -1, -1, PERF_FLAG_FD_CLOEXEC)));
    if (!event) return event;
    if (ioctl(event.get(), PERF_EVENT_IOC_SET_BPF, program_fd) != 0) return Fd();
    return event;
}

/// What a probe adds to a call of `function`.
Result<double> price_of(AttachRung rung, Probe probe, Function function) {
    const auto offset = file_offset_of(function);
    if (!offset) return Error{"cannot find own code", "the program's headers do not have it"};
    const double without_ns = time_call_ns(function);
    const Fd program = load_empty_program(rung, probe);
    const Fd link = rung == AttachRung::perf ? attach_perf(probe, program.get(), *offset)
                                             : attach_multi(rung, probe, program.get(), *offset);
    if (!program || !link) {
        const int error_number = errno;
        const std::string what = "cannot measure what a probe costs";
        if (error_number == EPERM || error_number == EACCES) return refused_attach(what, rung);
        return Error{what, errno_text(error_number), "", ExitStatus::kernel_lacks_feature};
    }
    function();
    return std::max(time_call_ns(function) - without_ns, 0.0);
}

}  // namespace

Result<TrapPrice> measure_trap_price(AttachRung rung) {
    const auto emulated = price_of(rung, Probe::entry, memtrace_priced_emulated);
    if (!emulated) return emulated.error();
    const auto stepped = price_of(rung, Probe::entry, memtrace_priced_stepped);
    if (!stepped) return stepped.error();
    // Also a return probe alone has an entry trap.
    const auto both = price_of(rung, Probe::entry_and_return, memtrace_priced_emulated);
    if (!both) return both.error();
    return TrapPrice{*emulated, *stepped, std::max(*both - *emulated, 0.0)};
}

}  // namespace memtrace
