// Settings of PyTorch's own sharding (FSDP) in other tools, and the equivalent ds_config. A line
// without --deepspeed trains with it; without FSDP settings it trains with data parallelism.
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

/// Reads Trainer's `--fsdp "full_shard auto_wrap offload"`, separated by blanks or commas. Errors:
/// for a word that Trainer lacks, and for hybrid_shard, whose groups depend on the cluster's
/// shape.
Result<Sharding> sharding_of_words(const std::string& words);

/// Reads the section of accelerate's and axolotl's files, keys with or without "fsdp_":
/// sharding_strategy by name or number, reshard_after_forward of version 2, offload_params,
/// activation_checkpointing. Without settings: FSDP's default, everything is sharded.
Result<Sharding> sharding_of_settings(const nlohmann::json& settings);

/// The equivalent ds_config. All other values come from the training arguments.
nlohmann::json ds_config_of(const Sharding& sharding);

}  // namespace dsj::jobspec
