#include "unwind/walk_probe.hpp"

#include <bpf/libbpf.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "base/fd.hpp"
#include "bench_walk.skel.h"
#include "processes/loaded_files.hpp"
#include "tracing/unwind_table_loader.hpp"

namespace memtrace {

void WalkProbe::SkeletonDeleter::operator()(bench_walk_bpf* skeleton) const {
    bench_walk_bpf__destroy(skeleton);
}

WalkProbe::~WalkProbe() {
    detach();
}

Result<std::unique_ptr<WalkProbe>> WalkProbe::load() {
    std::unique_ptr<WalkProbe> probe(new WalkProbe(bench_walk_bpf__open()));
    if (!probe->skeleton_) return Error{"cannot open the walks", errno_text(errno)};
    UnwindTables::configure(UnwindMaps::of(*probe->skeleton_), UnwindCapacity{});
    bpf_map__set_max_entries(probe->skeleton_->maps.sites_by_key, 1u << 17);
    if (const int error = bench_walk_bpf__load(probe->skeleton_.get()); error != 0)
        return Error{"cannot load the walks", errno_text(-error), "run as root", ExitStatus::not_privileged};
    auto tables = UnwindTables::map(UnwindMaps::of(*probe->skeleton_), UnwindCapacity{});
    if (!tables) return tables.error();
    probe->tables_ = std::move(tables).value();
    return probe;
}

Result<void> WalkProbe::add_tables_of(const std::string& path) {
    const auto files = files_loaded_by(path, environ);
    if (!files) return files.error();
    for (const std::string& file : *files) {
        const Fd fd(open(file.c_str(), O_RDONLY | O_CLOEXEC));
        const auto identity = identity_of_open_file(fd.get());
        const auto table = build_unwind_table(fd.get(), -1, UnwindRows::call_sites);
        const auto image = ElfImage::open(fd.get());
        if (!identity || !table || !image) return Error{file, "has no unwind table"};
        if (auto added = tables_->add(file_in_kernel(*identity), *table, image->code_segments()); !added) return added;
    }
    return {};
}

Result<void> WalkProbe::attach(pid_t pid, uint32_t kinds) {
    Dl_info library{};
    if (dladdr(reinterpret_cast<void*>(&getppid), &library) == 0)
        return Error{"cannot find the C library", "this program is linked statically"};
    skeleton_->bss->walks = skeleton_->bss->walks_broken = 0;
    skeleton_->data->kinds = kinds;
    tables_->clear_cache(1);
    clear();
    bpf_uprobe_opts options{};
    options.sz = sizeof options;
    options.func_name = "malloc";
    link_ = bpf_program__attach_uprobe_opts(skeleton_->progs.on_malloc, pid, library.dli_fname, 0, &options);
    if (!link_) return Error{"cannot attach the walks", errno_text(errno)};
    return {};
}

void WalkProbe::detach() {
    if (link_ != nullptr) bpf_link__destroy(link_);
    link_ = nullptr;
}

void WalkProbe::clear() {
    for (auto& of_kind : skeleton_->bss->walk_samples)
        for (auto& sample : of_kind)
            sample = {};
}

std::vector<walk_sample> WalkProbe::samples(walk_kind kind) const {
    std::vector<walk_sample> found;
    for (const auto& sample : skeleton_->bss->walk_samples[kind])
        if (sample.duration_ns != 0) found.push_back({sample.duration_ns, sample.frame_count});
    return found;
}

uint64_t WalkProbe::walks() const {
    return skeleton_->bss->walks;
}

uint64_t WalkProbe::walks_broken() const {
    return skeleton_->bss->walks_broken;
}

}  // namespace memtrace
