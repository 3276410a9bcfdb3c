// Everything a run reads before it starts: job file, model shape, tokenizer, data set, resolved
// config. All ranks read the same and decide the same; what is wrong is found here, before any
// communication.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "common/dsconfig/resolve.h"
#include "common/job_file.h"
#include "common/layout/lora.h"
#include "common/layout/model_config.h"
#include "common/result.h"
#include "engine/data/dataset.h"
#include "engine/data/tokenizer.h"
#include "engine/train/rank_env.h"

namespace dsj::train {

/// Rows that are evaluated on.
struct EvalRows {
  const data::Dataset* dataset = nullptr;  ///< null: there are none
  int64_t first = 0, count = 0;
};

struct Inputs {
  JobFile job;
  layout::ModelConfig model;
  std::optional<LoraArgs> lora;  ///< resolved against the model; unset: everything is trained
  std::unique_ptr<data::Tokenizer>
      tokenizer;  ///< null: the model directory has none (pre-tokenized rows only)
  std::unique_ptr<data::Dataset> dataset;
  std::unique_ptr<data::Dataset> eval_dataset;  ///< null: none, or a split of `dataset`
  dsconfig::Resolution resolution;

  const dsconfig::ResolvedConfig& config() const { return resolution.config; }
  int64_t pad_id() const;
  /// Of the order of rows; Hugging Face's default 42.
  int64_t seed() const { return job.training.seed.value_or(42); }
  /// Rows of `dataset` that are trained on; those before them are held out.
  int64_t first_row() const { return config().eval.split_rows; }
  int64_t rows() const { return dataset->rows() - first_row(); }
  EvalRows eval_rows() const;
  bool shuffle() const { return job.training.shuffle.value_or(true); }
};

Result<Inputs> read_inputs(const RankEnv& env);

}  // namespace dsj::train
