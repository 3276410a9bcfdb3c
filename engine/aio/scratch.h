// The directory of one rank's scratch files on a volume: ROOT/dsj_JOB_ATTEMPT_RANK/. Its process
// holds a lock on it, so that leftovers of dead attempts can be told from directories in use.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/result.h"
#include "engine/aio/open.h"

namespace dsj::aio {

struct ScratchName {
  std::string job;  ///< letters, digits, '.' and '-' stay; all else becomes '-'
  int64_t attempt = 1;
  int rank = 0;
};

class Scratch {
 public:
  /// Makes ROOT (only its last component may be missing) and the directory in it. Removes what any
  /// other attempt of this job left, except what another process holds. (Attempts count from 1 again
  /// in a new output directory, so a leftover may be a later one's.) `key`: the ds_config key
  /// that named ROOT, for errors. BadInput: ROOT is not a directory, or its parent is missing.
  /// Environment: not writable, or another process uses the directory.
  static Result<std::unique_ptr<Scratch>> make(const std::string& root, const ScratchName& name,
                                               const std::string& key);
  /// Removes the files and the directory; ROOT too if make() made it and it is empty.
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  const std::string& path() const { return path_; }
  /// What else make() did: "made ROOT".
  const std::vector<std::string>& notes() const { return notes_; }
  /// The leftovers that it removed: "removed DIRECTORY, left by a process that is dead".
  const std::vector<std::string>& warnings() const { return warnings_; }
  /// Makes a new file in it. Errors carry the key. Destroy the BlockFile before this object.
  Result<Created> create(const std::string& file, int64_t bytes, const Options& options,
                         const std::string& only = {}) const;

 private:
  Scratch() = default;
  void remove_dead(const ScratchName& name);
  enum class Held { Yes, Removed, ByAnother };
  /// Makes the directory and takes its lock. Removed: by another process meanwhile.
  Result<Held> hold();

  std::string root_, path_, key_;
  bool made_root_ = false;
  int lock_ = -1;
  std::vector<std::string> notes_, warnings_;
};

}  // namespace dsj::aio
