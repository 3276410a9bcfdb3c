// The input of `dsj validate` and `dsj plan`: a DeepSpeedJob or a bare ds_config, told apart by its
// content. It reads files and decides nothing.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/result.h"
#include "job/layout/lora.h"
#include "job/layout/model_config.h"
#include "job/spec/job.h"

namespace dsj::cli {

struct MeasuredRows;

struct Input {
  std::optional<jobspec::Job> job;  ///< a DeepSpeedJob; unset: a bare ds_config
  dsconfig::Document ds_config;     ///< the bare ds_config
  /// The text could be read but makes no sense: this is the only finding.
  std::optional<Error> syntax;
};

/// Error: the file cannot be read, or is of a known kind that is not read here.
Result<Input> read_input(const std::string& path, const std::vector<std::string>& overrides = {});

/// What the machine knows and the manifest does not: hidden size from the model's config.json, rows
/// from the data file. What cannot be read is left out, with a finding.
struct Surroundings {
  dsconfig::Facts facts;
  std::optional<layout::ModelConfig> model;
  std::string model_directory;   ///< with `model`
  std::optional<LoraArgs> lora;  ///< resolved against the model
  std::vector<dsconfig::Finding> findings;
  /// Set where the number of steps depends on how rows are packed.
  std::shared_ptr<const MeasuredRows> rows;
};
Surroundings look_around(const jobspec::Job& job);

}  // namespace dsj::cli
