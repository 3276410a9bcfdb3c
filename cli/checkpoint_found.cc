#include "cli/checkpoint_found.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <set>

#include "common/grouped.h"
#include "common/text.h"
#include "engine/checkpoint/reader.h"
#include "engine/checkpoint/retention.h"
#include "engine/deepspeed/checkpoint.h"
#include "job/contract.h"

namespace dsj::cli {
namespace {

using nlohmann::json;

/// Counts the files of a directory, recursively. Unreadable entries are skipped.
void count_files(Files& files, const std::string& path, FoundCheckpoint& found, int depth = 0) {
  const auto entries = files.list_dir(path);
  if (!entries || depth > 3) return;
  for (const DirEntry& entry : *entries) {
    const std::string inside = path_join(path, entry.name);
    if (entry.kind == EntryKind::Directory) {
      count_files(files, inside, found, depth + 1);
    } else if (const auto file = files.open_read(inside)) {
      ++found.files;
      found.bytes += (*file)->size();
    }
  }
}

void take_run_state(const json& state, FoundCheckpoint& found) {
  const auto whole = [&](const char* key, int64_t fallback) {
    const auto value = state.find(key);
    return value != state.end() && value->is_number_integer() ? value->get<int64_t>() : fallback;
  };
  found.skipped = whole("skipped", 0);
  found.updates = whole("updates", found.step - found.skipped);
  if (state.contains("stage")) found.stage = whole("stage", 0);
  const json scaler = state.value("loss_scaler", json());
  if (scaler.is_object() && scaler.value("scale", 1.0) != 1.0)
    found.loss_scale = scaler["scale"].get<double>();
}

template <typename Tensors>
void take_tensors(const Tensors& tensors, FoundCheckpoint& found) {
  std::set<std::string> states;
  for (const auto& [state, elements] : tensors) {
    states.insert(state);
    if (state != "master") continue;
    ++found.parameters;
    found.elements += elements;
  }
  found.states.assign(states.begin(), states.end());
}

/// 1234567 → "1,234,567".
std::string joined(const std::vector<std::string>& words) {
  std::string all;
  for (const std::string& word : words) all += (all.empty() ? "" : ", ") + word;
  return all;
}

/// The directory with the step-<S> directories; empty if there is none.
Result<std::string> directory_of_steps(Files& files, const std::string& path) {
  for (const std::string& candidate : {path_join(path, contract::kCheckpointsDir), path}) {
    DSJ_TRY(const EntryKind kind, files.kind(candidate));
    if (kind != EntryKind::Directory) continue;
    DSJ_TRY(const auto entries, files.list_dir(candidate));
    for (const DirEntry& entry : entries) {
      const auto name = checkpoint::parse_dir_name(entry.name);
      if (name && name->kind == checkpoint::DirName::Kind::Step) return candidate;
    }
  }
  return std::string();
}

/// Refuses a directory with DeepSpeed checkpoints but without a file "latest".
Status refuse_without_latest(Files& files, const std::string& path) {
  DSJ_TRY(const EntryKind kind, files.kind(path));
  if (kind != EntryKind::Directory) return {};
  DSJ_TRY(const auto entries, files.list_dir(path));
  for (const DirEntry& entry : entries) {
    if (entry.kind != EntryKind::Directory) continue;
    DSJ_TRY(const bool known, deepspeed::is_deepspeed(files, path_join(path, entry.name)));
    DSJ_TRY(const bool parent, files.exists(path_join(path_join(path, entry.name), "latest")));
    if (known && !parent)
      return bad_input("it has DeepSpeed checkpoints, but no file \"latest\" that names one", path,
                       "name one of them: " + path_join(path, entry.name));
  }
  return {};
}

}  // namespace

Result<CheckpointPath> find_checkpoints(Files& files, const std::string& path) {
  using Kind = CheckpointPath::Kind;
  DSJ_TRY(const bool deepspeeds, deepspeed::is_deepspeed(files, path));
  if (deepspeeds) return CheckpointPath{Kind::DeepSpeeds, {path}};
  DSJ_TRY(const bool one, files.exists(path_join(path, checkpoint::kManifestFile)));
  if (one) return CheckpointPath{Kind::Ours, {path}};
  DSJ_TRY(const std::string steps, directory_of_steps(files, path));
  if (steps.empty()) DSJ_TRY_STATUS(refuse_without_latest(files, path));
  if (steps.empty())
    return bad_input("no checkpoint", path,
                     "name a run's output directory, one step-<S> in its checkpoints, or a "
                     "DeepSpeed checkpoint");
  DSJ_TRY(const auto candidates, checkpoint::list_candidates(files, steps));
  CheckpointPath found{Kind::Ours, {}};
  for (const auto& candidate : candidates) found.paths.push_back(path_join(steps, candidate.name));
  return found;
}

FoundCheckpoint describe_ours(Files& files, const std::string& path, bool verify) {
  FoundCheckpoint found{.path = path, .writer = "dsj"};
  count_files(files, path, found);
  auto reader = checkpoint::Reader::open(files, path);
  if (!reader) {
    found.damage = reader.error().to_string();
    return found;
  }
  found.step = reader->step();
  found.world = reader->world();
  take_run_state(reader->run_state(), found);
  std::vector<std::pair<std::string, int64_t>> tensors;
  for (const auto& extent : reader->extents()) tensors.emplace_back(extent.state, extent.elements);
  take_tensors(tensors, found);
  const Status sound = verify ? reader->verify() : reader->check_parts();
  if (!sound) found.damage = sound.error().to_string();
  found.verified = verify && !found.damage;
  return found;
}

FoundCheckpoint describe_deepspeeds(Files& files, const std::string& path, bool universal,
                                    bool verify) {
  FoundCheckpoint found{.path = path, .writer = "DeepSpeed"};
  auto opened = deepspeed::Checkpoint::open(files, path, {.universal = universal});
  if (!opened) {
    count_files(files, path, found);
    found.damage = opened.error().to_string();
    return found;
  }
  found.path = opened->path();
  count_files(files, found.path, found);
  if (!opened->version().empty()) found.writer += " " + opened->version();
  if (opened->universal()) found.writer += ", universal";
  found.step = opened->step();
  found.world = opened->world();
  take_run_state(opened->run_state(), found);
  std::vector<std::pair<std::string, int64_t>> tensors;
  for (const auto& [name, dealt] : opened->tensors())
    tensors.emplace_back(name.first, dealt.elements);
  take_tensors(tensors, found);
  found.frozen = static_cast<int64_t>(opened->frozen_count());
  found.notes = opened->notes();
  const Status sound = verify ? opened->verify() : opened->check_parts();
  if (!sound) found.damage = sound.error().to_string();
  found.verified = verify && !found.damage;
  return found;
}

json to_json(const FoundCheckpoint& found) {
  json out = {{"path", found.path},   {"writer", found.writer},     {"files", found.files},
              {"bytes", found.bytes}, {"verified", found.verified}, {"damage", nullptr}};
  if (found.damage) out["damage"] = *found.damage;
  if (found.world == 0) return out;  // the rest could not be read
  out.update({{"step", found.step},
              {"skipped", found.skipped},
              {"updates", found.updates},
              {"worldSize", found.world},
              {"stage", nullptr},
              {"lossScale", nullptr},
              {"parameters", found.parameters},
              {"elements", found.elements},
              {"frozenParameters", found.frozen},
              {"states", found.states},
              {"notes", found.notes}});
  if (found.stage) out["stage"] = *found.stage;
  if (found.loss_scale) out["lossScale"] = *found.loss_scale;
  return out;
}

std::string to_text(const FoundCheckpoint& found) {
  std::string out = found.path + "\n";
  const auto line = [&](const char* name, const std::string& value) {
    std::array<char, 32> label;
    std::snprintf(label.data(), label.size(), "  %-12s", name);
    out += label.data() + value + "\n";
  };
  line("written by", found.writer);
  if (found.world > 0) {
    line("step", text::grouped(found.step) + ", " + text::grouped(found.updates) + " updates, " +
                     text::grouped(found.skipped) + " skipped");
    line("ranks", std::to_string(found.world) +
                      (found.stage ? ", ZeRO stage " + std::to_string(*found.stage) : ""));
    line("parameters",
         text::grouped(found.parameters) + " tensors, " + text::grouped(found.elements) +
             " elements" +
             (found.frozen > 0 ? ", " + text::grouped(found.frozen) + " of the tensors frozen"
                               : ""));
    line("states", joined(found.states));
    if (found.loss_scale) line("loss scale", text::number(*found.loss_scale));
  }
  line("size", text::grouped(found.bytes) + " bytes in " + text::grouped(found.files) +
                   (found.files == 1 ? " file" : " files"));
  for (const std::string& note : found.notes) line("note", note);
  line("damage", found.damage     ? *found.damage
                 : found.verified ? "none: every byte was checked"
                                  : "not checked");
  return out;
}

}  // namespace dsj::cli
