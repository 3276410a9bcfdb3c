// What tools say of PyTorch's own sharding (FSDP), and the ds_config that does the same. A line
// without --deepspeed trains by it; a line that asks for nothing is data parallelism.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "common/result.h"

namespace dsj::jobspec {

struct Sharding {
  int stage = 0;           ///< of ZeRO
  bool offload = false;    ///< states, and at stage 3 parameters, are in host memory
  bool recompute = false;  ///< FSDP's activation_checkpointing
};

/// Trainer's `--fsdp "full_shard auto_wrap offload"`, with blanks or commas between.
/// Errors: a word that is not one of Trainer's; hybrid_shard, whose groups only the cluster's shape
/// decides.
Result<Sharding> sharding_of_words(const std::string& words);

/// The section of accelerate's and axolotl's files, keys with or without "fsdp_": sharding_strategy
/// by name or number, reshard_after_forward of version 2, offload_params, activation_checkpointing.
/// Nothing said: FSDP's default, all is sharded.
Result<Sharding> sharding_of_settings(const nlohmann::json& settings);

/// Every other value comes from the training arguments.
nlohmann::json ds_config_of(const Sharding& sharding);

}  // namespace dsj::jobspec
