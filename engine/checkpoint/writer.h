// Writes a checkpoint in three collective steps; the caller provides the barriers.
//   1. every rank: write_rank()    writes its ranges beside the published checkpoints; durable when
//                                  it returns
//   2. barrier                     all ranks succeeded; else none publishes, and the next attempt
//                                  removes the leftovers (retention.h)
//   3. rank 0: publish()           one rename makes the whole checkpoint visible; then it prunes
// If a process dies at any point, newest() (search.h) finds the previous or the new checkpoint.
// Called by engine/train and by background_save.h, which does the same during the steps. Not
// supported: 16-bit states.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/files/files.h"
#include "common/result.h"
#include "engine/checkpoint/layout.h"

namespace dsj::checkpoint {

struct WriteOptions {
  std::string checkpoints_dir;  ///< OUT/checkpoints; created if missing
  int64_t step = 0;             ///< finished optimizer steps
  int64_t attempt = 1;
  int rank = 0, world = 1;
};

/// Elements [offset, offset + data.size()) of a tensor, without padding. Valid only during the
/// call, unless it stays.
struct Piece {
  std::string state;  ///< "master", "exp_avg", "exp_avg_sq" ...
  std::string param;
  int64_t offset = 0;
  std::span<const float> data;
  bool stays = false;  ///< data is unchanged until the next optimizer update
};

/// Takes one piece. Its data need not outlive the call. An error ends the writing and is returned.
using EmitPiece = std::function<Status(const Piece&)>;

/// Writes this rank's part into the staging directory, durably. `produce` calls its argument once
/// per piece; pieces are written in that order, so adjacent ranges of a tensor should be
/// consecutive, which reads fastest. Returns the bytes written. A rank without pieces must also
/// call it. Errors: I/O (Environment), and produce's own.
Result<int64_t> write_rank_from(Files& files, const WriteOptions& options,
                                const std::function<Status(const EmitPiece&)>& produce);
/// The same for pieces that are all in memory.
Result<int64_t> write_rank(Files& files, const WriteOptions& options,
                           std::span<const Piece> pieces);

struct Publication {
  /// Every tensor that the parts must cover, completely and without overlap.
  std::vector<Extent> extents;
  /// What the engine needs to resume; Reader::run_state() returns it unchanged. Finite numbers only
  /// (JSON has no NaN).
  nlohmann::json run_state;
  /// The number of published checkpoints to keep, including this one; unset or < 1 means all.
  std::optional<int64_t> save_total_limit;
  std::optional<int64_t> best_step;  ///< a checkpoint that is always kept
  std::optional<int64_t> confirmed;  ///< PruneOptions::confirmed
};

struct Published {
  std::string path;                   ///< checkpoints_dir/step-<S>
  int64_t bytes = 0;                  ///< parts and JSON files together
  std::vector<std::string> warnings;  ///< leftovers that were not removed; the checkpoint is good
};

/// Call it on rank 0 after every rank's write_rank() succeeded. Checks that all parts exist, are
/// complete, are of this step and attempt, and cover `extents` exactly. Writes the manifest. Reads
/// checkpoints_dir/attempt again and stops if a newer attempt owns the directory (Transient). Then
/// renames. A checkpoint of the same step (from a run that resumed further back) is swapped out
/// atomically if the file system can, else first renamed (newest() still finds it). Finally prunes
/// (retention.h).
Result<Published> publish(Files& files, const WriteOptions& options,
                          const Publication& publication);

}  // namespace dsj::checkpoint
