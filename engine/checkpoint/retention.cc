#include "engine/checkpoint/retention.h"

#include <algorithm>
#include <tuple>

#include "engine/checkpoint/damage.h"
#include "engine/checkpoint/fence.h"
#include "engine/checkpoint/layout.h"

namespace dsj::checkpoint {
namespace {

constexpr int64_t kManifestBytesMax = int64_t{1} << 30;

/// An unused name in `directory`: `name`, else `name`-2, -3 ...
Result<std::string> free_name(Files& files, const std::string& directory, const std::string& name) {
  std::string free = name;
  for (int i = 2;; ++i) {
    DSJ_TRY(const bool taken, files.exists(path_join(directory, free)));
    if (!taken) return free;
    free = name + "-" + std::to_string(i);
  }
}

/// Removes `hidden` of `directory`, which was the checkpoint `name`. Files not written by a save
/// stay, in a directory named for them; the error is a warning about it.
Status remove_hidden(Files& files, const std::string& directory, const std::string& hidden,
                     const std::string& name) {
  const std::string path = path_join(directory, hidden);
  DSJ_TRY(const auto siblings, files.list_dir(directory));
  const auto own = std::ranges::find(siblings, hidden, &DirEntry::name);
  if (own == siblings.end()) return {};
  if (own->kind != EntryKind::Directory) return files.remove(path);  // a link: its target stays
  DSJ_TRY(const auto entries, files.list_dir(path));
  std::string foreign;
  for (const DirEntry& entry : entries) {
    if (entry.kind != EntryKind::File || !is_checkpoint_file(entry.name)) {
      foreign = entry.name;
      continue;
    }
    DSJ_TRY_STATUS(files.remove(path_join(path, entry.name)));
  }
  if (foreign.empty()) return files.remove(path);
  DSJ_TRY(const std::string kept, free_name(files, directory, kKeptPrefix + name));
  DSJ_TRY_STATUS(files.rename(path, path_join(directory, kept)));
  return fail(ErrorKind::Environment,
              "\"" + foreign + "\" was in the checkpoint " + name +
                  ", which is removed, and no save wrote it: it is kept",
              path_join(directory, kept), "move it where it belongs");
}

/// Whether the directory has files, and no save wrote any of them.
bool is_foreign(Files& files, const std::string& path) {
  const auto entries = files.list_dir(path);
  return entries && !entries->empty() && std::ranges::none_of(*entries, [](const DirEntry& one) {
           return is_checkpoint_file(one.name);
         });
}

/// Removes a complete or incomplete checkpoint. `name`: the checkpoint's.
Status discard(Files& files, const std::string& directory, const std::string& entry,
               const std::string& name) {
  if (is_foreign(files, path_join(directory, entry))) return {};
  const std::string trash = kTrashPrefix + name;
  DSJ_TRY_STATUS(remove_hidden(files, directory, trash, name));
  DSJ_TRY_STATUS(files.rename(path_join(directory, entry), path_join(directory, trash)));
  return remove_hidden(files, directory, trash, name);
}

/// Removes what publish() replaced by the new checkpoint.
Status drop_replaced(Files& files, const PruneOptions& options,
                     std::vector<std::string>& warnings) {
  for (const std::string& name : {staging_name(options.step, options.attempt),
                                  replaced_name(options.step, options.attempt)}) {
    DSJ_TRY(const auto entries, files.list_dir(options.checkpoints_dir));
    if (std::ranges::find(entries, name, &DirEntry::name) == entries.end()) continue;
    const Status done = discard(files, options.checkpoints_dir, name, step_name(options.step));
    if (!done) warnings.push_back(done.error().to_string());
  }
  return {};
}

Status drop_oldest(Files& files, const PruneOptions& options, std::vector<std::string>& warnings) {
  if (options.save_total_limit.value_or(0) < 1) return files.sync_dir(options.checkpoints_dir);
  DSJ_TRY(const auto candidates, list_candidates(files, options.checkpoints_dir));
  for (const size_t index : beyond_limit(candidates, options)) {
    const Candidate& candidate = candidates[index];
    const Status done =
        discard(files, options.checkpoints_dir, candidate.name, step_name(candidate.step));
    if (!done) warnings.push_back(done.error().to_string());
  }
  return files.sync_dir(options.checkpoints_dir);
}

}  // namespace

Result<std::vector<Candidate>> list_candidates(Files& files, const std::string& checkpoints_dir) {
  std::vector<Candidate> candidates;
  DSJ_TRY(const bool there, files.exists(checkpoints_dir));
  if (!there) return candidates;
  DSJ_TRY(const auto entries, files.list_dir(checkpoints_dir));
  for (const DirEntry& entry : entries) {
    const auto name = parse_dir_name(entry.name);
    if (!name) continue;
    if (name->kind != DirName::Kind::Step && name->kind != DirName::Kind::Replaced) continue;
    bool leads_nowhere = false;
    if (entry.kind != EntryKind::Directory) {  // a link, or a file that is not a checkpoint
      const auto target = files.kind(path_join(checkpoints_dir, entry.name));
      leads_nowhere = !target || *target == EntryKind::Absent;
      if (!leads_nowhere && *target != EntryKind::Directory) continue;
    }
    Candidate candidate{.name = entry.name,
                        .step = name->step,
                        .is_replaced = name->kind == DirName::Kind::Replaced};
    if (leads_nowhere) {
      candidate.problem =
          Error{ErrorKind::Environment, "the link's target does not exist",
                path_join(checkpoints_dir, entry.name), "mount its target, or remove the link"};
      candidates.push_back(std::move(candidate));
      continue;
    }
    const std::string path = path_join(path_join(checkpoints_dir, entry.name), kManifestFile);
    const auto text = files.read_all(path, kManifestBytesMax);
    auto manifest =
        text ? manifest_from_text(*text, path) : Result<Manifest>(std::unexpected(text.error()));
    if (!manifest) {
      candidate.problem = judged(manifest.error());
    } else if (manifest->step != name->step) {
      candidate.problem =
          damaged("the manifest is of step " + std::to_string(manifest->step), path).error();
    } else {
      candidate.attempt = manifest->attempt;
      candidate.serial = manifest->serial;
      candidate.run_state = std::move(manifest->run_state);
    }
    candidates.push_back(std::move(candidate));
  }
  sort_newest_first(candidates);
  return candidates;
}

Result<int64_t> newest_attempt(Files& files, const std::string& checkpoints_dir) {
  DSJ_TRY(int64_t newest, owner_of(files, checkpoints_dir));
  DSJ_TRY(const auto candidates, list_candidates(files, checkpoints_dir));
  for (const Candidate& candidate : candidates) newest = std::max(newest, candidate.attempt);
  return newest;
}

std::vector<size_t> beyond_limit(const std::vector<Candidate>& candidates,
                                 const PruneOptions& options) {
  const auto is = [](const Candidate& candidate, std::optional<int64_t> step) {
    return step && candidate.name == step_name(*step);
  };
  const auto is_best = [&](const Candidate& candidate) { return is(candidate, options.best_step); };
  const auto may_be_the_good_one = [&](const Candidate& candidate) {
    return options.confirmed ? is(candidate, options.confirmed)
                             : candidate.attempt != options.attempt;
  };
  int64_t places = *options.save_total_limit;  // one is reserved for the best
  if (std::ranges::any_of(candidates, is_best)) --places;
  std::vector<size_t> beyond;
  int64_t kept = 0, oldest_step_kept = INT64_MAX;
  for (size_t i = 0; i < candidates.size(); ++i) {
    const Candidate& candidate = candidates[i];
    const bool protects = is(candidate, options.step) || is_best(candidate) ||
                          (!candidate.problem && may_be_the_good_one(candidate));
    const bool keep = !candidate.problem ? kept < places
                                         : candidate.problem->cause != Error::Cause::Damage ||
                                               candidate.step >= oldest_step_kept;
    if (!keep && !protects) {
      beyond.push_back(i);
      continue;
    }
    if (candidate.problem) continue;
    kept += !is_best(candidate);
    oldest_step_kept = std::min(oldest_step_kept, candidate.step);
  }
  return beyond;
}

void sort_newest_first(std::vector<Candidate>& candidates) {
  std::ranges::sort(candidates, std::greater{}, [](const Candidate& candidate) {
    return std::tuple(!candidate.problem, candidate.serial, candidate.attempt, candidate.step,
                      !candidate.is_replaced, std::string_view(candidate.name));
  });
}

SetAside set_aside(Files& files, const std::string& checkpoints_dir,
                   const std::vector<std::string>& names) {
  SetAside done;
  const auto move = [&](const std::string& name) -> Result<std::string> {
    // The same step may have been renamed before.
    DSJ_TRY(std::string target, free_name(files, checkpoints_dir, kDamagedPrefix + name));
    DSJ_TRY_STATUS(
        files.rename(path_join(checkpoints_dir, name), path_join(checkpoints_dir, target)));
    return target;
  };
  for (const std::string& name : names) {
    const auto moved = move(name);
    if (!moved) done.warnings.push_back(moved.error().to_string());
    done.names.push_back(moved.value_or(""));
  }
  if (names.empty()) return done;
  if (const auto synced = files.sync_dir(checkpoints_dir); !synced) {
    done.warnings.push_back(synced.error().to_string());
  }
  return done;
}

Status remove_checkpoint(Files& files, const std::string& directory, const std::string& name) {
  if (is_foreign(files, path_join(directory, name)))
    return fail(ErrorKind::Environment, "no save wrote its content: it is kept",
                path_join(directory, name), "move it away");
  return discard(files, directory, name, name.substr(name.find_first_not_of('.')));
}

std::vector<std::string> prune(Files& files, const PruneOptions& options) {
  std::vector<std::string> warnings;
  for (const auto step : {drop_replaced, drop_oldest}) {
    const Status done = step(files, options, warnings);
    if (!done) warnings.push_back(done.error().to_string());
  }
  return warnings;
}

namespace {

Status clear_entry(Files& files, const std::string& directory, const std::string& entry,
                   const DirName& name) {
  switch (name.kind) {
    case DirName::Kind::Step:
      return {};
    case DirName::Kind::Trash:
      return remove_hidden(files, directory, entry, entry.substr(sizeof kTrashPrefix - 1));
    case DirName::Kind::Staging:
      return discard(files, directory, entry, step_name(name.step));
    case DirName::Kind::Replaced: {
      const std::string place = path_join(directory, step_name(name.step));
      DSJ_TRY(const bool taken, files.exists(place));
      return taken ? discard(files, directory, entry, step_name(name.step))
                   : files.rename(path_join(directory, entry), place);
    }
  }
  return {};
}

Status clear_all(Files& files, const std::string& directory, int64_t attempt,
                 std::vector<std::string>& warnings) {
  DSJ_TRY(const bool there, files.exists(directory));
  if (!there) return {};
  DSJ_TRY(const int64_t owner, owner_of(files, directory));
  if (owner > attempt) return {};
  DSJ_TRY(const auto entries, files.list_dir(directory));
  bool changed = false;
  for (const DirEntry& entry : entries) {
    const auto name = parse_dir_name(entry.name);
    if (!name || name->kind == DirName::Kind::Step) continue;
    changed = true;
    const Status done = clear_entry(files, directory, entry.name, *name);
    if (!done) warnings.push_back(done.error().to_string());
  }
  return changed ? files.sync_dir(directory) : Status{};
}

}  // namespace

std::vector<std::string> clear_leftovers(Files& files, const std::string& checkpoints_dir,
                                         int64_t attempt) {
  std::vector<std::string> warnings;
  const Status done = clear_all(files, checkpoints_dir, attempt, warnings);
  if (!done) warnings.push_back(done.error().to_string());
  return warnings;
}

}  // namespace dsj::checkpoint
