// Fails or dies at the k-th write-side operation. A test runs an action once to count its
// operations, then once per k. Reads fail where the test chooses.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "common/files/files.h"

namespace dsj {

struct Fault {
  /// The write-side operation, from 0, with the fault; -1: none. These are create_write, append,
  /// rewrite, sync, close, rename, exchange, remove, make_dir, sync_dir.
  int64_t at = -1;
  /// The first half of an append's bytes still reaches the file. Other operations have no effect.
  bool torn = false;
  /// Called at the fault, for example raise(SIGKILL) in a forked child. If it returns, or is empty
  /// with dies = true, the process counts as dead: every later call fails, also reads.
  std::function<void()> die;
  /// false: only this operation fails (as with a full disk), and the program continues.
  bool dies = true;
  /// The error of the failing operation.
  Error error{ErrorKind::Environment, "no space left (injected)", "", ""};
  /// Called before each read-side operation ("open PATH", "read PATH", "list PATH"). If it returns
  /// an error, the operation fails with it (file_error.h makes those of a disk).
  std::function<std::optional<Error>(const std::string& operation)> reading = {};
  /// false: exchange() is not supported, as on network file systems.
  bool can_exchange = true;
};

/// Thread-safe. `inner` must outlive it, and it must outlive the files opened through it.
class FaultyFiles final : public Files {
 public:
  FaultyFiles(Files& inner, Fault fault) : inner_(inner), fault_(std::move(fault)) {}

  /// The operations so far, in order ("rename A"): operation k is operations()[k].
  std::vector<std::string> operations() const;

  Result<std::unique_ptr<ReadFile>> open_read(const std::string& path) override;
  Result<std::unique_ptr<WriteFile>> create_write(const std::string& path) override;
  Status rename(const std::string& from, const std::string& to) override;
  Result<bool> exchange(const std::string& a, const std::string& b) override;
  Status remove(const std::string& path) override;
  Status make_dir(const std::string& path) override;
  Result<std::vector<DirEntry>> list_dir(const std::string& path) override;
  Result<EntryKind> kind(const std::string& path) override;
  Status sync_dir(const std::string& path) override;

 private:
  friend class FaultyWriteFile;
  friend class FaultyReadFile;
  /// Counts a write-side operation. Errors: if it has the fault, or the process is dead.
  /// `before_death` runs first (the torn half).
  Status write_side(const std::string& what, const std::function<void()>& before_death = {});
  Status alive() const;
  /// Errors: if the process is dead, or the test fails this read-side operation.
  Status read_side(const std::string& what) const;

  Files& inner_;
  const Fault fault_;
  mutable std::mutex mutex_;
  std::vector<std::string> operations_;
  bool dead_ = false;
};

}  // namespace dsj
