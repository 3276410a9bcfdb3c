// Which checkpoint of a directory a run goes on from. Called by engine/train.
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

/// The checkpoints of a directory, to be tried from the newest (retention.h defines newest) to the
/// oldest. Damaged ones (damage.h) are passed over. One that may be newer and cannot be judged (its
/// manifest could not be read for another reason, or is of a later version) ends the search.
///
/// For several ranks: begin() on each, then tell every rank each problem() that one has, by
/// reject(), then settle(). From there on all have the same list, and can agree on an index.
class Search {
 public:
  /// Lists the checkpoints in the order of their names. There need not be one, nor the directory.
  /// Error: the directory cannot be read.
  static Result<Search> begin(Files& files, const std::string& checkpoints_dir);

  int count() const { return static_cast<int>(candidates_.size()); }
  /// Of all names: equal where the directories are equal. 32 bits. Call it before settle().
  uint32_t fingerprint() const;
  /// Drops those whose run state is refused. Those with a problem stay. Call it before settle().
  void keep(const std::function<bool(const nlohmann::json& run_state)>& wanted);
  /// Whether there is one without a problem.
  bool any_readable() const;
  /// Brings the newest to the front. Call it once, before open().
  void settle();
  /// Opens the first sound one from `index` on and returns its index; count(): there is none.
  /// Those before it are passed over. Error: one that cannot be judged.
  Result<int> open(int index);
  /// What the last open() found. Precondition: it returned less than count().
  Reader& reader() { return *reader_; }
  /// Why `index` is passed over, or cannot be judged; nullopt: nothing is known against it.
  std::optional<Error> problem(int index) const { return candidates_[size_t(index)].problem; }
  /// Notes a problem: seen while it was read, or by another rank.
  void reject(int index, const Error& problem) { candidates_[size_t(index)].problem = problem; }

  struct Passed {
    std::string name;  ///< in the checkpoints directory
    int64_t step = 0;
    Error problem;  ///< `where`: the file
  };
  /// The damaged ones that could be newer than the open one.
  std::vector<Passed> passed_over() const;
  /// Why there is none: Environment, naming the newest one passed over. Precondition: there are
  /// checkpoints, and each was passed over.
  Error nothing_left() const;

 private:
  Files* files_ = nullptr;
  std::string directory_;
  std::vector<Candidate> candidates_;
  int open_ = 0;
  std::optional<Reader> reader_;
};

struct Newest {
  std::optional<Reader> reader;       ///< unset: there is no checkpoint
  std::vector<std::string> warnings;  ///< newer checkpoints that were passed over, and why
};

/// The newest checkpoint whose parts are all there. A damaged one is passed over with a warning if
/// an older sound one exists; if none is sound the error names the damaged file. There need not be
/// a checkpoint, nor the directory. For a single process.
Result<Newest> newest(Files& files, const std::string& checkpoints_dir);

}  // namespace dsj::checkpoint
