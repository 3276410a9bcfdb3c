// Opens the files that a job names as its ranks will: the model's shape, the headers of its
// weights, its tokenizer, every row. A problem with one of them is a finding at the field that
// names it. It does not read weights, and does not need libtorch.
// Tested by: tests/cli/check/job_check_test.cc
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/rows/job_rows.h"
#include "job/layout/lora.h"
#include "job/layout/model_config.h"
#include "job/spec/job.h"

namespace dsj::cli {

struct MeasuredRows;

/// Where the files of a job are.
enum class FilesAre {
  Here,
  Elsewhere,    ///< on the machine that will run it: a file that is missing here is a warning
  InContainers  ///< in a cluster: a file that is missing here is not reported
};

/// Facts about the machine that the manifest does not have. What cannot be read is left out,
/// with a finding.
struct Surroundings {
  dsconfig::Facts facts;
  std::optional<layout::ModelConfig> model;
  std::string model_directory;   ///< absolute path; set with `model`
  std::optional<LoraArgs> lora;  ///< resolved against the model
  std::shared_ptr<const data::JobRows>
      data;  ///< null if it cannot be read here; `no_data` says why
  std::string no_data;
  std::vector<dsconfig::Finding> findings;
  /// Set if the number of steps depends on the packing of rows.
  std::shared_ptr<const MeasuredRows> rows;
};

Surroundings look_around(const jobspec::Job& job, FilesAre files = FilesAre::Here);

}  // namespace dsj::cli
