// The arguments that repeat a run of DeepSpeed's bare engine, which a training script of its own
// drives: without a scheduler in its ds_config the rate is constant, where Hugging Face's Trainer
// makes its linear one.
#pragma once

#include <nlohmann/json.hpp>

#include "job/training_args.h"

namespace dsj::testing_support {

inline TrainingArgs bare_deepspeed(const nlohmann::json& ds_config, int64_t steps) {
  TrainingArgs args;
  args.max_steps = steps;
  if (!ds_config.contains("scheduler")) args.lr_scheduler_type = "constant";
  return args;
}

}  // namespace dsj::testing_support
