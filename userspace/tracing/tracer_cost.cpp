// What tracing costs, and its end without an end of the session.
#include "probes/allocator_table.hpp"
#include "tracing/tracer.hpp"

namespace memtrace {

HitKinds TargetProbes::hit_kinds() const {
    HitKinds kinds;
    bool is_replacement_seen = false;
    for (const ProbedFile* file : links_.probed_files()) {
        if (!file->has_malloc || is_replacement_seen) continue;
        is_replacement_seen = !file->families.contains("libc");
        for (const ProbePoint& point : file->points) {
            if (point.kind != PointKind::entry) continue;
            const std::string_view name = table_[point.row].name;
            if (name == "malloc") kinds.is_allocation_emulated = point.placement.is_emulated;
            if (name == "free") kinds.is_free_emulated = point.placement.is_emulated;
        }
    }
    return kinds;
}

void Tracer::detach() {
    session_->disarm();
    targets_.probes().detach();
}

}  // namespace memtrace
