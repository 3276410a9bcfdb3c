// The rows of a job as its ranks read them: `dsj validate`, `dsj data` and the ranks take the
// tokenizer and the options from here.
// Tested by: tests/cli/check/measured_rows_test.cc, tests/cli/check/job_check_test.cc
#pragma once

#include <memory>
#include <string>

#include "engine/data/dataset.h"
#include "engine/data/tokenizer/tokenizer.h"
#include "job/layout/model_config.h"
#include "job/training_args.h"

namespace dsj::data {

struct JobRows {
  std::unique_ptr<Tokenizer> tokenizer;  ///< null if rows are pre-tokenized
  std::unique_ptr<Dataset> rows;
};

/// The options for the training rows. Errors: BadInput if datasetWeights are invalid.
Result<DatasetOptions> job_rows_options(const TrainingArgs& training,
                                        const layout::ModelConfig& model);

/// The tokenizer of a model's directory, without the job's eos token. Null if there is none; rows
/// must then be pre-tokenized.
Result<std::unique_ptr<Tokenizer>> tokenizer_of(const std::string& model_directory);

/// Sets the eos token that the job names. Errors: BadInput at training.eosToken.
Status choose_eos(const TrainingArgs& training, Tokenizer* tokenizer);

}  // namespace dsj::data
