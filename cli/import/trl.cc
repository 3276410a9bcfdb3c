#include "cli/import/trl.h"

#include <map>
#include <utility>

namespace dsj::jobimport {

using nlohmann::json;

Result<std::optional<TrlTrainer>> trl_trainer(const std::string& name) {
  static const std::map<std::string, TrlTrainer> trainers = {
      {"sft", {"", 2e-5}},      {"dpo", {"dpo", 1e-6}},       {"kto", {"kto", 1e-6}},
      {"orpo", {"orpo", 1e-6}}, {"reward", {"reward", 1e-4}}, {"reward_modeling", {"reward", 1e-4}},
  };
  if (const auto found = trainers.find(name); found != trainers.end()) return found->second;
  for (const char* other : {"grpo", "rloo", "ppo", "online_dpo", "nash_md", "xpo", "gkd", "cpo",
                            "simpo", "bco", "prm", "distillation"})
    if (name == other)
      return bad_input("the method " + name + " is not built", name,
                       "dsj trains as sft, dpo, orpo and kto do: docs/objectives.md");
  return std::nullopt;
}

bool is_script_of_trl(const std::string& path) {
  const std::string folder = path.substr(0, path.rfind('/') + 1);
  return folder.ends_with("trl/scripts/") || folder.ends_with("examples/scripts/");
}

std::string fill_trl_defaults(const TrlTrainer& trainer, json& training) {
  std::string names;
  const auto fill = [&](const char* field, const json& value) {
    if (training.contains(field)) return;
    training[field] = value;
    names += (names.empty() ? "" : ", ") + std::string(field) + " " + value.dump();
  };
  fill("learningRate", trainer.learning_rate);
  fill("maxSeqLength", 1024);
  fill("loggingSteps", 10);
  fill("gradientCheckpointing", true);
  if (!training.value("fp16", false)) fill("bf16", true);
  return names;
}

Result<json> trl_accelerate_config(const std::string& name) {
  json settings = {{"num_machines", 1}, {"num_processes", 8}, {"mixed_precision", "bf16"}};
  if (name == "single_gpu") {
    settings["distributed_type"] = "NO";
    settings["num_processes"] = 1;
  } else if (name == "multi_gpu") {
    settings["distributed_type"] = "MULTI_GPU";
  } else if (name == "zero1" || name == "zero2" || name == "zero3") {
    settings["distributed_type"] = "DEEPSPEED";
    settings["zero_stage"] = name.back() - '0';
    if (name == "zero3") settings["zero3_save_16bit_model"] = true;
  } else if (name == "fsdp1" || name == "fsdp2") {  // everything is sharded
    settings["distributed_type"] = "FSDP";
  } else {
    return bad_input(
        "not a file, and TRL brings no settings of this name", name,
        "single_gpu, multi_gpu, zero1, zero2, zero3, or a file of `accelerate config`");
  }
  return settings;
}

}  // namespace dsj::jobimport
