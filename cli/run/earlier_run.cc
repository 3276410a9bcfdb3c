#include "cli/run/earlier_run.h"

#include <algorithm>
#include <array>
#include <filesystem>

#include "common/files/replace_file.h"
#include "engine/data/files/data_record.h"
#include "engine/data/files/row_sources.h"
#include "engine/weights/export_record.h"

namespace dsj::cli {
namespace {

using nlohmann::json;

constexpr char kInputsFile[] = "inputs.json";
/// A larger data file is identified by its size and its ends, so that a start is quick.
constexpr int64_t kReadWholeMax = int64_t{1} << 30;

/// Arguments that do not change what a step computes, or that are recorded in another way.
constexpr std::array kNoSetting = {
    "modelNameOrPath", "dataPath",       "evalDataPath",           "outputDir",
    "maxSteps",        "numTrainEpochs", "loggingSteps",           "loggingFirstStep",
    "saveStrategy",    "saveSteps",      "saveTotalLimit",         "evaluationStrategy",
    "evalSteps",       "evalOnStart",    "perDeviceEvalBatchSize", "gradientCheckpointing",
    "ignoreDataSkip",  "device",         "resumeFromCheckpoint",   "overwriteOutputDir",
    "evalDelay",       "loggingDir",     "loggingStrategy",        "reportTo",
    "runName"};
/// Sections of ds_config to which this applies, too.
constexpr std::array kNoSection = {"activation_checkpointing",
                                   "aio",
                                   "autotuning",
                                   "checkpoint",
                                   "comet",
                                   "comms_logger",
                                   "csv_monitor",
                                   "dump_state",
                                   "flops_profiler",
                                   "memory_breakdown",
                                   "monitor_config",
                                   "steps_per_print",
                                   "tensorboard",
                                   "wall_clock_breakdown",
                                   "wandb",
                                   "zero_optimization",
                                   "zero_allow_untested_optimizer"};

json to_json(const weights::FileMark& mark) {
  return {{"bytes", mark.bytes}, {"ends", mark.ends}};
}

Result<json> file_content(Files& files, const std::string& path) {
  DSJ_TRY(const auto mark, weights::mark_of(files, path));
  if (mark.bytes > kReadWholeMax) return to_json(mark);
  DSJ_TRY(const std::string content, data::content_of(files, path));
  return json(content);
}

/// The content of the rows: that of one file, or of each file by path.
Result<json> rows_content(Files& files, const std::string& data_path, const std::string& dataset) {
  DSJ_TRY(const auto paths, data::row_files(files, data_path, dataset));
  if (paths.size() == 1) return file_content(files, paths.front());
  json content = json::object();
  for (const std::string& path : paths) {
    DSJ_TRY(content[path], file_content(files, path));
  }
  return content;
}

/// The content of the configuration and the weights.
Result<json> model_content(Files& files, const std::string& directory) {
  json content = json::object();
  DSJ_TRY(const auto entries, files.list_dir(directory));
  for (const DirEntry& entry : entries) {
    const std::string& name = entry.name;
    if (name != "config.json" && !name.ends_with(".safetensors") && !name.ends_with(".bin"))
      continue;
    const std::string path = path_join(directory, name);
    DSJ_TRY(const EntryKind kind, files.kind(path));
    if (kind != EntryKind::File) continue;
    DSJ_TRY(const auto mark, weights::mark_of(files, path));
    content[name] = to_json(mark);
  }
  return content;
}

/// "learningRate was 0.001 and is 0.002", one per value.
std::vector<std::string> differences(const json& before, const json& now) {
  std::vector<std::string> all;
  const json then_flat = before.is_object() ? before.flatten() : json::object();
  const json now_flat = now.is_object() ? now.flatten() : json::object();
  const auto shown = [](std::string path) {
    if (path.starts_with("/")) path.erase(0, 1);
    std::ranges::replace(path, '/', '.');
    return path;
  };
  for (const auto& [path, value] : now_flat.items())
    if (!then_flat.contains(path))
      all.push_back(shown(path) + " was not given and is " + value.dump());
    else if (then_flat[path] != value)
      all.push_back(shown(path) + " was " + then_flat[path].dump() + " and is " + value.dump());
  for (const auto& [path, value] : then_flat.items())
    if (!now_flat.contains(path))
      all.push_back(shown(path) + " was " + value.dump() + " and is not given");
  return all;
}

/// Compares a model or data file by content. Empty if it is the same.
std::string other(const char* what, const json& before, const json& now) {
  if (!before.is_object() || before.value("content", json()) == now.value("content", json()))
    return "";
  const std::string then_path = before.value("path", ""), now_path = now.value("path", "");
  if (then_path == now_path)
    return "it had " + std::string(what) + " " + now_path + ", whose content has changed";
  return "it had " + std::string(what) + " " + then_path + ", now it is " + now_path;
}

}  // namespace

Result<json> inputs_of(Files& files, const jobspec::Job& job) {
  const TrainingArgs& training = job.training;
  json settings = dsj::to_json(training), config = job.ds_config;
  for (const char* name : kNoSetting) settings.erase(name);
  if (config.is_object())
    for (const char* name : kNoSection) config.erase(name);
  json inputs = {{"settings", settings},
                 {"ds_config", config},
                 {"length",
                  {{"maxSteps", training.max_steps.value_or(0)},
                   {"numTrainEpochs", training.num_train_epochs.value_or(3)}}}};
  DSJ_TRY(json model, model_content(files, training.model_name_or_path));
  inputs["model"] = {{"path", training.model_name_or_path}, {"content", std::move(model)}};
  if (training.lora && !training.lora->adapter.empty()) {
    DSJ_TRY(json content, model_content(files, training.lora->adapter));
    inputs["adapter"] = {{"path", training.lora->adapter}, {"content", std::move(content)}};
  }
  DSJ_TRY(json data, rows_content(files, training.data_path, training.dataset.value_or("")));
  inputs["data"] = {{"path", training.data_path}, {"content", std::move(data)}};
  if (const auto [path, dataset] = eval_source(training); !path.empty()) {
    DSJ_TRY(json content, rows_content(files, path, dataset));
    inputs["eval"] = {{"path", path}, {"content", std::move(content)}};
  }
  return inputs;
}

json recorded_inputs(Files& files, const std::string& run_dir) {
  const auto text = files.read_all(path_join(run_dir, kInputsFile));
  if (!text) return nullptr;
  const json inputs = json::parse(*text, nullptr, /*allow_exceptions=*/false);
  return inputs.is_object() ? inputs : json(nullptr);
}

Status record_inputs(Files& files, const std::string& run_dir, const json& inputs) {
  return replace_file(files, path_join(run_dir, kInputsFile), inputs.dump(1) + "\n");
}

Course course_after(const EarlierRun& earlier, const json& now, bool ignore_data_skip) {
  const json& before = earlier.inputs;
  if (!before.is_object() || (!earlier.finished && !earlier.has_checkpoints)) return {};
  const bool ended =
      earlier.finished && before.value("length", json()) == now.value("length", json());
  Course course;
  std::vector<std::string> otherwise;
  if (const auto what = other("model", before.value("model", json()), now["model"]); !what.empty())
    course.said.push_back(what);
  if (const auto what = other("data", before.value("data", json()), now["data"]); !what.empty())
    (ignore_data_skip && !ended ? otherwise : course.said).push_back(what);
  for (const char* key : {"settings", "ds_config"})
    for (const auto& what : differences(before.value(key, json()), now.value(key, json())))
      (ended ? course.said : otherwise).push_back(what);
  if (!course.said.empty()) {
    course.kind = Course::Kind::Refuse;
    return course;
  }
  course.said = std::move(otherwise);
  return course;
}

std::string ways_on(const EarlierRun& earlier, const json& now) {
  const bool by_data_only = course_after(earlier, now, true).kind == Course::Kind::GoOn;
  return std::string(by_data_only
                         ? "continue with these rows: --ignore_data_skip True (in a manifest "
                           "ignoreDataSkip: true), "
                         : "") +
         "name another output directory (--output_dir DIR), or start over in this one: "
         "--overwrite_output_dir True (in a manifest overwriteOutputDir: true)";
}

}  // namespace dsj::cli
