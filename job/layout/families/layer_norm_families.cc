#include "job/layout/families/family_readers.h"

#include <algorithm>

#include "job/layout/families/family_fields.h"

namespace dsj::layout {

using nlohmann::json;

// ---- LayerNorm

namespace {

void no_head_layer_norm(Fields& fields, const char* key) {
  fields.require(!fields.flag(key, false), key, "is true; a LayerNorm for each head is not built");
}

}  // namespace

void read_starcoder2(const json& config, Fields& fields, ModelConfig& out) {
  read_shape(config, fields,
             {.max_position = 4096,
              .norm_eps = 1e-5,
              .norm_eps_key = "norm_epsilon",
              .tied = true,
              .activation = "gelu_pytorch_tanh",
              .kv_heads = 2},
             out);
  out.norm = NormKind::Layer;
  out.norm_bias = true;
  out.qkv_bias = out.o_bias = out.mlp_bias = fields.flag("use_bias", true);
  out.gated = false;
  out.names.up = "mlp.c_fc";
  out.names.down = "mlp.c_proj";
  out.dropout.embedding = fields.probability("embedding_dropout", 0);
  out.dropout.residual = fields.probability("residual_dropout", 0);
  same_windows(read_window(config, fields, 0), out);
}

void read_stablelm(const json& config, Fields& fields, ModelConfig& out) {
  read_shape(config, fields,
             {.max_position = 4096,
              .norm_eps = 1e-5,
              .norm_eps_key = "layer_norm_eps",
              .partial_rotary = 0.25,
              .kv_heads = 32},
             out);
  out.norm = NormKind::Layer;
  out.norm_bias = true;
  out.qkv_bias = fields.flag("use_qkv_bias", false);
  out.parallel = out.shared_norm = fields.flag("use_parallel_residual", false);
  no_head_layer_norm(fields, "qk_layernorm");
  fields.require(fields.probability("hidden_dropout", 0) == 0, "hidden_dropout",
                 "is not 0; dropout on the MLP alone is not built");
}

void read_jais2(const json& config, Fields& fields, ModelConfig& out) {
  read_shape(config, fields,
             {.max_position = 8192,
              .norm_eps = 1e-5,
              .norm_eps_key = "layer_norm_eps",
              .activation = "relu2"},
             out);
  out.norm = NormKind::Layer;
  out.norm_bias = true;
  all_biases(fields, "attention_bias", true, out);
  out.mlp_bias = fields.flag("mlp_bias", true);
  out.gated = false;
}

void read_nemotron(const json& config, Fields& fields, ModelConfig& out) {
  read_shape(config, fields,
             {.max_position = 4096,
              .norm_eps = 1e-5,
              .norm_eps_key = "norm_eps",
              .partial_rotary = 0.5,
              .activation = "relu2"},
             out);
  out.norm = NormKind::LayerPlusOne;
  out.norm_bias = true;
  all_biases(fields, "attention_bias", out);
  out.mlp_bias = fields.flag("mlp_bias", false);
  out.gated = false;
}

/// OLMo 1: a LayerNorm without parameters.
void read_olmo(const json& config, Fields& fields, ModelConfig& out) {
  read_shape(config, fields, {.norm_eps = 1e-5, .norm_eps_key = nullptr, .padding = 1}, out);
  all_biases(fields, "attention_bias", out);
  out.norm = NormKind::Layer;
  out.norm_weight = false;
  fields.require(fields.absent("clip_qkv"), "clip_qkv",
                 "is not null; clipped queries, keys and values are not built");
}

// ---- attention and MLP in parallel

namespace {

void read_cohere_shape(const json& config, Fields& fields, double theta, ModelConfig& out) {
  read_shape(config, fields,
             {.max_position = 8192,
              .norm_eps = 1e-5,
              .norm_eps_key = "layer_norm_eps",
              .theta = theta,
              .tied = true,
              .padding = 0},
             out);
  all_biases(fields, "attention_bias", out);
  out.norm = NormKind::Layer;
  out.parallel = out.shared_norm = out.rope_in_pairs = true;
  out.logits_scale = fields.number("logit_scale", 0.0625, kTiny, kFactorMax);
}

}  // namespace

void read_cohere(const json& config, Fields& fields, ModelConfig& out) {
  read_cohere_shape(config, fields, 500000, out);
  no_head_layer_norm(fields, "use_qk_norm");
}

/// Only layers with a window have positions.
void read_cohere2(const json& config, Fields& fields, ModelConfig& out) {
  read_cohere_shape(config, fields, 10000, out);
  const int64_t every = fields.positive("sliding_window_pattern", kIndexMax, 4);
  read_windows(config, fields, read_window(config, fields, 4096), but_each(every), out);
  out.no_rope.assign(static_cast<size_t>(out.num_layers), false);
  for (int64_t layer = 0; layer < out.num_layers; ++layer)
    out.no_rope[layer] = out.windows[layer] == 0;
}

void read_gpt_neox(const json& config, Fields& fields, ModelConfig& out) {
  read_shape(config, fields,
             {.kv_heads_key = nullptr,
              .norm_eps = 1e-5,
              .norm_eps_key = "layer_norm_eps",
              .theta_key = "rotary_emb_base",
              .partial_rotary = 0.25,
              .partial_rotary_key = "rotary_pct",
              .activation = "gelu",
              .has_padding = false},
             out);
  out.norm = NormKind::Layer;
  out.norm_bias = out.mlp_bias = true;
  all_biases(fields, "attention_bias", true, out);
  out.parallel = fields.flag("use_parallel_residual", true);
  out.fused_qkv = out.qkv_by_group = true;
  out.gated = false;
  out.dropout.embedding = out.dropout.residual = fields.probability("hidden_dropout", 0);
  out.names = {.base = "gpt_neox.",
               .embedding = "embed_in",
               .norm = "final_layer_norm",
               .head = "embed_out",
               .attention = "attention",
               .qkv = "query_key_value",
               .o = "dense",
               .up = "mlp.dense_h_to_4h",
               .down = "mlp.dense_4h_to_h"};
}

namespace {

void no_tied_bias(Fields& fields, const ModelConfig& out) {
  fields.require(!out.tied, "tie_word_embeddings", "is true; a tied head with a bias is not built");
}

}  // namespace

void read_phi(const json& config, Fields& fields, ModelConfig& out) {
  read_shape(config, fields,
             {.norm_eps = 1e-5,
              .norm_eps_key = "layer_norm_eps",
              .partial_rotary = 0.5,
              .activation = "gelu_new"},
             out);
  out.norm = NormKind::Layer;
  out.norm_bias = out.o_bias = out.mlp_bias = out.head_bias = true;
  out.parallel = out.shared_norm = true;
  out.gated = false;
  out.dropout.embedding = fields.probability("embd_pdrop", 0);
  out.dropout.residual = fields.probability("resid_pdrop", 0);
  out.names.norm = "final_layernorm";
  out.names.o = "dense";
  out.names.up = "mlp.fc1";
  out.names.down = "mlp.fc2";
  no_head_layer_norm(fields, "qk_layernorm");
  no_tied_bias(fields, out);
}

void read_gptj(const json& config, Fields& fields, ModelConfig& out) {
  read_shape(config, fields,
             {.hidden_key = "n_embd",
              .layers_key = "n_layer",
              .heads_key = "n_head",
              .kv_heads_key = nullptr,
              .inner_key = "n_inner",
              .max_position_key = "n_positions",
              .inner_factor = 4,
              .norm_eps = 1e-5,
              .norm_eps_key = "layer_norm_epsilon",
              .activation_key = "activation_function",
              .activation = "gelu_new",
              .has_padding = false},
             out);
  // Null: rotary angles over the whole width, which no released model has.
  const int64_t rotated = fields.positive("rotary_dim", kWidthMax, 64);
  fields.require(!is_null(config, "rotary_dim") && rotated <= out.head_dim && rotated % 2 == 0,
                 "rotary_dim", "is not an even number of elements of a head");
  out.rotary_dim = rotated;
  out.norm = NormKind::Layer;
  out.norm_bias = out.mlp_bias = out.head_bias = true;
  out.qkv_bias = false;
  out.parallel = out.shared_norm = out.rope_in_pairs = true;
  out.gated = false;
  out.dropout = {.embedding = fields.probability("embd_pdrop", 0),
                 .attention = fields.probability("attn_pdrop", 0),
                 .residual = fields.probability("resid_pdrop", 0)};
  out.names = {.base = "transformer.",
               .embedding = "wte",
               .layers = "h",
               .norm = "ln_f",
               .norm1 = "ln_1",
               .attention = "attn",
               .o = "out_proj",
               .up = "mlp.fc_in",
               .down = "mlp.fc_out"};
  no_tied_bias(fields, out);
}

/// Three generations: 7B (one key head, one norm), 40B (several key heads, two norms), and the
/// first one, whose MLP follows attention.
void read_falcon(const json& config, Fields& fields, ModelConfig& out) {
  const bool newer = fields.flag("new_decoder_architecture", false);
  const bool one_head = !newer && fields.flag("multi_query", true);
  read_shape(config, fields,
             {.kv_heads_key = one_head ? nullptr : "num_kv_heads",
              .inner_key = "ffn_hidden_size",
              .inner_factor = 4,
              .norm_eps = 1e-5,
              .norm_eps_key = "layer_norm_epsilon",
              .tied = true,
              .activation_key = "activation",
              .activation = "gelu",
              .has_padding = false},
             out);
  if (one_head) out.num_kv_heads = 1;
  out.norm = NormKind::Layer;
  out.norm_bias = true;
  out.qkv_bias = out.o_bias = out.mlp_bias = fields.flag("bias", false);
  out.fused_qkv = out.qkv_by_group = true;
  out.gated = false;
  out.parallel = newer || fields.flag("parallel_attn", true);
  const int64_t norms = fields.positive("num_ln_in_parallel_attn", 2, newer ? 2 : 1);
  fields.require(norms == 1 || newer, "num_ln_in_parallel_attn",
                 "is 2; only new_decoder_architecture has two norms side by side");
  out.shared_norm = out.parallel && norms == 1;
  out.names = {.base = "transformer.",
               .embedding = "word_embeddings",
               .layers = "h",
               .norm = "ln_f",
               .attention = "self_attention",
               .qkv = "query_key_value",
               .o = "dense",
               .up = "mlp.dense_h_to_4h",
               .down = "mlp.dense_4h_to_h"};
  if (norms == 2) out.names.norm1 = "ln_attn", out.names.norm2 = "ln_mlp";
  fields.require(!newer || fields.flag("parallel_attn", true), "parallel_attn",
                 "is false, which new_decoder_architecture does not have");
  fields.require(!fields.flag("alibi", false), "alibi", "is true; alibi positions are not built");
  fields.require(fields.probability("hidden_dropout", 0) == 0, "hidden_dropout",
                 "is not 0; dropout on the sum of attention and MLP is not built");
  fields.require(out.parallel || out.dropout.attention == 0, "attention_dropout",
                 "is not 0; Falcon drops also what attention adds in sequence, which is not built");
}

// ---- learned positions

/// Position 0 is the third row of its table.
void read_opt(const json& config, Fields& fields, ModelConfig& out) {
  read_shape(config, fields,
             {.kv_heads_key = nullptr,
              .inner_key = "ffn_dim",
              .norm_eps = 1e-5,
              .norm_eps_key = nullptr,
              .learned_positions = true,
              .tied = true,
              .activation_key = "activation_function",
              .activation = "relu",
              .padding = 1},
             out);
  out.first_position = 2;
  out.norm = NormKind::Layer;
  out.norm_weight = out.norm_bias = fields.flag("layer_norm_elementwise_affine", true);
  out.qkv_bias = out.o_bias = out.mlp_bias = fields.flag("enable_bias", true);
  out.gated = false;
  out.dropout.residual = fields.probability("dropout", 0.1);
  out.names = {.base = "model.decoder.",
               .positions = "embed_positions",
               .norm = "final_layer_norm",
               .norm1 = "self_attn_layer_norm",
               .o = "out_proj",
               .norm2 = "final_layer_norm",
               .up = "fc1",
               .down = "fc2"};
  fields.require(fields.flag("do_layer_norm_before", true), "do_layer_norm_before",
                 "is false; norms of the sums (opt-350m) are not built");
  fields.require(fields.absent("word_embed_proj_dim") ||
                     fields.positive("word_embed_proj_dim", kWidthMax) == out.hidden_size,
                 "word_embed_proj_dim",
                 "is not hidden_size; projected embeddings (opt-350m) are not built");
  fields.require(!fields.flag("_remove_final_layer_norm", false), "_remove_final_layer_norm",
                 "is true; a model without its last norm is not built");
  fields.require(fields.probability("layerdrop", 0) == 0, "layerdrop",
                 "is not 0; dropping whole layers is not built");
}

namespace {

/// attention_types, [[["global", "local"], 6]]: patterns of layers with their number of repeats.
void read_gpt_neo_windows(const json& config, Fields& fields, ModelConfig& out) {
  const int64_t window = fields.positive("window_size", kIndexMax, 256);
  json types = json::array({json::array({json::array({"global", "local"}), 12})});
  if (!fields.absent("attention_types")) types = config["attention_types"];
  bool known = types.is_array();
  for (const json& part : types) {
    known = known && part.is_array() && part.size() == 2 && part[0].is_array() &&
            part[1].is_number_unsigned() && part[1].get<uint64_t>() <= kLayersMax;
    if (!known) break;
    for (uint64_t i = 0; i < part[1].get<uint64_t>(); ++i) {
      for (const json& type : part[0]) {
        known = known && (type == "global" || type == "local") &&
                static_cast<int64_t>(out.windows.size()) < out.num_layers;
        if (!known) break;
        out.windows.push_back(type == "local" ? window : 0);
      }
    }
  }
  fields.require(known && static_cast<int64_t>(out.windows.size()) == out.num_layers,
                 "attention_types",
                 "does not name global or local attention for each of num_layers layers");
  out.windows.resize(static_cast<size_t>(out.num_layers));
}

}  // namespace

/// Scores are not scaled.
void read_gpt_neo(const json& config, Fields& fields, ModelConfig& out) {
  read_shape(config, fields,
             {.layers_key = "num_layers",
              .heads_key = "num_heads",
              .kv_heads_key = nullptr,
              .inner_factor = 4,
              .norm_eps = 1e-5,
              .norm_eps_key = "layer_norm_epsilon",
              .learned_positions = true,
              .tied = true,
              .activation_key = "activation_function",
              .activation = "gelu_new",
              .has_padding = false},
             out);
  read_gpt_neo_windows(config, fields, out);
  out.scale_attention = false;
  out.norm = NormKind::Layer;
  out.norm_bias = out.o_bias = out.mlp_bias = true;
  out.qkv_bias = false;
  out.gated = false;
  out.dropout.embedding = fields.probability("embed_dropout", 0);
  out.dropout.residual = fields.probability("resid_dropout", 0);
  out.names = {.base = "transformer.",
               .embedding = "wte",
               .positions = "wpe",
               .layers = "h",
               .norm = "ln_f",
               .norm1 = "ln_1",
               .attention = "attn.attention",
               .o = "out_proj",
               .norm2 = "ln_2",
               .up = "mlp.c_fc",
               .down = "mlp.c_proj"};
}

/// GPT-2's layer with one key head for all queries, or with a group of rows per head.
void read_gpt_bigcode(const json& config, Fields& fields, ModelConfig& out) {
  read_shape(config, fields,
             {.hidden_key = "n_embd",
              .layers_key = "n_layer",
              .heads_key = "n_head",
              .kv_heads_key = nullptr,
              .inner_key = "n_inner",
              .max_position_key = "n_positions",
              .inner_factor = 4,
              .max_position = 1024,
              .norm_eps = 1e-5,
              .norm_eps_key = "layer_norm_epsilon",
              .learned_positions = true,
              .tied = true,
              .activation_key = "activation_function",
              .activation = "gelu_pytorch_tanh",
              .has_padding = false},
             out);
  if (fields.flag("multi_query", true)) out.num_kv_heads = 1;
  out.scale_attention = fields.flag("scale_attn_weights", true);
  // These request fp32 probabilities, which are fp32 here anyway.
  for (const char* key : {"attention_softmax_in_fp32", "scale_attention_softmax_in_fp32"})
    fields.flag(key, true);
  fields.require(!fields.flag("add_cross_attention", false), "add_cross_attention",
                 "is true; an encoder beside the model is not built");
  out.norm = NormKind::Layer;
  out.norm_bias = out.qkv_bias = out.o_bias = out.mlp_bias = true;
  out.fused_qkv = out.qkv_by_group = true;
  out.gated = false;
  out.dropout = {.embedding = fields.probability("embd_pdrop", 0.1),
                 .attention = fields.probability("attn_pdrop", 0.1),
                 .residual = fields.probability("resid_pdrop", 0.1)};
  out.names = {.base = "transformer.",
               .embedding = "wte",
               .positions = "wpe",
               .layers = "h",
               .norm = "ln_f",
               .norm1 = "ln_1",
               .attention = "attn",
               .qkv = "c_attn",
               .o = "c_proj",
               .norm2 = "ln_2",
               .up = "mlp.c_fc",
               .down = "mlp.c_proj"};
}

void read_gpt2(const json&, Fields& fields, ModelConfig& out) {
  out.block = Block::Gpt2;
  out.learned_positions = true;
  out.norm = NormKind::Layer;
  out.norm_bias = true;
  out.gated = false;
  out.activation =
      read_activation(fields, {.activation_key = "activation_function", .activation = "gelu_new"});
  out.vocab_size = fields.positive("vocab_size", kIndexMax);
  out.hidden_size = fields.positive("n_embd", kWidthMax);
  out.intermediate_size = fields.positive("n_inner", kInnerMax, 4 * out.hidden_size);
  out.num_layers = fields.positive("n_layer", kLayersMax);
  out.num_heads = out.num_kv_heads = fields.positive("n_head", kWidthMax);
  out.max_position = fields.positive("n_positions", kIndexMax, 1024);
  out.norm_eps = fields.number("layer_norm_epsilon", 1e-5, 0, 1);
  out.tied = fields.flag("tie_word_embeddings", true);
  out.head_dim = std::max<int64_t>(out.hidden_size / out.num_heads, 1);
  out.o_bias = out.mlp_bias = true;
  out.scale_attention = fields.flag("scale_attn_weights", true);
  out.scale_by_layer = fields.flag("scale_attn_by_inverse_layer_idx", false);
  // This requests fp32 scores and probabilities, which are fp32 here anyway.
  fields.flag("reorder_and_upcast_attn", false);
  out.dropout = {.embedding = fields.probability("embd_pdrop", 0.1),
                 .attention = fields.probability("attn_pdrop", 0.1),
                 .residual = fields.probability("resid_pdrop", 0.1)};
  fields.require(out.hidden_size % out.num_heads == 0, "n_head", "does not divide n_embd");
  fields.require(!fields.flag("add_cross_attention", false), "add_cross_attention",
                 "is true; an encoder beside the model is not built");
}

}  // namespace dsj::layout
