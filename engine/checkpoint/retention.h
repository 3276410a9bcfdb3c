// Which checkpoints are kept. publish() calls it after the new checkpoint has its name.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "common/files/files.h"
#include "common/result.h"

namespace dsj::checkpoint {

/// A directory that looks like a checkpoint, described by its manifest.
struct Candidate {
  std::string name;  ///< in the checkpoints directory
  int64_t step = 0;
  int64_t attempt = 0;            ///< from the manifest; 0: unreadable
  bool is_replaced = false;       ///< ".old-": counts only while there is no "step-<S>"
  nlohmann::json run_state = {};  ///< from the manifest
  /// Why its manifest could not be read: damage (damage.h), or another reason. Unset: it was read.
  std::optional<Error> problem = {};
};

/// Sorted by sort_newest_first. The directory need not exist.
Result<std::vector<Candidate>> list_candidates(Files& files, const std::string& checkpoints_dir);

/// A later attempt's checkpoint is newer than any of an earlier attempt, whatever its step, because
/// a run may go back to an older checkpoint on purpose. Then by step. Those with a problem come
/// last.
void sort_newest_first(std::vector<Candidate>& candidates);

struct SetAside {
  std::vector<std::string> names;     ///< the new name of each; empty: it keeps its own
  std::vector<std::string> warnings;  ///< what failed
};

/// Renames checkpoints to "damaged-<name>", where neither a resume nor prune() looks: nothing is
/// lost, and the next start does not read them again.
SetAside set_aside(Files& files, const std::string& checkpoints_dir,
                   const std::vector<std::string>& names);

struct PruneOptions {
  std::string checkpoints_dir;
  int64_t step = 0, attempt = 1;  ///< of the checkpoint just published
  std::optional<int64_t> save_total_limit;
  std::optional<int64_t> best_step;  ///< kept whatever the limit; it counts towards it
};

/// Removes what dead attempts left (.staging of older attempts and of this one's earlier saves,
/// .trash, .old), then the oldest checkpoints beyond the limit, but never the one just published.
/// An .old whose place is empty is put back. A checkpoint is first renamed to .trash, so that it is
/// never seen half deleted. Damaged checkpoints are removed only with a limit, and only if older
/// than everything kept; those that cannot be judged stay. Returns what failed, as warnings.
std::vector<std::string> prune(Files& files, const PruneOptions& options);

}  // namespace dsj::checkpoint
