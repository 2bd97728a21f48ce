// The probe points of each file, read once however many processes map it. Uses base, probes and processes.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "probes/resolve.hpp"
#include "tracing/file_identity.hpp"

namespace memtrace {

/// What memtrace can do with one file.
struct ProbedFile {
    std::vector<ProbePoint> points;
    std::vector<std::string> families;  // of the table, without repetition
    bool has_heap = false;              // it defines functions of heap blocks, so it is an allocator's file
};

/// For one thread.
class ProbeCache {
  public:
    /// What the file behind `fd` offers; `name` stands for it in messages. A file that is no ELF file offers nothing.
    const ProbedFile& find(const FileIdentity& identity, int fd, const std::string& name);
    /// What a file that was found before offers; null if it was not.
    const ProbedFile* find_known(const FileIdentity& identity) const;

  private:
    std::map<FileIdentity, ProbedFile> files_;
};

}  // namespace memtrace
