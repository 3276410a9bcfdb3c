// The arguments that repeat a run of DeepSpeed's bare engine, which a training script of its own
// drives: without a scheduler in its ds_config the rate is constant, where Hugging Face's Trainer
// makes its linear one; and a step's loss is the mean of its micro-batches' means.
#pragma once

#include <nlohmann/json.hpp>

#include "job/dsconfig/config/loss_normalization.h"
#include "job/training_args.h"

namespace dsj::testing_support {

inline constexpr auto kBareNormalization = dsconfig::LossNormalization::MicroBatch;

inline TrainingArgs bare_deepspeed(const nlohmann::json& ds_config, int64_t steps) {
  TrainingArgs args;
  args.max_steps = steps;
  args.loss_normalization = dsconfig::name_of(kBareNormalization);
  if (!ds_config.contains("scheduler")) args.lr_scheduler_type = "constant";
  return args;
}

}  // namespace dsj::testing_support
