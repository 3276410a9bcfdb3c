// A data file with the tokenizer that reads it, opened as the ranks open it.
// Tested by: tests/cli/check/measured_rows_test.cc, tests/cli/check/job_check_test.cc
#pragma once

#include <memory>
#include <string>

#include "engine/data/dataset.h"
#include "engine/data/tokenizer/tokenizer.h"
#include "job/layout/model_config.h"
#include "job/training_args.h"

namespace dsj::cli {

struct OpenRows {
  std::unique_ptr<data::Tokenizer> tokenizer;  ///< null: rows are pre-tokenized
  std::unique_ptr<data::Dataset> rows;
};

/// How a job's rows are read. BadInput: their weights are none.
Result<data::DatasetOptions> rows_options(const TrainingArgs& training,
                                          const layout::ModelConfig& model);

/// Null: the model's directory has none, and rows must be pre-tokenized.
Result<std::unique_ptr<data::Tokenizer>> tokenizer_of(const std::string& model_directory);

}  // namespace dsj::cli
