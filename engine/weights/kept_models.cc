#include "engine/weights/kept_models.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string_view>

#include "common/text.h"
#include "engine/weights/export.h"
#include "engine/weights/export_record.h"

namespace dsj::weights {
namespace {

constexpr std::string_view kPrefix = "checkpoint-";

/// nullopt for other names.
std::optional<int64_t> step_of(const std::string& name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  const auto step = text::parse_int(name.substr(kPrefix.size()));
  return step && *step >= 0 && kept_model_name(*step) == name ? step : std::nullopt;
}

}  // namespace

std::string kept_model_name(int64_t step) {
  return std::string(kPrefix) + std::to_string(step);
}

std::vector<std::string> prune_models(Files& files, const std::string& directory, int64_t limit,
                                      int64_t newest) {
  if (limit < 1) return {};
  const auto entries = files.list_dir(directory);
  if (!entries) return {entries.error().to_string()};
  std::set<int64_t> steps;
  for (const DirEntry& entry : *entries)
    if (const auto step = step_of(entry.name)) steps.insert(*step);
  std::vector<std::string> warnings;
  for (auto left = std::ssize(steps); const int64_t step : steps) {
    if (left <= limit) break;
    if (step == newest) continue;
    const std::string path = path_join(directory, kept_model_name(step));
    const auto there = occupant_of(files, path);
    if (there && there->kind == Occupant::Kind::OwnModel) {
      Status gone = files.remove_all(path);
      if (gone) gone = files.remove_all(export_record_path(path));
      if (!gone) warnings.push_back(gone.error().to_string());
    } else {
      warnings.push_back(path + " stays, though saveTotalLimit is " + std::to_string(limit) + ": " +
                         (there ? there->what : there.error().to_string()));
    }
    --left;
  }
  return warnings;
}

std::vector<std::string> clear_dead_models(Files& files, const std::string& directory) {
  std::vector<std::string> warnings;
  const auto there = files.exists(directory);
  if (!there || !*there) return warnings;
  const auto entries = files.list_dir(directory);
  if (!entries) return {entries.error().to_string()};
  for (const DirEntry& entry : *entries) {
    for (const std::string_view end : {".staging", ".old"}) {
      if (!entry.name.starts_with(".") || !entry.name.ends_with(end)) continue;
      const std::string name = entry.name.substr(1, entry.name.size() - 1 - end.size());
      if (!step_of(name)) continue;
      for (std::string& warning : clear_dead_export(files, path_join(directory, name)))
        warnings.push_back(std::move(warning));
    }
  }
  return warnings;
}

}  // namespace dsj::weights
