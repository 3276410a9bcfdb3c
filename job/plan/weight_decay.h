// On which parameters weight decay acts. A ds_config's optimizer has one group: on all. The optimizer that
// Hugging Face's Trainer makes where ds_config has none leaves biases and norms out. Pure.
#pragma once

#include <string>
#include <vector>

#include "job/dsconfig/resolved.h"
#include "job/layout/partition.h"

namespace dsj::plan {

/// Trainer.get_decay_parameter_names of transformers 5: no name that has "bias", "layernorm" or "rmsnorm"
/// in it or a part that is "norm" or ends in "_norm", and no parameter of torch's LayerNorm, which GPT-2
/// calls ln_1, ln_2 and ln_f. Adapters have weight decay.
bool is_decayed(const std::string& parameter);

/// [slot]; empty: on all.
std::vector<bool> decays_of_flat(const layout::FlatLayout& flat,
                                 const dsconfig::ResolvedConfig& config);

}  // namespace dsj::plan
