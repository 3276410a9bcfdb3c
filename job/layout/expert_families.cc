#include "job/layout/expert_families.h"

#include "job/layout/family_fields.h"

namespace dsj::layout {

using nlohmann::json;

void read_deepseek_v3(const json& config, Fields& fields, ModelConfig& out) {
  read_latent(config, fields, {}, out, {.max_position = 4096});
  out.rope_in_pairs = fields.flag("rope_interleave", true);
  no_slices(fields);
  read_sigmoid_experts(fields,
                       {.experts = {.count = "n_routed_experts",
                                    .count_default = 256,
                                    .inner_default = 2048,
                                    .per_token = 8},
                        .scale = 2.5,
                        .groups = 8,
                        .groups_taken = 4},
                       out);
  read_first_layers(config, fields, 3, out);
}

void read_glm4_moe_lite(const json& config, Fields& fields, ModelConfig& out) {
  read_latent(config, fields, {.query_rank = 768, .plain = 192, .value = 256}, out,
              {.max_position = 202752, .norm_eps = 1e-5});
  out.rope_in_pairs = fields.flag("rope_interleave", true);
  no_slices(fields);
  read_sigmoid_experts(fields,
                       {.experts = {.count = "n_routed_experts",
                                    .count_default = 64,
                                    .inner_default = 1536,
                                    .per_token = 4},
                        .scale = 1.8},
                       out);
  read_first_layers(config, fields, 1, out);
}

/// DeepSeek-V3's attention with plain MLPs.
void read_youtu(const json& config, Fields& fields, ModelConfig& out) {
  read_latent(config, fields, {}, out, {.max_position = 131072, .tied = true});
  out.rope_in_pairs = fields.flag("rope_interleave", true);
}

void read_glm4_moe(const json& config, Fields& fields, ModelConfig& out) {
  read_shape(config, fields,
             {.max_position = 131072, .norm_eps = 1e-5, .partial_rotary = 0.5, .kv_heads = 8}, out);
  out.qkv_bias = fields.flag("attention_bias", false);
  out.qk_norm = fields.flag("use_qk_norm", false);
  read_sigmoid_experts(fields,
                       {.experts = {.count = "n_routed_experts",
                                    .count_default = 128,
                                    .inner_default = 1408,
                                    .per_token = 8}},
                       out);
  read_first_layers(config, fields, 1, out);
}

/// Every layer has experts.
void read_solar_open(const json& config, Fields& fields, ModelConfig& out) {
  read_shape(config, fields,
             {.inner_key = "moe_intermediate_size",
              .max_position = 131072,
              .head_dim = 128,
              .norm_eps = 1e-5,
              .theta = 1e6,
              .kv_heads = 8},
             out);
  out.qkv_bias = fields.flag("attention_bias", false);
  read_sigmoid_experts(fields,
                       {.experts = {.count = "n_routed_experts",
                                    .count_default = 128,
                                    .inner_default = 1280,
                                    .per_token = 8}},
                       out);
}

void read_dots1(const json& config, Fields& fields, ModelConfig& out) {
  read_shape(config, fields, {.kv_heads = 32}, out);
  all_biases(fields, "attention_bias", out);
  out.qk_norm = true;
  const int64_t first = fields.whole("max_window_layers", 0, INT64_MAX, 62);
  read_windows(
      config, fields, read_window(config, fields, 4096),
      [first](int64_t layer) { return layer >= first; }, out);
  for (const char* key : {"n_routed_experts", "n_shared_experts", "num_experts_per_tok"})
    fields.require(!fields.absent(key), key, "is missing; expected a positive integer");
  read_sigmoid_experts(
      fields,
      {.experts = {.count = "n_routed_experts", .inner_default = 1408}, .normalized = false}, out);
  read_first_layers(config, fields, 0, out);
}

/// Files before transformers 5 say how many elements of a head are rotated, not which part.
void read_minimax_m2(const json& config, Fields& fields, ModelConfig& out) {
  const int64_t head = fields.positive("head_dim", kWidthMax, 128);
  json plain = config;
  if (!fields.absent("rotary_dim") && fields.absent("partial_rotary_factor"))
    plain["partial_rotary_factor"] =
        static_cast<double>(fields.positive("rotary_dim", head)) / static_cast<double>(head);
  Fields shape(plain, {}, "");
  read_shape(
      plain, shape,
      {.max_position = 196608, .head_dim = 128, .theta = 5e6, .partial_rotary = 1, .kv_heads = 8},
      out);
  fields.inherit(shape);
  out.qkv_bias = false;
  out.qk_norm = out.qk_norm_whole = true;
  read_sigmoid_experts(fields,
                       {.experts = {.count = "num_local_experts",
                                    .count_default = 256,
                                    .inner = "intermediate_size",
                                    .inner_default = 1536,
                                    .per_token = 8},
                        .shared = nullptr},
                       out);
  no_auxiliary_loss(fields);
  out.experts.exact_router = false;
  out.experts.normalized = true;
  out.experts.least_sum = 0;
  out.names.router = "block_sparse_moe.gate";
  out.names.correction = "block_sparse_moe.e_score_correction_bias";
  out.names.experts = "block_sparse_moe.experts";
  out.names.expert_gate = "w1";
  out.names.expert_up = "w3";
  out.names.expert_down = "w2";
  fields.require(fields.number("router_jitter_noise", 0, 0, kFactorMax) == 0, "router_jitter_noise",
                 "is not 0; noise on what the router reads is not built");
}

}  // namespace dsj::layout
