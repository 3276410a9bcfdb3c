// The directory of one rank's scratch files on a volume: ROOT/dsj_JOB_ATTEMPT_RANK/. Held by a lock
// while its process lives, so that what dead attempts left can be told from what is in use.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/result.h"
#include "engine/aio/open.h"

namespace dsj::aio {

struct ScratchName {
  std::string job;  ///< letters, digits, '.', '-' are kept, anything else becomes '-'
  int64_t attempt = 1;
  int rank = 0;
};

class Scratch {
 public:
  /// Makes ROOT (only its last component may be missing) and the directory in it, and removes what
  /// earlier attempts of this job left, and nothing that another process holds. `key`: the
  /// ds_config key that named ROOT; errors carry it. BadInput: ROOT is no directory, or its parent
  /// is not there. Environment: not writable; the directory is in use by another process.
  static Result<std::unique_ptr<Scratch>> make(const std::string& root, const ScratchName& name,
                                               const std::string& key);
  /// Removes the files and the directory; ROOT too when make() made it and it is empty.
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  const std::string& path() const { return path_; }
  /// What make() did besides: "made ROOT", "removed DIRECTORY of a dead attempt".
  const std::vector<std::string>& notes() const { return notes_; }
  /// A new file in it; errors carry the key. The BlockFile must go before this object.
  Result<Created> create(const std::string& file, int64_t bytes, const Options& options,
                         const std::string& only = {}) const;

 private:
  Scratch() = default;
  void remove_dead(const ScratchName& name);

  std::string root_, path_, key_;
  bool made_root_ = false;
  int lock_ = -1;
  std::vector<std::string> notes_;
};

}  // namespace dsj::aio
