#include "engine/checkpoint/retention.h"

#include <algorithm>
#include <tuple>

#include "engine/checkpoint/damage.h"
#include "engine/checkpoint/layout.h"

namespace dsj::checkpoint {
namespace {

constexpr int64_t kManifestBytesMax = int64_t{1} << 30;

Status discard(Files& files, const std::string& directory, const std::string& name) {
  const std::string trash = path_join(directory, kTrashPrefix + name);
  DSJ_TRY_STATUS(files.remove_all(trash));
  DSJ_TRY_STATUS(files.rename(path_join(directory, name), trash));
  return files.remove_all(trash);
}

/// Finds what nobody needs any more, and what must be put back.
Status clear_leftovers(Files& files, const PruneOptions& options,
                       std::vector<std::string>& warnings) {
  DSJ_TRY(const auto entries, files.list_dir(options.checkpoints_dir));
  for (const DirEntry& entry : entries) {
    const auto name = parse_dir_name(entry.name);
    if (!name || entry.kind != EntryKind::Directory) continue;
    const std::string path = path_join(options.checkpoints_dir, entry.name);
    Status done;
    if (name->kind == DirName::Kind::Trash) {
      done = files.remove_all(path);
    } else if (name->kind == DirName::Kind::Staging &&
               (name->attempt < options.attempt ||
                (name->attempt == options.attempt && name->step <= options.step))) {
      done = discard(files, options.checkpoints_dir, entry.name);
    } else if (name->kind == DirName::Kind::Replaced && name->attempt <= options.attempt) {
      const std::string place = path_join(options.checkpoints_dir, step_name(name->step));
      DSJ_TRY(const bool taken, files.exists(place));
      done =
          taken ? discard(files, options.checkpoints_dir, entry.name) : files.rename(path, place);
    }
    if (!done) warnings.push_back(done.error().to_string());
  }
  return {};
}

Status drop_oldest(Files& files, const PruneOptions& options, std::vector<std::string>& warnings) {
  if (options.save_total_limit.value_or(0) < 1) return {};
  DSJ_TRY(const auto candidates, list_candidates(files, options.checkpoints_dir));
  int64_t kept = 0, oldest_step_kept = INT64_MAX;
  const auto is_best = [&](const Candidate& candidate) {
    return options.best_step && candidate.name == step_name(*options.best_step);
  };
  int64_t places = *options.save_total_limit;  // one is the best's, wherever it comes
  if (std::ranges::any_of(candidates, is_best)) --places;
  for (const Candidate& candidate : candidates) {
    const bool protects = candidate.name == step_name(options.step) || is_best(candidate);
    const bool keep = !candidate.problem
                          ? kept < places
                          : !is_damage(*candidate.problem) || candidate.step >= oldest_step_kept;
    if (keep || protects) {
      if (!candidate.problem) {
        kept += !is_best(candidate);
        oldest_step_kept = std::min(oldest_step_kept, candidate.step);
      }
      continue;
    }
    const Status done = discard(files, options.checkpoints_dir, candidate.name);
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
    if (!name || entry.kind != EntryKind::Directory) continue;
    if (name->kind != DirName::Kind::Step && name->kind != DirName::Kind::Replaced) continue;
    Candidate candidate{.name = entry.name,
                        .step = name->step,
                        .is_replaced = name->kind == DirName::Kind::Replaced};
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
      candidate.run_state = std::move(manifest->run_state);
    }
    candidates.push_back(std::move(candidate));
  }
  sort_newest_first(candidates);
  return candidates;
}

void sort_newest_first(std::vector<Candidate>& candidates) {
  std::ranges::sort(candidates, std::greater{}, [](const Candidate& candidate) {
    return std::tuple(!candidate.problem, candidate.attempt, candidate.step, !candidate.is_replaced,
                      std::string_view(candidate.name));
  });
}

SetAside set_aside(Files& files, const std::string& checkpoints_dir,
                   const std::vector<std::string>& names) {
  SetAside done;
  const auto move = [&](const std::string& name) -> Result<std::string> {
    std::string target = kDamagedPrefix + name;
    for (int i = 2;; ++i) {  // the same step may have been damaged before
      DSJ_TRY(const bool taken, files.exists(path_join(checkpoints_dir, target)));
      if (!taken) break;
      target = kDamagedPrefix + name + "-" + std::to_string(i);
    }
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

std::vector<std::string> prune(Files& files, const PruneOptions& options) {
  std::vector<std::string> warnings;
  for (const auto step : {clear_leftovers, drop_oldest}) {
    const Status done = step(files, options, warnings);
    if (!done) warnings.push_back(done.error().to_string());
  }
  return warnings;
}

}  // namespace dsj::checkpoint
