// README.md of the exported model/: a model card with front matter for Hugging Face's hub, and the
// run's settings and results. It names the base model and the data, but no local directories. Pure.
// Tested by: tests/engine/train/state/model_card_test.cc
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "common/version/version.h"
#include "engine/train/inputs/inputs.h"

namespace dsj::train {

struct CardFigures {
  int64_t step = 0;            ///< the step whose weights are exported
  std::optional<double> loss;  ///< of that step; nullopt if another attempt ran it
  /// The last evaluation, or the best one if its weights are exported; nullopt if there was none.
  std::optional<double> eval_loss;
  int64_t eval_step = 0;
  std::map<std::string, double> eval_metrics = {};  ///< other metrics, without "eval_"
};

std::string model_card(const Inputs& in, const CardFigures& figures, int world,
                       const Version& version);

/// "Qwen/Qwen2.5-0.5B" for a snapshot in the hub's cache
/// (models--Qwen--Qwen2.5-0.5B/snapshots/...), else the directory's name.
std::string base_model_name(const std::string& path);

}  // namespace dsj::train
