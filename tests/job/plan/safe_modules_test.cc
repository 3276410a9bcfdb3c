// Which module holds a parameter, and whether torch_autocast sends what it holds in the products' type.
#include "job/plan/safe_modules.h"

#include <gtest/gtest.h>

namespace dsj::plan {
namespace {

TEST(SafeModules, ModulesByName) {
  EXPECT_EQ(module_class("model.layers.0.self_attn.q_proj.bias"), "torch.nn.Linear");
  EXPECT_EQ(module_class("lm_head.weight"), "torch.nn.Linear");
  EXPECT_EQ(module_class("model.embed_tokens.weight"), "torch.nn.Embedding");
  EXPECT_EQ(module_class("transformer.wpe.weight"), "torch.nn.Embedding");
  for (const char* linear :
       {"gpt_neox.layers.0.attention.query_key_value.bias",
        "gpt_neox.layers.0.mlp.dense_h_to_4h.weight", "embed_out.weight",
        "model.decoder.layers.0.fc1.bias", "model.layers.0.self_attn.dense.weight",
        "transformer.h.0.mlp.fc_out.weight", "model.layers.0.feed_forward.w1.weight",
        "model.layers.0.feed_forward.w2.weight", "model.layers.0.conv.in_proj.weight",
        "model.layers.0.mamba.in_proj.weight", "model.layers.0.shared_mlp.input_linear.weight"})
    EXPECT_EQ(module_class(linear), "torch.nn.Linear") << linear;
  for (const char* table : {"gpt_neox.embed_in.weight", "transformer.word_embeddings.weight",
                            "model.decoder.embed_positions.weight"})
    EXPECT_EQ(module_class(table), "torch.nn.Embedding") << table;
  EXPECT_EQ(module_class("transformer.h.1.attn.c_proj.weight"),
            "transformers.pytorch_utils.Conv1D");
  EXPECT_EQ(module_class("transformer.h.1.attn.c_proj.lora_A.weight"), "torch.nn.Linear");
  for (const char* norm : {"model.norm.weight", "model.layers.0.self_attn.q_norm.weight",
                           "transformer.h.0.ln_1.bias", "model.layers.0.input_layernorm.weight",
                           "transformer.h.0.ln_mlp.weight", "gpt_neox.final_layer_norm.bias"})
    EXPECT_EQ(module_class(norm), "") << norm;
}

/// transformers 5 holds them in classes of its own, but for the shared expert.
TEST(SafeModules, ExpertsAndRoutersAreNoLinears) {
  for (const char* name :
       {"model.layers.0.mlp.experts.3.gate_proj.weight", "model.layers.0.mlp.gate.weight",
        "model.layers.0.block_sparse_moe.experts.0.w1.weight",
        "model.layers.0.block_sparse_moe.gate.weight", "model.layers.2.feed_forward.gate.weight",
        "model.layers.2.feed_forward.experts.0.w1.weight", "model.layers.0.mlp.router.weight",
        "model.layers.0.block_sparse_moe.input_linear.weight",
        "model.layers.0.mlp.experts.gate_up_proj_bias"}) {
    EXPECT_NE(module_class(name), "torch.nn.Linear") << name;
    EXPECT_TRUE(enters_products(name)) << name;
  }
  for (const char* name : {"model.layers.0.mlp.shared_expert.up_proj.weight",
                           "model.layers.0.mlp.shared_expert_gate.weight",
                           "model.layers.0.self_attn.kv_a_proj_with_mqa.weight",
                           "model.layers.0.linear_attn.in_proj_ba.weight",
                           "model.layers.0.linear_attn.out_proj.weight"})
    EXPECT_EQ(module_class(name), "torch.nn.Linear") << name;
  EXPECT_EQ(module_class("model.layers.0.linear_attn.conv1d.weight"), "torch.nn.Conv1d");
  EXPECT_EQ(module_class("model.layers.0.mamba.conv1d.bias"), "torch.nn.Conv1d");
  EXPECT_EQ(module_class("model.layers.0.conv.conv.weight"), "torch.nn.Conv1d");
  EXPECT_FALSE(enters_products("model.layers.0.mamba.D"));
  EXPECT_FALSE(enters_products("model.layers.0.operator_norm.weight"));
  EXPECT_FALSE(enters_products("model.layers.0.linear_attn.A_log"));
  EXPECT_FALSE(enters_products("model.layers.0.linear_attn.norm.weight"));
  EXPECT_FALSE(enters_products("model.layers.0.self_attn.sinks"));
  EXPECT_FALSE(enters_products("model.layers.0.self_attn.kv_a_layernorm.weight"));
}

TEST(SafeModules, ProductsReadNeitherNormsNorTables) {
  for (const char* factor : {"model.layers.0.mlp.up_proj.weight", "transformer.h.1.mlp.c_fc.bias",
                             "model.layers.0.mlp.up_proj.lora_A.weight", "lm_head.weight"})
    EXPECT_TRUE(enters_products(factor)) << factor;
  for (const char* other : {"model.embed_tokens.weight", "transformer.h.0.ln_2.bias"})
    EXPECT_FALSE(enters_products(other)) << other;
}

TEST(SafeModules, ATiedTableIsALinearsToo) {
  dsconfig::ResolvedConfig c;
  c.autocast = {dsconfig::Precision::Bf16, {"torch.nn.Linear"}};
  EXPECT_FALSE(is_safe("model.embed_tokens.weight", false, c));
  EXPECT_TRUE(is_safe("model.embed_tokens.weight", true, c));
  EXPECT_TRUE(is_safe("transformer.wte.weight", true, c));
  EXPECT_FALSE(is_safe("transformer.wpe.weight", true, c));
  auto off = c;
  off.autocast.products = dsconfig::Precision::Fp32;
  EXPECT_FALSE(is_safe("lm_head.weight", false, off));
}

}  // namespace
}  // namespace dsj::plan
