// Imports TRL's command lines: `trl sft ...`, and its training scripts under another launcher.
// The defaults of its trainers differ from those of Hugging Face's Trainer, so an import writes
// them down. Facts of TRL 1.16.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "common/result.h"

namespace dsj::jobimport {

/// One of TRL's training commands.
struct TrlTrainer {
  std::string objective;  ///< training.objective; empty for supervised fine-tuning
  double learning_rate = 0;
};

/// The trainer of `trl NAME`, or of a script NAME.py; nullopt if TRL has no such trainer.
/// Errors: BadInput if it is one that is not built, such as grpo.
Result<std::optional<TrlTrainer>> trl_trainer(const std::string& name);

/// Whether the path is a script in TRL's package or among its examples. Other scripts with
/// these names may use another trainer.
bool is_script_of_trl(const std::string& path);

/// Sets the fields of spec.training that the line did not set to the trainer's defaults.
/// Returns the names of these fields.
std::string fill_trl_defaults(const TrlTrainer& trainer, nlohmann::json& training);

/// The settings of the file that TRL provides for `--accelerate_config NAME`. Errors: BadInput
/// if there is no such file.
Result<nlohmann::json> trl_accelerate_config(const std::string& name);

}  // namespace dsj::jobimport
