// Writing a checkpoint. Collective in three steps, the barriers are the caller's:
//   1. every rank: write_rank()   its ranges, beside the published checkpoints, durable when it
//   returns
//   2. barrier: all ranks succeeded (else nobody publishes, the leftovers go with the next save)
//   3. rank 0: publish()          one rename makes the new checkpoint visible, whole; then pruning
// A process may die at any point: newest() (reader.h) then finds the previous or the new
// checkpoint. Called by engine/zero. Left out: asynchronous saves, 16-bit states.
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
  std::string checkpoints_dir;  ///< OUT/checkpoints; created when it is not there
  int64_t step = 0;             ///< optimizer steps done
  int64_t attempt = 1;
  int rank = 0, world = 1;
};

/// Elements [offset, offset + data.size()) of a tensor, without padding. Borrowed for the call.
struct Piece {
  std::string state;  ///< "master", "exp_avg", "exp_avg_sq" ...
  std::string param;
  int64_t offset = 0;
  std::span<const float> data;
};

/// Takes one piece; its data need not outlive the call. An error ends the writing and is returned.
using EmitPiece = std::function<Status(const Piece&)>;

/// Writes this rank's part into the staging directory and makes it durable. `produce` calls what it
/// is given once per piece; pieces are written in that order: neighbours in a tensor next to each
/// other read fastest. Returns the bytes written. A rank without pieces still calls it. Errors: I/O
/// (Environment), and produce's own.
Result<int64_t> write_rank_from(Files& files, const WriteOptions& options,
                                const std::function<Status(const EmitPiece&)>& produce);
/// The same for pieces that are all in memory.
Result<int64_t> write_rank(Files& files, const WriteOptions& options,
                           std::span<const Piece> pieces);

struct Publication {
  /// Every tensor the parts must cover, wholly and without overlap.
  std::vector<Extent> extents;
  /// What the engine needs to go on: returned by Reader::run_state() as it was given. Finite
  /// numbers only (JSON has no NaN).
  nlohmann::json run_state;
  /// Published checkpoints to keep, this one included; unset or < 1: all.
  std::optional<int64_t> save_total_limit;
};

struct Published {
  std::string path;   ///< checkpoints_dir/step-<S>
  int64_t bytes = 0;  ///< of all parts and JSON files
  std::vector<std::string>
      warnings;  ///< what could not be cleaned up; the checkpoint itself is fine
};

/// Rank 0, after every rank's write_rank() succeeded. Checks that all parts are there, complete, of
/// this step and attempt, and cover `extents` exactly; writes the manifest; reads
/// checkpoints_dir/attempt again and stops if a newer attempt owns the directory (Transient); gives
/// the directory its name. A checkpoint of the same step (a run resumed from an older one) is
/// replaced: swapped in one call where the file system can, else renamed aside first, where
/// newest() still finds it. Then prunes: newest first by (attempt, step), see retention.h.
Result<Published> publish(Files& files, const WriteOptions& options,
                          const Publication& publication);

}  // namespace dsj::checkpoint
