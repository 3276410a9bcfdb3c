#include "cli/import/imported.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <optional>
#include <utility>

#include "common/json.h"
#include "common/path_list.h"
#include "job/spec/overrides.h"
#include "job/spec/yaml.h"

namespace dsj::jobimport {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

json::json_pointer pointer(const std::string& dotted) {
  std::string text = "/" + dotted;
  for (char& c : text)
    if (c == '.') c = '/';
  return json::json_pointer(text);
}

void comment(std::string& text, const std::string& title, const std::vector<std::string>& lines) {
  if (lines.empty()) return;
  text += "#\n# " + title + "\n";
  for (const std::string& line : lines) {
    text += "#   ";
    for (char c : line) text += c == '\n' || c == '\r' ? ' ' : c;
    text += '\n';
  }
}

}  // namespace

std::string argument_word(const json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_boolean()) return value.get<bool>() ? "True" : "False";
  if (!value.is_array()) return value.dump();
  std::string words;
  for (const json& one : value) words += (words.empty() ? "" : ",") + argument_word(one);
  return words;
}

std::string sentence_of(const dsconfig::Finding& finding) {
  std::string text = finding.path + ": " + finding.message;
  if (!finding.hint.empty()) text += " (" + finding.hint + ")";
  return text;
}

namespace {

/// Missing evaluation rows, if the job evaluates and the source has none or a split on a hub.
std::optional<Missing> evaluation_rows(const json& manifest) {
  const json::json_pointer at("/spec/training");
  if (!manifest.contains(at) || !manifest[at].is_object()) return std::nullopt;
  if (json_text(manifest["spec"], "launcher") == "Command") return std::nullopt;
  const json& training = manifest[at];
  const std::string when = json_text(training, "evaluationStrategy");
  if ((when.empty() || when == "no") && !json_flag(training, "evalOnStart")) return std::nullopt;
  for (const char* rows : {"evalDataPath", "evalDataset", "valSize", "validationSplitPercentage"})
    if (training.contains(rows)) return std::nullopt;
  return Missing{"spec.training.evalDataPath",
                 "the job evaluates, and no rows are named for it; --set "
                 "spec.training.evaluationStrategy=no leaves evaluations out"};
}

}  // namespace

void take_sharding(Imported& imported, jobspec::Sharding sharding) {
  json& spec = imported.manifest["spec"];
  json& training = spec["training"];
  if (training.is_null()) training = json::object();
  std::string said = "spec.deepspeed.config: no ds_config is named; ";
  if (sharding.stage == 0) {
    said += "ZeRO stage 0 is data parallelism";
  } else {
    const bool packed = json_flag(json_child(training, "lora"), "loadIn4bit");
    said += "FSDP is ZeRO stage " + std::to_string(sharding.stage) + " here";
    if (packed && sharding.stage == 3) {
      sharding.stage = 2;
      said += ", and 2 with a base in 4 bits, which every rank holds whole";
    }
    if (sharding.offload) said += ", with offload to host memory";
  }
  spec["deepspeed"] = {{"config", jobspec::ds_config_of(sharding)}};
  if (sharding.recompute && !training.contains("gradientCheckpointing"))
    training["gradientCheckpointing"] = true;
  imported.left_open.push_back(said);
  imported.made_config = std::move(said);
}

Status finish(Imported& imported, const std::vector<std::string>& overrides) {
  const auto names_config = [](const std::string& text) {
    return text.starts_with("spec.deepspeed.configFrom");
  };
  if (imported.made_config && std::ranges::any_of(overrides, names_config)) {
    imported.manifest["spec"]["deepspeed"].erase("config");
    std::erase(imported.left_open, *imported.made_config);
  }
  for (const std::string& text : overrides) {
    DSJ_TRY(const jobspec::Override change, jobspec::parse_override(text));
    DSJ_TRY_STATUS(jobspec::apply(change, 0, imported.manifest));
  }
  std::string message, hint;
  std::vector<Missing> all = imported.missing;
  if (auto rows = evaluation_rows(imported.manifest)) all.push_back(std::move(*rows));
  for (const Missing& missing : all) {
    if (imported.manifest.contains(pointer(missing.path))) continue;
    message += (message.empty() ? "" : "; ") + missing.path + ": " + missing.message;
    const std::string set = "--set " + missing.path + "=...";
    if (hint.find(set) == std::string::npos) hint += (hint.empty() ? "add " : " ") + set;
  }
  if (!message.empty()) return bad_input(message, imported.origin, hint);
  return {};
}

void make_paths_absolute(json& manifest, const std::string& base) {
  const auto rebase = [&](const char* path, bool only_existing, bool is_list = false) {
    const json::json_pointer at(path);
    if (!manifest.contains(at) || !manifest[at].is_string()) return;
    std::string all;
    const std::string value = manifest[at].get<std::string>();
    for (const std::string& name : is_list ? split_commas(value) : std::vector{value}) {
      std::error_code ignored;
      const fs::path whole = fs::absolute(fs::path(base) / name).lexically_normal();
      const bool stays = name.empty() || name[0] == '/' || name.starts_with("$") ||
                         (only_existing && !name.starts_with(".") && !fs::exists(whole, ignored));
      all += (all.empty() ? "" : ",") + (stays ? name : whole.string());
    }
    manifest[at] = all;
  };
  rebase("/spec/training/modelNameOrPath", true);
  rebase("/spec/training/dataPath", false, true);
  rebase("/spec/training/evalDataPath", false, true);
  rebase("/spec/training/outputDir", false);
  rebase("/spec/training/resumeFromCheckpoint", true);
  rebase("/spec/deepspeed/configFrom/file", false);
}

std::string to_text(const Imported& imported) {
  std::string text;
  comment(text, "Imported from", {imported.origin});
  text.erase(0, 2);  // the leading "#" line
  comment(text, "Predefined:", imported.predefined);
  comment(text, "Left open:", imported.left_open);
  comment(text, "Not carried over:", imported.not_carried);
  return text + jobspec::to_yaml(imported.manifest);
}

std::string job_name(const std::string& words) {
  std::string name;
  for (char c : words) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain = byte < 0x80 && std::isalnum(byte);
    if (plain)
      name += static_cast<char>(std::tolower(byte));
    else if (!name.empty() && name.back() != '-')
      name += '-';
  }
  while (!name.empty() && !std::isalpha(static_cast<unsigned char>(name[0]))) name.erase(0, 1);
  name = name.substr(0, 40);
  while (!name.empty() && name.back() == '-') name.pop_back();
  return name.empty() ? "imported" : name;
}

}  // namespace dsj::jobimport
