// What a run reads before it starts: job file, model shape, tokenizer, data set, resolved config.
// All ranks read the same files and get the same result. Errors in them are found here, before any
// communication.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "common/result.h"
#include "engine/data/batches/packs.h"
#include "engine/data/batches/sampler.h"
#include "engine/data/dataset.h"
#include "engine/data/tokenizer/tokenizer.h"
#include "engine/train/inputs/rank_env.h"
#include "job/dsconfig/config/objective.h"
#include "job/dsconfig/resolve.h"
#include "job/job_file.h"
#include "job/layout/lora.h"
#include "job/layout/model_config.h"

namespace dsj::train {

/// For each row of a data set, the log-probabilities of its answers under the initial model
/// (references.h): chosen and rejected; for kto its own answer and the mismatched one.
using ReferenceLogps = std::vector<std::array<double, 2>>;
/// A row with its reference; `reference` null if the objective has none.
Result<data::Sample> sample_at(const data::Dataset& dataset, int64_t row,
                               const ReferenceLogps* reference);

/// The rows to evaluate on.
struct EvalRows {
  const data::Dataset* dataset = nullptr;  ///< null if there is no evaluation
  int64_t first = 0, count = 0;
  const ReferenceLogps* reference = nullptr;  ///< null if the objective has none
  /// Row `row`, 0 <= row < count. Error: as Dataset::at.
  Result<data::Sample> at(int64_t row) const;
};

struct Inputs {
  JobFile job;
  layout::ModelConfig model;
  std::optional<LoraArgs> lora;  ///< resolved against the model; unset: no LoRA
  /// As layout::units_of() takes it: lora, or the job's trained modules; unset: all.
  std::optional<LoraArgs> trained;
  std::unique_ptr<data::Tokenizer> tokenizer;  ///< null if rows are pre-tokenized and there is none
  std::unique_ptr<data::Dataset> dataset;
  std::unique_ptr<data::Dataset> eval_dataset;  ///< null if none, or a split of `dataset`
  std::optional<data::Packs> packs;  ///< training.packing: dealt to ranks instead of rows
  /// training.groupByLength: the number of tokens of every dealt row or pack.
  std::shared_ptr<const std::vector<int32_t>> lengths;
  dsconfig::Resolution resolution;
  /// The sources of the rows (engine/data/files/data_record.h), saved in checkpoints. Null on other
  /// ranks than 0.
  nlohmann::json data_record;

  dsconfig::Objective objective;

  const dsconfig::ResolvedConfig& config() const { return resolution.config; }
  /// The seed of the order of rows, of dropout and of new adapters. Default: Hugging Face's 42.
  int64_t seed() const { return job.training.seed.value_or(42); }
  /// The seed of the order of rows.
  int64_t data_seed() const { return job.training.data_seed.value_or(seed()); }
  /// The first row to train on; the rows of `dataset` before it are for evaluation.
  int64_t first_row() const { return config().eval.split_rows; }
  /// The number of rows, or packs of rows, to train on.
  int64_t rows() const { return packs ? packs->count() : dataset->rows() - first_row(); }
  /// A row to train on, counted from 0; with packs, `row` counts packs and the whole rows of one
  /// are returned, else as sample_at().
  Result<data::Sample> training_row(int64_t row, const ReferenceLogps* reference) const;
  EvalRows eval_rows() const;
  bool shuffle() const { return job.training.shuffle.value_or(true); }
  /// The order in which the training rows are dealt to `world` ranks.
  data::Sampler sampler(int64_t world) const;
};

Result<Inputs> read_inputs(const RankEnv& env);

}  // namespace dsj::train
