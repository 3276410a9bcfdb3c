// Which parameters weight decay acts on. An optimizer of ds_config has one group: all parameters.
// The optimizer that Hugging Face's Trainer creates without one excludes biases and norms. Pure.
#pragma once

#include <string>
#include <vector>

#include "job/dsconfig/config/resolved.h"
#include "job/layout/partition.h"

namespace dsj::plan {

/// Trainer.get_decay_parameter_names of transformers 5: excludes names that contain "bias",
/// "layernorm" or "rmsnorm", names with a part that is "norm" or ends in "_norm", and parameters of
/// torch's LayerNorm, which GPT-2 calls ln_1, ln_2 and ln_f. Adapters have weight decay.
bool is_decayed(const std::string& parameter);

/// [slot]; empty if it acts on all.
std::vector<bool> decays_of_flat(const layout::FlatLayout& flat,
                                 const dsconfig::ResolvedConfig& config);

}  // namespace dsj::plan
