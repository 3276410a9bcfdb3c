// Removes old checkpoints and leftovers of dead attempts. publish() prunes after the new checkpoint
// has its name; engine/train clears leftovers once at the start of an attempt.
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
  int64_t attempt = 0;            ///< from the manifest; 0 if unreadable
  int64_t serial = 0;             ///< from the manifest; 0 if it has none or is unreadable
  bool is_replaced = false;       ///< ".old-": counts only if there is no "step-<S>"
  nlohmann::json run_state = {};  ///< from the manifest
  /// Why its manifest could not be read: damage (damage.h) or another reason. Unset if it was read.
  std::optional<Error> problem = {};
};

/// Sorted by sort_newest_first. The directory need not exist. A link named step-<S> is followed; a
/// dangling one is a problem that is not damage.
Result<std::vector<Candidate>> list_candidates(Files& files, const std::string& checkpoints_dir);

/// The maximum of owner_of() (fence.h) and the attempts in the manifests, because a checkpoint may
/// have been copied here without the file beside it. 0 if there is neither.
Result<int64_t> newest_attempt(Files& files, const std::string& checkpoints_dir);

/// Sorts by serial of publication, independent of attempt and step: a run may return to an older
/// checkpoint on purpose, and a checkpoint may come from another directory, whose attempts mean
/// nothing here. Those of older versions have no serial: they are older than any with one, and
/// sorted by attempt, then by step. Those with a problem come last.
void sort_newest_first(std::vector<Candidate>& candidates);

struct SetAside {
  std::vector<std::string> names;     ///< the new name of each; empty if it was not renamed
  std::vector<std::string> warnings;  ///< what failed
};

/// Renames checkpoints to "damaged-<name>", which resume and prune() ignore: nothing is lost, and
/// the next start does not read them again.
SetAside set_aside(Files& files, const std::string& checkpoints_dir,
                   const std::vector<std::string>& names);

struct PruneOptions {
  std::string checkpoints_dir;
  int64_t step = 0, attempt = 1;  ///< of the new checkpoint
  std::optional<int64_t> save_total_limit;
  std::optional<int64_t> best_step;  ///< always kept; counts towards the limit
  /// The checkpoint that is known to be good (confirmed.h): always kept, even beyond the limit.
  /// nullopt: this attempt has none; then those of earlier attempts stay, as one of them may be.
  std::optional<int64_t> confirmed;
};

/// The indices of `candidates`, sorted newest first, that are beyond the limit. Pure.
std::vector<size_t> beyond_limit(const std::vector<Candidate>& candidates,
                                 const PruneOptions& options);

/// Removes what the new checkpoint replaced, then the oldest checkpoints beyond the limit, but
/// never the new one nor the last confirmed one. A checkpoint is first renamed to .trash, so that
/// it is never visible half deleted. Only files written by a save are removed: other files stay in
/// a directory kept-step-<S>, with a warning, and of a link only the link is removed. Damaged
/// checkpoints are removed only with a limit, and only if older than everything kept; those with
/// another problem stay. Returns what failed, as warnings.
std::vector<std::string> prune(Files& files, const PruneOptions& options);

/// Removes the entry `name` of `directory`, a checkpoint by any of its names, as prune() does.
/// Error: it was not removed completely.
Status remove_checkpoint(Files& files, const std::string& directory, const std::string& name);

/// Removes leftovers of dead attempts: .staging and .trash of any attempt. An .old without its
/// step-<S> is renamed back, others are removed. Call it before the attempt's first save. Does
/// nothing if a newer attempt owns the directory. Returns failures as warnings. The directory need
/// not exist.
std::vector<std::string> clear_leftovers(Files& files, const std::string& checkpoints_dir,
                                         int64_t attempt);

}  // namespace dsj::checkpoint
