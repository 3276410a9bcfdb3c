// Writes a checkpoint in three steps. They are collective; the barriers are the caller's.
//   1. every rank: write_rank()    writes its ranges beside the published checkpoints; durable when
//                                  it returns
//   2. barrier                     all ranks succeeded; if not, nobody publishes, and the next
//                                  attempt removes the leftovers (retention.h)
//   3. rank 0: publish()           one rename makes the whole checkpoint visible; then it prunes
// A process may die at any point: newest() (search.h) then finds the previous or the new
// checkpoint. Called by engine/train and background_save.h, which
// does the same behind the steps. Left out: 16-bit states.
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
  int64_t step = 0;             ///< optimizer steps done
  int64_t attempt = 1;
  int rank = 0, world = 1;
};

/// Elements [offset, offset + data.size()) of a tensor, without padding. Valid during the call
/// only, unless it stays.
struct Piece {
  std::string state;  ///< "master", "exp_avg", "exp_avg_sq" ...
  std::string param;
  int64_t offset = 0;
  std::span<const float> data;
  bool stays = false;  ///< the data lies there unchanged until an optimizer next writes its state
};

/// Takes one piece. Its data need not outlive the call. An error ends the writing and is returned.
using EmitPiece = std::function<Status(const Piece&)>;

/// Writes this rank's part into the staging directory, durably. `produce` calls its argument once
/// per piece, and pieces are written in that order: put neighbours in a tensor next to each other,
/// which reads fastest. Returns the bytes written. A rank without pieces still calls it. Errors:
/// I/O (Environment), and produce's own.
Result<int64_t> write_rank_from(Files& files, const WriteOptions& options,
                                const std::function<Status(const EmitPiece&)>& produce);
/// The same for pieces that are all in memory.
Result<int64_t> write_rank(Files& files, const WriteOptions& options,
                           std::span<const Piece> pieces);

struct Publication {
  /// Every tensor that the parts must cover, wholly and without overlap.
  std::vector<Extent> extents;
  /// What the engine needs to continue; Reader::run_state() returns it unchanged. Finite numbers
  /// only (JSON has no NaN).
  nlohmann::json run_state;
  /// How many published checkpoints to keep, this one included; unset or < 1: all.
  std::optional<int64_t> save_total_limit;
  std::optional<int64_t> best_step;  ///< of a checkpoint that is kept, whatever the limit
  std::optional<int64_t> confirmed;  ///< PruneOptions::confirmed
};

struct Published {
  std::string path;                   ///< checkpoints_dir/step-<S>
  int64_t bytes = 0;                  ///< parts and JSON files together
  std::vector<std::string> warnings;  ///< leftovers not removed; the checkpoint is good
};

/// Rank 0 only, after every rank's write_rank() succeeded. Checks that all parts are there,
/// complete, of this step and attempt, and cover `extents` exactly. Writes the manifest. Reads
/// checkpoints_dir/attempt again and stops if a newer attempt owns the directory (Transient). Then
/// renames. A checkpoint of the same step (from a run resumed further back) is swapped out in one
/// call where the file system can, else renamed aside first, where newest() still finds it. At last
/// prunes (retention.h).
Result<Published> publish(Files& files, const WriteOptions& options,
                          const Publication& publication);

}  // namespace dsj::checkpoint
