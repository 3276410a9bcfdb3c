// Files in memory of which some are hollow: they have a size, hold nothing, and read as zeros. For
// checkpoints that no memory could hold.
#pragma once

#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "common/files/memory_files.h"

namespace dsj::testing_support {

/// Hollow files are known by their names without directories: they move with them.
class HollowFiles final : public Files {
 public:
  void make_hollow(const std::string& name, int64_t bytes) { hollow_[name] = bytes; }

  Result<std::unique_ptr<ReadFile>> open_read(const std::string& path) override {
    const auto found = hollow_.find(path.substr(path.rfind('/') + 1));
    if (found == hollow_.end()) return memory_.open_read(path);
    return std::make_unique<Zeros>(found->second);
  }
  Result<std::unique_ptr<WriteFile>> create_write(const std::string& path) override {
    return memory_.create_write(path);
  }
  Status rename(const std::string& from, const std::string& to) override {
    return memory_.rename(from, to);
  }
  Result<bool> exchange(const std::string& a, const std::string& b) override {
    return memory_.exchange(a, b);
  }
  Status remove(const std::string& path) override { return memory_.remove(path); }
  Status make_dir(const std::string& path) override { return memory_.make_dir(path); }
  Result<std::vector<DirEntry>> list_dir(const std::string& path) override {
    return memory_.list_dir(path);
  }
  Result<EntryKind> kind(const std::string& path) override { return memory_.kind(path); }
  Status sync_dir(const std::string& path) override { return memory_.sync_dir(path); }

 private:
  class Zeros final : public ReadFile {
   public:
    explicit Zeros(int64_t bytes) : bytes_(bytes) {}
    Status read(int64_t offset, std::span<std::byte> out) const override {
      if (offset + int64_t(out.size()) > bytes_)
        return fail(ErrorKind::Environment, "the file ends earlier");
      std::memset(out.data(), 0, out.size());
      return {};
    }
    int64_t size() const override { return bytes_; }

   private:
    const int64_t bytes_;
  };

  MemoryFiles memory_;
  std::map<std::string, int64_t> hollow_;
};

}  // namespace dsj::testing_support
