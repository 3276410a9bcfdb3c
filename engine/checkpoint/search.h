// Finds the checkpoint of a directory with which a run resumes. Called by engine/train.
// Tested by: tests/engine/checkpoint/checkpoint_test.cc, tests/engine/checkpoint/search_test.cc
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "common/files/files.h"
#include "common/result.h"
#include "engine/checkpoint/reader.h"
#include "engine/checkpoint/retention.h"

namespace dsj::checkpoint {

/// The checkpoints of a directory, tried from the newest (see retention.h) to the oldest. Damaged
/// ones (damage.h) are skipped. One that may be newer but is not known to be damaged (its manifest
/// could not be read for another reason, or is of a later version) ends the search.
///
/// With several ranks: begin() on each, then pass each rank's problem()s to all ranks by reject(),
/// then settle(). After that all have the same list, and can agree on an index.
class Search {
 public:
  /// Lists the checkpoints by name. There may be none, and the directory may be missing.
  /// Error: the directory cannot be read.
  static Result<Search> begin(Files& files, const std::string& checkpoints_dir);

  int count() const { return static_cast<int>(candidates_.size()); }
  /// A 32-bit hash of all names, to compare ranks' directories. Call it before settle().
  uint32_t fingerprint() const;
  /// Drops those whose run state is refused; keeps those with a problem. Call before settle().
  void keep(const std::function<bool(const nlohmann::json& run_state)>& wanted);
  /// Whether there is one without a problem.
  bool any_readable() const;
  /// Sorts the newest to the front. Call it once, before open().
  void settle();
  /// Opens the first sound one from `index` on, skips those before it, and returns its index, or
  /// count() if there is none. Error: one with a problem that is not damage.
  Result<int> open(int index);
  /// The checkpoint of the last open(). Precondition: it returned less than count().
  Reader& reader() { return *reader_; }
  /// The known problem of `index`, if any.
  std::optional<Error> problem(int index) const { return candidates_[size_t(index)].problem; }
  /// Records a problem, found while it was read or by another rank.
  void reject(int index, const Error& problem) { candidates_[size_t(index)].problem = problem; }

  struct Passed {
    std::string name;  ///< in the checkpoints directory
    int64_t step = 0;
    Error problem;  ///< `where`: the file
  };
  /// The damaged ones that may be newer than the open one.
  std::vector<Passed> passed_over() const;
  /// The error that none is left: Environment, naming the newest one. Precondition: there are
  /// checkpoints, and all were skipped.
  Error nothing_left() const;

 private:
  Files* files_ = nullptr;
  std::string directory_;
  std::vector<Candidate> candidates_;
  int open_ = 0;
  std::optional<Reader> reader_;
};

struct Newest {
  std::optional<Reader> reader;       ///< unset if there is no checkpoint
  std::vector<std::string> warnings;  ///< skipped newer checkpoints, with reasons
};

/// The newest checkpoint with all parts. Skips damaged ones with a warning if there is an older
/// sound one; if none is sound, the error names the damaged file. There may be no checkpoint, and
/// no directory. For a single process.
Result<Newest> newest(Files& files, const std::string& checkpoints_dir);

}  // namespace dsj::checkpoint
