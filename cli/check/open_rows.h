// A data file with its tokenizer, opened in the same way as by the ranks.
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
  std::unique_ptr<data::Tokenizer> tokenizer;  ///< null if rows are pre-tokenized
  std::unique_ptr<data::Dataset> rows;
};

/// The options for a job's rows. Errors: BadInput if datasetWeights are invalid.
Result<data::DatasetOptions> rows_options(const TrainingArgs& training,
                                          const layout::ModelConfig& model);

/// Null if the model's directory has none; rows must then be pre-tokenized.
Result<std::unique_ptr<data::Tokenizer>> tokenizer_of(const std::string& model_directory);

}  // namespace dsj::cli
