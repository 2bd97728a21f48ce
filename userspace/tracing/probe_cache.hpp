// The probe points of each file, read once however many processes map it. Uses base, probes and processes.
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "probes/resolve.hpp"
#include "tracing/file_identity.hpp"

namespace memtrace {

/// What memtrace can do with one file.
struct ProbedFile {
    std::vector<ProbePoint> points;
    std::set<std::string> families;  // of the table
    bool has_heap = false;           // it defines functions of heap blocks, so it is an allocator's file
    bool has_collector = false;      // ... and these are of a garbage collector
    bool is_go = false;              // ... or it is a Go program
    bool has_malloc = false;         // ... and malloc itself: what other allocator functions do, it does by itself
    bool has_only_heap = false;      // ... and no mapping functions: its own mappings are the allocator's
    bool has_mappings = false;       // it defines functions that change mappings
    bool is_static = false;          // it is a program that loads no libraries
    /// Code that belongs to the allocator, as file offsets from and to: of a Go program its runtime.
    std::vector<std::pair<uint64_t, uint64_t>> allocator_code;
};

/// For one thread.
class ProbeCache {
  public:
    /// `table` must outlive the cache.
    explicit ProbeCache(const AllocatorTable& table) : table_(table) {}

    /// What the file behind `fd` offers; `name` stands for it in messages. A file that is no ELF file offers nothing.
    const ProbedFile& find(const FileIdentity& identity, int fd, const std::string& name);
    /// What a file that was found before offers; null if it was not.
    const ProbedFile* find_known(const FileIdentity& identity) const;
    /// Nobody has the file any more; its numbers may come to be another file's.
    void forget(const FileIdentity& identity) { files_.erase(identity); }

  private:
    ProbedFile probe_file(int fd, const std::string& name) const;

    const AllocatorTable& table_;
    std::map<FileIdentity, ProbedFile> files_;
};

}  // namespace memtrace
