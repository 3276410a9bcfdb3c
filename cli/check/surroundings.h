// The files that a job names, opened as its ranks will open them: the model's shape, the headers of
// its weights, its tokenizer, every row. What is wrong with one of them is a finding at the field
// that names it. Reads files; no weight and no libtorch.
// Tested by: tests/cli/check/job_check_test.cc
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/check/open_rows.h"
#include "job/layout/lora.h"
#include "job/layout/model_config.h"
#include "job/spec/job.h"

namespace dsj::cli {

struct MeasuredRows;

/// Where the files of a job lie.
enum class FilesAre {
  Here,
  Elsewhere,    ///< on the machine that will run it: a file that is not here is a warning
  InContainers  ///< of a cluster: what is not here is not looked for
};

/// What the machine knows and the manifest does not. What cannot be read is left out, with a
/// finding.
struct Surroundings {
  dsconfig::Facts facts;
  std::optional<layout::ModelConfig> model;
  std::string model_directory;           ///< with `model`: absolute
  std::optional<LoraArgs> lora;          ///< resolved against the model
  std::shared_ptr<const OpenRows> data;  ///< null: it cannot be read here; `no_data` says why
  std::string no_data;
  std::vector<dsconfig::Finding> findings;
  /// Set where the number of steps depends on how rows are packed.
  std::shared_ptr<const MeasuredRows> rows;
};

Surroundings look_around(const jobspec::Job& job, FilesAre files = FilesAre::Here);

}  // namespace dsj::cli
