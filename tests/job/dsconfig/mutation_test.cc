// One key of a ds_config at a time is flipped, deleted, misspelt or given another type; nothing may
// then silently mean something else. Over the files of the corpus (beside the checkout) when they
// are there, and always over the files in configs/ and one that holds every key.
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <map>
#include <random>
#include <set>

#include "common/text.h"
#include "job/dsconfig/keys/keys.h"
#include "job/dsconfig/keys/resolved_json.h"
#include "job/dsconfig/read/reader.h"
#include "job/dsconfig/resolve.h"
#include "test_paths.h"
#include "tests/job/dsconfig/shared_files.h"

namespace dsj::dsconfig {
namespace {

using nlohmann::json;
using Path = std::vector<std::string>;

/// Read and shown; only an accelerator makes a difference of it.
constexpr char kReported[] = ".pin_memory";

enum class Kind { Flip, Delete, Misspell, Mistype };
constexpr const char* kKindNames[] = {"flipped", "deleted", "misspelt", "mistyped"};

std::string text_of(const Path& path) {
  std::string text;
  for (const std::string& name : path) text += (text.empty() ? "" : ".") + name;
  return text;
}

void collect(const json& object, Path& at, std::vector<Path>& all) {
  if (at.size() > 6) return;
  for (const auto& [name, value] : object.items()) {
    at.push_back(name);
    all.push_back(at);
    if (value.is_object()) collect(value, at, all);
    at.pop_back();
  }
}

json& parent_of(json& config, const Path& path) {
  json* at = &config;
  for (size_t i = 0; i + 1 < path.size(); ++i) at = &(*at)[path[i]];
  return *at;
}

/// Another value of the same type, in range where the key has one.
json flipped(const Key* key, const json& value) {
  if (value.is_boolean()) return !value.get<bool>();
  if (value.is_number()) {
    const double number = value.get<double>();
    const double other = number == -1 ? 2 : number * 2 + 1;
    const double fits = key == nullptr || other <= key->max ? other : key->min;
    return value.is_number_integer() || fits == static_cast<double>(static_cast<int64_t>(fits))
               ? json(static_cast<int64_t>(fits))
               : json(fits);
  }
  if (value.is_string() && key != nullptr)
    for (const std::string& choice : key->choices)
      if (text::normalized(choice) != text::normalized(value.get<std::string>())) return choice;
  if (value.is_string()) return value.get<std::string>() + "x";
  if (value.is_array()) return json::array({0.5, 0.25, 0.125});
  return json{{"frobnicate", 1}};
}

json mistyped(const json& value) {
  if (value.is_boolean()) return "perhaps";
  if (value.is_number()) return json{{"value", 1}};
  if (value.is_string()) return json::array({value});
  if (value.is_array()) return "a list";
  return 17;
}

std::string misspelt(std::string name, std::mt19937& random) {
  const size_t at = random() % name.size();
  switch (random() % 3) {
    case 0:
      if (name.size() > 3) {
        name.erase(at, 1);
        break;
      }
      [[fallthrough]];
    case 1:
      name.insert(at, 1, 'q');
      break;
    default:
      name[at] = name[at] == 'z' ? 'y' : 'z';
  }
  return name;
}

struct Reading {
  std::vector<Finding> findings;
  json config;
  std::map<std::string, std::string> origins;
};

Reading read(const json& config) {
  static const TrainingArgs training = [] {
    TrainingArgs args;
    args.max_steps = 1000;
    return args;
  }();
  const Resolution r =
      resolve(config, training, {.world_size = 1, .hidden_size = 64, .dataset_rows = 1000});
  Reading reading{r.findings, to_json(r.config), {}};
  for (const Origin& origin : r.origins) reading.origins[origin.path] = origin.value;
  return reading;
}

std::string top(const std::string& path) {
  return path.substr(0, path.find('.'));
}

bool above(const std::string& section, const std::string& path) {
  return section.empty() || path == section || path.starts_with(section + ".");
}

/// Whether a finding at `found` speaks of a change at `changed`: at the key, its section, below it,
/// or at a key whose rule names it.
bool speaks_of(const std::string& found, const std::string& changed) {
  static const std::vector<std::set<std::string>> together = {
      {"train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"},
      {"fp16", "bf16", "bfloat16", "amp", "torch_autocast", "data_types",
       "communication_data_type"},
  };
  if (above(found, changed) || above(changed, found)) return true;
  for (const auto& group : together)
    if (group.contains(top(found)) && group.contains(top(changed))) return true;
  // A type decides which parameters there are, a stage or a device what the section means.
  for (const char* decides : {".type", ".stage", ".device"})
    if (top(found) == top(changed) && (changed.ends_with(decides) || found.ends_with(decides)))
      return true;
  return false;
}

std::string line_of(const Finding& finding) {
  return std::to_string(static_cast<int>(finding.severity)) + finding.path + finding.message;
}

class Judge {
 public:
  /// The class of a mutation, or "" when something changed in silence.
  std::string judge(const json& config, const Reading& before, const Reading& after,
                    const Path& path, Kind kind, const json& original) {
    const std::string changed = text_of(path);
    std::set<std::string> known, left;
    for (const Finding& finding : before.findings) known.insert(line_of(finding));
    bool refused = false, warned = false;
    for (const Finding& finding : after.findings) {
      left.insert(line_of(finding));
      if (known.contains(line_of(finding)) || !spoken(finding.path, path, kind)) continue;
      (finding.severity == Finding::Severity::Warning ? warned : refused) = true;
    }
    if (refused) return "refused at the key";
    if (warned) return "warned of at the key";
    for (const Finding& finding :
         before.findings)  // it was spoken of before, and still is, or went
      if (speaks_of(finding.path, changed) &&
          (finding.severity != Finding::Severity::Warning || !left.contains(line_of(finding))))
        return left.contains(line_of(finding)) ? "its section is refused in any case"
                                               : "its finding went with it";
    const Key* key = find_key(changed);
    const bool same = before.config == after.config;
    for (const Finding& finding : before.findings)
      if (same && finding.path == changed && left.contains(line_of(finding)))
        return "warned of in any case";
    if (kind == Kind::Flip || kind == Kind::Delete) {
      if (!same && key != nullptr &&
          (key->state == State::Works || key->type == Type::Section ||
           key->path.ends_with(kReported)))
        return "read as it says now";
      if (same && kind == Kind::Flip && is_off(config, path)) return "its section is off";
      if (same && overruled(config, key, kind)) return "overruled by another key";
      if (same && stays_in_memory(after.config, key)) return "nothing is offloaded";
      if (same && harmless(before, key, path, kind, original)) return "the same meaning";
      return "";
    }
    // A slip in a key: no finding at all is only right where nobody looks.
    return same && (key == nullptr || nobody_looks(before, path)) ? "nobody reads it there" : "";
  }

 private:
  /// A misspelt key has its finding at the new name: in the same section.
  static bool spoken(const std::string& found, const Path& path, Kind kind) {
    if (speaks_of(found, text_of(path))) return true;
    if (kind != Kind::Misspell) return false;
    const std::string section = text_of(Path(path.begin(), path.end() - 1));
    return found.size() > section.size() && above(section, found);
  }

  static bool harmless(const Reading& before, const Key* key, const Path& path, Kind kind,
                       const json& original) {
    if (key == nullptr || nobody_looks(before, path)) return true;
    if (key->state == State::Moot || key->state == State::WithSection) return true;
    if (key->type == Type::Section) return true;  // what it holds is mutated by itself
    // The default is what it said. A null or an "auto" that has no rule said nothing.
    return kind == Kind::Delete || original.is_null() || original == "auto" ||
           (key->state == State::Inert && original == key->fallback);
  }

  /// A key of a section that has a switch, and the switch is not on.
  static bool is_off(const json& config, const Path& path) {
    if (path.size() < 2 || path.back() == "enabled") return false;
    if (find_key(path[0] + ".enabled") == nullptr) return false;
    const json& section = config[path[0]];
    if (!section.is_object() || !section.contains("enabled")) return true;
    return section["enabled"] != true && section["enabled"] != "true";
  }

  /// Working keys whose value another key makes void, as in DeepSpeed.
  static bool overruled(const json& config, const Key* key, Kind kind) {
    if (kind != Kind::Flip || key == nullptr) return false;
    // "AdamW" is decoupled whatever adam_w_mode says; a permission that nothing needs; forced on by
    // the FLOPS profiler; the two Adams differ in names and defaults of parameters that are
    // written.
    static const std::set<std::string> paths = {
        "optimizer.params.adam_w_mode", "zero_allow_untested_optimizer", "wall_clock_breakdown",
        "optimizer.params.torch_adam"};
    if (paths.contains(key->path)) return true;
    // A fixed scale has no dynamics.
    const json fixed = config.value("/fp16/loss_scale"_json_pointer, json(0));
    return key->path.starts_with("fp16.") && fixed.is_number() && fixed != 0;
  }

  /// A key of offloading, and what it is about was not moved, or not to a disk.
  static bool stays_in_memory(const json& resolved, const Key* key) {
    if (key == nullptr) return false;
    const json& offload = resolved["offload"];
    const auto device = [&](const char* section) {
      return offload.contains(section) ? offload[section]["device"] : json("none");
    };
    if (key->path == "zero_optimization.sub_group_size")
      return device("offload_optimizer") != "nvme";
    for (const char* section : {"offload_optimizer", "offload_param"})
      if (key->path.starts_with(std::string("zero_optimization.") + section + "."))
        return device(section) == "none";
    return false;
  }

  /// Remarks, and sections whose inside is not this table's.
  static bool nobody_looks(const Reading&, const Path& path) {
    std::string at;
    for (const std::string& name : path) {
      if (name.starts_with("_") || name.starts_with("//") || name.starts_with("#") ||
          text::normalized(name).starts_with("comment"))
        return true;
      const Key* section = find_key(at);
      if (section != nullptr && section->open) return true;
      at += (at.empty() ? "" : ".") + name;
    }
    return false;
  }
};

struct Tally {
  std::map<std::string, int> classes[4];
  int total = 0, silent = 0, values_checked = 0;
};

/// A number that a working key was given must be the number that the engine runs by.
bool arrives(const json& resolved, const std::string& path, const json& value) {
  std::string pointer = "/" + path;
  std::ranges::replace(pointer, '.', '/');
  for (const auto& [from, to] :
       {std::pair{"/optimizer/params/", "/optimizer/"},
        std::pair{"/scheduler/params/warmup_num_steps", "/scheduler/warmup_steps"}})
    if (pointer.starts_with(from)) pointer = to + pointer.substr(std::string(from).size());
  const json::json_pointer at(pointer);
  return !resolved.contains(at) || resolved[at] == value;
}

void mutate(const json& config, const std::string& name, std::mt19937& random, Tally& tally) {
  const Reading before = read(config);
  std::vector<Path> paths;
  Path at;
  collect(config, at, paths);
  for (const Path& path : paths)
    for (const Kind kind : {Kind::Flip, Kind::Delete, Kind::Misspell, Kind::Mistype}) {
      json changed = config;
      json& section = parent_of(changed, path);
      const json original = section[path.back()];
      const Key* key = find_key(text_of(path));
      if (kind == Kind::Flip) section[path.back()] = flipped(key, original);
      if (kind == Kind::Mistype) section[path.back()] = mistyped(original);
      if (kind == Kind::Delete || kind == Kind::Misspell) section.erase(path.back());
      if (kind == Kind::Misspell) {
        const std::string other = misspelt(path.back(), random);
        if (section.contains(other) || find_key(text_of(Path(path.begin(), path.end() - 1)) +
                                                (path.size() > 1 ? "." : "") + other) != nullptr)
          continue;  // it became another key
        section[other] = original;
      }
      const Reading after = read(changed);
      const std::string verdict = Judge().judge(config, before, after, path, kind, original);
      ++tally.total;
      ++tally.classes[static_cast<int>(kind)][verdict];
      if (verdict == "read as it says now" && kind == Kind::Flip && key->type != Type::Section &&
          section[path.back()].is_number()) {
        ++tally.values_checked;
        EXPECT_TRUE(arrives(after.config, key->path, section[path.back()]))
            << name << ": " << text_of(path) << " = " << section[path.back()] << "\n"
            << after.config.dump();
      }
      if (!verdict.empty()) continue;
      if (++tally.silent <= 20)
        ADD_FAILURE() << name << ": " << text_of(path) << " " << kKindNames[static_cast<int>(kind)]
                      << " from " << original.dump()
                      << " changes something, or nothing, in silence";
    }
}

void print(const char* what, const Tally& tally) {
  std::cout << what << ": " << tally.total << " mutations, " << tally.silent
            << " silently different, " << tally.values_checked << " new values found again\n";
  for (int kind = 0; kind < 4; ++kind) {
    std::cout << "  " << kKindNames[kind] << ":";
    for (const auto& [verdict, count] : tally.classes[kind])
      std::cout << " " << count << " " << (verdict.empty() ? "SILENT" : verdict) << ";";
    std::cout << "\n";
  }
}

TEST(Mutation, NothingInOurConfigsChangesInSilence) {
  std::mt19937 random(5);
  Tally tally;
  for (const auto& entry : fs::directory_iterator(fs::path(DSJ_SOURCE_DIR) / "configs")) {
    if (entry.path().extension() != ".json") continue;
    const auto document = read_file(entry.path().string());
    ASSERT_TRUE(document);
    mutate(document->value, entry.path().filename().string(), random, tally);
  }
  print("configs/", tally);
  EXPECT_GT(tally.total, 300);
  EXPECT_EQ(tally.silent, 0);
}

TEST(Mutation, NothingInTheCorpusChangesInSilence) {
  const fs::path folder = shared() / "corpus" / "ds_configs";
  if (!fs::exists(folder)) GTEST_SKIP() << folder << " is not here: NOT RUN";
  std::mt19937 random(7);
  Tally tally;
  for (const Row& row : corpus_index(folder)) {
    const auto document = read_file((folder / row.file).string());
    ASSERT_TRUE(document) << row.file;
    mutate(document->value, row.file, random, tally);
  }
  print("corpus", tally);
  EXPECT_GE(tally.total, 20'000);
  EXPECT_EQ(tally.silent, 0);
}

}  // namespace
}  // namespace dsj::dsconfig
