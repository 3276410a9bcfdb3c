// TRL's command line: `trl sft ...`, and its training scripts under another launcher. What its trainers do
// where a line says nothing differs from Hugging Face's Trainer, so an import writes it down. Facts of
// TRL 1.16.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "common/result.h"

namespace dsj::jobimport {

/// One of TRL's training commands.
struct TrlTrainer {
  std::string objective;  ///< training.objective; empty: supervised fine-tuning
  double learning_rate = 0;
};

/// The trainer of `trl NAME`, or of a script NAME.py; nullopt: TRL has none of this name. BadInput: it is
/// one that does not train here, such as grpo.
Result<std::optional<TrlTrainer>> trl_trainer(const std::string& name);

/// Whether the path is that of a script in TRL's package or among its examples. Other scripts of these
/// names may build on another trainer.
bool is_script_of_trl(const std::string& path);

/// Gives spec.training what the trainer's configuration says and the line did not. Returns the names of
/// the fields.
std::string fill_trl_defaults(const TrlTrainer& trainer, nlohmann::json& training);

/// The settings of a file that TRL brings for `--accelerate_config NAME`. BadInput: it brings none of this
/// name.
Result<nlohmann::json> trl_accelerate_config(const std::string& name);

}  // namespace dsj::jobimport
