#include "engine/deepspeed/folder.h"

#include <charconv>
#include <optional>
#include <set>
#include <utility>

#include "common/check.h"

namespace dsj::deepspeed {
namespace {

constexpr char kModelEnd[] = "_model_states.pt";
constexpr char kOptimEnd[] = "_optim_states.pt";
constexpr char kLatest[] = "latest";
constexpr char kLatestUniversal[] = "latest_universal";

bool skip(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

std::optional<int> take_number(std::string_view& text) {
  int value = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (problem != std::errc{} || value < 0) return std::nullopt;
  text.remove_prefix(size_t(end - text.data()));
  return value;
}

struct FileName {
  bool optimizer = false, bf16 = false, by_rank = false;
  int rank = 0, model_rank = 0;
};

/// Splits the name before and after the rank's number. The second part may be empty.
std::pair<std::string, std::string> parts_of(const FileName& name) {
  const std::string model_rank = std::to_string(name.model_rank);
  const std::string end = "mp_rank_" + std::string(model_rank.size() < 2 ? "0" : "") + model_rank +
                          (name.optimizer ? kOptimEnd : kModelEnd);
  const std::string begin = name.bf16 ? "bf16_" : "";
  if (!name.by_rank) return {begin + end, ""};
  return {begin + "zero_pp_rank_", "_" + end};
}
RankFiles files_like(const FileName& name, const std::string& folder, size_t count) {
  const auto [before, after] = parts_of(name);
  return {path_join(folder, before), after, count};
}

/// "bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt", "mp_rank_00_model_states.pt"; else nullopt.
std::optional<FileName> parse(std::string_view name) {
  const std::string_view whole = name;
  FileName parsed;
  parsed.bf16 = skip(name, "bf16_");
  if (skip(name, "zero_pp_rank_")) {
    parsed.by_rank = true;
    const auto rank = take_number(name);
    if (!rank || !skip(name, "_")) return std::nullopt;
    parsed.rank = *rank;
  }
  if (!skip(name, "mp_rank_")) return std::nullopt;
  const auto model_rank = take_number(name);
  if (!model_rank) return std::nullopt;
  parsed.model_rank = *model_rank;
  parsed.optimizer = name == kOptimEnd;
  if (!parsed.optimizer && name != kModelEnd) return std::nullopt;
  const auto [before, after] = parts_of(parsed);
  const std::string written = before + (after.empty() ? "" : std::to_string(parsed.rank) + after);
  return whole == written ? std::optional(parsed) : std::nullopt;
}

Result<std::string> tag_of(Files& files, const std::string& path) {
  DSJ_TRY(std::string tag, files.read_all(path, 4096));
  while (!tag.empty() && (tag.back() == '\n' || tag.back() == ' ' || tag.back() == '\r'))
    tag.pop_back();
  // A folder beside the file, never a path, because the file is not trusted.
  if (tag.empty() || tag == "." || tag == ".." || tag.find('/') != std::string::npos)
    return bad_input("it does not name a folder beside it", path);
  return tag;
}

Status refuse_others(const std::string& name, const std::string& path) {
  if (name.starts_with("layer_"))
    return bad_input("it contains " + name + ": pipeline parallelism and experts are not supported",
                     path);
  if (name.starts_with("expp_rank_"))
    return bad_input("it contains " + name + ": experts are not supported", path);
  if (name == "offloaded_tensors")
    return bad_input("its states are on NVMe, in " + name + ", in an unsupported form", path,
                     "save it without offload to NVMe, or convert it with ds_to_universal.py");
  return {};
}

/// The existing files of one kind.
struct Found {
  FileName first;
  std::set<int> ranks;

  void add(const FileName& name) {
    if (ranks.empty()) first = name;
    ranks.insert(name.rank);
  }
};

/// Checks that the ranks are consecutive from 0.
Result<RankFiles> in_order(const Found& found, const std::string& what, const std::string& path) {
  int next = 0;
  for (const int rank : found.ranks)
    if (rank != next++)
      return bad_input("the " + what + " of rank " + std::to_string(next - 1) + " are missing",
                       path, "copy the files of all ranks");
  return found.ranks.empty() ? RankFiles{} : files_like(found.first, path, found.ranks.size());
}

Result<Folder> read_tag(Files& files, const std::string& path) {
  DSJ_TRY(const auto entries, files.list_dir(path));
  Folder folder{.path = path};
  Found model[2], optim[2];  // [by_rank], [bf16]
  for (const DirEntry& entry : entries) {
    DSJ_TRY_STATUS(refuse_others(entry.name, path));
    folder.universal =
        folder.universal || (entry.name == "zero" && entry.kind == EntryKind::Directory);
    const auto name = parse(entry.name);
    if (!name) continue;
    if (name->model_rank != 0)
      return bad_input("it contains " + entry.name + ": tensor parallelism is not supported", path);
    (name->optimizer ? optim[name->bf16] : model[name->by_rank]).add(*name);
  }
  if (model[0].ranks.empty() && model[1].ranks.empty())
    return bad_input("not a DeepSpeed checkpoint: there is neither \"latest\" nor a file *" +
                         std::string(kModelEnd),
                     path);
  if (!optim[0].ranks.empty() && !optim[1].ranks.empty())
    return bad_input("it has optimizer states of two runs: with and without bf16_ in their names",
                     path);
  DSJ_TRY(folder.models, in_order(model[model[0].ranks.empty()], "model states", path));
  if (!folder.universal) {
    DSJ_TRY(folder.optims, in_order(optim[optim[0].ranks.empty()], "optimizer states", path));
  }
  return folder;
}

}  // namespace

Result<bool> is_deepspeed(Files& files, const std::string& path) {
  DSJ_TRY(const EntryKind kind, files.kind(path));
  if (kind != EntryKind::Directory) return false;
  DSJ_TRY(const auto entries, files.list_dir(path));
  for (const DirEntry& entry : entries)
    if (entry.name == kLatest || entry.name == kLatestUniversal || entry.name.ends_with(kModelEnd))
      return true;
  return false;
}

Result<Folder> find_folder(Files& files, const std::string& path, bool universal) {
  DSJ_TRY(const EntryKind kind, files.kind(path));
  if (kind != EntryKind::Directory)
    return bad_input(kind == EntryKind::Absent ? "it does not exist" : "it is not a directory",
                     path,
                     "name a DeepSpeed checkpoint: the folder with \"latest\", or one tag in it");
  DSJ_TRY(const bool plain, files.exists(path_join(path, kLatest)));
  DSJ_TRY(const bool converted, files.exists(path_join(path, kLatestUniversal)));
  if (!plain && !converted) return read_tag(files, path);
  const char* pointer = converted && (universal || !plain) ? kLatestUniversal : kLatest;
  DSJ_TRY(const std::string tag, tag_of(files, path_join(path, pointer)));
  const std::string target = path_join(path, tag);
  DSJ_TRY(const bool there, files.exists(target));
  if (!there)
    return bad_input(std::string("\"") + pointer + "\" names " + tag + ", which is not there", path,
                     "copy it, or name another tag");
  return read_tag(files, target);
}

std::string to_text(const Folder& folder) {
  std::string text;
  // Paths have no zero bytes.
  const auto add = [&](const std::string& field) { text += field + '\0'; };
  add(folder.path);
  add(folder.universal ? "universal" : "");
  for (const RankFiles& files : {folder.models, folder.optims}) {
    add(files.before);
    add(files.after);
    add(std::to_string(files.count));
  }
  return text;
}

Folder folder_of_text(const std::string& text) {
  size_t at = 0;
  const auto next = [&] {
    const size_t end = text.find('\0', at);
    DSJ_CHECK(end != std::string::npos, "a folder's text of %zu bytes is cut off", text.size());
    const size_t begin = std::exchange(at, end + 1);
    return text.substr(begin, end - begin);
  };
  Folder folder;
  folder.path = next();
  folder.universal = !next().empty();
  for (RankFiles* files : {&folder.models, &folder.optims}) {
    files->before = next();
    files->after = next();
    files->count = std::stoull(next());
  }
  return folder;
}

}  // namespace dsj::deepspeed
