// Everything the quickstart needs, in one directory: a small random model, the rows to train it on
// and to ask it, a ds_config, a job. What a user would bring instead has the same layout.
#pragma once

#include <cstdint>
#include <string>

#include "common/files/files.h"
#include "common/result.h"
#include "tools/random_model.h"

namespace dsj::tools {

struct QuickstartOptions {
  std::string output;          ///< directory, made when it is not there; files in it are replaced
  uint64_t seed = 1;           ///< of the weights and of the rows
  std::string size = "small";  ///< small: the quickstart's; tiny: seconds, for tests
  int64_t rows = 0;            ///< training rows; 0: what the size's steps need, once
  int64_t heldout = 200;       ///< held-out questions per task
};

struct QuickstartSummary {
  ModelShape shape;
  int64_t parameters = 0;
  int64_t rows = 0;
  int64_t steps = 0;
};

/// Writes model/, data/train.json, data/heldout-TASK.json, ds_config.json and job.yaml.
Result<QuickstartSummary> write_quickstart(Files& files, const QuickstartOptions& options);

}  // namespace dsj::tools
