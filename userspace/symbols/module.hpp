// A mapped file that memtrace keeps open, so that it can be named after its process, or its path, is gone. Uses base,
// processes and libelf. Modules live as long as their ModuleCache: a Module pointer stays valid as long as that.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/fd.hpp"
#include "processes/mappings.hpp"
#include "symbols/file_root.hpp"

namespace memtrace {

/// One loadable segment (PT_LOAD) of an ELF file.
struct Segment {
    uint64_t file_offset = 0;
    uint64_t file_size_bytes = 0;
    uint64_t virtual_address = 0;
};

/// A mapped file, or what stands in for one ("[vdso]", "[anon]", a file that could not be opened).
class Module {
  public:
    /// `path` as the process sees it, below `root` (null: memtrace's own); `fd` may be none: then it has a name and
    /// nothing else.
    Module(std::string path, Fd fd, std::shared_ptr<const FileRoot> root = nullptr);

    const std::string& path() const { return path_; }
    /// Printable base name, "[vdso]", "[anon]".
    const std::string& name() const { return name_; }
    /// Of the file, owned by the module; -1 when there is none.
    int fd() const { return fd_.get(); }
    /// In which path() is, and files that belong to this one.
    const FileRoot& root() const { return root_ ? *root_ : FileRoot::own(); }
    bool is_elf() const { return !segments_.empty(); }
    /// True for code that no file holds as code: anonymous memory, or a file that is no ELF file.
    bool is_jit() const;
    /// Raw bytes; empty where the file has none.
    const std::string& build_id() const { return build_id_; }
    /// What names the file on every host: build-id, or SHA-256 of the content where there is none; none without an ELF
    /// file. Reads the whole file on first use in the latter case.
    const std::optional<std::string>& identity() const;
    /// By PT_LOAD; none when no segment holds it.
    std::optional<uint64_t> virtual_address(uint64_t file_offset) const;
    std::optional<uint64_t> file_offset(uint64_t virtual_address) const;

  private:
    void read_elf();

    std::string path_;
    std::string name_;
    Fd fd_;
    std::shared_ptr<const FileRoot> root_;
    std::vector<Segment> segments_;
    std::string build_id_;
    mutable std::optional<std::optional<std::string>> identity_;
};

/// Opens each mapped file once and keeps it. For one thread.
class ModuleCache {
  public:
    /// The module behind `mapping` of `pid`, opened now unless it is known. Never null: a file that cannot be opened
    /// gives a module with a name only, and counts in open_failures(); it is tried again for the next mapping.
    const Module* module_of(pid_t pid, const Mapping& mapping);
    /// Mappings whose file could not be opened; their stacks have no names.
    uint64_t open_failures() const { return open_failures_; }

  private:
    const Module* named(const std::string& path);
    const Module* opened(pid_t pid, const std::string& path, Fd fd);

    // A module holds its file open, so that no key can come to mean another file. Both are needed: stat() may give
    // another device and inode than the mapping has (overlay), and file systems with subvolumes share numbers.
    using MappingKey = std::tuple<uint64_t, uint64_t, std::string>;  // device, inode, path of the mapping
    using FileKey = std::pair<uint64_t, uint64_t>;                   // device, inode as stat() gives them
    FileRoots roots_;
    std::vector<std::unique_ptr<Module>> modules_;
    std::map<MappingKey, const Module*> by_mapping_;
    std::map<FileKey, const Module*> by_file_;
    std::map<std::string, const Module*> by_name_;
    uint64_t open_failures_ = 0;
};

}  // namespace memtrace
