#include "tools/quickstart.h"

#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "engine/data/shapes/prompt.h"
#include "tools/bpe_trainer.h"
#include "tools/tasks.h"

namespace dsj::tools {
namespace {

struct Size {
  std::string_view name;
  ModelShape shape;
  int64_t steps;
  int64_t rows_per_rank;  ///< per_device_train_batch_size; the job has two ranks
};

constexpr int kRanks = 2;
constexpr int64_t kMaxSeqLength = 128;
constexpr int64_t kMergesMax = 2000;
constexpr int64_t kVocabularyMultiple = 64;

const Size* find_size(std::string_view name) {
  static const std::array<Size, 2> sizes = {
      Size{"small", {.hidden = 128, .layers = 4, .heads = 4, .kv_heads = 2, .inner = 256}, 1200, 8},
      Size{"tiny", {.hidden = 32, .layers = 2, .heads = 4, .kv_heads = 2, .inner = 64}, 20, 4}};
  for (const Size& size : sizes) {
    if (size.name == name) return &size;
  }
  return nullptr;
}

// ZeRO-2, AdamW and a warm-up with decay, with every number from the job, as in the ds_configs
// of published guides to fine-tuning with DeepSpeed.
constexpr char kDsConfig[] = R"({
  "bf16": {"enabled": "auto"},
  "fp16": {
    "enabled": "auto",
    "loss_scale": 0,
    "initial_scale_power": 16,
    "loss_scale_window": 1000,
    "hysteresis": 2,
    "min_loss_scale": 1
  },
  "optimizer": {
    "type": "AdamW",
    "params": {"lr": "auto", "betas": "auto", "eps": "auto", "weight_decay": "auto"}
  },
  "scheduler": {
    "type": "WarmupDecayLR",
    "params": {
      "warmup_min_lr": "auto",
      "warmup_max_lr": "auto",
      "warmup_num_steps": "auto",
      "total_num_steps": "auto"
    }
  },
  "zero_optimization": {
    "stage": 2,
    "allgather_partitions": true,
    "allgather_bucket_size": 5e8,
    "overlap_comm": true,
    "reduce_scatter": true,
    "reduce_bucket_size": 5e8,
    "contiguous_gradients": true
  },
  "gradient_accumulation_steps": "auto",
  "gradient_clipping": "auto",
  "train_batch_size": "auto",
  "train_micro_batch_size_per_gpu": "auto",
  "steps_per_print": 100,
  "wall_clock_breakdown": false
}
)";

std::string job_yaml(const Size& size, uint64_t seed) {
  return R"(apiVersion: training.dsj.dev/v1alpha1
kind: DeepSpeedJob
metadata:
  name: quickstart
spec:
  workers:
    replicas: 1
    slotsPerWorker: )" +
         std::to_string(kRanks) + R"(
  deepspeed:
    configFrom:
      file: ds_config.json
  training:
    modelNameOrPath: model
    dataPath: data/train.json
    outputDir: run
    maxSteps: )" +
         std::to_string(size.steps) + R"(
    perDeviceTrainBatchSize: )" +
         std::to_string(size.rows_per_rank) + R"(
    learningRate: 2.0e-3
    weightDecay: 0.01
    warmupRatio: 0.05
    maxSeqLength: )" +
         std::to_string(kMaxSeqLength) + R"(
    bf16: true
    device: cpu  # two ranks would need two GPUs
    seed: )" +
         std::to_string(seed) + R"(
    saveStrategy: steps
    saveSteps: )" +
         std::to_string(size.steps / 2) + R"(
    saveTotalLimit: 2
)";
}

std::string rows_json(const std::vector<Example>& examples) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const Example& example : examples) {
    rows.push_back({{"instruction", example.instruction},
                    {"input", example.input},
                    {"output", example.output}});
  }
  return rows.dump(1) + "\n";
}

/// The texts that the model will read.
std::vector<std::string> vocabulary_texts(const TaskData& rows) {
  std::vector<std::string> texts;
  for (const Example& row : rows.train) {
    texts.push_back(data::alpaca_prompt(row.instruction, row.input) + row.output);
  }
  return texts;
}

}  // namespace

Result<QuickstartSummary> write_quickstart(Files& files, const QuickstartOptions& options) {
  const Size* size = find_size(options.size);
  if (size == nullptr) {
    return bad_input("size \"" + options.size + "\" is not known, expected small or tiny",
                     "--size");
  }
  const int64_t rows = options.rows > 0 ? options.rows : size->steps * size->rows_per_rank * kRanks;
  DSJ_TRY(const TaskData data,
          make_task_data(
              {.seed = options.seed, .train_rows = rows, .heldout_per_task = options.heldout}));
  DSJ_TRY(const BpeVocabulary vocabulary, learn_bpe(vocabulary_texts(data), kMergesMax));

  const std::string model_dir = path_join(options.output, "model");
  const std::string data_dir = path_join(options.output, "data");
  DSJ_TRY_STATUS(files.make_dirs(model_dir));
  DSJ_TRY_STATUS(files.make_dirs(data_dir));

  ModelShape shape = size->shape;
  // transformers' 0.02 is meant for hidden sizes of thousands. With it attention starts out
  // flat here, rounding decides when it is learned, and some runs end before that
  // (docs/reports/quickstart_margin.md).
  shape.initializer_range = 1 / std::sqrt(static_cast<double>(shape.hidden));
  shape.vocabulary =
      (vocabulary.size() + kVocabularyMultiple - 1) / kVocabularyMultiple * kVocabularyMultiple;
  shape.end_of_text = vocabulary.end_of_text();
  DSJ_TRY_STATUS(write_random_model(files, model_dir, shape, options.seed));
  DSJ_TRY_STATUS(
      files.write_atomically(path_join(model_dir, "tokenizer.json"), tokenizer_json(vocabulary)));
  DSJ_TRY_STATUS(files.write_atomically(path_join(model_dir, "tokenizer_config.json"),
                                        tokenizer_config_json(vocabulary, shape.positions)));

  DSJ_TRY_STATUS(files.write_atomically(path_join(data_dir, "train.json"), rows_json(data.train)));
  for (const HeldOut& held : data.heldout) {
    DSJ_TRY_STATUS(files.write_atomically(path_join(data_dir, "heldout-" + held.task + ".json"),
                                          rows_json(held.examples)));
  }
  DSJ_TRY_STATUS(files.write_atomically(path_join(options.output, "ds_config.json"), kDsConfig));
  DSJ_TRY_STATUS(
      files.write_atomically(path_join(options.output, "job.yaml"), job_yaml(*size, options.seed)));
  return QuickstartSummary{shape, parameter_count(shape), rows, size->steps};
}

}  // namespace dsj::tools
