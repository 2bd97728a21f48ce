// What the kernel side tells while it runs: the slow streams of the ring buffer.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "memtrace/abi.h"
#include "memtrace/mapping_abi.h"

namespace memtrace {

/// Receives the events of a session in the order in which they were put into the ring. The events live only during the
/// call.
class EventSink {
  public:
    virtual ~EventSink() = default;
    /// A new call site and its return addresses, the allocation's caller first.
    virtual void on_site(const mt_event& event, uint32_t site, std::span<const uint64_t> return_addresses) = 0;
    virtual void on_mapping(const mt_mapping_event& event) = 0;
    virtual void on_block(const mt_block_event& event) = 0;
    /// A new call site, of one allocation, whose stack the kernel side did not walk to its end.
    virtual void on_raw_stack(const mt_raw_stack_event& event) { (void)event; }
    /// The walk met a file without an unwind table; until it is answered, stacks that meet it come raw.
    virtual void on_file(const mt_file_event& event) { (void)event; }
    virtual void on_process(const mt_process_event& event) = 0;
    /// A control group was made or is gone; only where some are watched. `path` is that in its hierarchy.
    virtual void on_cgroup(const mt_event& event, std::string_view path) { (void)event, (void)path; }
};

}  // namespace memtrace
