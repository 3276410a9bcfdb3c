// Fails or dies at the k-th write-side operation. A test runs an action once to count its
// operations, then once per k. Reads fail where the test says.
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
  /// The write-side operation, from 0, that meets the fault; -1: none. Counted are create_write,
  /// append, rewrite, sync, close, rename, exchange, remove, make_dir, sync_dir.
  int64_t at = -1;
  /// Half of an append's bytes still reach the file. Other operations do not happen at all.
  bool torn = false;
  /// Called at the fault, for example raise(SIGKILL) in a forked child. If it returns, or is empty
  /// with dies = true, the process counts as dead: every later call fails, reads too.
  std::function<void()> die;
  /// false: only this operation fails (as with a full disk), and the program goes on.
  bool dies = true;
  /// What the failing operation returns.
  Error error{ErrorKind::Environment, "no space left (injected)", "", ""};
  /// Asked before each read-side operation ("open PATH", "read PATH", "list PATH"): an error fails
  /// it (file_error.h makes those of a disk). Empty: none fails.
  std::function<std::optional<Error>(const std::string& operation)> reading = {};
  /// false: exchange() says that it is not supported, as network file systems do.
  bool can_exchange = true;
};

/// Thread-safe. `inner` must outlive it, and it must outlive the files opened through it.
class FaultyFiles final : public Files {
 public:
  FaultyFiles(Files& inner, Fault fault) : inner_(inner), fault_(std::move(fault)) {}

  /// What was done so far, in order ("rename A"): operation k is operations()[k].
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
  /// Counts a write-side operation. Error: the fault is here, or the process is dead.
  /// `before_death` runs first (the torn half).
  Status write_side(const std::string& what, const std::function<void()>& before_death = {});
  Status alive() const;
  /// Error: the process is dead, or the test fails this read-side operation.
  Status read_side(const std::string& what) const;

  Files& inner_;
  const Fault fault_;
  mutable std::mutex mutex_;
  std::vector<std::string> operations_;
  bool dead_ = false;
};

}  // namespace dsj
