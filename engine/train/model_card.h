// README.md of the exported model/: a model card, whose front matter Hugging Face's hub reads, with what the
// run did and saw. It names the base model and the data, and no directories of this machine. Pure.
// Tested by: tests/engine/train/model_card_test.cc
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "common/version/version.h"
#include "engine/train/inputs.h"

namespace dsj::train {

struct CardFigures {
  int64_t step = 0;            ///< whose weights are exported
  std::optional<double> loss;  ///< of that step; nullopt: this attempt did not run it
  /// The last evaluation, or the best one where its weights are exported. nullopt: this attempt saw none.
  std::optional<double> eval_loss;
  int64_t eval_step = 0;
  std::map<std::string, double> eval_metrics = {};  ///< beside eval_loss, without "eval_"
};

std::string model_card(const Inputs& in, const CardFigures& figures, int world,
                       const Version& version);

/// "Qwen/Qwen2.5-0.5B" of a snapshot in the hub's cache (models--Qwen--Qwen2.5-0.5B/snapshots/...), else the
/// directory's own name.
std::string base_model_name(const std::string& path);

}  // namespace dsj::train
