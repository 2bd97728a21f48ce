// The unwind tables in the kernel: one a file for the whole machine, in three arrays that the programs read.
// For Session, and for the bench's own programs.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "base/result.hpp"
#include "kernel/map_view.hpp"
#include "kernel/region_allocator.hpp"
#include "memtrace/abi.h"
#include "memtrace/unwind_abi.h"
#include "unwind/elf_image.hpp"
#include "unwind/unwind_table.hpp"

struct bpf_map;

namespace memtrace {

/// Room for tables: rows take 4 bytes, of which code needs 1 to 13 KB a megabyte (../research: 157,000 rows are a whole
/// compiler with its libraries).
struct UnwindCapacity {
    uint32_t rows = 1u << 21;
    uint32_t pages = 1u << 18;  // of 4 KB of code
    uint32_t rules = 1u << 14;
};

/// The maps of bpf/unwind.h in an object of BPF programs, which owns them.
struct UnwindMaps {
    bpf_map* files;
    bpf_map* rows;
    bpf_map* pages;
    bpf_map* rules;
    bpf_map* pc_caches;

    template <typename Skeleton>
    static UnwindMaps of(const Skeleton& skeleton) {
        const auto& maps = skeleton.maps;
        return {maps.unwind_files, maps.unwind_rows, maps.unwind_pages, maps.unwind_rules, maps.pc_caches};
    }
};

class UnwindTables {
  public:
    /// Sizes the maps; before the load.
    static void configure(const UnwindMaps& maps, const UnwindCapacity& capacity);
    /// After the load.
    static Result<std::unique_ptr<UnwindTables>> map(const UnwindMaps& maps, const UnwindCapacity& capacity);

    /// Loads the table of `file`, whose executable segments are `segments`. No room: the Error says so, and the file's
    /// code is walked by frame pointer.
    Result<void> add(const mt_file& file, const UnwindTable& table, std::span<const CodeSegment> segments);
    /// The file has no usable CFI.
    Result<void> add_without_cfi(const mt_file& file);
    /// Nobody maps `file` any more: its room is free. Waits until no program can be reading it.
    void remove(const mt_file& file);
    /// What `owner` has cached is stale.
    void clear_cache(uint32_t owner);

  private:
    struct Range {
        uint32_t first = 0;
        uint32_t count = 0;
    };
    /// Where a table is.
    struct Place {
        Range rows;
        Range pages;
        Range rules;
    };
    /// An array in the kernel and what of it is in use.
    template <typename Value>
    struct Store {
        explicit Store(MappedArray<Value> array)
            : values(std::move(array)), regions(static_cast<uint32_t>(values.values().size())) {}
        MappedArray<Value> values;
        RegionAllocator regions;
    };

    UnwindTables(int files_fd, MappedArray<uint32_t> rows, MappedArray<uint32_t> pages,
                 MappedArray<mt_unwind_rule> rules, MappedArray<uint64_t> pc_words)
        : files_fd_(files_fd),
          rows_(std::move(rows)),
          pages_(std::move(pages)),
          rules_(std::move(rules)),
          pc_words_(std::move(pc_words)) {}
    std::optional<Place> take_place(const UnwindTable& table);
    void give_back(const Place& place);
    Result<void> publish(const mt_file& file, const mt_unwind_file& value);

    int files_fd_;
    Store<uint32_t> rows_;
    Store<uint32_t> pages_;
    Store<mt_unwind_rule> rules_;
    MappedArray<uint64_t> pc_words_;
    std::map<std::pair<uint64_t, uint64_t>, Place> places_;  // by device and inode of mt_file
};

}  // namespace memtrace
