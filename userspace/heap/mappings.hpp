// Which call site owns which bytes of which address space, to the byte: interval arithmetic over the mapping events of
// the kernel side. Pure; uses include/ and snapshot.hpp only. Invariant per address space and per call site:
// mapped - unmapped = live, after every event.
#pragma once

#include <cstdint>
#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

#include "heap/snapshot.hpp"
#include "memtrace/mapping_abi.h"

namespace memtrace {

/// For whom a mapping was made.
enum class MappingUse : uint8_t {
    program,
    stack,      // of a thread: MAP_STACK
    allocator,  // inside a call of an allocator's function: in no sum, and no call site's
};

/// What a mapping shows.
enum class MappingBacking : uint8_t {
    anonymous,
    file,    // a private copy of a file
    shared,  // MAP_SHARED, of a file or not, and System V segments
};

/// Parts of live bytes that are told apart; a byte may be in several.
struct MappingParts {
    uint64_t reserved_bytes = 0;  // PROT_NONE, or MAP_NORESERVE and not made accessible by mprotect since
    uint64_t file_bytes = 0;      // private mappings of files
    uint64_t shared_bytes = 0;
    uint64_t stack_bytes = 0;  // of threads

    MappingParts& operator+=(const MappingParts& other);
    MappingParts& operator-=(const MappingParts& other);
};

/// Sums of one address space, in bytes of whole pages. `live_count` counts the mappings that still own at least one
/// byte; `mapped_bytes` grows with mmap and with what mremap adds; what an address space held at its end is unmapped.
struct MappingTotals {
    uint64_t live_bytes = 0;
    uint64_t live_count = 0;
    uint64_t mapped_bytes = 0;
    uint64_t unmapped_bytes = 0;
    uint64_t inherited_bytes = 0;  // of mappings that fork copied and that are still there; in no other figure
    uint64_t discarded_bytes = 0;  // whose pages madvise gave back so far; they are mapped all the same
    MappingParts parts;            // of live_bytes
    uint64_t unknown_unmaps = 0;   // munmap calls of the program that named bytes which no one is known to own

    MappingTotals& operator+=(const MappingTotals& other);
};

/// What a shared mapping shows, as /proc/PID/maps has it: the same in every process (a file, memfd, shared memory, what
/// MAP_SHARED | MAP_ANONYMOUS made).
struct SharedMapping {
    uint64_t device = 0;
    uint64_t inode = 0;
    uint64_t offset = 0;  // of its first byte

    bool is_known() const { return inode != 0; }
};

/// How the mappings of a call site count in several processes together, against the sum of each by itself.
struct MappingCorrection {
    uint32_t site = 0;
    uint64_t twice_bytes = 0;  // counted by another site of theirs as well
    uint64_t twice_count = 0;  // mappings of which nothing else is left
    uint64_t held_bytes = 0;   // that only an inheritor still has
    uint64_t held_count = 0;
    MappingParts twice;  // of twice_bytes; reservations are not looked at
    MappingParts held;
};

/// A range of an address space of which is known for whom it was mapped.
struct KnownRange {
    uint64_t start = 0;
    uint64_t end = 0;
    MappingUse use = MappingUse::program;
    MappingBacking backing = MappingBacking::anonymous;
};

/// A range that the kernel says is mapped.
struct MappedRange {
    uint64_t start = 0;
    uint64_t end = 0;
    MappingBacking backing = MappingBacking::anonymous;
};

/// Applies mapping events in the order of the ring buffer. A mapping is what one successful mmap made, or what one
/// mremap added; it lives while it owns a byte. Not thread-safe.
class MappingLedger {
  public:
    /// Applies one event (struct mt_mapping_event; others are ignored). Sizes are rounded up to whole pages, with
    /// MAP_HUGETLB to whole huge pages, as mmap(2) does. With `caller_is_allocator` the new range is the allocator's
    /// and belongs to no call site, and unmapping unknown bytes is not counted. `shared` is known for what was mapped
    /// with MAP_SHARED.
    void apply(const mt_mapping_event& event, bool caller_is_allocator, const SharedMapping& shared = {});

    /// `child` is a copy of `parent`: it holds the same mappings, as inherited ones. What it unmaps of them is gone for
    /// the child alone.
    void fork(uint32_t parent, uint32_t child);

    /// Events were lost: what is known and not in `mapped`, which is all that the address space has now, by address, is
    /// unmapped. What was mapped meanwhile stays unknown. Returns the bytes that are gone.
    uint64_t resync(uint32_t owner, const std::vector<MappedRange>& mapped);
    /// What is known of the address space now, by address; what fork copied too.
    std::vector<KnownRange> ranges(uint32_t owner) const;
    /// Ranges of before the attach, of which an unmapping has shown whose they were; in the order of the unmappings.
    const std::vector<KnownRange>& earlier_ranges(uint32_t owner) const;

    /// Everything that the owner still holds is unmapped: the address space has ended and its last report is out.
    void end_owner(uint32_t owner);

    /// Nothing is asked for any more of an ended address space nor of its call sites: their numbers are given again.
    void forget_owner(uint32_t owner) { spaces_.erase(owner); }
    void forget_site(uint32_t site) {
        sites_.erase(site);
        site_parts_.erase(site);
    }

    /// Sums of one address space; zeros for one that never mapped. They outlive end_owner().
    MappingTotals totals(uint32_t owner) const;
    /// Sums of one call site: bytes, and mappings as blocks. They outlive end_owner().
    SiteTotals site_totals(uint32_t site) const;
    /// Parts of a call site's live bytes.
    MappingParts site_parts(uint32_t site) const;
    /// Whether corrections() can say anything at all.
    bool has_shared() const { return has_shared_; }
    /// What is to be corrected where the address spaces `owners` are taken together: each byte of a shared mapping, and
    /// of one that fork copied, counts once as long as one of them has it.
    std::vector<MappingCorrection> corrections(const std::vector<uint32_t>& owners) const;
    /// Every live mapping, as a block at its lowest address; its size is the bytes that it still owns.
    std::vector<Block> live_mappings() const;
    /// Every call site that ever owned a mapping, with its sums.
    const std::unordered_map<uint32_t, SiteTotals>& sites() const { return sites_; }

  private:
    struct Mapping {
        uint32_t site = 0;
        uint64_t birth_ns = 0;
        uint64_t object = 0;  // what it shows; fork and MAP_SHARED make several mappings of one
        MappingUse use = MappingUse::program;
        MappingBacking backing = MappingBacking::anonymous;
        bool is_inherited = false;
        uint64_t live_bytes = 0;

        /// Its bytes are in the sums of the address space and of its call site.
        bool is_counted() const { return !is_inherited && use != MappingUse::allocator; }
    };
    struct Piece {
        uint64_t end = 0;
        uint64_t mapping = 0;  // key of Space::mappings
        uint64_t offset = 0;   // of its first byte in the object
        bool is_reserved = false;
    };
    struct TakenPiece {
        uint64_t start = 0;
        uint64_t end = 0;
        uint64_t mapping = 0;
        uint64_t offset = 0;
        bool is_reserved = false;
        Mapping origin;  // without live_bytes
    };
    /// Where new bytes come from.
    struct Source {
        uint32_t site = 0;
        uint64_t birth_ns = 0;
        uint64_t object = 0;
        uint64_t offset = 0;
        MappingUse use = MappingUse::program;
        MappingBacking backing = MappingBacking::anonymous;
        bool is_reserved = false;
    };
    /// Bytes of an object that an address space has.
    struct Held {
        uint64_t offset = 0;
        uint64_t end = 0;
        uint64_t mapping = 0;
        const Mapping* of = nullptr;
    };
    // What munmap or mremap took at entry, until the same thread says how the call ended.
    struct Call {
        uint32_t type = MT_EVENT_NONE;
        uint64_t time_ns = 0;
        bool was_unknown = false;
        std::vector<TakenPiece> pieces;
    };
    struct Space {
        std::map<uint64_t, Piece> pieces;  // by start; disjoint
        std::unordered_map<uint64_t, Mapping> mappings;
        std::unordered_map<uint32_t, Call> calls;  // by tid
        std::vector<KnownRange> earlier;           // unmapped without being known
        MappingTotals totals;
    };

    void map(Space& space, const mt_mapping_event& event, bool caller_is_allocator, const SharedMapping& shared);
    uint64_t object_of(const SharedMapping& shared);
    void begin_unmap(Space& space, const mt_mapping_event& event, bool caller_is_allocator);
    void begin_detach(Space& space, const mt_mapping_event& event);
    void undo_unmap(Space& space, const Call& call);
    void protect(Space& space, const mt_mapping_event& event);
    static void join_pieces(Space& space, uint64_t start, uint64_t end);
    static void discard(Space& space, const mt_mapping_event& event);
    void begin_remap(Space& space, const mt_mapping_event& event);
    void finish_remap(Space& space, const mt_mapping_event& event, const Call& call, bool caller_is_allocator);
    void undo_remap(Space& space, const Call& call);

    void add_mapping(Space& space, uint64_t start, uint64_t end, const Source& source);
    void move_pieces(Space& space, const std::vector<TakenPiece>& pieces, uint64_t from, uint64_t to,
                     uint64_t size_bytes);
    void unmap(Space& space, const std::vector<TakenPiece>& pieces);
    void count_unmapped(Space& space, const TakenPiece& piece, uint64_t size_bytes);
    void uncount_unmapped(Space& space, const TakenPiece& piece, uint64_t size_bytes);
    static MappingParts parts_of(const Mapping& mapping, bool is_reserved, uint64_t size_bytes);
    static std::vector<TakenPiece> cut(Space& space, uint64_t start, uint64_t end);
    static uint64_t fill(Space& space, const TakenPiece& piece);
    static void forget_old_unmaps(Space& space, uint64_t now_ns);

    std::unordered_map<uint32_t, Space> spaces_;  // by owner
    std::unordered_map<uint32_t, SiteTotals> sites_;
    std::unordered_map<uint32_t, MappingParts> site_parts_;
    std::map<std::pair<uint64_t, uint64_t>, uint64_t> shared_objects_;  // by device and inode
    uint64_t last_mapping_ = 0;
    uint64_t last_object_ = 0;
    bool has_shared_ = false;  // an object may have several mappings
};

}  // namespace memtrace
