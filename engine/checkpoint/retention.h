// Which checkpoints are kept, and what dead attempts left. publish() prunes after the new checkpoint
// has its name; engine/train clears what is left over once, when an attempt starts.
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
  int64_t serial = 0;             ///< from the manifest; 0: it has none, or is unreadable
  bool is_replaced = false;       ///< ".old-": counts only while there is no "step-<S>"
  nlohmann::json run_state = {};  ///< from the manifest
  /// Why its manifest could not be read: damage (damage.h), or another reason. Unset: it was read.
  std::optional<Error> problem = {};
};

/// Sorted by sort_newest_first. The directory need not exist. A link named step-<S> is followed; one
/// that leads nowhere is a problem that cannot be judged.
Result<std::vector<Candidate>> list_candidates(Files& files, const std::string& checkpoints_dir);

/// The larger of owner_of() (fence.h) and the attempts in the manifests: a checkpoint may have been
/// copied here without the file beside it. 0: none of either.
Result<int64_t> newest_attempt(Files& files, const std::string& checkpoints_dir);

/// By the serial of its publication, whatever attempt and step: a run may go back to an older
/// checkpoint on purpose, and a checkpoint may come from another directory, whose attempts say
/// nothing here. Those of older programs have no serial: they are older than any that has one, and
/// among themselves a later attempt's is newer, then a later step's. Those with a problem come last.
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
  /// The checkpoint that is known to be good (confirmed.h): kept, beyond the limit if need be. nullopt:
  /// this attempt knows none; then those of earlier attempts stay, for one of them may be.
  std::optional<int64_t> confirmed;
};

/// Which of `candidates`, sorted newest first, are beyond the limit, by index. Pure.
std::vector<size_t> beyond_limit(const std::vector<Candidate>& candidates,
                                 const PruneOptions& options);

/// Removes what the checkpoint just published replaced, then the oldest checkpoints beyond the
/// limit, but never the one just published nor the last confirmed one. A checkpoint is first renamed to .trash, so that it is
/// never seen half deleted. Only files that a save writes are removed: others stay in a directory
/// kept-step-<S>, with a warning, and of a link only the link goes. Damaged checkpoints are removed
/// only with a limit, and only if older than everything kept; those that cannot be judged stay.
/// Returns what failed, as warnings.
std::vector<std::string> prune(Files& files, const PruneOptions& options);

/// Removes the entry `name` of `directory`, a checkpoint by any of its names, as prune() does. Error: it
/// or a part of it stays.
Status remove_checkpoint(Files& files, const std::string& directory, const std::string& name);

/// Removes what dead attempts left: .staging and .trash of any attempt. An .old whose place is empty
/// is put back, another one removed. Call it before the attempt's first save. Does nothing if a
/// newer attempt owns the directory. Returns what failed, as warnings. The directory need not exist.
std::vector<std::string> clear_leftovers(Files& files, const std::string& checkpoints_dir,
                                         int64_t attempt);

}  // namespace dsj::checkpoint
