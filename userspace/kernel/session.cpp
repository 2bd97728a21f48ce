#include "kernel/session.hpp"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/clock.hpp"
#include "kernel/load_error.hpp"
#include "kernel/system_calls.hpp"
#include "kernel/tables.hpp"
#include "kernel/unwind_tables.hpp"
#include "kernel/uprobe_multi.hpp"
#include "memtrace.skel.h"
#include "memtrace/sampling_abi.h"
#include "probes/allocator_table.hpp"

namespace memtrace {
namespace {

void set_attach_type(bpf_program* program, uint32_t attach_type) {
    bpf_program__set_expected_attach_type(program, static_cast<bpf_attach_type>(attach_type));
}

void choose_programs(memtrace_bpf& skeleton, AttachRung rung) {
    const bool is_session = rung == AttachRung::session;
    bpf_program__set_autoload(skeleton.progs.on_call_or_return, is_session);
    bpf_program__set_autoload(skeleton.progs.on_return, !is_session);
    if (rung == AttachRung::perf) return;
    set_attach_type(skeleton.progs.on_call_or_return, bpf_trace_uprobe_session);
    set_attach_type(skeleton.progs.on_call, bpf_trace_uprobe_multi);
    set_attach_type(skeleton.progs.on_return, bpf_trace_uprobe_multi);
    set_attach_type(skeleton.progs.on_return_instruction, bpf_trace_uprobe_multi);
    set_attach_type(skeleton.progs.on_go_call, bpf_trace_uprobe_multi);
    set_attach_type(skeleton.progs.on_go_return, bpf_trace_uprobe_multi);
}

void set_rows(memtrace_bpf& skeleton, std::span<const AllocatorFunction> rows) {
    for (size_t row = 0; row < rows.size(); ++row) {
        skeleton.rodata->rows[row] = rows[row].row;
        if (rows[row].scope == RowScope::system_call)
            skeleton.rodata->system_call_rows[rows[row].row.operation] = static_cast<mt_u32>(row);
    }
}

void configure(memtrace_bpf& skeleton, const SessionOptions& options, AttachRung rung) {
    // Half full at the limit: nearly all blocks find room in their bucket, and the overflow table is for the rest.
    const uint32_t buckets = std::bit_ceil(std::max(options.max_live_blocks, 8u)) * 2 / MT_BUCKET_SLOTS;
    const uint32_t max_sites = std::max(options.max_sites, 1u) + 1;  // index 0 is not used
    skeleton.rodata->max_stack = options.max_stack_frames;
    skeleton.rodata->min_size_bytes = options.min_size_bytes;
    skeleton.rodata->max_size_bytes = options.max_size_bytes;
    skeleton.rodata->misses_shared_children = rung != AttachRung::perf;
    skeleton.rodata->max_owners = std::min<uint32_t>(options.max_address_spaces, MT_MAX_OWNERS - 1) + 1;
    skeleton.rodata->max_owner_blocks = options.max_process_blocks;
    skeleton.rodata->max_owner_sites = options.max_process_sites;
    skeleton.rodata->traces_blocks = options.traces_blocks;
    skeleton.rodata->folds_stacks = options.folds_stacks;
    skeleton.rodata->samples = options.samples;
    skeleton.rodata->skips_returns = rung == AttachRung::session;
    skeleton.bss->sampling_mean_bytes = mt_rounded_mean(options.sampling_mean_bytes);
    skeleton.rodata->live_bucket_mask = buckets - 1;
    skeleton.rodata->max_sites = max_sites;
    skeleton.rodata->watched_names = static_cast<mt_u32>(options.program_names.size());
    skeleton.rodata->new_target_flags = options.follows_children ? static_cast<mt_u32>(MT_TARGET_FOLLOWED) : 0;
    skeleton.rodata->traces_all = options.traces_all;
    skeleton.rodata->own_tgid = static_cast<mt_u32>(getpid());
    for (bpf_program* program :
         {skeleton.progs.on_cgroup_change, skeleton.progs.on_cgroup_made, skeleton.progs.on_cgroup_gone})
        bpf_program__set_autoload(program, !options.cgroups.empty());
    set_rows(skeleton, options.table->rows());
    bpf_map__set_max_entries(skeleton.maps.live_blocks, buckets);
    bpf_map__set_max_entries(skeleton.maps.live_overflow, std::max(options.max_live_blocks / 8, 1u));
    // Memory is taken for what is there only; an eighth of it would be for each bucket.
    bpf_map__set_max_entries(skeleton.maps.ghosts, std::max(options.max_live_blocks / 4, 1u));
    bpf_map__set_max_entries(skeleton.maps.inherited_frees, std::max(options.max_live_blocks / 4, 1u));
    bpf_map__set_max_entries(skeleton.maps.free_sites, max_sites);
    bpf_map__set_max_entries(skeleton.maps.sites, max_sites + MT_MAX_OWNERS);
    bpf_map__set_max_entries(skeleton.maps.sites_by_key, max_sites);
    // Few call sites make objects of more than one type or size.
    bpf_map__set_max_entries(skeleton.maps.typed_sites, max_sites);
    bpf_map__set_max_entries(skeleton.maps.ring, options.ring_size_bytes);
    UnwindTables::configure(UnwindMaps::of(skeleton), UnwindCapacity{});
}

void hand_over_site(EventSink& sink, const mt_site_event& site) {
    const size_t frames = std::min<size_t>(site.frame_count, MT_MAX_FRAMES);
    sink.on_site(site.header, site.site, std::span(site.frames, frames));
}

void hand_over_cgroup(EventSink& sink, const mt_cgroup_event& cgroup) {
    sink.on_cgroup(cgroup.header, std::string_view(cgroup.path, strnlen(cgroup.path, sizeof cgroup.path)));
}

void hand_over(EventSink& sink, const void* data) {
    switch (static_cast<mt_event_type>(static_cast<const mt_event*>(data)->type)) {
        case MT_EVENT_SITE:
            return hand_over_site(sink, *static_cast<const mt_site_event*>(data));
        case MT_EVENT_RAW_STACK:
            return sink.on_raw_stack(*static_cast<const mt_raw_stack_event*>(data));
        case MT_EVENT_MAP:
        case MT_EVENT_UNMAP:
        case MT_EVENT_UNMAP_FAILED:
        case MT_EVENT_REMAP:
        case MT_EVENT_REMAP_DONE:
        case MT_EVENT_REMAP_FAILED:
        case MT_EVENT_PROTECT:
        case MT_EVENT_DISCARD:
        case MT_EVENT_DETACH:
            return sink.on_mapping(*static_cast<const mt_mapping_event*>(data));
        case MT_EVENT_ALLOC:
        case MT_EVENT_FREE:
            return sink.on_block(*static_cast<const mt_block_event*>(data));
        case MT_EVENT_OWNER:
        case MT_EVENT_FORK:
        case MT_EVENT_EXEC:
        case MT_EVENT_EXIT:
        case MT_EVENT_MOVED:
        case MT_EVENT_BORN:
            return sink.on_process(*static_cast<const mt_process_event*>(data));
        case MT_EVENT_CGROUP_MADE:
        case MT_EVENT_CGROUP_GONE:
            return hand_over_cgroup(sink, *static_cast<const mt_cgroup_event*>(data));
        case MT_EVENT_FILE:
            return sink.on_file(*static_cast<const mt_file_event*>(data));
        case MT_EVENT_NONE:
            return;
    }
}

Error rung_error(AttachRung rung) {
    return {std::string("cannot attach by ") + std::string(rung_name(rung)), "this kernel does not have it",
            "leave --attach out", ExitStatus::kernel_lacks_feature};
}

}  // namespace

Session::Session() = default;
Session::~Session() = default;

void Session::Deleter::operator()(memtrace_bpf* skeleton) const {
    memtrace_bpf__destroy(skeleton);
}

void Session::Deleter::operator()(ring_buffer* ring) const {
    ring_buffer__free(ring);
}

Result<std::unique_ptr<Session>> Session::open(const SessionOptions& options) {
    if (options.rung) return open_rung(options, *options.rung);
    for (const AttachRung rung : {AttachRung::session, AttachRung::multi})
        if (kernel_has_rung(rung)) return open_rung(options, rung);
    return open_rung(options, AttachRung::perf);
}

Result<std::unique_ptr<Session>> Session::open_rung(const SessionOptions& options, AttachRung rung) {
    const LoadLog log;
    std::unique_ptr<Session> session(new Session);
    session->rung_ = rung;
    session->table_ = options.table;
    session->skeleton_.reset(memtrace_bpf__open());
    if (!session->skeleton_) return log.explain(errno);
    choose_programs(*session->skeleton_, rung);
    configure(*session->skeleton_, options, rung);
    if (const int error = memtrace_bpf__load(session->skeleton_.get()); error != 0) {
        Error refusal = log.explain(-error);
        // A verifier that does not know a rung may refuse the programs for it for some other reason.
        const bool is_for_rung = refusal.status == ExitStatus::kernel_lacks_feature && !kernel_has_rung(rung);
        return is_for_rung && rung != AttachRung::perf ? rung_error(rung) : std::move(refusal);
    }
    if (!kernel_has_rung(rung)) return rung_error(rung);
    if (auto mapped = session->map_tables(); !mapped) return std::move(mapped).error();
    // Only a matter of speed: what cannot be touched now is touched later.
    (void)bpf_prog_test_run_opts(bpf_program__fd(session->skeleton_->progs.touch_tables), nullptr);
    if (auto opened = session->open_ring(); !opened) return std::move(opened).error();
    if (auto watched = session->watch(options); !watched) return std::move(watched).error();
    // Only the tracepoint programs attach by themselves; probes have no place of their own yet.
    auto& programs = session->skeleton_->progs;
    auto& links = session->skeleton_->links;
    for (const auto& [program, link] :
         {std::pair{programs.on_exec, &links.on_exec}, std::pair{programs.on_exit, &links.on_exit},
          std::pair{programs.on_new_task, &links.on_new_task},
          std::pair{programs.on_cgroup_change, &links.on_cgroup_change},
          std::pair{programs.on_cgroup_made, &links.on_cgroup_made},
          std::pair{programs.on_cgroup_gone, &links.on_cgroup_gone}}) {
        if (!bpf_program__autoload(program)) continue;
        *link = bpf_program__attach(program);
        if (!*link) return log.explain(errno);
    }
    return session;
}

Result<void> Session::watch(const SessionOptions& options) {
    const mt_u32 is_wanted = 1;
    for (const std::string& name : options.program_names) {
        mt_program_name key{};
        name.copy(key.text, sizeof key.text - 1);
        if (bpf_map__update_elem(skeleton_->maps.program_names, &key, sizeof key, &is_wanted, sizeof is_wanted,
                                 BPF_ANY) != 0)
            return Error{"cannot wait for " + name, errno_text(errno)};
    }
    for (uint32_t index = 0; index < options.cgroups.size(); ++index)
        if (options.cgroups[index].fd >= 0)
            if (auto watched = watch_cgroup(index, options.cgroups[index]); !watched) return watched;
    return {};
}

Result<void> Session::watch_cgroup(uint32_t index, const CgroupHandle& cgroup) {
    if (index >= MT_MAX_CGROUPS ||
        bpf_map__update_elem(skeleton_->maps.cgroups, &index, sizeof index, &cgroup.fd, sizeof cgroup.fd, BPF_ANY) != 0)
        return Error{"cannot watch a control group", errno_text(errno)};
    skeleton_->bss->cgroup_ids[index] = cgroup.id;
    if (load(skeleton_->bss->watched_cgroups) <= index)
        __atomic_store_n(&skeleton_->bss->watched_cgroups, index + 1, __ATOMIC_RELEASE);
    return {};
}

Result<void> Session::map_tables() {
    auto owners = MappedArray<mt_owner>::map(bpf_map__fd(skeleton_->maps.owners), MT_MAX_OWNERS, "owners");
    if (!owners) return std::move(owners).error();
    auto sites = MappedArray<mt_site>::map(bpf_map__fd(skeleton_->maps.sites),
                                           bpf_map__max_entries(skeleton_->maps.sites), "sites");
    if (!sites) return std::move(sites).error();
    auto blocks = MappedArray<mt_bucket>::map(bpf_map__fd(skeleton_->maps.live_blocks),
                                              bpf_map__max_entries(skeleton_->maps.live_blocks), "live_blocks");
    if (!blocks) return std::move(blocks).error();
    tables_ = std::make_unique<Tables>(
        Tables{std::move(owners).value(), std::move(sites).value(), std::move(blocks).value()});
    auto unwind_tables = UnwindTables::map(UnwindMaps::of(*skeleton_), UnwindCapacity{});
    if (!unwind_tables) return std::move(unwind_tables).error();
    unwind_tables_ = std::move(unwind_tables).value();
    return {};
}

Result<void> Session::open_ring() {
    auto callback = [](void* context, void* data, size_t) {
        const auto& draining = *static_cast<const Draining*>(context);
        hand_over(*draining.sink, data);
        // Events that come while others are handed over have to wait, or a flood of them would never let go.
        constexpr int stop = -1;
        return static_cast<const mt_event*>(data)->time_ns > draining.began_ns ? stop : 0;
    };
    ring_.reset(ring_buffer__new(bpf_map__fd(skeleton_->maps.ring), callback, &draining_, nullptr));
    if (!ring_) return Error{"cannot open the ring buffer", errno_text(errno)};
    // No program is attached yet: there is only what touch_tables() left.
    ring_buffer__consume(ring_.get());
    return {};
}

RungPrograms Session::rung_programs() const {
    return {skeleton_->progs.on_call,           skeleton_->progs.on_return,
            skeleton_->progs.on_call_or_return, skeleton_->progs.on_return_instruction,
            skeleton_->progs.on_go_call,        skeleton_->progs.on_go_return};
}

Result<FileProbes> Session::attach(int file_fd, std::span<const ProbePoint> points, pid_t pid) {
    return FileProbes::attach(rung_, rung_programs(), *table_, file_fd, points, {.pid = pid, .cookie_bits = 0});
}

Result<FileProbes> Session::attach_for_all(int file_fd, std::span<const ProbePoint> points, uint32_t file_number) {
    const uint64_t cookie_bits = MT_COOKIE_SHARED | static_cast<uint64_t>(file_number) << MT_COOKIE_FILE_SHIFT;
    return FileProbes::attach(rung_, rung_programs(), *table_, file_fd, points, {.pid = 0, .cookie_bits = cookie_bits});
}

void Session::let_link_for_all_count(uint32_t file_number, bool counts) {
    __atomic_store_n(&skeleton_->bss->shared_files[file_number & (MT_MAX_PROBED_FILES - 1)], static_cast<mt_u8>(counts),
                     __ATOMIC_RELEASE);
}

void Session::arm_children_at_fork(bool is_wanted) {
    __atomic_store_n(&skeleton_->bss->arms_children, static_cast<mt_u32>(is_wanted), __ATOMIC_RELEASE);
}

Result<void> Session::add_target(pid_t pid, mt_target_state state, bool is_followed) {
    const mt_target target{.armed = static_cast<mt_u32>(state),
                           .owner = 0,
                           .flags = is_followed ? static_cast<mt_u32>(MT_TARGET_FOLLOWED) : 0,
                           .reserved = 0};
    if (bpf_map__update_elem(skeleton_->maps.targets, &pid, sizeof pid, &target, sizeof target, BPF_NOEXIST) == 0 ||
        errno == EEXIST)
        return {};
    return Error{"cannot make a process a target", errno_text(errno)};
}

bool Session::arm_target(pid_t pid, bool is_followed) {
    mt_target target{};
    if (bpf_map__lookup_elem(skeleton_->maps.targets, &pid, sizeof pid, &target, sizeof target, 0) != 0) return false;
    // One that is armed may have an owner by now, which must stay.
    if (target.armed != MT_TARGET_NOT_ARMED) return true;
    target.armed = MT_TARGET_ARMED;
    target.flags = is_followed ? static_cast<mt_u32>(MT_TARGET_FOLLOWED) : 0;
    return bpf_map__update_elem(skeleton_->maps.targets, &pid, sizeof pid, &target, sizeof target, BPF_EXIST) == 0;
}

void Session::arm_owner(uint32_t owner) {
    if (owner == 0 || owner >= MT_MAX_OWNERS) return;
    mt_owner& child = tables_->owners.values()[owner];
    // One that has ended meanwhile stays so.
    mt_u32 not_armed = 0;
    __atomic_compare_exchange_n(&child.flags, &not_armed, static_cast<mt_u32>(MT_OWNER_ARMED), false, __ATOMIC_ACQ_REL,
                                __ATOMIC_ACQUIRE);
}

uint32_t Session::remove_target(pid_t pid) {
    mt_target target{};
    const int targets_fd = bpf_map__fd(skeleton_->maps.targets);
    const bool is_known = bpf_map_lookup_elem(targets_fd, &pid, &target) == 0;
    bpf_map_delete_elem(targets_fd, &pid);
    if (!is_known || target.owner == 0 || target.owner >= MT_MAX_OWNERS) return 0;
    end_owner(target.owner);
    return target.owner;
}

Result<void> Session::add_unwind_table(const mt_file& file, const UnwindTable& table,
                                       std::span<const CodeSegment> segments) {
    return unwind_tables_->add(file, table, segments);
}

Result<void> Session::add_file_without_cfi(const mt_file& file) {
    return unwind_tables_->add_without_cfi(file);
}

void Session::remove_unwind_table(const mt_file& file) {
    unwind_tables_->remove(file);
}

void Session::forget_code(uint32_t owner) {
    if (owner >= MT_MAX_OWNERS) return;
    unwind_tables_->clear_cache(owner);
    __atomic_add_fetch(&tables_->owners.values()[owner].code_generation, 1, __ATOMIC_ACQ_REL);
}

void Session::set_sampling_mean(uint32_t mean_bytes) {
    __atomic_store_n(&skeleton_->bss->sampling_mean_bytes, mt_rounded_mean(mean_bytes), __ATOMIC_RELEASE);
}

uint32_t Session::sampling_mean() const {
    return load(skeleton_->bss->sampling_mean_bytes);
}

void Session::arm() {
    __atomic_store_n(&skeleton_->bss->is_armed, 1, __ATOMIC_RELEASE);
}

void Session::disarm() {
    __atomic_store_n(&skeleton_->bss->is_armed, 0, __ATOMIC_RELEASE);
    wait_for_programs();
}

void Session::wait_for_programs() const {
    // Probe programs run under RCU; MEMBARRIER_CMD_GLOBAL waits for a grace period (membarrier(2)).
    syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0);
}

Result<std::unique_ptr<ForkNotices>> Session::open_fork_notices(ForkNotices::Handler handler) const {
    return ForkNotices::open(bpf_map__fd(skeleton_->maps.fork_notices), std::move(handler));
}

int Session::event_fd() const {
    return ring_buffer__epoll_fd(ring_.get());
}

void Session::drain_events(EventSink& sink) {
    draining_ = {&sink, monotonic_now_ns()};
    if (ring_buffer__consume(ring_.get()) != 0) last_event_ns_ = monotonic_now_ns();
    draining_ = {};
}

Result<uint64_t> Session::see_system_calls() {
    const uint64_t before_ns = time_of_system_call_ns();
    auto probes = SystemCallProbes::attach(skeleton_->progs.on_system_call, skeleton_->progs.on_system_call_return);
    if (!probes) return std::move(probes).error();
    system_call_probes_ = std::make_unique<SystemCallProbes>(std::move(probes).value());
    const uint64_t after_ns = time_of_system_call_ns();
    return after_ns - std::min(after_ns, before_ns);
}

uint64_t Session::owners_not_recorded() const {
    return load(skeleton_->bss->owners_not_recorded);
}

}  // namespace memtrace
