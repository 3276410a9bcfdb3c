#include "cli/new_job.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "common/check.h"
#include "job/spec/yaml.h"

namespace dsj::cli {
namespace {

struct Preset {
  const char* name;
  const char* job_name;
  const char* what;  ///< the first words of the file
  int stage;
  const char* why_stage;
  int64_t rows, accumulation;  ///< rows per micro-batch; micro-batches per step
  const char* learning_rate;
  int64_t tokens_max;  ///< per row; the model's longest sequence may be shorter
  bool lora, recompute, bf16, cpu;
};

constexpr Preset kPresets[] = {
    {"full", "finetune", "Full fine-tuning", 2,
     "optimizer states and gradients are sharded over the ranks", 1, 8, "1.0e-5", 2048, false, true,
     true, false},
    {"lora", "lora", "LoRA adapters", 2,
     "optimizer states and gradients are sharded over the ranks", 1, 8, "1.0e-4", 2048, true, true,
     true, false},
    {"long-rows", "long-rows", "Full fine-tuning on long rows", 3,
     "parameters are sharded, too: the memory is for activations", 1, 8, "1.0e-5", 32768, false,
     true, true, false},
    {"cpu", "cpu", "Full fine-tuning on CPUs", 1, "optimizer states are sharded over the ranks", 4,
     4, "1.0e-5", 512, false, false, false, true},
};

const Preset& preset_of(const std::string& name) {
  const auto* found = std::ranges::find(kPresets, name, &Preset::name);
  DSJ_CHECK(found != std::end(kPresets));
  return *found;
}

/// A text as a YAML scalar, quoted if necessary.
std::string scalar(const std::string& text) {
  std::string line = jobspec::to_yaml(nlohmann::json{{"x", text}});
  line = line.substr(line.find(':') + 2);
  if (line.ends_with('\n')) line.pop_back();
  return line;
}

std::string deepspeed(const Preset& preset) {
  return std::string(
             "  deepspeed:\n"
             "    config:  # a ds_config; \"auto\" takes the value from spec.training\n"
             "      bf16: {enabled: auto}\n"
             "      zero_optimization:\n"
             "        stage: ") +
         std::to_string(preset.stage) + "  # " + preset.why_stage +
         "\n"
         "        overlap_comm: true\n"
         "      gradient_clipping: auto\n"
         "      gradient_accumulation_steps: auto\n"
         "      train_micro_batch_size_per_gpu: auto\n"
         "      train_batch_size: auto\n";
}

std::string training(const NewJob& job, const Preset& preset) {
  const int64_t tokens =
      job.positions > 0 ? std::min(preset.tokens_max, job.positions) : preset.tokens_max;
  const bool bf16 = preset.bf16 || job.native_bf16;
  std::string text = "  training:\n";
  const auto line = [&](const std::string& name, const std::string& value,
                        const std::string& comment = "") {
    text += "    " + name + ": " + value + (comment.empty() ? "" : "  # " + comment) + "\n";
  };
  line("modelNameOrPath", scalar(job.model), "a Hugging Face directory, or a hub id in the cache");
  line("dataPath", scalar(job.data), "alpaca or chat rows, JSON or JSONL");
  line("outputDir", scalar(std::string("out-") + preset.job_name),
       "metrics.jsonl, checkpoints/, model/, logs/");
  if (preset.lora) {
    text += "    lora:\n";
    line("  r", "8", "rank of the adapters");
    line("  alpha", "16", "the adapters' sum is scaled by alpha / r");
    line("  dropout", "0.05");
    line("  targetModules", "all-linear");
  }
  line("numTrainEpochs", "3", "passes over the rows; maxSteps: N takes precedence");
  line("perDeviceTrainBatchSize", std::to_string(preset.rows), "rows per rank and micro-batch");
  line("gradientAccumulationSteps", std::to_string(preset.accumulation),
       "a step has ranks x perDeviceTrainBatchSize x this many rows");
  line("learningRate", preset.learning_rate);
  line("lrSchedulerType", "cosine");
  line("warmupRatio", "0.03", "share of the steps with a rising learning rate");
  line("weightDecay", "0");
  line("maxGradNorm", "1.0");
  line("maxSeqLength", std::to_string(tokens), "longer rows are cut");
  if (preset.recompute) line("gradientCheckpointing", "true", "less memory, a third more time");
  line("bf16", bf16 ? "true" : "false",
       preset.cpu && !bf16 ? "this CPU has no units for it: fp32 is faster" : "");
  if (preset.cpu) line("device", "cpu");
  line("loggingSteps", "10");
  line("saveStrategy", "steps");
  line("saveSteps", "500");
  line("saveTotalLimit", "2", "older checkpoints are removed");
  line("seed", "42");
  return text;
}

}  // namespace

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const Preset& preset : kPresets) names.emplace_back(preset.name);
  return names;
}

std::string job_text(const NewJob& job) {
  const Preset& preset = preset_of(job.preset);
  const std::string& file = job.file_name;
  return std::string("# ") + preset.what +
         ". Relative paths start at this file's directory.\n"
         "#   dsj validate " +
         file +
         "  checks it with its files\n"
         "#   dsj plan " +
         file +
         "      shows memory, steps and learning rates\n"
         "#   dsj run " +
         file +
         "       trains\n"
         "# All fields are in docs/fields.md, all ds_config keys in docs/ds_config.md.\n"
         "apiVersion: training.dsj.dev/v1alpha1\n"
         "kind: DeepSpeedJob\n"
         "metadata:\n"
         "  name: " +
         preset.job_name +
         "\n"
         "spec:\n"
         "  workers:\n"
         "    replicas: 1\n"
         "    slotsPerWorker: " +
         std::to_string(job.ranks) +
         "  # ranks: one per GPU; on CPUs, each gets its share of the cores\n" + deepspeed(preset) +
         training(job, preset);
}

}  // namespace dsj::cli
