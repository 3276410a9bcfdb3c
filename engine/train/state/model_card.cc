#include "engine/train/state/model_card.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>
#include <vector>

#include "common/files/files.h"
#include "common/path_list.h"
#include "common/text.h"
#include "job/plan/memory_input.h"

namespace dsj::train {
namespace {

using nlohmann::json;

std::string last_part(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return path.substr(path.rfind('/') + 1);
}

/// A YAML scalar: a JSON string is one.
std::string quoted(const std::string& text) {
  return json(text).dump(-1, ' ', false, json::error_handler_t::replace);
}

/// "alpaca" for "data/alpaca.jsonl.gz"; for a pattern, its directory.
std::string data_name(std::string path) {
  std::string name = last_part(path);
  while (name.find_first_of("*?[") != name.npos && path.find('/') != path.npos) {
    path.erase(path.rfind('/'));
    name = last_part(path);
  }
  for (const std::string_view end :
       {".gz", ".zst", ".json", ".jsonl", ".csv", ".tsv", ".txt", ".parquet", ".arrow"})
    if (name.size() > end.size() && name.ends_with(end)) name.resize(name.size() - end.size());
  return name;
}

std::vector<std::string> data_names(const TrainingArgs& training) {
  if (training.dataset) return split_commas(*training.dataset);
  std::vector<std::string> names;
  for (const std::string& path : split_paths(training.data_path)) names.push_back(data_name(path));
  return names;
}

std::string listed(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

class Card {
 public:
  Card(const Inputs& in, const CardFigures& figures, int world, const Version& version)
      : in_(in),
        figures_(figures),
        world_(world),
        version_(version),
        name_(last_part(in.job.output_dir)),
        base_(base_model_name(in.job.training.model_name_or_path)),
        data_(data_names(in.job.training)) {}

  std::string text() && {
    front_matter();
    text_ += "\n# " + name_ + "\n\n";
    text_ += in_.lora ? "LoRA adapters for " + base_ + ", trained" : base_ + ", fine-tuned";
    text_ += " on " + listed(data_) +
             " with DeepSpeedJob.\n\nThe run wrote this card. Say before you "
             "publish the model what it is for, and what it is not for.\n";
    results();
    hyperparameters();
    text_ += "\n### Framework versions\n\n- DeepSpeedJob " + version_.release + "\n";
    if (!version_.libtorch.empty()) text_ += "- libtorch " + version_.libtorch + "\n";
    return std::move(text_);
  }

 private:
  void front_matter() {
    text_ = std::string("---\nlibrary_name: ") + (in_.lora ? "peft" : "transformers") +
            "\nbase_model: " + quoted(base_) + "\npipeline_tag: text-generation\ndatasets:\n";
    for (const std::string& one : data_) text_ += "- " + quoted(one) + "\n";
    text_ += "tags:\n- generated_from_trainer\n- deepspeedjob\n- " +
             dsconfig::name_of(in_.objective.kind) + "\n";
    if (in_.lora)
      text_ += "- lora\n- transformers\n- " + quoted("base_model:adapter:" + base_) + "\n";
    text_ += "model-index:\n- name: " + quoted(name_) + "\n  results: []\n---\n";
  }

  void row(const std::string& what, const std::string& value) {
    text_ += "| " + what + " | " + value + " |\n";
  }
  void results() {
    const auto& config = in_.config();
    text_ += "\n## Results\n\n| figure | value |\n|---|---|\n";
    row("steps", std::to_string(figures_.step) + " of " + std::to_string(config.total_steps));
    if (config.steps_per_epoch > 0)
      row("epochs", text::number(static_cast<double>(figures_.step) /
                                 static_cast<double>(config.steps_per_epoch)));
    if (figures_.loss) row("training loss of the last step", text::number(*figures_.loss));
    if (!figures_.eval_loss) return;
    const std::string when = figures_.eval_step == figures_.step
                                 ? ""
                                 : " after step " + std::to_string(figures_.eval_step);
    row("eval_loss" + when, text::number(*figures_.eval_loss));
    for (const auto& [name, value] : figures_.eval_metrics)
      row("eval_" + name + when, text::number(value));
  }

  void item(const std::string& name, const std::string& value) {
    text_ += "- " + name + ": " + value + "\n";
  }
  void item(const std::string& name, int64_t value) { item(name, std::to_string(value)); }

  /// Uses the names of transformers' cards if these have one.
  void hyperparameters() {
    const auto& config = in_.config();
    const TrainingArgs& training = in_.job.training;
    text_ += "\n## Training procedure\n\n### Training hyperparameters\n\n";
    item("learning_rate", text::number(config.optimizer.lr));
    item("train_batch_size", config.micro_batch_size);
    item("eval_batch_size", config.eval.micro_batch_size);
    item("seed", in_.seed());
    item("num_devices", world_);
    item("gradient_accumulation_steps", config.gradient_accumulation_steps);
    item("total_train_batch_size", config.train_batch_size);
    item("optimizer", dsconfig::name_of(config.optimizer) + " with " +
                          dsconfig::to_json(config.optimizer).dump());
    item("lr_scheduler_type", config.scheduler.type);
    if (config.scheduler.warmup_steps > 0)
      item("lr_scheduler_warmup_steps", config.scheduler.warmup_steps);
    item("training_steps", config.total_steps);
    item("max_seq_length", plan::longest_row(training, in_.model));
    item("precision", dsconfig::name_of(config.precision));
    item("zero_stage", config.zero.stage);
    objective();
    if (in_.packs) item("packing", std::string(name_of(in_.packs->strategy())));
    if (in_.lora) item("lora", to_json(*in_.lora).dump());
  }

  void objective() {
    const dsconfig::Objective& objective = in_.objective;
    item("objective", dsconfig::name_of(objective.kind));
    if (!objective.judges()) return;
    if (const auto& loss = in_.job.training.loss_type) item("loss_type", *loss);
    if (objective.scores()) {
      if (objective.center_rewards > 0)
        item("center_rewards_coefficient", text::number(objective.center_rewards));
      return;
    }
    item("beta", text::number(objective.beta));
    if (objective.kind != dsconfig::Objective::Kind::Kto) return;
    item("desirable_weight", text::number(objective.desirable_weight));
    item("undesirable_weight", text::number(objective.undesirable_weight));
  }

  const Inputs& in_;
  const CardFigures& figures_;
  const int world_;
  const Version& version_;
  const std::string name_, base_;
  const std::vector<std::string> data_;
  std::string text_;
};

}  // namespace

std::string base_model_name(const std::string& path) {
  constexpr std::string_view kModels = "models--";
  const size_t snapshots = path.rfind("/snapshots/");
  if (snapshots != path.npos) {
    const std::string folder = last_part(path.substr(0, snapshots));
    if (folder.starts_with(kModels)) {
      std::string id = folder.substr(kModels.size());
      if (const size_t at = id.find("--"); at != id.npos) id.replace(at, 2, "/");
      return id;
    }
  }
  return last_part(path);
}

std::string model_card(const Inputs& in, const CardFigures& figures, int world,
                       const Version& version) {
  return Card(in, figures, world, version).text();
}

}  // namespace dsj::train
