// Writes everything that the quickstart needs into one directory: a small random model, the rows
// for training and for questions, a ds_config, a job. A user's own files have the same layout.
#pragma once

#include <cstdint>
#include <string>

#include "common/files/files.h"
#include "common/result.h"
#include "tools/random_model.h"

namespace dsj::tools {

struct QuickstartOptions {
  std::string output;          ///< directory, created if it is missing; files in it are replaced
  uint64_t seed = 1;           ///< of the weights and of the rows
  std::string size = "small";  ///< small: the quickstart's; tiny: seconds, for tests
  int64_t rows = 0;            ///< training rows; 0 means as many as the size's steps need
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
