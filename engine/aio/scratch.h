// The directory of a rank's scratch files on a volume: ROOT/dsj_JOB_ATTEMPT_RANK/. The process
// holds a lock on it, which distinguishes leftovers of dead attempts from directories in use.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/result.h"
#include "engine/aio/open.h"

namespace dsj::aio {

struct ScratchName {
  std::string job;  ///< characters other than letters, digits and '.' become '-'
  int64_t attempt = 1;
  int rank = 0;
};

class Scratch {
 public:
  /// Makes ROOT (only its last component may be missing) and the directory in it. Removes
  /// directories of all other attempts of this job, unless another process holds their lock.
  /// (Attempts count from 1 again in a new output directory, so a leftover may have a larger
  /// number.) `key`: the ds_config key of ROOT, for errors. BadInput: ROOT is not a directory, or
  /// has no parent. Environment: not writable, or another process uses the directory.
  static Result<std::unique_ptr<Scratch>> make(const std::string& root, const ScratchName& name,
                                               const std::string& key);
  /// Removes the files and the directory; ROOT too if make() made it and it is empty.
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  const std::string& path() const { return path_; }
  /// Other actions of make(): "made ROOT".
  const std::vector<std::string>& notes() const { return notes_; }
  /// The removed leftovers: "removed DIRECTORY, left by a process that is dead".
  const std::vector<std::string>& warnings() const { return warnings_; }
  /// Makes a new file in it. Errors name the key. Destroy the BlockFile before this object.
  Result<Created> create(const std::string& file, int64_t bytes, const Options& options,
                         const std::string& only = {}) const;

 private:
  Scratch() = default;
  void remove_dead(const ScratchName& name);
  enum class Held { Yes, Removed, ByAnother };
  /// Makes the directory and takes its lock. Removed: another process removed it meanwhile.
  Result<Held> hold();

  std::string root_, path_, key_;
  bool made_root_ = false;
  int lock_ = -1;
  std::vector<std::string> notes_, warnings_;
};

}  // namespace dsj::aio
