#include "cli/input.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "cli/import/recipe.h"
#include "common/text.h"
#include "job/spec/yaml.h"

namespace dsj::cli {
namespace {

namespace fs = std::filesystem;
using dsconfig::Finding;
using nlohmann::json;

bool has_yaml_name(const std::string& path) {
  const std::string extension = fs::path(path).extension().string();
  return extension == ".yaml" || extension == ".yml";
}

bool is_job(const json& value) {
  return value.is_object() && (value.contains("apiVersion") || value.contains("kind"));
}

/// Whether it is a ROLL pipeline, by its names of workers.
bool is_roll(const json& value) {
  if (!value.is_object()) return false;
  for (const char* role : {"actor_train", "actor_infer", "strategy_args", "reference"})
    if (value.contains(role)) return true;
  return false;
}

/// Whether a YAML document has a ds_config's own keys. Trainer's arguments share the others.
bool is_ds_config(const json& value) {
  if (!value.is_object() || is_job(value)) return false;
  for (const char* key :
       {"zero_optimization", "train_batch_size", "train_micro_batch_size_per_gpu"})
    if (value.contains(key)) return true;
  return false;
}

/// Whether a job that was read for this machine has fields for clusters only.
bool is_for_cluster(const jobspec::Job& job) {
  if (!job.worker_template.is_null() && !job.runs_user_program()) return true;
  return std::ranges::any_of(job.findings, [](const Finding& finding) {
    return finding.severity == Finding::Severity::Unsupported &&
           finding.message.find("in a cluster only") != std::string::npos;
  });
}

}  // namespace

Result<Input> read_input(const std::string& path, const std::vector<std::string>& overrides,
                         Reading reading) {
  // Distinguish an unreadable file from an invalid one. What is read from a pipe is gone.
  if (std::error_code unknown; !fs::is_fifo(path, unknown)) {
    std::ifstream file(path, std::ios::binary);
    if (!file) return bad_input(std::string("cannot be read: ") + std::strerror(errno), path);
    file.peek();
    if (file.bad() || fs::is_directory(path))
      return bad_input("cannot be read: it is not a file", path);
  }
  Input input;
  auto document = has_yaml_name(path)
                      ? jobspec::read_yaml(path, jobspec::Dialect::Core, jobspec::kKind)
                      : dsconfig::read_file(path);
  if (!document) {
    input.syntax = document.error();
    return input;
  }
  if (has_yaml_name(path) && is_roll(document->value))
    return bad_input("this is a ROLL pipeline", path,
                     "`dsj import roll` makes a DeepSpeedJob of one of its roles");
  if (const auto kind = jobimport::recipe_kind(document->value))
    return bad_input("this is a training file of " + *kind, path,
                     "`dsj import " + *kind + "` makes a DeepSpeedJob of it");
  if (has_yaml_name(path)) {
    DSJ_TRY_STATUS(dsconfig::refuse_accelerates(document->value, path));
    if (is_ds_config(document->value))
      return bad_input("this is a ds_config as YAML, which DeepSpeed does not read", path,
                       "save it as JSON, or put it under spec.deepspeed.config of a DeepSpeedJob");
  }
  if (!has_yaml_name(path) && !is_job(document->value)) {
    input.ds_config = std::move(*document);
    return input;
  }
  auto job =
      jobspec::read_manifest(*document, fs::absolute(path).parent_path().string(), overrides);
  if (!job && document->value.is_object()) return std::unexpected(job.error());  // an override
  if (!job) {
    input.syntax = job.error();
    return input;
  }
  input.job = std::move(*job);
  if (reading == Reading::Local || !is_for_cluster(*input.job)) return input;
  DSJ_TRY_STATUS(take_in_config(document->value, path));
  DSJ_TRY(input.job, jobspec::read_manifest(*document, "/", overrides, jobspec::Place::Cluster));
  input.for_cluster = true;
  return input;
}

Status take_in_config(json& manifest, const std::string& path) {
  const json::json_pointer at("/spec/deepspeed/configFrom/file");
  if (!manifest.is_object() || !manifest.contains(at) || !manifest[at].is_string()) return {};
  const fs::path file = fs::absolute(path).parent_path() / manifest[at].get<std::string>();
  DSJ_TRY(auto config, dsconfig::read_file(file.string()));
  json& deepspeed = manifest["spec"]["deepspeed"];
  deepspeed.erase("configFrom");
  deepspeed["config"] = std::move(config.value);
  return {};
}

namespace {

/// Whether the word is a misspelled option, such as "--strct" for "--strict".
bool is_slip(const std::string& word, std::initializer_list<OwnOption> own) {
  if (!word.starts_with("--") || jobspec::is_line_argument(word)) return false;
  std::vector<std::string> names;
  for (const OwnOption& option : own) names.emplace_back(option.name);
  return !text::closest(word, names).empty();
}

}  // namespace

JobWords split_words(Arguments args, std::initializer_list<OwnOption> own) {
  JobWords words;
  std::vector<std::string> rest;
  for (size_t i = 0; i < args.size(); ++i) {
    const std::string& word = args[i];
    const size_t equals = word.find('=');
    const auto option = std::ranges::find(own, word.substr(0, equals), &OwnOption::name);
    if (option == own.end()) {
      (is_slip(word.substr(0, equals), own) ? words.own : rest).push_back(word);
      continue;
    }
    const bool two = option->takes_value && equals == std::string::npos && i + 1 < args.size();
    const std::string value = two                           ? args[i + 1]
                              : equals == std::string::npos ? ""
                                                            : word.substr(equals + 1);
    auto& to = option->is_own && !option->is_own(value) ? rest : words.own;
    to.push_back(word);
    if (two) to.push_back(args[++i]);
  }
  const bool line = !rest.empty() && (rest[0].starts_with("-") || rest[0].ends_with(".py") ||
                                      jobspec::is_launcher(rest[0]));
  (line ? words.line : words.file) = std::move(rest);
  return words;
}

Result<Input> read_line(const std::vector<std::string>& line,
                        const std::vector<std::string>& overrides) {
  Input input;
  DSJ_TRY(input.job, jobspec::job_from_arguments(line, overrides));
  return input;
}

}  // namespace dsj::cli
