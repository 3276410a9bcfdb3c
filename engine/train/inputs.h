// Everything a run reads before it starts: job file, model shape, tokenizer, data set, resolved
// config. All ranks read the same files and decide the same. What is wrong with them is found here,
// before any communication.
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
#include "engine/train/rank_env.h"
#include "job/dsconfig/objective.h"
#include "job/dsconfig/resolve.h"
#include "job/job_file.h"
#include "job/layout/lora.h"
#include "job/layout/model_config.h"

namespace dsj::train {

/// Of each row of a data set its answers' log-probabilities under the model that the run starts from
/// (references.h): chosen and rejected, or of kto its own and the one beside it.
using ReferenceLogps = std::vector<std::array<double, 2>>;
/// A row with its reference. Null: it has none.
Result<data::Sample> sample_at(const data::Dataset& dataset, int64_t row,
                               const ReferenceLogps* reference);

/// The rows to evaluate on.
struct EvalRows {
  const data::Dataset* dataset = nullptr;  ///< null: no evaluation
  int64_t first = 0, count = 0;
  const ReferenceLogps* reference = nullptr;  ///< null: the objective has none
  /// Row `row`, 0 <= row < count. Error: as Dataset::at.
  Result<data::Sample> at(int64_t row) const;
};

struct Inputs {
  JobFile job;
  layout::ModelConfig model;
  std::optional<LoraArgs> lora;  ///< resolved against the model; unset: no LoRA
  /// As layout::units_of() takes it: lora, or the modules that the job trains; unset: everything.
  std::optional<LoraArgs> trained;
  std::unique_ptr<data::Tokenizer> tokenizer;  ///< null: there is none (pre-tokenized rows only)
  std::unique_ptr<data::Dataset> dataset;
  std::unique_ptr<data::Dataset> eval_dataset;  ///< null: none, or a split of `dataset`
  std::optional<data::Packs> packs;  ///< training.packing: what is dealt in place of rows
  /// training.groupByLength: the tokens of every row, or pack, that is dealt.
  std::shared_ptr<const std::vector<int32_t>> lengths;
  dsconfig::Resolution resolution;
  /// What the rows are made from (engine/data/files/data_record.h), for the checkpoints. Of rank 0; null on
  /// the others.
  nlohmann::json data_record;

  dsconfig::Objective objective;

  const dsconfig::ResolvedConfig& config() const { return resolution.config; }
  /// Of the order of rows, of dropout and of new adapters. Default: Hugging Face's 42.
  int64_t seed() const { return job.training.seed.value_or(42); }
  /// Of the order of rows.
  int64_t data_seed() const { return job.training.data_seed.value_or(seed()); }
  /// The rows of `dataset` before this one are held out for evaluation; the others are trained on.
  int64_t first_row() const { return config().eval.split_rows; }
  /// What is trained on, in rows, or in packs of them.
  int64_t rows() const { return packs ? packs->count() : dataset->rows() - first_row(); }
  /// One of the rows to train on, counted from 0: whole where packs are made of whole rows, else as
  /// sample_at().
  Result<data::Sample> training_row(int64_t row, const ReferenceLogps* reference) const;
  EvalRows eval_rows() const;
  bool shuffle() const { return job.training.shuffle.value_or(true); }
  /// The order in which `world` ranks are dealt what is trained on.
  data::Sampler sampler(int64_t world) const;
};

Result<Inputs> read_inputs(const RankEnv& env);

}  // namespace dsj::train
