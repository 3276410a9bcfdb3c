#include "engine/weights/output_place.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "common/path_list.h"
#include "engine/weights/export_record.h"
#include "job/contract.h"

namespace dsj::weights {
namespace {

namespace fs = std::filesystem;

/// A path of the output directory, and what the run does with it.
struct Written {
  const char* name;
  const char* what;
};
constexpr std::array kWritten = {
    Written{contract::kModelDir, "the run replaces it with the trained model"},
    Written{contract::kCheckpointsDir, "the run keeps its checkpoints there, and removes old ones"},
    Written{contract::kMetricsFile, "the run writes its steps there"},
    Written{contract::kStatusFile, "the run writes its status there"},
};

/// Whether the canonical `path` is `place` or below it.
bool lies_in(const PathPlaces& places, const std::string& path, const std::string& place) {
  const auto wanted = places.identity(place);
  const fs::path below = places.canonical(place);
  for (fs::path at = path;; at = at.parent_path()) {
    if (at == below || (wanted && places.identity(at.string()) == wanted)) return true;
    if (at == at.parent_path()) return false;
  }
}

/// Whether a run has made this entry of its output directory.
bool is_of_run(const std::string& name) {
  return std::ranges::any_of(kWritten, [&](const Written& one) { return one.name == name; });
}

/// The path, and the targets of a directory's entries: a model's files are often links. `same`: it
/// is also the output directory, whose own files are not the model's.
std::vector<std::string> leads_to(Files& files, const PathPlaces& places, const std::string& path,
                                  bool same) {
  std::vector<std::string> all = {places.canonical(path)};
  const auto entries = files.list_dir(path);
  if (!entries) return all;
  for (const DirEntry& entry : *entries)
    if (entry.kind == EntryKind::File && !(same && is_of_run(entry.name)))
      all.push_back(places.canonical(path_join(path, entry.name)));
  return all;
}

bool is_same_directory(Files& files, const PathPlaces& places, const std::string& path,
                       const std::string& output_dir) {
  if (!files.list_dir(path)) return false;
  const auto one = places.identity(path), other = places.identity(output_dir);
  return places.canonical(path) == places.canonical(output_dir) || (one && one == other);
}

std::string show(const std::string& output_dir, const char* name) {
  return path_join(output_dir, name);
}

/// Decodes "\040" and the like, the kernel's escapes of spaces in paths.
std::string unescaped(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 3 < text.size()) {
      out += static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 +
                               (text[i + 3] - '0'));
      i += 3;
    } else {
      out += text[i];
    }
  }
  return out;
}

}  // namespace

std::string SystemPlaces::canonical(const std::string& path) const {
  std::error_code problem;
  const fs::path absolute = fs::absolute(path, problem);
  fs::path found = fs::weakly_canonical(absolute, problem);
  if (problem) found = absolute.lexically_normal();
  if (!found.has_filename() && found.has_parent_path()) found = found.parent_path();
  return found.string();
}

std::optional<std::pair<uint64_t, uint64_t>> SystemPlaces::identity(const std::string& path) const {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return std::nullopt;
  return std::pair<uint64_t, uint64_t>(info.st_dev, info.st_ino);
}

bool SystemPlaces::is_mount(const std::string& path) const {
  const std::string wanted = canonical(path);
  std::ifstream mounts("/proc/self/mountinfo");
  for (std::string line; std::getline(mounts, line);) {
    std::istringstream fields(line);
    std::string field;
    for (int i = 0; i < 5; ++i) fields >> field;  // the fifth is the mount point
    if (unescaped(field) == wanted) return true;
  }
  return false;
}

std::vector<RunRead> reads_of(const TrainingArgs& training) {
  std::vector<RunRead> reads;
  const auto add = [&](const char* key, const std::string& path, bool is_checkpoint = false) {
    if (!path.empty()) reads.push_back({key, path, is_checkpoint});
  };
  add("modelNameOrPath", training.model_name_or_path);
  for (const std::string& path : split_paths(training.data_path)) add("dataPath", path);
  for (const std::string& path : split_paths(training.eval_data_path.value_or("")))
    add("evalDataPath", path);
  if (training.lora) add("lora.adapterNameOrPath", training.lora->adapter);
  if (const auto& from = training.resume_from_checkpoint;
      from && *from != "true" && *from != "false")
    add("resumeFromCheckpoint", *from, true);
  return reads;
}

std::vector<Endangered> endangered(Files& files, const PathPlaces& places,
                                   const TrainingArgs& training,
                                   const std::vector<RunRead>& reads) {
  const std::string& output_dir = training.output_dir;
  std::vector<Endangered> found;
  if (output_dir.empty()) return found;
  for (const RunRead& read : reads) {
    const bool same = is_same_directory(files, places, read.path, output_dir);
    const std::string_view key = read.key;  // with its path in the manifest, or without
    if (same && (key.ends_with("dataPath") || key.ends_with("evalDataPath"))) {
      found.push_back({read.key,
                       "\"" + read.path + "\" is also the output directory: " +
                           contract::kMetricsFile + " of the run would be read as rows",
                       "name another outputDir, such as " + path_join(read.path, "run")});
      continue;
    }
    const auto paths = leads_to(files, places, read.path, same);
    const auto judge = [&](const Written& written) {
      if (read.is_checkpoint && written.name == std::string_view(contract::kCheckpointsDir))
        return false;
      for (const std::string& path : paths) {
        if (!lies_in(places, path, path_join(output_dir, written.name))) continue;
        found.push_back({read.key,
                         "\"" + read.path + "\" lies in " + show(output_dir, written.name) + ": " +
                             written.what,
                         "name another outputDir, or move it away from there"});
        return true;
      }
      return false;
    };
    const bool has_models = training.save_only_model.value_or(false);
    if (has_models && judge({contract::kModelsDir, "the run saves its models there"})) continue;
    for (const Written& written : kWritten)
      if (judge(written)) break;
  }
  if (!found.empty()) return found;  // these already report the content
  const std::string target = path_join(output_dir, contract::kModelDir);
  if (places.is_mount(target)) {
    found.push_back({"outputDir", target + " is a mount, and the run replaces the directory",
                     "mount the volume at the output directory itself"});
    return found;
  }
  const auto occupant = occupant_of(files, target);
  if (occupant && occupant->kind == Occupant::Kind::Foreign)
    found.push_back({"outputDir",
                     target + " is not the model of an earlier run (" + occupant->what +
                         "), and the run replaces it",
                     "move it away, or name another outputDir"});
  return found;
}

}  // namespace dsj::weights
