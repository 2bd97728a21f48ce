// A setting of the kernel below /proc/sys that a test changes; it is what it was again when the object goes.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

#include "e2e/temporary_directory.hpp"

namespace memtrace::e2e {

class KernelSetting {
  public:
    /// `path` must exist.
    explicit KernelSetting(std::filesystem::path path) : path_(std::move(path)), before_(file_text(path_)) {}
    ~KernelSetting() { set(before_); }
    KernelSetting(const KernelSetting&) = delete;
    KernelSetting& operator=(const KernelSetting&) = delete;

    /// What it was at first.
    const std::string& before() const { return before_; }
    void set(const std::string& value) const { std::ofstream(path_) << value << std::flush; }

  private:
    std::filesystem::path path_;
    std::string before_;
};

}  // namespace memtrace::e2e
