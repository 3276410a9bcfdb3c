#include "cli/run/overwritten_run.h"

#include "engine/checkpoint/layout.h"
#include "engine/checkpoint/retention.h"
#include "engine/weights/export_record.h"
#include "job/contract.h"
#include "job/dsconfig/config/objective.h"

namespace dsj::cli {
namespace {

constexpr char kEndedFile[] = "ended";  // agent/attempt_files.cc

/// A directory of a run, with a predicate for the entries that the run wrote.
struct Part {
  std::string directory;
  bool (*is_ours)(const std::string& name);
};

bool in_output(const std::string& name) {
  const std::string model = contract::kModelDir;
  return name == model || name == contract::kMetricsFile || name == contract::kStatusFile ||
         name == dsconfig::kReferenceFile || name.starts_with("." + model + ".");
}
bool in_checkpoints(const std::string& name) {
  return checkpoint::parse_dir_name(name) || name.starts_with(checkpoint::kDamagedPrefix) ||
         name == contract::kAttemptFile || name == kEndedFile;
}
bool in_logs(const std::string& name) {
  return name.ends_with(".log") && (name.starts_with("rank-") || name.starts_with("agent-"));
}

std::vector<Part> parts_of(const std::string& output_dir) {
  return {{path_join(output_dir, contract::kCheckpointsDir), in_checkpoints},
          {output_dir, in_output},
          {path_join(output_dir, contract::kLogsDir), in_logs}};
}

/// `.dsj-overwritten`, or the first of -2, -3 ... that is free.
Result<std::string> free_aside(Files& files, const std::string& directory) {
  std::string aside = path_join(directory, kOverwrittenDir);
  for (int i = 2;; ++i) {
    DSJ_TRY(const bool taken, files.exists(aside));
    if (!taken) return aside;
    aside = path_join(directory, kOverwrittenDir + ("-" + std::to_string(i)));
  }
}

/// Removes the entry `name` of `aside`. Errors: it could not be removed.
Status remove_entry(Files& files, const std::string& aside, const std::string& name) {
  const std::string path = path_join(aside, name);
  if (name == contract::kModelDir) {
    DSJ_TRY(const auto there, weights::occupant_of(files, path));
    if (there.kind == weights::Occupant::Kind::Foreign)
      return fail(ErrorKind::Environment, there.what + ": it stays", path, "move it away");
    return files.remove_all(path);
  }
  if (checkpoint::parse_dir_name(name) || name.starts_with(checkpoint::kDamagedPrefix))
    return checkpoint::remove_checkpoint(files, aside, name);
  return files.remove_all(path);
}

void remove_aside(Files& files, const Part& part, const std::string& aside,
                  std::vector<std::string>& warnings) {
  const auto entries = files.list_dir(aside);
  if (!entries) return warnings.push_back(entries.error().to_string());
  const auto remove = [&](const std::string& name) {
    if (!part.is_ours(name)) return;
    if (const Status gone = remove_entry(files, aside, name); !gone)
      warnings.push_back(gone.error().to_string());
  };
  // Directories first: the files that describe the model are removed after it.
  for (const DirEntry& entry : *entries)
    if (entry.kind == EntryKind::Directory) remove(entry.name);
  for (const DirEntry& entry : *entries)
    if (entry.kind != EntryKind::Directory) remove(entry.name);
  if (const Status gone = files.remove(aside); !gone)
    warnings.push_back("the run that was overwritten is not removed whole: " +
                       gone.error().to_string());
}

}  // namespace

Result<bool> set_run_aside(Files& files, const std::string& output_dir) {
  bool any = false;
  for (const Part& part : parts_of(output_dir)) {
    DSJ_TRY(const bool there, files.exists(part.directory));
    if (!there) continue;
    DSJ_TRY(const auto entries, files.list_dir(part.directory));
    std::string aside;
    for (const DirEntry& entry : entries) {
      if (!part.is_ours(entry.name)) continue;
      if (aside.empty()) {
        DSJ_TRY(aside, free_aside(files, part.directory));
        DSJ_TRY_STATUS(files.make_dir(aside));
        any = true;
      }
      DSJ_TRY_STATUS(
          files.rename(path_join(part.directory, entry.name), path_join(aside, entry.name)));
    }
    if (!aside.empty()) DSJ_TRY_STATUS(files.sync_dir(part.directory));
  }
  return any;
}

std::vector<std::string> remove_overwritten(Files& files, const std::string& output_dir) {
  std::vector<std::string> warnings;
  for (const Part& part : parts_of(output_dir)) {
    const auto there = files.exists(part.directory);
    if (!there || !*there) continue;
    const auto entries = files.list_dir(part.directory);
    if (!entries) {
      warnings.push_back(entries.error().to_string());
      continue;
    }
    for (const DirEntry& entry : *entries)
      if (entry.kind == EntryKind::Directory && entry.name.starts_with(kOverwrittenDir))
        remove_aside(files, part, path_join(part.directory, entry.name), warnings);
  }
  return warnings;
}

}  // namespace dsj::cli
