// A file system in memory: a full fake of PosixFiles with a power-loss model.
//
// The model: content is durable up to the last WriteFile::sync, names (create, rename, remove ...)
// after sync_dir of their directory. Of the rest, power_loss() keeps what a real disk may keep:
// some more bytes of a file, maybe zeros, and a prefix of the changes of names, either of all (as
// with a journal) or per directory (without one). The seed decides. No links, no modes.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "common/files/files.h"

namespace dsj {

/// Thread-safe. "/" and "." exist from the start. An open file is still usable after its removal.
class MemoryFiles final : public Files {
 public:
  MemoryFiles();

  /// Changes the content to what a machine finds after a power loss. Files that are open for
  /// writing must not be used afterwards.
  void power_loss(uint64_t seed);

  Result<std::unique_ptr<ReadFile>> open_read(const std::string& path) override;
  Result<std::unique_ptr<WriteFile>> create_write(const std::string& path) override;
  Status rename(const std::string& from, const std::string& to) override;
  Result<bool> exchange(const std::string& a, const std::string& b) override;
  Status remove(const std::string& path) override;
  Status make_dir(const std::string& path) override;
  Result<std::vector<DirEntry>> list_dir(const std::string& path) override;
  Result<EntryKind> kind(const std::string& path) override;
  Status sync_dir(const std::string& path) override;

  struct Node {
    EntryKind kind = EntryKind::File;
    std::vector<std::byte> data;
    size_t durable_bytes = 0;
  };
  using Tree = std::map<std::string, std::shared_ptr<Node>>;
  struct Change {
    enum class Kind { Put, Remove, Rename, Exchange } kind;
    std::string a, b;
    std::shared_ptr<Node> node;
  };

 private:
  /// Applies a change to the live tree and appends it to the log.
  void change(Change change);
  std::shared_ptr<Node> find(const std::string& path) const;
  Tree names_after_power_loss(uint64_t seed) const;
  bool is_empty_dir(const std::string& path) const;
  Status need_parent(const std::string& path) const;

  std::shared_ptr<std::mutex> mutex_;  ///< shared with the open files
  Tree live_, durable_base_;
  std::vector<Change> log_;                   ///< since durable_base_
  size_t durable_changes_ = 0;                ///< the prefix of log_ that a journal made durable
  std::map<std::string, size_t> durable_in_;  ///< the same, per directory
};

}  // namespace dsj
