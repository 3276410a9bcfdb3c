#include "engine/data/files/row_sources.h"

#include <fnmatch.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <utility>

#include "common/path_list.h"
#include "common/text.h"
#include "engine/data/text/text_file.h"

namespace dsj::data {
namespace {

using nlohmann::json;
using Paths = std::vector<std::string>;

constexpr char kInfo[] = "dataset_info.json";
constexpr char kHubFolder[] = "data";  ///< with the files of a data set on Hugging Face's hub
constexpr char kInfoKey[] = "training.dataset";
constexpr size_t kFilesMax = 100'000;

/// Files other than rows in a folder that was downloaded or saved.
bool is_no_rows(std::string_view name) {
  constexpr std::array<std::string_view, 4> kNames = {kInfo, "dataset_infos.json",
                                                      "dataset_dict.json", "state.json"};
  constexpr std::array<std::string_view, 6> kEnds = {".md",  ".py",  ".yaml",
                                                     ".yml", ".png", ".lock"};
  return name.starts_with('.') || name.starts_with('_') || name.starts_with("README") ||
         name.starts_with("LICENSE") || name == "requirements.txt" ||
         std::ranges::find(kNames, name) != kNames.end() ||
         std::ranges::any_of(kEnds, [&](std::string_view end) { return name.ends_with(end); });
}

/// "test" of "test-00000-of-00001.jsonl", as splits are named on Hugging Face's hub; else empty.
std::string_view split_of(std::string_view name) {
  for (const std::string_view split : {"train", "test", "validation", "valid", "dev", "eval"}) {
    const size_t at = name.find(split);
    if (at == name.npos) continue;
    const auto is_part_of_word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)); };
    const bool begins = at == 0 || !is_part_of_word(name[at - 1]);
    const size_t end = at + split.size();
    if (begins && (end == name.size() || !is_part_of_word(name[end]))) return split;
  }
  return {};
}

/// A comma-separated list of the first names.
std::string listed(const Paths& names, size_t most = 20) {
  std::string text;
  for (size_t i = 0; i < std::min(most, names.size()); ++i) text += (i ? ", " : "") + names[i];
  return text + (names.size() > most ? " ..." : "");
}

/// The files that datasets' save_to_disk wrote into a directory, in its order; files that datasets
/// computed later do not count. nullopt if the directory was not written by save_to_disk.
Result<std::optional<Paths>> files_of_saved(Files& files, const std::string& path) {
  const std::string state_file = path_join(path, "state.json");
  DSJ_TRY(const bool there, file_exists(files, state_file));
  if (!there) return std::nullopt;
  DSJ_TRY(const json state, read_json_file(files, state_file));
  if (!state.is_object() || !state.contains("_data_files")) return std::nullopt;
  Paths found;
  const json& listed = state["_data_files"];
  for (const json& file : listed.is_array() ? listed : json::array({json()})) {
    if (!file.is_object() || !file.contains("filename") || !file["filename"].is_string())
      return bad_input("\"_data_files\" is not a list of {\"filename\"}", state_file);
    found.push_back(path_join(path, file["filename"].get<std::string>()));
  }
  if (found.empty()) return bad_input("lists no file with rows", state_file);
  return found;
}

/// The directory of the split train in a directory that datasets saved with several splits;
/// nullopt if it is not such a directory.
Result<std::optional<std::string>> train_split_of(Files& files, const std::string& path) {
  const std::string splits_file = path_join(path, "dataset_dict.json");
  DSJ_TRY(const bool there, file_exists(files, splits_file));
  if (!there) return std::nullopt;
  DSJ_TRY(const json saved, read_json_file(files, splits_file));
  std::string names;
  if (saved.is_object() && saved.contains("splits") && saved["splits"].is_array()) {
    for (const json& name : saved["splits"]) {
      if (name == "train") return path_join(path, "train");
      if (name.is_string()) names += (names.empty() ? "" : ", ") + name.get<std::string>();
    }
  }
  return bad_input("has no split train" + (names.empty() ? "" : ", but " + names), path,
                   "name the directory of a split");
}

Result<Paths> files_of_directory(Files& files, const std::string& path) {
  DSJ_TRY(const auto split_directory, train_split_of(files, path));
  if (split_directory) return files_of_directory(files, *split_directory);
  DSJ_TRY(auto saved, files_of_saved(files, path));
  if (saved) return std::move(*saved);
  DSJ_TRY(const auto entries, files.list_dir(path));
  Paths names;
  std::string folders;
  for (const DirEntry& entry : entries) {
    if (is_no_rows(entry.name)) continue;
    DSJ_TRY(const EntryKind kind, files.kind(path_join(path, entry.name)));
    if (kind == EntryKind::Directory) folders += (folders.empty() ? "" : ", ") + entry.name;
    if (kind == EntryKind::File) names.push_back(entry.name);
  }
  const auto is_text = [](const std::string& name) { return name.ends_with(".txt"); };
  if (!std::ranges::all_of(names, is_text)) std::erase_if(names, is_text);  // licenses and notes
  if (names.empty() && folders == kHubFolder)
    return files_of_directory(files, path_join(path, kHubFolder));
  if (names.empty())
    return bad_input("is a directory without files of rows", path,
                     folders.empty() ? "name a file" : "name one of its directories: " + folders);
  const std::string_view split = split_of(names.front());
  if (std::ranges::any_of(names, [&](const auto& name) { return split_of(name) != split; }))
    return bad_input("is a directory with files of several splits: " + listed(names, 8), path,
                     "name those to train on, such as " + path_join(path, "train*"));
  for (std::string& name : names) name = path_join(path, name);
  return names;
}

bool is_pattern(std::string_view path) {
  return path.find_first_of("*?[") != path.npos;
}

/// Adds the paths below `directory` that match `parts` from `at` on, in order of name.
Status match(Files& files, const std::string& directory, const Paths& parts, size_t at,
             Paths& found) {
  if (found.size() > kFilesMax)
    return bad_input("finds more than " + std::to_string(kFilesMax) + " files", directory);
  const std::string& part = parts[at];
  const bool last = at + 1 == parts.size();
  if (!is_pattern(part)) {
    const std::string path = path_join(directory, part);
    DSJ_TRY(const EntryKind kind, files.kind(path));
    if (last && kind == EntryKind::File) found.push_back(path);
    if (!last && kind == EntryKind::Directory) return match(files, path, parts, at + 1, found);
    return {};
  }
  if (part == "**" && !last) {
    DSJ_TRY_STATUS(match(files, directory, parts, at + 1, found));
  }
  DSJ_TRY(const auto entries, files.list_dir(directory));
  for (const DirEntry& entry : entries) {
    if (fnmatch(part.c_str(), entry.name.c_str(), FNM_PERIOD) != 0) continue;
    const std::string path = path_join(directory, entry.name);
    DSJ_TRY(const EntryKind kind, files.kind(path));
    if (kind == EntryKind::Directory && (part == "**" || !last)) {
      DSJ_TRY_STATUS(match(files, path, parts, part == "**" ? at : at + 1, found));
    }
    if (kind == EntryKind::File && last) found.push_back(path);
  }
  return {};
}

Result<Paths> files_of_pattern(Files& files, const std::string& pattern) {
  Paths parts, found;
  for (size_t begin = 0; begin <= pattern.size();) {
    const size_t end = std::min(pattern.find('/', begin), pattern.size());
    if (end > begin) parts.push_back(pattern.substr(begin, end - begin));
    begin = end + 1;
  }
  DSJ_TRY_STATUS(match(files, pattern.starts_with('/') ? "/" : ".", parts, 0, found));
  std::ranges::sort(found);
  const auto twice = std::ranges::unique(found);
  found.erase(twice.begin(), twice.end());
  if (found.empty()) return bad_input("finds no file", pattern);
  return found;
}

/// The files of one path.
Result<Paths> files_of(Files& files, const std::string& path) {
  DSJ_TRY(const EntryKind kind, files.kind(path));
  if (kind == EntryKind::Directory) return files_of_directory(files, path);
  if (kind == EntryKind::Absent && is_pattern(path)) return files_of_pattern(files, path);
  return Paths{path};
}

/// The names of dataset_info.json's data sets with a local file.
Paths names_in(const json& info) {
  Paths names;
  for (const auto& [name, entry] : info.items())
    if (entry.is_object() && entry.contains("file_name")) names.push_back(name);
  return names;
}

Result<RowSource> source_of_entry(Files& files, const std::string& directory, const json& info,
                                  const std::string& name) {
  const std::string where = path_join(directory, kInfo) + ": " + name;
  const Paths known = names_in(info);
  if (!info.contains(name))
    return bad_input(
        "\"" + name + "\" is not in " + path_join(directory, kInfo), kInfoKey,
        text::did_you_mean(name, known) + (known.empty() ? "" : "; it has ") + listed(known));
  const json& entry = info[name];
  if (!entry.is_object() || !entry.contains("file_name") || !entry["file_name"].is_string())
    return bad_input("has no \"file_name\", and nothing is downloaded", where,
                     "download its rows and write their \"file_name\"");
  if (entry.contains("num_samples") && !entry["num_samples"].is_null())
    return bad_input("\"num_samples\" draws rows without a seed", where,
                     "leave it out and write maxSamples");
  RowSource source{.name = name, .files = {}, .names = {}};
  DSJ_TRY(source.names, RowNames::of_entry(entry, where));
  const auto file = entry["file_name"].get<std::string>();
  DSJ_TRY(source.files, files_of(files, file.starts_with('/') ? file : path_join(directory, file)));
  return source;
}

Result<json> read_info(Files& files, const std::string& directory) {
  DSJ_TRY(json info, read_json_file(files, path_join(directory, kInfo)));
  if (!info.is_object())
    return bad_input("is not an object of data sets", path_join(directory, kInfo));
  return info;
}

Result<std::vector<RowSource>> named_sources(Files& files, const std::string& directory,
                                             const std::string& dataset) {
  DSJ_TRY(const bool there, file_exists(files, path_join(directory, kInfo)));
  if (!there)
    return bad_input("names data sets, and dataPath (--dataset_dir) is not a directory with a " +
                         std::string(kInfo),
                     kInfoKey, "leave it out, or name that directory");
  DSJ_TRY(const json info, read_info(files, directory));
  std::vector<RowSource> sources;
  for (const std::string& name : split_commas(dataset)) {
    DSJ_TRY(RowSource source, source_of_entry(files, directory, info, name));
    sources.push_back(std::move(source));
  }
  if (sources.empty()) return bad_input("names no data set", kInfoKey);
  return sources;
}

/// Refuses a data directory of LLaMA-Factory's, because its files are separate data sets.
Status check_choice(Files& files, const std::string& path) {
  DSJ_TRY(const EntryKind kind, files.kind(path));
  if (kind != EntryKind::Directory) return {};
  DSJ_TRY(const bool there, file_exists(files, path_join(path, kInfo)));
  if (!there) return {};
  DSJ_TRY(const json info, read_info(files, path));
  const Paths names = names_in(info);
  if (names.empty()) return {};  // a file of this name written by datasets
  return bad_input("has a " + std::string(kInfo) + " with several data sets", path,
                   "name those to train on in training.dataset: " + listed(names));
}

}  // namespace

Result<std::vector<RowSource>> row_sources(Files& files, const std::string& data_path,
                                           const std::string& dataset, const json& columns) {
  if (!dataset.empty()) {
    if (!columns.is_null())
      return bad_input("dataset_info.json names the columns of its data sets",
                       "training.datasetColumns", "write them there");
    return named_sources(files, data_path, dataset);
  }
  RowNames names;
  if (!columns.is_null()) {
    DSJ_TRY(names, RowNames::of(columns, "training.datasetColumns"));
  }
  DSJ_TRY(const EntryKind whole, files.kind(data_path));
  std::vector<RowSource> sources;
  for (const std::string& path :
       whole == EntryKind::Absent ? split_paths(data_path) : Paths{data_path}) {
    DSJ_TRY_STATUS(check_choice(files, path));
    DSJ_TRY(Paths found, files_of(files, path));
    sources.push_back({path, std::move(found), names});
  }
  if (sources.empty()) return bad_input("names no file of rows", "training.dataPath");
  return sources;
}

Result<Paths> row_files(Files& files, const std::string& data_path, const std::string& dataset) {
  DSJ_TRY(const auto sources, row_sources(files, data_path, dataset, json()));
  Paths all;
  for (const RowSource& source : sources)
    all.insert(all.end(), source.files.begin(), source.files.end());
  return all;
}

}  // namespace dsj::data
