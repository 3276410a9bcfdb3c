// Which checkpoints stay. Called by publish(), after the new checkpoint has its name.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/files/files.h"
#include "common/result.h"

namespace dsj::checkpoint {

/// A directory that claims to be a checkpoint, as far as its manifest tells.
struct Candidate {
  std::string name;  ///< in the checkpoints directory
  int64_t step = 0;
  int64_t attempt = 0;       ///< of the manifest; 0 when it is unreadable
  bool is_replaced = false;  ///< ".old-": counts only while no "step-<S>" has its place
  std::string problem;       ///< why the manifest is unreadable; empty: it was read
};

/// Newest first: a later attempt's checkpoint is newer than any of an earlier attempt, whatever its
/// step (a run may go back to an older checkpoint on purpose); then by step; unreadable ones last.
Result<std::vector<Candidate>> list_candidates(Files& files, const std::string& checkpoints_dir);

struct PruneOptions {
  std::string checkpoints_dir;
  int64_t step = 0, attempt = 1;  ///< just published
  std::optional<int64_t> save_total_limit;
};

/// Removes what dead attempts left (.staging of older attempts and of this one's earlier saves,
/// .trash, .old), then the oldest checkpoints beyond the limit; never the one just published. An
/// .old whose place is empty is put back. Each goes to .trash first, by a rename, so that no
/// checkpoint is ever seen half deleted. Unreadable checkpoints are removed only with a limit, and
/// only when older than everything kept. Returns what failed, as warnings.
std::vector<std::string> prune(Files& files, const PruneOptions& options);

}  // namespace dsj::checkpoint
