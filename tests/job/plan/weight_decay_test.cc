#include "job/plan/weight_decay.h"

#include <gtest/gtest.h>

namespace dsj::plan {
namespace {

/// What Trainer.get_decay_parameter_names of transformers 5.24 says of models of these families, run on
/// their classes' modules: the names by hand.
TEST(WeightDecay, FollowsTrainersNames) {
  for (const char* name :
       {"model.embed_tokens.weight", "model.layers.0.self_attn.q_proj.weight",
        "model.layers.11.mlp.down_proj.weight", "lm_head.weight", "transformer.wte.weight",
        "transformer.wpe.weight", "transformer.h.0.attn.c_attn.weight",
        "model.layers.0.self_attn.q_proj.lora_A.weight", "model.layers.0.normal.weight",
        "model.layers.0.linear_attn.A_log", "model.layers.0.mlp.act_fn.alpha_p",
        "model.layers.0.linear_attn.conv1d.weight"})
    EXPECT_TRUE(is_decayed(name)) << name;
  for (const char* name :
       {"model.norm.weight", "model.layers.0.input_layernorm.weight",
        "model.layers.0.post_attention_layernorm.weight", "model.layers.0.self_attn.q_norm.weight",
        "model.layers.0.self_attn.k_norm.weight", "model.layers.0.self_attn.q_proj.bias",
        "transformer.h.0.ln_1.weight", "transformer.h.0.ln_2.weight", "transformer.ln_f.weight",
        "transformer.h.0.attn.c_attn.bias", "encoder.RMSNorm.weight",
        "model.layers.0.attention_layernorm.weight", "model.layers.0.linear_attn.dt_bias",
        "model.layers.0.linear_attn.norm.weight"})
    EXPECT_FALSE(is_decayed(name)) << name;
}

TEST(WeightDecay, GroupsOnlyWhereTrainerMakesTheOptimizer) {
  const layout::FlatLayout flat(
      "unit", {{"input_layernorm.weight", {8}}, {"q_proj.weight", {8, 8}}}, 1, 1 << 20);
  dsconfig::ResolvedConfig config;
  config.optimizer.weight_decay = 0.1;
  EXPECT_TRUE(decays_of_flat(flat, config).empty()) << "a ds_config's optimizer";
  config.optimizer.decays_all = false;
  EXPECT_EQ(decays_of_flat(flat, config), (std::vector<bool>{false, true}));
  config.optimizer.weight_decay = 0;
  EXPECT_TRUE(decays_of_flat(flat, config).empty()) << "nothing to leave out";
}

}  // namespace
}  // namespace dsj::plan
