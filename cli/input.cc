#include "cli/input.h"

#include <cctype>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "cli/hub_cache.h"
#include "cli/measured_rows.h"
#include "common/files/posix_files.h"
#include "engine/weights/output_place.h"
#include "job/dsconfig/metric_curriculum.h"
#include "job/layout/lora.h"
#include "job/spec/yaml.h"

namespace dsj::cli {
namespace {

namespace fs = std::filesystem;
using dsconfig::Finding;
using nlohmann::json;
using Severity = Finding::Severity;

bool has_yaml_name(const std::string& path) {
  const std::string extension = fs::path(path).extension().string();
  return extension == ".yaml" || extension == ".yml";
}

bool is_job(const json& value) {
  return value.is_object() && (value.contains("apiVersion") || value.contains("kind"));
}

/// ROLL's pipelines name their workers so.
bool is_roll(const json& value) {
  if (!value.is_object()) return false;
  for (const char* role : {"actor_train", "actor_infer", "strategy_args", "reference"})
    if (value.contains(role)) return true;
  return false;
}

/// Counts the elements of a top-level array, or 1 for another value. Keeps nothing.
class RowCounter : public nlohmann::json_sax<json> {
 public:
  int64_t rows = 0;
  bool null() override { return value(); }
  bool boolean(bool) override { return value(); }
  bool number_integer(number_integer_t) override { return value(); }
  bool number_unsigned(number_unsigned_t) override { return value(); }
  bool number_float(number_float_t, const string_t&) override { return value(); }
  bool string(string_t&) override { return value(); }
  bool binary(binary_t&) override { return value(); }
  bool start_object(std::size_t) override { return open(); }
  bool key(string_t&) override { return true; }
  bool end_object() override { return --depth_ >= 0; }
  bool start_array(std::size_t) override { return open(); }
  bool end_array() override { return --depth_ >= 0; }
  bool parse_error(std::size_t, const std::string&, const json::exception&) override {
    return false;
  }

 private:
  bool value() {
    rows += depth_ == 1;
    return true;
  }
  bool open() {
    rows += depth_ == 1;
    ++depth_;
    return true;
  }
  int depth_ = 0;
};

std::optional<int64_t> count_rows(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  file >> std::ws;
  if (file.peek() == '[') {
    RowCounter counter;
    if (!json::sax_parse(file, &counter)) return std::nullopt;
    return counter.rows;
  }
  int64_t rows = 0;
  for (std::string line; std::getline(file, line);)
    rows += line.find_first_not_of(" \t\r") != std::string::npos;
  return file.bad() ? std::nullopt : std::optional(rows);
}

/// What the run would destroy. `model`: the directory that a hub id stands for, if it is found.
std::vector<Finding> endangered(const jobspec::Job& job, const std::string& model) {
  PosixFiles files;
  auto reads = weights::reads_of(job.training);
  for (auto& read : reads) {
    if (read.key == "modelNameOrPath" && !model.empty()) read.path = model;
    read.key = "spec.training." + read.key;
  }
  if (!job.ds_config_inline && !job.ds_config_map && !job.ds_config_source.empty())
    reads.push_back({"spec.deepspeed.configFrom.file", job.ds_config_source});
  for (const auto& metric : dsconfig::metric_curricula(job.ds_config))
    for (const auto& prefix : {metric.index_to_sample, metric.index_to_metric})
      if (!prefix.empty()) reads.push_back({"spec.deepspeed.config", prefix + ".bin"});
  std::vector<Finding> findings;
  for (const auto& one :
       weights::endangered(files, weights::SystemPlaces(), job.training.output_dir, reads))
    findings.push_back({Severity::Error,
                        one.key == "outputDir" ? "spec.training.outputDir" : one.key, one.message,
                        one.hint});
  return findings;
}

}  // namespace

Result<Input> read_input(const std::string& path, const std::vector<std::string>& overrides) {
  {  // tell a file that cannot be read from one that makes no sense
    std::ifstream file(path, std::ios::binary);
    if (!file) return bad_input(std::string("cannot be read: ") + std::strerror(errno), path);
    file.peek();
    if (file.bad() || fs::is_directory(path))
      return bad_input("cannot be read: it is not a file", path);
  }
  Input input;
  auto document = has_yaml_name(path) ? jobspec::read_yaml(path) : dsconfig::read_file(path);
  if (!document) {
    input.syntax = document.error();
    return input;
  }
  if (has_yaml_name(path) && is_roll(document->value))
    return bad_input("this is a ROLL pipeline", path,
                     "`dsj import roll` makes a DeepSpeedJob of one of its roles");
  if (!has_yaml_name(path) && !is_job(document->value)) {
    input.ds_config = std::move(*document);
    return input;
  }
  auto job =
      jobspec::read_manifest(*document, fs::absolute(path).parent_path().string(), overrides);
  if (!job) {
    input.syntax = job.error();
    return input;
  }
  input.job = std::move(*job);
  return input;
}

Surroundings look_around(const jobspec::Job& job) {
  Surroundings around;
  const auto note = [&](const char* path, std::string message, std::string hint) {
    around.findings.push_back({Severity::Warning, std::string("spec.training.") + path,
                               std::move(message), std::move(hint)});
  };
  const TrainingArgs& training = job.training;
  around.facts.world_size = job.world_size();
  if (job.runs_user_program()) return around;  // model and data are its own affair
  if (!training.model_name_or_path.empty()) {
    const auto directory = find_model(training.model_name_or_path, hub_cache_directory());
    if (!directory) {
      note("modelNameOrPath", directory.error().to_string(),
           "what depends on the model's shape is left open");
    } else if (auto model = layout::read_model_config(*directory)) {
      around.facts.hidden_size = model->hidden_size;
      around.facts.layers = model->num_layers;
      around.facts.positions = model->longest_sequence();
      around.facts.positions_learned = model->learned_positions();
      if (training.lora) {
        if (auto lora = layout::resolve_lora(*model, *training.lora)) {
          around.lora = std::move(*lora);
        } else {
          around.findings.push_back({Severity::Error, "spec.training." + lora.error().where,
                                     lora.error().message, lora.error().hint});
        }
      }
      around.model = std::move(*model);
      around.model_directory = *directory;
    } else {
      around.findings.push_back({Severity::Unsupported, "spec.training.modelNameOrPath",
                                 model.error().to_string(), "name a model this engine runs"});
    }
  }
  const bool counts_rows =
      training.max_steps.value_or(0) <= 0 || training.validation_split_percentage ||
      training.save_strategy == "epoch" || training.evaluation_strategy == "epoch";
  if (counts_rows && !training.data_path.empty()) {
    around.facts.dataset_rows = count_rows(training.data_path);
    if (!around.facts.dataset_rows)
      note("dataPath", "\"" + training.data_path + "\" cannot be read here",
           "the number of steps is left open");
    if (training.packing.value_or(false) && around.facts.dataset_rows && around.model) {
      auto rows = measure_rows(job, *around.model, around.model_directory);
      if (rows) {
        around.facts.packed_rows = (*rows)->packs->count();
        around.rows = std::move(*rows);
      } else {
        note("dataPath", "the rows cannot be packed here: " + rows.error().to_string(),
             "the number of steps is left open");
      }
    }
  }
  for (Finding& finding : endangered(job, around.model_directory))
    around.findings.push_back(std::move(finding));
  dsconfig::locate(around.findings, job.positions);
  return around;
}

}  // namespace dsj::cli
