// Every family's config.json, as written by the transformers of different years, and what is
// refused.
#include "job/layout/model_config.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "job/layout/families/families.h"
#include "job/layout/units.h"
#include "test_paths.h"

namespace dsj::layout {
namespace {

using nlohmann::json;

json llama(const char* more = "{}") {
  json config = json::parse(R"({"model_type": "llama", "vocab_size": 96, "hidden_size": 32,
      "intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4})");
  config.update(json::parse(more));
  return config;
}

ModelConfig read(const json& config) {
  const auto model = model_config_from_json(config, "config.json");
  EXPECT_TRUE(model) << model.error().to_string();
  return model.value_or(ModelConfig{});
}

std::string refusal(const json& config) {
  const auto model = model_config_from_json(config, "config.json");
  EXPECT_FALSE(model);
  return model ? "" : model.error().to_string();
}

bool has_parameter(const ModelConfig& config, const std::string& name) {
  for (const auto& unit : units_of(config)) {
    for (const auto& parameter : unit.parameters) {
      if (parameter.name == name) return true;
    }
  }
  return false;
}

TEST(ModelConfig, LlamaDefaultsAreTransformers) {
  const ModelConfig c = read(llama());
  EXPECT_EQ(c.num_kv_heads, 4);
  EXPECT_EQ(c.head_dim, 8);
  EXPECT_EQ(c.max_position, 2048);
  EXPECT_EQ(c.norm_eps, 1e-6);
  EXPECT_EQ(c.rope.theta, 10000.0);
  EXPECT_FALSE(c.tied || c.qkv_bias || c.o_bias || c.mlp_bias || c.qk_norm);
  EXPECT_EQ(c.window(2), 0);
  EXPECT_DOUBLE_EQ(c.attention_scale(1), 1 / std::sqrt(8.0));
}

TEST(ModelConfig, BiasesAreByFlag) {
  const ModelConfig c = read(llama(R"({"attention_bias": true, "mlp_bias": true})"));
  for (const char* name : {"self_attn.q_proj.bias", "self_attn.o_proj.bias", "mlp.up_proj.bias",
                           "mlp.down_proj.bias"}) {
    EXPECT_TRUE(has_parameter(c, std::string("model.layers.2.") + name)) << name;
    EXPECT_FALSE(has_parameter(read(llama()), std::string("model.layers.2.") + name)) << name;
  }
  // Qwen2 has biases on q, k, v whatever the file says, and none on o.
  const ModelConfig qwen = read(llama(R"({"model_type": "qwen2", "attention_bias": false})"));
  EXPECT_TRUE(has_parameter(qwen, "model.layers.0.self_attn.q_proj.bias"));
  EXPECT_FALSE(has_parameter(qwen, "model.layers.0.self_attn.o_proj.bias"));
}

TEST(ModelConfig, RopeScalingInEverySpelling) {
  for (const char* text :
       {R"({"rope_theta": 5e5, "rope_scaling": {"type": "linear", "factor": 4.0}})",
        R"({"rope_theta": 5e5, "rope_scaling": {"rope_type": "linear", "factor": 4}})",
        R"({"rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 5e5}})",
        R"({"rope_theta": 1e4, "rope_scaling": {"type": "linear", "factor": 4, "rope_theta": 5e5},
            "rope_parameters": {"rope_type": "default", "rope_theta": 2e5}})"}) {
    const RopeConfig rope = read(llama(text)).rope;
    EXPECT_EQ(rope.scaling, RopeConfig::Scaling::Linear) << text;
    EXPECT_EQ(rope.factor, 4.0) << text;
    EXPECT_EQ(rope.theta, 5e5) << text;
  }
  const ModelConfig dynamic = read(llama(
      R"({"max_position_embeddings": 64, "rope_scaling": {"type": "dynamic", "factor": 2.0}})"));
  EXPECT_EQ(dynamic.rope.original_max, 64);
  EXPECT_EQ(dynamic.longest_sequence(), INT64_MAX);
  const ModelConfig llama3 = read(llama(R"({"max_position_embeddings": 512, "rope_scaling":
      {"rope_type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4,
       "original_max_position_embeddings": 64}})"));
  EXPECT_EQ(llama3.rope.original_max, 64);
  EXPECT_EQ(llama3.longest_sequence(), 512);
}

TEST(ModelConfig, RopeThatIsNotBuiltIsRefusedByName) {
  for (const char* type : {"mrope", "proportional", "ntk"}) {
    const std::string text = refusal(
        llama((R"({"rope_scaling": {"factor": 2.0, "rope_type": ")" + std::string(type) + "\"}}")
                  .c_str()));
    EXPECT_NE(text.find("\"rope_scaling.rope_type\" is \"" + std::string(type)), std::string::npos)
        << text;
    EXPECT_NE(text.find("llama3"), std::string::npos) << "names what is built";
  }
  EXPECT_NE(refusal(llama(R"({"rope_scaling": {"type": "linear"}})")).find("factor"),
            std::string::npos);
  EXPECT_NE(refusal(llama(R"({"rope_scaling": {"type": "linear", "factor": -1}})")).find("factor"),
            std::string::npos);
  EXPECT_NE(refusal(llama(R"({"rope_scaling": {"type": "llama3", "factor": 8, "low_freq_factor": 4,
                              "high_freq_factor": 4}})"))
                .find("high_freq_factor"),
            std::string::npos);
  EXPECT_NE(refusal(llama(R"({"rope_parameters": {"partial_rotary_factor": 0.5}})"))
                .find("partial_rotary_factor"),
            std::string::npos);
}

TEST(ModelConfig, MistralWindow) {
  auto mistral = [](const char* more) {
    json config = llama(more);
    config["model_type"] = "mistral";
    return config;
  };
  EXPECT_EQ(read(mistral("{}")).window(0), 4096) << "transformers' default";
  EXPECT_EQ(read(mistral(R"({"sliding_window": 7})")).window(2), 7);
  const ModelConfig none = read(mistral(R"({"sliding_window": null, "head_dim": 16})"));
  EXPECT_EQ(none.window(2), 0);
  EXPECT_EQ(none.query_size(), 64);
  EXPECT_FALSE(none.qkv_bias);
  EXPECT_NE(refusal(mistral(R"({"sliding_window": 0})")).find("sliding_window"), std::string::npos);
}

TEST(ModelConfig, QwenWindowsByLayer) {
  auto qwen = [](const char* more) {
    json config = llama(more);
    config["model_type"] = "qwen2";
    return config;
  };
  EXPECT_EQ(read(qwen(R"({"sliding_window": 9})")).windows, (std::vector<int64_t>{0, 0, 0}));
  EXPECT_EQ(read(qwen(R"({"use_sliding_window": true, "sliding_window": 9,
                          "max_window_layers": 1})"))
                .windows,
            (std::vector<int64_t>{0, 9, 9}));
  EXPECT_EQ(read(qwen(R"({"use_sliding_window": true, "sliding_window": 9, "layer_types":
                          ["sliding_attention", "full_attention", "sliding_attention"]})"))
                .windows,
            (std::vector<int64_t>{9, 0, 9}));
  for (const char* bad :
       {R"({"layer_types": ["sliding_attention", "full_attention", "full_attention"]})",
        R"({"layer_types": ["full_attention"]})",
        R"({"layer_types": ["full_attention", "full_attention", "chunked_attention"]})"}) {
    EXPECT_NE(refusal(qwen(bad)).find("layer_types"), std::string::npos) << bad;
  }
}

TEST(ModelConfig, Qwen3HasHeadNormsAndAHeadSizeOfItsOwn) {
  json config = llama(R"({"num_key_value_heads": 2})");
  config["model_type"] = "qwen3";
  const ModelConfig c = read(config);
  EXPECT_EQ(c.head_dim, 128);
  EXPECT_FALSE(c.qkv_bias);
  const auto layer = units_of(c)[1];
  EXPECT_TRUE(has_parameter(c, "model.layers.0.self_attn.q_norm.weight"));
  for (const auto& parameter : layer.parameters) {
    if (parameter.name.ends_with("q_proj.weight")) {
      EXPECT_EQ(parameter.shape, (std::vector<int64_t>{512, 32}));
    }
    if (parameter.name.ends_with("k_norm.weight")) {
      EXPECT_EQ(parameter.shape, (std::vector<int64_t>{128}));
    }
  }
}

TEST(ModelConfig, Gpt2) {
  json config = json::parse(R"({"model_type": "gpt2", "vocab_size": 96, "n_embd": 32, "n_layer": 2,
                                "n_head": 4})");
  const ModelConfig c = read(config);
  EXPECT_EQ(c.block, Block::Gpt2);
  EXPECT_EQ(c.intermediate_size, 128);
  EXPECT_EQ(c.max_position, 1024);
  EXPECT_EQ(c.longest_sequence(), 1024);
  EXPECT_TRUE(c.tied);
  EXPECT_EQ(c.norm_eps, 1e-5);
  EXPECT_EQ(c.dropout.embedding, 0.1) << "transformers' default, as in the released models";
  EXPECT_EQ(c.dropout.attention, 0.1);
  EXPECT_EQ(c.dropout.residual, 0.1);
  EXPECT_EQ(units_of(c)[1].parameters[2].name, "transformer.h.0.attn.c_attn.weight");
  EXPECT_EQ(units_of(c)[1].parameters[2].shape, (std::vector<int64_t>{32, 96}));
  config["scale_attn_by_inverse_layer_idx"] = true;
  EXPECT_DOUBLE_EQ(read(config).attention_scale(1), 1 / std::sqrt(8.0) / 2);
  config["scale_attn_weights"] = false;
  EXPECT_DOUBLE_EQ(read(config).attention_scale(0), 1.0);
  EXPECT_EQ(c.activation, Activation::GeluTanh);
  config["activation_function"] = "gelu";
  EXPECT_EQ(read(config).activation, Activation::Gelu) << "Cerebras-GPT";
  for (const auto& [key, value] : {std::pair("activation_function", json("tanh")),
                                   {"add_cross_attention", json(true)},
                                   {"n_head", json(5)},
                                   {"resid_pdrop", json(-0.1)}}) {
    json bad = config;
    bad[key] = value;
    EXPECT_NE(refusal(bad).find(key), std::string::npos);
  }
}

TEST(ModelConfig, NamesWithoutTheirPrefix) {
  EXPECT_EQ(name_without_prefix("transformer.h.0.ln_1.weight"), "h.0.ln_1.weight");
  EXPECT_EQ(name_without_prefix("model.norm.weight"), "norm.weight");
  EXPECT_EQ(name_without_prefix("lm_head.weight"), "");
}

TEST(ModelConfig, AnUnknownArchitectureIsRefusedWithTheKnownOnes) {
  for (const char* type : {"mpt", "", "LLAMA", "jamba"}) {
    json config = llama();
    config["model_type"] = type;
    const std::string text = refusal(config);
    EXPECT_NE(text.find("\"" + std::string(type) + "\" is not known"), std::string::npos) << text;
    for (const Family& known : families())
      EXPECT_NE(text.find(std::string(known.model_type) + " ("), std::string::npos) << text;
  }
}

TEST(ModelConfig, WhatAnUnbuiltFamilyNeedsIsNamed) {
  for (const auto& [type, needs] : {std::pair{"gemma3n", "AltUp"},
                                    {"mpt", "alibi positions"},
                                    {"phimoe", "SparseMixer"},
                                    {"t5", "an encoder"}}) {
    json config = llama();
    config["model_type"] = type;
    const std::string text = refusal(config);
    EXPECT_NE(text.find(std::string("; not built: ")), std::string::npos) << text;
    EXPECT_NE(text.find(needs), std::string::npos) << text;
    EXPECT_EQ(family_of(type), nullptr);
  }
}

TEST(ModelConfig, ThePageListsEveryFamily) {
  std::ifstream file(std::string(DSJ_SOURCE_DIR) + "/docs/models.md");
  const std::string page{std::istreambuf_iterator<char>(file), {}};
  for (const Family& family : families()) {
    const std::string row = std::string("| `") + family.model_type + "` | " + family.models +
                            " | " + family.reads + " |\n";
    EXPECT_NE(page.find(row), std::string::npos) << "docs/models.md lacks the line " << row;
  }
}

/// Released config.json files, shortened to what their readers see.
TEST(ModelConfig, ReleasedModels) {
  const auto released = [](const char* text) { return read(json::parse(text)); };
  const ModelConfig gemma3 = released(R"({"model_type": "gemma3_text", "hidden_size": 1152,
      "intermediate_size": 6912, "num_hidden_layers": 26, "num_attention_heads": 4,
      "num_key_value_heads": 1, "head_dim": 256, "vocab_size": 262144, "sliding_window": 512,
      "sliding_window_pattern": 6, "rope_theta": 1000000, "rope_local_base_freq": 10000,
      "query_pre_attn_scalar": 256, "max_position_embeddings": 32768,
      "hidden_activation": "gelu_pytorch_tanh"})");
  EXPECT_EQ(gemma3.window(0), 512);
  EXPECT_EQ(gemma3.window(5), 0) << "each sixth layer sees everything";
  EXPECT_EQ(gemma3.rope.theta, 1e6);
  EXPECT_TRUE(gemma3.rotates_locally(0));
  EXPECT_FALSE(gemma3.rotates_locally(5));
  EXPECT_EQ(gemma3.local_rope->theta, 1e4);
  EXPECT_TRUE(gemma3.tied);
  EXPECT_NEAR(static_cast<double>(total_numel(units_of(gemma3))), 999.9e6, 0.1e6)
      << "gemma-3-1b-it has 999,885,952 parameters";

  const ModelConfig phi4 = released(R"({"model_type": "phi3", "hidden_size": 5120,
      "intermediate_size": 17920, "num_hidden_layers": 40, "num_attention_heads": 40,
      "num_key_value_heads": 10, "vocab_size": 100352, "max_position_embeddings": 16384,
      "original_max_position_embeddings": 16384, "rope_scaling": null, "rope_theta": 250000,
      "sliding_window": null, "tie_word_embeddings": false})");
  EXPECT_EQ(phi4.rotary_size(), 128);
  EXPECT_EQ(total_numel(units_of(phi4)), 14'659'507'200) << "the size of microsoft/phi-4";

  const ModelConfig smollm3 = released(R"({"model_type": "smollm3", "hidden_size": 2048,
      "intermediate_size": 11008, "num_hidden_layers": 36, "num_attention_heads": 16,
      "num_key_value_heads": 4, "vocab_size": 128256, "no_rope_layer_interval": 4,
      "rope_theta": 5000000.0, "use_sliding_window": false, "sliding_window": null})");
  EXPECT_TRUE(smollm3.rotates(0));
  EXPECT_FALSE(smollm3.rotates(3));
  EXPECT_EQ(total_numel(units_of(smollm3)), 3'075'098'624) << "the size of SmolLM3-3B";

  const ModelConfig olmo3 = released(R"({"model_type": "olmo3", "hidden_size": 4096,
      "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32,
      "num_key_value_heads": 32, "vocab_size": 100278, "max_position_embeddings": 65536,
      "rope_theta": 500000, "sliding_window": 4096, "rope_scaling": {"attention_factor":
      1.2079441541679836, "beta_fast": 32, "beta_slow": 1, "factor": 8.0,
      "original_max_position_embeddings": 8192, "rope_type": "yarn"}})");
  EXPECT_EQ(olmo3.rope.scaling, RopeConfig::Scaling::Yarn);
  EXPECT_EQ(olmo3.rope.original_max, 8192);
  EXPECT_EQ(olmo3.local_rope->scaling, RopeConfig::Scaling::Default);
  EXPECT_EQ(olmo3.window(3), 0);
  EXPECT_EQ(total_numel(units_of(olmo3)), 7'298'011'136) << "the size of Olmo-3-7B";

  const ModelConfig granite = released(R"({"model_type": "granite", "hidden_size": 2048,
      "intermediate_size": 8192, "num_hidden_layers": 40, "num_attention_heads": 32,
      "num_key_value_heads": 8, "vocab_size": 49155, "attention_multiplier": 0.015625,
      "embedding_multiplier": 12.0, "logits_scaling": 8.0, "residual_multiplier": 0.22,
      "tie_word_embeddings": true, "rope_theta": 5000000.0})");
  EXPECT_EQ(granite.attention_scale(3), 0.015625);
  EXPECT_EQ(granite.logits_scale, 0.125);
  EXPECT_EQ(total_numel(units_of(granite)), 2'533'531'648) << "the size of granite-3.1-2b";
}

json gemma4_31b() {
  return json::parse(R"({"model_type": "gemma4_text", "vocab_size": 262144, "hidden_size": 5376,
      "intermediate_size": 21504, "num_hidden_layers": 60, "num_attention_heads": 32,
      "num_key_value_heads": 16, "head_dim": 256, "global_head_dim": 512,
      "num_global_key_value_heads": 4, "attention_k_eq_v": true, "hidden_size_per_layer_input": 0,
      "num_kv_shared_layers": 0, "enable_moe_block": false, "sliding_window": 1024,
      "final_logit_softcapping": 30.0, "max_position_embeddings": 262144,
      "use_bidirectional_attention": "vision", "tie_word_embeddings": true})");
}

/// The counts are those of transformers' classes.
TEST(ModelConfig, Gemma4) {
  const ModelConfig dense = read(gemma4_31b());
  const auto units = units_of(dense);
  EXPECT_EQ(total_numel(units), 30'697'345'280);
  EXPECT_EQ(dense.window(4), 1024);
  EXPECT_EQ(dense.window(5), 0) << "every sixth layer";
  EXPECT_EQ(dense.window(59), 0);
  EXPECT_EQ(dense.of_layer(5).head_dim, 512);
  EXPECT_EQ(dense.of_layer(5).num_kv_heads, 4);
  EXPECT_TRUE(dense.of_layer(5).keys_are_values);
  EXPECT_EQ(dense.of_layer(4).kv_size(), 16 * 256);
  EXPECT_EQ(dense.layer_kinds().first, (std::vector<int64_t>{0, 5}));
  EXPECT_EQ(dense.rope.scaling, RopeConfig::Scaling::Proportional);
  EXPECT_EQ(dense.rope.turning, 128) << "a quarter of 512";
  EXPECT_EQ(dense.rope.theta, 1e6);
  EXPECT_EQ(dense.local_rope->theta, 1e4);
  EXPECT_EQ(dense.attention_scale(0), 1);
  EXPECT_EQ(dense.logits_cap, 30);
  EXPECT_EQ(units.at(60).buffers.at(0).name, "model.layers.59.layer_scalar");
  EXPECT_TRUE(has_parameter(dense, "model.layers.4.self_attn.v_proj.weight"));
  EXPECT_FALSE(has_parameter(dense, "model.layers.5.self_attn.v_proj.weight"));

  json experts = gemma4_31b();
  experts.update(json::parse(R"({"hidden_size": 2816, "intermediate_size": 2112,
      "num_hidden_layers": 30, "num_attention_heads": 16, "num_key_value_heads": 8,
      "num_global_key_value_heads": 2, "enable_moe_block": true, "num_experts": 128,
      "top_k_experts": 8, "moe_intermediate_size": 704})"));
  const ModelConfig moe = read(experts);
  EXPECT_EQ(total_numel(units_of(moe)), 25'233'141'760) << "26B-A4B";
  EXPECT_TRUE(has_parameter(moe, "model.layers.29.router.per_expert_scale"));

  const ModelConfig whole = read({{"model_type", "gemma4"}, {"text_config", gemma4_31b()}});
  EXPECT_TRUE(has_parameter(whole, "model.language_model.layers.59.mlp.down_proj.weight"));
  json unified = gemma4_31b();
  unified["model_type"] = "gemma4_unified_text";
  unified.erase("sliding_window");
  unified.erase("hidden_size_per_layer_input");
  EXPECT_EQ(read({{"model_type", "gemma4_unified"}, {"text_config", unified}}).window(0), 1024);
}

/// transformers 5.23 saves the heads of layers under their numbers, whatever kinds of layers there are.
TEST(ModelConfig, Gemma4sHeadsByLayer) {
  for (const bool shares : {true, false}) {
    json config = gemma4_31b();
    config["attention_k_eq_v"] = shares;
    json saved = config;
    saved.erase("global_head_dim");
    saved.erase("num_global_key_value_heads");
    for (int layer = 5; layer < 60; layer += 6) {
      saved["per_layer_config"][std::to_string(layer)]["head_dim"] = 512;
      if (shares) saved["per_layer_config"][std::to_string(layer)]["num_key_value_heads"] = 4;
    }
    const ModelConfig one = read(config), other = read(saved);
    EXPECT_EQ(one.shapes, other.shapes) << shares;
    EXPECT_EQ(total_numel(units_of(one)), total_numel(units_of(other)));
  }
}

TEST(ModelConfig, WhatGemma4CannotHaveIsRefusedByItsField) {
  for (const auto& [key, value] :
       {std::pair{"num_kv_shared_layers", json(59)},
        {"num_kv_shared_layers", json(60)},
        {"num_kv_shared_layers", json(-1)},
        {"hidden_size_per_layer_input", json(1 << 20)},
        {"hidden_size_per_layer_input", json(-1)},
        {"use_bidirectional_attention", json("all")},
        {"global_head_dim", json(511)},
        {"num_global_key_value_heads", json(5)},
        {"per_layer_config", json::parse(R"({"5": {"head_dim": 512, "sliding_window": 4}})")},
        {"per_layer_config", json::parse(R"({"5": {"head_dim": 512}})")},
        {"per_layer_config", json::parse("[1]")},
        {"rope_parameters", json::parse(R"({"full_attention": {"rope_type": "default"}})")},
        {"layer_types", json::parse(R"(["full_attention"])")}}) {
    json bad = gemma4_31b();
    bad[key] = value;
    EXPECT_NE(refusal(bad).find(key), std::string::npos) << key << ": " << refusal(bad);
    EXPECT_NE(refusal({{"model_type", "gemma4"}, {"text_config", bad}}).find(key),
              std::string::npos);
  }
}

json gemma4_e2b() {
  json config = gemma4_31b();
  config.update(json::parse(R"({"hidden_size": 1536, "intermediate_size": 6144,
      "num_hidden_layers": 35, "num_attention_heads": 8, "num_key_value_heads": 1,
      "attention_k_eq_v": false, "num_global_key_value_heads": null, "sliding_window": 512,
      "hidden_size_per_layer_input": 256, "num_kv_shared_layers": 20, "use_double_wide_mlp": true})"));
  config["layer_types"] = json::array();
  for (int layer = 0; layer < 35; ++layer)
    config["layer_types"].push_back(layer % 5 == 4 ? "full_attention" : "sliding_attention");
  return config;
}

/// The counts are those of transformers' classes.
TEST(ModelConfig, Gemma4sLayersThatShare) {
  const ModelConfig small = read(gemma4_e2b());
  const auto units = units_of(small);
  EXPECT_EQ(total_numel(units), 4'628'569'344) << "E2B";
  ASSERT_EQ(units.size(), 39u);
  EXPECT_EQ(head_of(units), 36);
  EXPECT_EQ(units[37].parameters.at(0).name, "model.embed_tokens_per_layer.weight");
  EXPECT_EQ(units[37].parameters.size(), 1u) << "the largest tensor is a unit of its own";
  EXPECT_EQ(units[38].parameters.at(0).name, "model.per_layer_model_projection.weight");
  for (int64_t layer = 0; layer < 35; ++layer) {
    const int64_t from = layer < 15 ? layer : layer % 5 == 4 ? 14 : 13;
    EXPECT_EQ(small.key_layer(layer), from) << layer;
    EXPECT_EQ(small.of_layer(layer).shares_keys, layer >= 15) << layer;
    EXPECT_EQ(small.of_layer(layer).intermediate_size, layer >= 15 ? 12288 : 6144) << layer;
    EXPECT_EQ(small.gives_keys(layer), layer == 13 || layer == 14) << layer;
  }
  EXPECT_TRUE(has_parameter(small, "model.layers.14.self_attn.k_norm.weight"));
  EXPECT_FALSE(has_parameter(small, "model.layers.15.self_attn.k_norm.weight"));
  EXPECT_FALSE(has_parameter(small, "model.layers.15.self_attn.v_proj.weight"));

  json four = gemma4_e2b();
  four.update(json::parse(R"({"hidden_size": 2560, "intermediate_size": 10240,
      "num_hidden_layers": 42, "num_key_value_heads": 2, "num_kv_shared_layers": 18,
      "use_double_wide_mlp": false, "layer_types": null})"));
  EXPECT_EQ(total_numel(units_of(read(four))), 7'463'013'376) << "E4B";

  for (const auto& [key, value] :
       {std::pair{"vocab_size_per_layer_input", json(262143)},
        {"hidden_size_per_layer_input", json(256)},
        {"num_kv_shared_layers", json(31)},
        {"per_layer_config", json::parse(R"({"4": {"head_dim": 512}, "9": {"head_dim": 512},
            "14": {"head_dim": 512, "num_key_value_heads": 2}, "19": {"head_dim": 512},
            "24": {"head_dim": 512}, "29": {"head_dim": 512}, "34": {"head_dim": 512}})")}}) {
    json bad = gemma4_e2b();
    bad[key] = value;
    if (std::string(key) == "hidden_size_per_layer_input")
      bad.update(json::parse(R"({"num_kv_shared_layers": 0, "enable_moe_block": true,
          "num_experts": 8, "top_k_experts": 2, "moe_intermediate_size": 64})"));
    EXPECT_NE(refusal(bad).find(key), std::string::npos) << key << ": " << refusal(bad);
  }
}

/// Hybrids of attention and the gated delta rule. The sizes are those of transformers' classes.
TEST(ModelConfig, ReleasedHybrids) {
  const auto hybrid = [](const char* text) { return read(json::parse(text)); };
  // As published: the text part beside a vision part, mrope, a layer for more tokens (mtp).
  const ModelConfig small = hybrid(R"({"architectures": ["Qwen3_5ForConditionalGeneration"],
      "model_type": "qwen3_5", "image_token_id": 248056, "tie_word_embeddings": true,
      "vision_config": {"model_type": "qwen3_5", "hidden_size": 768},
      "text_config": {"attention_bias": false, "attention_dropout": 0.0, "attn_output_gate": true,
      "dtype": "bfloat16", "eos_token_id": 248044, "full_attention_interval": 4, "head_dim": 256,
      "hidden_act": "silu", "hidden_size": 1024, "initializer_range": 0.02,
      "intermediate_size": 3584, "layer_types": ["linear_attention", "linear_attention",
      "linear_attention", "full_attention", "linear_attention", "linear_attention",
      "linear_attention", "full_attention", "linear_attention", "linear_attention",
      "linear_attention", "full_attention", "linear_attention", "linear_attention",
      "linear_attention", "full_attention", "linear_attention", "linear_attention",
      "linear_attention", "full_attention", "linear_attention", "linear_attention",
      "linear_attention", "full_attention"], "linear_conv_kernel_dim": 4,
      "linear_key_head_dim": 128, "linear_num_key_heads": 16, "linear_num_value_heads": 16,
      "linear_value_head_dim": 128, "max_position_embeddings": 262144, "mlp_only_layers": [],
      "model_type": "qwen3_5_text", "mtp_num_hidden_layers": 1,
      "mtp_use_dedicated_embeddings": false, "num_attention_heads": 8, "num_hidden_layers": 24,
      "num_key_value_heads": 2, "rms_norm_eps": 1e-06, "tie_word_embeddings": true,
      "use_cache": true, "vocab_size": 248320, "mamba_ssm_dtype": "float32",
      "rope_parameters": {"mrope_interleaved": true, "mrope_section": [11, 11, 10],
      "rope_type": "default", "rope_theta": 10000000, "partial_rotary_factor": 0.25}}})");
  EXPECT_TRUE(small.is_text_part);
  EXPECT_TRUE(small.tied);
  EXPECT_TRUE(small.output_gate);
  EXPECT_TRUE(small.has_delta(0));
  EXPECT_FALSE(small.has_delta(3));
  EXPECT_EQ(small.rotary_size(), 64);
  EXPECT_EQ(small.rope.theta, 1e7);
  EXPECT_EQ(total_numel(units_of(small)), 752'393'024) << "the text part of Qwen3.5-0.8B";
  EXPECT_EQ(units_of(small)[1].parameters[1].name,
            "model.language_model.layers.0.linear_attn.in_proj_qkv.weight");

  const ModelConfig large = hybrid(R"({"model_type": "qwen3_5_text", "hidden_size": 5120,
      "intermediate_size": 17408, "num_hidden_layers": 64, "num_attention_heads": 24,
      "num_key_value_heads": 4, "head_dim": 256, "vocab_size": 248320,
      "linear_num_key_heads": 16, "linear_num_value_heads": 48, "tie_word_embeddings": false,
      "rope_parameters": {"rope_type": "default", "rope_theta": 10000000,
      "partial_rotary_factor": 0.25}})");
  EXPECT_EQ(total_numel(units_of(large)), 26'895'998'464) << "the text part of Qwen3.5-27B";
  EXPECT_FALSE(large.has_delta(63)) << "each fourth layer has attention";

  const ModelConfig next = hybrid(R"({"architectures": ["Qwen3NextForCausalLM"],
      "model_type": "qwen3_next", "attention_dropout": 0.0, "decoder_sparse_step": 1,
      "full_attention_interval": 4, "head_dim": 256, "hidden_act": "silu", "hidden_size": 2048,
      "intermediate_size": 5120, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128,
      "linear_num_key_heads": 16, "linear_num_value_heads": 32, "linear_value_head_dim": 128,
      "max_position_embeddings": 262144, "mlp_only_layers": [], "moe_intermediate_size": 512,
      "norm_topk_prob": true, "num_attention_heads": 16, "num_experts": 512,
      "num_experts_per_tok": 10, "num_hidden_layers": 48, "num_key_value_heads": 2,
      "output_router_logits": false, "partial_rotary_factor": 0.25, "rms_norm_eps": 1e-06,
      "rope_scaling": null, "rope_theta": 10000000, "router_aux_loss_coef": 0.001,
      "shared_expert_intermediate_size": 512, "tie_word_embeddings": false,
      "vocab_size": 151936})");
  EXPECT_TRUE(next.delta.by_group);
  EXPECT_TRUE(next.experts.normalized);
  EXPECT_EQ(next.rotary_size(), 64);
  EXPECT_EQ(total_numel(units_of(next)), 79'674'391'296) << "Qwen3-Next-80B-A3B";
}

/// Mamba 2 beside attention. The size is that of transformers' class.
TEST(ModelConfig, ReleasedMamba) {
  json config = json::parse(R"({"architectures": ["GraniteMoeHybridForCausalLM"],
      "attention_bias": false, "attention_dropout": 0.0, "attention_multiplier": 0.0078125,
      "embedding_multiplier": 12, "hidden_act": "silu", "hidden_size": 1536,
      "intermediate_size": 512, "logits_scaling": 6, "mamba_chunk_size": 256,
      "mamba_conv_bias": true, "mamba_d_conv": 4, "mamba_d_head": 64, "mamba_d_state": 128,
      "mamba_expand": 2, "mamba_n_groups": 1, "mamba_n_heads": 48, "mamba_proj_bias": false,
      "max_position_embeddings": 131072, "model_type": "granitemoehybrid",
      "normalization_function": "rmsnorm", "num_attention_heads": 12, "num_experts_per_tok": 6,
      "num_hidden_layers": 40, "num_key_value_heads": 4, "num_local_experts": 64,
      "output_router_logits": false, "position_embedding_type": "nope",
      "residual_multiplier": 0.22, "rms_norm_eps": 1e-05, "rope_scaling": null,
      "rope_theta": 10000, "router_aux_loss_coef": 0.0, "shared_intermediate_size": 1024,
      "tie_word_embeddings": true, "vocab_size": 100352})");
  config["layer_types"] = json::array();
  for (int layer = 0; layer < 40; ++layer)
    config["layer_types"].push_back(layer % 10 == 5 ? "attention" : "mamba");
  const ModelConfig tiny = read(config);
  EXPECT_EQ(total_numel(units_of(tiny)), 6'939'037'248) << "Granite 4.0 H Tiny";
  EXPECT_TRUE(tiny.has_delta(0) && tiny.delta.mamba);
  EXPECT_FALSE(tiny.has_delta(5));
  EXPECT_TRUE(has_parameter(tiny, "model.layers.0.mamba.conv1d.bias"));
  // As transformers 5 writes it.
  json again = config;
  for (json& type : again["layer_types"])
    type = type == "mamba" ? "linear_attention" : "full_attention";
  again["time_step_limit"] = {0.0, {{"__float__", "Infinity"}}};
  EXPECT_EQ(read(again).delta.layers, tiny.delta.layers);
  again["mamba_d_head"] = "auto";
  EXPECT_EQ(read(again).delta.value_dim, 64);
  again.erase("layer_types");
  EXPECT_TRUE(read(again).has_delta(5)) << "the class's default";
}

/// Short convolutions beside attention. The sizes are those of transformers' classes.
TEST(ModelConfig, ReleasedConvolutions) {
  // As published: layers by full_attn_idxs, the MLP's size before its adjustment.
  json config = json::parse(R"({"architectures": ["Lfm2ForCausalLM"], "model_type": "lfm2",
      "block_auto_adjust_ff_dim": true, "block_dim": 1024, "block_ff_dim": 6656,
      "block_ffn_dim_multiplier": 1.0, "block_mlp_init_scale": 1.0, "block_multiple_of": 256,
      "block_norm_eps": 1e-05, "block_use_swiglu": true, "bos_token_id": 1, "conv_L_cache": 3,
      "conv_bias": false, "conv_dim": 1024, "conv_dim_out": 1024, "eos_token_id": 7,
      "full_attn_idxs": [2, 5, 8, 10, 12, 14], "hidden_size": 1024, "initializer_range": 0.02,
      "max_position_embeddings": 128000, "norm_eps": 1e-05, "num_attention_heads": 16,
      "num_heads": 16, "num_hidden_layers": 16, "num_key_value_heads": 8, "pad_token_id": 0,
      "rope_theta": 1000000.0, "torch_dtype": "bfloat16", "use_pos_enc": true,
      "vocab_size": 65536})");
  const ModelConfig small = read(config);
  EXPECT_EQ(total_numel(units_of(small)), 354'483'968) << "LFM2-350M";
  EXPECT_EQ(small.intermediate_size, 4608);
  EXPECT_TRUE(small.tied) << "where the file says nothing";
  EXPECT_EQ(small.mixer(2), Mixer::Attention);
  EXPECT_EQ(small.mixer(3), Mixer::Conv);
  EXPECT_TRUE(has_parameter(small, "model.layers.0.conv.conv.weight"));
  EXPECT_TRUE(has_parameter(small, "model.layers.14.self_attn.q_layernorm.weight"));
  config["hidden_size"] = 2048, config["block_ff_dim"] = 12288, config["num_attention_heads"] = 32;
  config["tie_embedding"] = true;
  EXPECT_EQ(total_numel(units_of(read(config))), 1'170'340'608) << "LFM2-1.2B";
  config["tie_embedding"] = false;
  EXPECT_FALSE(read(config).tied);
  config["block_auto_adjust_ff_dim"] = false;
  EXPECT_EQ(read(config).intermediate_size, 12288);
  config["block_auto_adjust_ff_dim"] = true;
  config["block_ffn_dim_multiplier"] = nullptr;
  EXPECT_EQ(read(config).intermediate_size, 8192) << "two thirds alone";
  config.erase("full_attn_idxs");
  EXPECT_FALSE(read(config).has_states()) << "attention in every layer";

  json types = json::array();
  for (const int layer :
       {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23})
    types.push_back(layer == 2 || layer == 6 || layer == 10 || layer == 14 || layer == 18 ||
                            layer == 21
                        ? "full_attention"
                        : "conv");
  json moe = json::parse(R"({"architectures": ["Lfm2MoeForCausalLM"], "model_type": "lfm2_moe",
      "conv_L_cache": 3, "conv_bias": false, "hidden_size": 2048, "intermediate_size": 7168,
      "max_position_embeddings": 128000, "moe_intermediate_size": 1792, "norm_eps": 1e-05,
      "norm_topk_prob": true, "num_attention_heads": 32, "num_dense_layers": 2,
      "num_experts": 32, "num_experts_per_tok": 4, "num_hidden_layers": 24,
      "num_key_value_heads": 8, "rope_theta": 1000000.0, "routed_scaling_factor": 1.0,
      "use_expert_bias": true, "vocab_size": 65536})");
  moe["layer_types"] = types;
  const ModelConfig experts = read(moe);
  EXPECT_EQ(total_numel(units_of(experts)), 8'339'929'856) << "LFM2-8B-A1B";
  EXPECT_FALSE(experts.has_experts(1));
  EXPECT_TRUE(experts.experts.corrected);
  EXPECT_EQ(units_of(experts)[3].buffers.at(0).name, "model.layers.2.feed_forward.expert_bias");
  for (const auto& [key, value] : {std::pair{"conv_bias", json(true)},
                                   {"conv_L_cache", json(0)},
                                   {"layer_types", json::array({"conv"})},
                                   {"layer_types", json(std::vector<std::string>(24, "mamba"))},
                                   {"layer_types", json()},
                                   {"num_experts_per_tok", json(33)}}) {
    json bad = moe;
    bad[key] = value;
    EXPECT_NE(refusal(bad).find(key), std::string::npos) << key << refusal(bad);
  }
  json bad = config;
  bad["full_attn_idxs"] = "all";
  EXPECT_NE(refusal(bad).find("full_attn_idxs"), std::string::npos);
  bad["full_attn_idxs"] = nullptr;
  bad["block_ffn_dim_multiplier"] = 1e6;
  EXPECT_NE(refusal(bad).find("intermediate_size"), std::string::npos);

  const ModelConfig vision = read({{"model_type", "lfm2_vl"},
                                   {"tie_embedding", false},
                                   {"text_config",
                                    {{"model_type", "lfm2"},
                                     {"vocab_size", 65536},
                                     {"hidden_size", 1024},
                                     {"block_ff_dim", 6656},
                                     {"num_hidden_layers", 2},
                                     {"num_attention_heads", 16},
                                     {"layer_types", {"conv", "full_attention"}},
                                     {"tie_embedding", true}}}});
  EXPECT_FALSE(vision.tied) << "the whole model's tie";
  EXPECT_TRUE(has_parameter(vision, "model.language_model.layers.0.conv.in_proj.weight"));
}

/// Sizes of transformers' own models, from their classes' configurations.
TEST(ModelConfig, FamiliesOfLate2025) {
  const json rope = {{"beta_fast", 32.0},
                     {"beta_slow", 1.0},
                     {"factor", 16.0},
                     {"llama_4_scaling_beta", 0.1},
                     {"max_position_embeddings", 262144},
                     {"mscale", 1.0},
                     {"mscale_all_dim", 1.0},
                     {"original_max_position_embeddings", 16384},
                     {"rope_theta", 1000000.0},
                     {"rope_type", "yarn"},
                     {"type", "yarn"}};
  json ministral = json::parse(R"({"model_type": "ministral3", "vocab_size": 131072,
      "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 34,
      "num_attention_heads": 32, "num_key_value_heads": 8, "sliding_window": null})");
  const ModelConfig plain = read(ministral);
  ministral["rope_parameters"] = rope;
  const ModelConfig said = read(ministral);
  for (const ModelConfig* model : {&plain, &said}) {
    EXPECT_EQ(total_numel(units_of(*model)), 8'489'553'920);
    EXPECT_EQ(model->query_growth, 0.1);
    EXPECT_EQ(model->query_growth_length, 16384);
    EXPECT_EQ(model->rope.scaling, RopeConfig::Scaling::Yarn);
    EXPECT_EQ(model->rope.attention_factor, 1) << "both mscales are one number";
    EXPECT_EQ(model->rope.factor, 16);
  }
  json text = ministral;
  text["model_type"] = "ministral3";
  text["hidden_size"] = 3072;
  text["intermediate_size"] = 9216;
  text["num_hidden_layers"] = 26;
  text["tie_word_embeddings"] = true;
  const ModelConfig part = read({{"model_type", "mistral3"}, {"text_config", text}});
  EXPECT_EQ(total_numel(units_of(part)), 3'429'006'336) << "the text part of Ministral 3 3B";
  EXPECT_TRUE(has_parameter(part, "language_model.model.layers.25.mlp.up_proj.weight"));

  const ModelConfig apertus = read(json::parse(R"({"model_type": "apertus", "vocab_size": 131072,
      "hidden_size": 4096, "intermediate_size": 21504, "num_hidden_layers": 32,
      "num_attention_heads": 32, "num_key_value_heads": 8, "hidden_act": "xielu",
      "qk_norm": true, "post_norm": false, "rope_theta": 12000000})"));
  EXPECT_EQ(total_numel(units_of(apertus)), 8'053'338'176) << "Apertus-8B";
  EXPECT_EQ(apertus.rope.scaling, RopeConfig::Scaling::Llama3) << "where the file says nothing";
  EXPECT_EQ(units_of(apertus)[1].buffers.at(1).name, "model.layers.0.mlp.act_fn.eps");
  EXPECT_NE(refusal(llama(R"({"hidden_act": "xielu"})")).find("hidden_act"), std::string::npos)
      << "parameters of an activation in another family";

  const ModelConfig moe = read(json::parse(R"({"model_type": "qwen3_5_moe", "text_config": {
      "model_type": "qwen3_5_moe_text", "num_experts": 256, "moe_intermediate_size": 512,
      "shared_expert_intermediate_size": 512}})"));
  const auto units = units_of(moe);
  EXPECT_EQ(total_numel(units), 34'660'610'688) << "the text part of Qwen3.5-35B-A3B";
  EXPECT_TRUE(has_parameter(moe, "model.language_model.layers.39.mlp.experts.gate_up_proj"));

  const ModelConfig flex = read(json::parse(R"({"model_type": "flex_olmo", "vocab_size": 100352,
      "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32,
      "num_attention_heads": 32})"));
  EXPECT_EQ(total_numel(units_of(flex)), 33'270'665'216);
}

/// The queries of this family grow by two numbers; transformers' class fails without them.
TEST(ModelConfig, HowQueriesGrowMustBeSaid) {
  const json config = json::parse(R"({"model_type": "ministral3", "vocab_size": 96,
      "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
      "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "rope_parameters": {
      "rope_type": "default", "rope_theta": 10000.0, "llama_4_scaling_beta": 0.1,
      "original_max_position_embeddings": 64}})");
  EXPECT_EQ(read(config).query_growth_length, 64);
  for (const char* key : {"llama_4_scaling_beta", "original_max_position_embeddings"}) {
    for (const json& value : {json(), json(-1), json("16")}) {
      json bad = config;
      bad["rope_parameters"][key] = value;
      EXPECT_NE(refusal(bad).find("\"rope_parameters." + std::string(key) + "\""),
                std::string::npos)
          << refusal(bad);
    }
  }
}

TEST(ModelConfig, WhatAHybridCannotHaveIsRefused) {
  const json config = json::parse(R"({"model_type": "qwen3_5_text", "hidden_size": 32,
      "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
      "num_key_value_heads": 2, "vocab_size": 64})");
  EXPECT_TRUE(read(config).has_delta(0)) << "transformers' defaults";
  for (const auto& [key, value] : {std::pair{"layer_types", json::parse(R"(["full_attention"])")},
                                   {"layer_types", json::parse(R"(["mamba", "full_attention"])")},
                                   {"linear_num_value_heads", json(24)},
                                   {"linear_num_key_heads", json(0)},
                                   {"linear_key_head_dim", json(1 << 20)},
                                   {"linear_value_head_dim", json(1 << 20)},
                                   {"linear_conv_kernel_dim", json(65)},
                                   {"attn_output_gate", json(false)},
                                   {"full_attention_interval", json(0)},
                                   {"hidden_act", json("gelu")}}) {
    json bad = config;
    bad[key] = value;
    EXPECT_NE(refusal(bad).find(key), std::string::npos) << key;
  }
}

/// Mixtures of experts: all parameters, and those that one token passes.
TEST(ModelConfig, ReleasedModelsWithExperts) {
  const auto counts = [](const char* text) {
    const ModelConfig model = read(json::parse(text));
    const auto units = units_of(model);
    return std::pair{total_numel(units), active_numel(model, units)};
  };
  using Counts = std::pair<int64_t, int64_t>;
  EXPECT_EQ(counts(R"({"model_type": "qwen3_moe", "hidden_size": 2048, "intermediate_size": 6144,
      "moe_intermediate_size": 768, "num_hidden_layers": 48, "num_attention_heads": 32,
      "num_key_value_heads": 4, "head_dim": 128, "vocab_size": 151936, "num_experts": 128,
      "num_experts_per_tok": 8, "norm_topk_prob": true, "decoder_sparse_step": 1,
      "mlp_only_layers": [], "output_router_logits": false, "router_aux_loss_coef": 0.001,
      "rope_theta": 1000000.0, "max_position_embeddings": 40960, "sliding_window": null,
      "use_sliding_window": false, "max_window_layers": 48, "tie_word_embeddings": false})"),
            (Counts{30'532'122'624, 3'353'032'704}))
      << "the size of Qwen3-30B-A3B";
  EXPECT_EQ(counts(R"({"model_type": "mixtral", "hidden_size": 4096, "intermediate_size": 14336,
      "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
      "vocab_size": 32000, "num_local_experts": 8, "num_experts_per_tok": 2,
      "output_router_logits": false, "router_aux_loss_coef": 0.02, "rope_theta": 1000000.0,
      "max_position_embeddings": 32768, "sliding_window": null, "tie_word_embeddings": false})"),
            (Counts{46'702'792'704, 12'879'925'248}))
      << "the size of Mixtral-8x7B";
  EXPECT_EQ(counts(R"({"model_type": "olmoe", "hidden_size": 2048, "intermediate_size": 1024,
      "num_hidden_layers": 16, "num_attention_heads": 16, "num_key_value_heads": 16,
      "vocab_size": 50304, "num_experts": 64, "num_experts_per_tok": 8, "norm_topk_prob": false,
      "clip_qkv": null, "tie_word_embeddings": false})"),
            (Counts{6'919'161'856, 1'282'017'280}))
      << "the size of OLMoE-1B-7B";
  EXPECT_EQ(counts(R"({"model_type": "qwen2_moe", "hidden_size": 2048, "intermediate_size": 5632,
      "moe_intermediate_size": 1408, "shared_expert_intermediate_size": 5632,
      "num_hidden_layers": 24, "num_attention_heads": 16, "num_key_value_heads": 16,
      "vocab_size": 151936, "num_experts": 60, "num_experts_per_tok": 4, "norm_topk_prob": false,
      "sliding_window": 32768, "use_sliding_window": false, "max_window_layers": 21,
      "tie_word_embeddings": false})"),
            (Counts{14'315'784'192, 2'689'173'504}))
      << "the size of Qwen1.5-MoE-A2.7B";
  EXPECT_EQ(counts(R"({"model_type": "gpt_oss", "hidden_size": 2880, "intermediate_size": 2880,
      "num_hidden_layers": 24, "num_attention_heads": 64, "num_key_value_heads": 8,
      "head_dim": 64, "vocab_size": 201088, "num_local_experts": 32, "num_experts_per_tok": 4,
      "attention_bias": true, "sliding_window": 128, "tie_word_embeddings": false,
      "rope_scaling": {"beta_fast": 32.0, "beta_slow": 1.0, "factor": 32.0,
      "original_max_position_embeddings": 4096, "rope_type": "yarn", "truncate": false}})"),
            (Counts{20'914'757'184, 4'187'440'704}))
      << "the size of gpt-oss-20b";
  EXPECT_EQ(counts(R"({"model_type": "deepseek_v2", "hidden_size": 2048,
      "intermediate_size": 10944, "moe_intermediate_size": 1408, "num_hidden_layers": 27,
      "num_attention_heads": 16, "num_key_value_heads": 16, "vocab_size": 102400,
      "n_routed_experts": 64, "n_shared_experts": 2, "num_experts_per_tok": 6, "n_group": 1,
      "topk_group": 1, "topk_method": "greedy", "first_k_dense_replace": 1,
      "q_lora_rank": null, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
      "v_head_dim": 128, "rope_theta": 10000, "rope_scaling": {"beta_fast": 32, "beta_slow": 1,
      "factor": 40, "mscale": 0.707, "mscale_all_dim": 0.707,
      "original_max_position_embeddings": 4096, "type": "yarn"}})"),
            (Counts{15'706'484'224, 2'661'150'208}))
      << "the size of DeepSeek-V2-Lite";
}

json moe(const char* more = "{}") {
  json config = json::parse(R"({"model_type": "qwen3_moe", "vocab_size": 96, "hidden_size": 32,
      "intermediate_size": 48, "num_hidden_layers": 4, "num_attention_heads": 4,
      "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 16})");
  config.update(json::parse(more));
  return config;
}

/// The sums of the parameters of transformers' own classes, without the corrections.
TEST(ModelConfig, ReleasedModelsWithACorrectedRouter) {
  const auto parameters = [](const char* text) {
    return total_numel(units_of(read(json::parse(text))));
  };
  EXPECT_EQ(parameters(R"({"model_type": "deepseek_v3", "hidden_size": 7168,
      "intermediate_size": 18432, "moe_intermediate_size": 2048, "num_hidden_layers": 61,
      "num_attention_heads": 128, "num_key_value_heads": 128, "q_lora_rank": 1536,
      "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
      "n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8,
      "first_k_dense_replace": 3, "moe_layer_freq": 1, "n_group": 8, "topk_group": 4,
      "topk_method": "noaux_tc", "scoring_func": "sigmoid", "norm_topk_prob": true,
      "routed_scaling_factor": 2.5, "num_nextn_predict_layers": 1, "vocab_size": 129280,
      "max_position_embeddings": 163840, "tie_word_embeddings": false, "quantization_config": {
      "activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8",
      "weight_block_size": [128, 128]}, "rope_theta": 10000, "rope_scaling": {"beta_fast": 32,
      "beta_slow": 1, "factor": 40, "mscale": 1.0, "mscale_all_dim": 1.0,
      "original_max_position_embeddings": 4096, "type": "yarn"}})"),
            671'026'404'352);
  EXPECT_EQ(parameters(R"({"model_type": "glm4_moe", "attention_bias": true,
      "first_k_dense_replace": 1, "head_dim": 128, "hidden_size": 4096,
      "intermediate_size": 10944, "max_position_embeddings": 131072,
      "moe_intermediate_size": 1408, "n_group": 1, "n_routed_experts": 128, "n_shared_experts": 1,
      "norm_topk_prob": true, "num_attention_heads": 96, "num_experts_per_tok": 8,
      "num_hidden_layers": 46, "num_key_value_heads": 8, "num_nextn_predict_layers": 1,
      "pad_token_id": 151329, "partial_rotary_factor": 0.5, "rope_scaling": null,
      "rope_theta": 1000000, "routed_scaling_factor": 1.0, "topk_group": 1, "use_qk_norm": false,
      "vocab_size": 151552})"),
            106'852'245'504)
      << "GLM-4.5-Air";
  EXPECT_EQ(parameters(R"({"model_type": "ernie4_5_moe", "hidden_size": 2560,
      "intermediate_size": 12288, "moe_intermediate_size": 1536, "num_hidden_layers": 28,
      "num_attention_heads": 20, "num_key_value_heads": 4, "head_dim": 128, "moe_num_experts": 64,
      "moe_num_shared_experts": 2, "moe_k": 6, "moe_layer_start_index": 1,
      "moe_layer_end_index": 27, "moe_layer_interval": 1, "vocab_size": 103424,
      "tie_word_embeddings": true, "use_bias": false})"),
            21'825'436'160);
  const ModelConfig minimax = read(json::parse(R"({"model_type": "minimax_m2",
      "hidden_size": 3072, "intermediate_size": 1536, "num_hidden_layers": 62,
      "num_attention_heads": 48, "num_key_value_heads": 8, "head_dim": 128,
      "num_local_experts": 256, "num_experts_per_tok": 8, "scoring_func": "sigmoid",
      "use_routing_bias": true, "num_mtp_modules": 3, "use_qk_norm": true, "rotary_dim": 64,
      "shared_intermediate_size": 0, "router_jitter_noise": 0.0, "rope_theta": 5000000,
      "vocab_size": 200064})"));
  EXPECT_EQ(total_numel(units_of(minimax)), 228'689'748'992);
  EXPECT_EQ(minimax.rotary_dim, 64);
  EXPECT_EQ(units_of(minimax)[1].buffers.at(0).name,
            "model.layers.0.block_sparse_moe.e_score_correction_bias");
}

TEST(ModelConfig, WhatACorrectedRouterDoesNotHaveIsRefused) {
  const auto refused = [](const char* more, const char* field) {
    const std::string text = refusal(moe(more));
    EXPECT_NE(text.find(field), std::string::npos) << text;
  };
  refused(R"({"model_type": "deepseek_v3", "n_group": 3})", "n_group");
  refused(R"({"model_type": "deepseek_v3", "n_group": 8})", "groups of two or more");
  refused(R"({"model_type": "deepseek_v3", "n_group": 4, "topk_group": 5})", "topk_group");
  refused(R"({"model_type": "deepseek_v3", "n_group": 4, "num_experts_per_tok": 6,
              "topk_group": 2})",
          "topk_group");
  refused(R"({"model_type": "glm4_moe", "scoring_func": "softmax",
              "num_key_value_heads": 2})",
          "scoring_func");
  refused(R"({"model_type": "minimax_m2", "output_router_logits": true, "head_dim": 8,
              "num_key_value_heads": 2})",
          "output_router_logits");
  refused(R"({"model_type": "ernie4_5_moe", "use_bias": true})", "use_bias");
  refused(R"({"model_type": "hunyuan_v1_moe", "moe_topk": [1, 2, 1, 1]})", "moe_topk");
  refused(R"({"model_type": "dots1", "num_key_value_heads": 4})", "n_routed_experts");
  for (const char* wrong :
       {R"({"layer_types": ["mamba", "attention"]})",
        R"({"layer_types": ["mamba", "attention", "mamba", "conv"]})", R"({"mamba_n_heads": 3})",
        R"({"mamba_d_head": 9})", R"({"mamba_n_groups": 3})", R"({"mamba_d_state": 2097152})",
        R"({"mamba_d_conv": 65})", R"({"mamba_proj_bias": true})", R"({"hidden_act": "gelu"})",
        R"({"time_step_limit": [0.0, 0.1]})"}) {
    json config = json::parse(R"({"model_type": "granitemoehybrid", "mamba_n_heads": 4})");
    const json change = json::parse(wrong);
    config.update(change);
    refused(config.dump().c_str(), change.begin().key().c_str());
  }
}

/// transformers 5 leaves out what its class has as a default.
TEST(ModelConfig, MissingKeyHeadsAreThoseOfTheClass) {
  const auto key_heads = [](const char* model_type, const json& heads) {
    json config = json::parse(R"({"vocab_size": 96, "hidden_size": 64, "intermediate_size": 48,
        "num_hidden_layers": 2, "num_attention_heads": 64, "head_dim": 8, "num_experts": 8,
        "moe_intermediate_size": 16})");
    config["model_type"] = model_type;
    if (!heads.is_string()) config["num_key_value_heads"] = heads;
    return read(config).num_kv_heads;
  };
  const json missing = "missing";
  for (const auto& [model_type, heads] :
       {std::pair{"qwen3_moe", 4}, std::pair{"qwen2_moe", 16}, std::pair{"mixtral", 8},
        std::pair{"gpt_oss", 8}, std::pair{"mistral", 8}, std::pair{"qwen3", 32},
        std::pair{"glm4", 2}, std::pair{"llama", 64}})
    EXPECT_EQ(key_heads(model_type, missing), heads) << model_type;
  EXPECT_EQ(key_heads("mixtral", json()), 64) << "null: as many as query heads";
  EXPECT_EQ(key_heads("mixtral", 16), 16);
}

TEST(ModelConfig, WhichLayersHaveExperts) {
  const auto layers = [](const char* more) {
    const ModelConfig model = read(moe(more));
    std::string text;
    for (int64_t layer = 0; layer < model.num_layers; ++layer)
      text += model.has_experts(layer) ? 'E' : '-';
    return text;
  };
  EXPECT_EQ(layers("{}"), "EEEE");
  EXPECT_EQ(layers(R"({"decoder_sparse_step": 2})"), "-E-E");
  EXPECT_EQ(layers(R"({"mlp_only_layers": [0, 3, 99]})"), "-EE-");
  EXPECT_NE(refusal(moe(R"({"mlp_only_layers": ["first"]})")).find("mlp_only_layers"),
            std::string::npos);
  EXPECT_TRUE(has_parameter(read(moe()), "model.layers.3.mlp.experts.7.down_proj.weight"));
  EXPECT_FALSE(has_parameter(read(moe()), "model.layers.3.mlp.down_proj.weight"));
}

/// transformers 5 writes Qwen3-MoE's num_experts as num_local_experts.
TEST(ModelConfig, TheNumberOfExpertsHasTwoNames) {
  json config = moe();
  config.erase("num_experts");
  EXPECT_EQ(read(config).experts.count, 128) << "transformers' default";
  config["num_local_experts"] = 6;
  EXPECT_EQ(read(config).experts.count, 6);
  config["model_type"] = "mixtral";
  EXPECT_EQ(read(config).experts.count, 6);
  config.erase("num_local_experts");
  config["num_experts"] = 5;
  EXPECT_EQ(read(config).experts.count, 5);
}

TEST(ModelConfig, TheAuxiliaryLossCountsOnlyWhereTheFileAsksForIt) {
  EXPECT_EQ(read(moe(R"({"router_aux_loss_coef": 0.3})")).experts.balance, 0);
  EXPECT_EQ(read(moe(R"({"output_router_logits": true})")).experts.balance, 0.001);
  EXPECT_EQ(
      read(moe(R"({"output_router_logits": true, "router_aux_loss_coef": 0.3})")).experts.balance,
      0.3);
}

TEST(ModelConfig, WhatExpertsDoNotHaveIsRefused) {
  const auto refused = [](const char* more, const char* field) {
    const std::string text = refusal(moe(more));
    EXPECT_NE(text.find(field), std::string::npos) << text;
  };
  refused(R"({"num_experts_per_tok": 9})", "num_experts_per_tok");
  refused(R"({"num_experts": 0})", "num_experts");
  refused(R"({"num_experts": 100000})", "num_experts");
  refused(R"({"router_aux_loss_coef": -1})", "router_aux_loss_coef");
  refused(R"({"model_type": "mixtral", "router_jitter_noise": 0.1})", "router_jitter_noise");
  refused(R"({"model_type": "olmoe", "clip_qkv": 8.0})", "clip_qkv");
  refused(R"({"model_type": "deepseek_v2", "topk_method": "group_limited_greedy"})", "topk_method");
  refused(R"({"model_type": "deepseek_v2", "v_head_dim": 1024})", "v_head_dim");
}

/// Objects of published config.json files. Without this they would train as what they are not.
TEST(ModelConfig, QuantisedModelsAreRefusedByName) {
  for (const auto& [object, name] : {
           std::pair{
               R"({"quant_method": "bitsandbytes", "load_in_4bit": true, "load_in_8bit": false,
                        "_load_in_4bit": true, "bnb_4bit_quant_type": "nf4"})",
               "bitsandbytes, in 4 bits (nf4)"},
           std::pair{R"({"load_in_8bit": true, "llm_int8_threshold": 6.0})", "bitsandbytes, in 8"},
           std::pair{R"({"quant_method": "gptq", "bits": 4, "group_size": 128})", "GPTQ"},
           std::pair{R"({"quant_method": "awq", "bits": 4, "version": "gemm"})", "AWQ"},
           std::pair{R"({"quant_method": "fbgemm_fp8"})", "fbgemm_fp8"},
           std::pair{R"({"quant_method": "mxfp4"})", "MXFP4"},
           std::pair{R"({"quant_method": "compressed-tensors"})", "compressed-tensors"},
           std::pair{R"({"quant_method": "tomorrows"})", "\"tomorrows\""},
           std::pair{R"({"bits": 4})", "no method"},
           std::pair{R"("nf4")", "no method"},
       }) {
    for (const char* key : {"quantization_config", "compression_config"}) {
      json config = llama();
      config[key] = json::parse(object);
      const std::string text = refusal(config);
      EXPECT_NE(text.find(name), std::string::npos) << text;
      EXPECT_NE(text.find(key), std::string::npos) << text;
      EXPECT_NE(text.find("not trained"), std::string::npos) << text;
    }
  }
  json config = llama();
  for (const json& none : {json(), json::object()}) {
    config["quantization_config"] = none;
    EXPECT_TRUE(model_config_from_json(config, "config.json")) << none;
  }
  // What is unpacked when it is read.
  config["quantization_config"] = {{"quant_method", "fp8"}, {"weight_block_size", {128, 128}}};
  EXPECT_TRUE(model_config_from_json(config, "config.json"));
  json gpt_oss = moe(R"({"model_type": "gpt_oss"})");
  gpt_oss["quantization_config"] = {
      {"quant_method", "mxfp4"},
      {"modules_to_not_convert", {"model.layers.*.self_attn", "model.layers.*.mlp.router"}}};
  EXPECT_TRUE(model_config_from_json(gpt_oss, "config.json"));
}

/// The same, of models whose weights have other names and places.
TEST(ModelConfig, ReleasedModelsOfOtherShapes) {
  const auto parameters = [](const char* text) {
    return total_numel(units_of(read(json::parse(text))));
  };
  EXPECT_EQ(parameters(R"({"model_type": "gpt_neox", "hidden_size": 2048, "intermediate_size": 8192,
      "num_hidden_layers": 24, "num_attention_heads": 16, "vocab_size": 50304,
      "max_position_embeddings": 2048, "rotary_pct": 0.25, "rotary_emb_base": 10000,
      "use_parallel_residual": true, "hidden_act": "gelu", "layer_norm_eps": 1e-05})"),
            1'414'647'808)
      << "the size of pythia-1.4b";
  EXPECT_EQ(parameters(R"({"model_type": "phi", "hidden_size": 2560, "intermediate_size": 10240,
      "num_hidden_layers": 32, "num_attention_heads": 32, "vocab_size": 51200,
      "partial_rotary_factor": 0.4, "hidden_act": "gelu_new", "layer_norm_eps": 1e-05})"),
            2'779'683'840)
      << "the size of phi-2";
  EXPECT_EQ(parameters(R"({"model_type": "opt", "hidden_size": 768, "ffn_dim": 3072,
      "num_hidden_layers": 12, "num_attention_heads": 12, "vocab_size": 50272,
      "word_embed_proj_dim": 768, "max_position_embeddings": 2048, "do_layer_norm_before": true,
      "dropout": 0.1})"),
            125'239'296)
      << "the size of opt-125m";
  EXPECT_EQ(parameters(R"({"model_type": "falcon", "hidden_size": 4544, "num_hidden_layers": 32,
      "num_attention_heads": 71, "num_kv_heads": 71, "vocab_size": 65024, "bias": false,
      "multi_query": true, "parallel_attn": true, "new_decoder_architecture": false})"),
            6'921'720'704)
      << "the size of falcon-7b";
  EXPECT_EQ(parameters(R"({"model_type": "cohere2", "hidden_size": 4096, "intermediate_size": 14336,
      "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
      "vocab_size": 256000, "sliding_window": 4096, "sliding_window_pattern": 4,
      "layer_norm_eps": 1e-05, "logit_scale": 0.25, "rope_theta": 50000})"),
            8'028'033'024)
      << "the size of c4ai-command-r7b";
  EXPECT_EQ(parameters(R"({"model_type": "gptj", "n_embd": 4096, "n_layer": 28, "n_head": 16,
      "n_positions": 2048, "vocab_size": 50400, "rotary_dim": 64, "n_inner": null})"),
            6'050'882'784)
      << "the size of gpt-j-6b";
  EXPECT_EQ(parameters(R"({"model_type": "gpt_neo", "hidden_size": 768, "num_layers": 12,
      "num_heads": 12, "vocab_size": 50257, "max_position_embeddings": 2048,
      "attention_types": [[["global", "local"], 6]], "window_size": 256,
      "activation_function": "gelu_new", "intermediate_size": null})"),
            125'198'592)
      << "the size of gpt-neo-125m";
  EXPECT_EQ(parameters(R"({"model_type": "gpt_bigcode", "n_embd": 6144, "n_layer": 40,
      "n_head": 48, "n_positions": 8192, "n_inner": 24576, "vocab_size": 49152,
      "multi_query": true, "activation_function": "gelu"})"),
            15'517'456'384)
      << "the size of starcoder";
  const auto neo = [](const char* types) {
    return refusal(
        json::parse(std::string(R"({"model_type": "gpt_neo", "hidden_size": 32, "num_layers": 4,
        "num_heads": 4, "vocab_size": 128, "attention_types": )") +
                    types + "}"));
  };
  for (const char* types : {R"([[["global", "local"], 1]])", R"([[["global", "local"], 3]])",
                            R"([[["global", "sparse"], 2]])", R"([[["global"], -4]])", "7"})
    EXPECT_NE(neo(types).find("\"attention_types\" does not name"), std::string::npos)
        << types << ": " << neo(types);
  const ModelConfig hunyuan = read(json::parse(R"({"model_type": "hunyuan_v1_dense",
      "hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 32, "head_dim": 128,
      "num_attention_heads": 16, "num_key_value_heads": 4, "vocab_size": 120818,
      "tie_word_embeddings": true, "rope_theta": 10000.0, "rope_scaling": {"alpha": 1000.0,
      "beta_fast": 32, "beta_slow": 1, "factor": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0,
      "type": "dynamic"}})"));
  EXPECT_EQ(hunyuan.rope.scaling, RopeConfig::Scaling::Default);
  EXPECT_DOUBLE_EQ(hunyuan.rope.theta, 10000 * std::pow(1000.0, 128.0 / 126));
}

/// Their files as released: Gemma's leaves most to transformers' class, Qwen2.5-VL's is flat.
TEST(ModelConfig, TheTextPartOfAModelWithAVisionPart) {
  const ModelConfig gemma =
      read(json::parse(R"({"model_type": "gemma3", "image_token_index": 262144,
      "vision_config": {"model_type": "siglip_vision_model"}, "text_config": {"hidden_size": 2560,
      "intermediate_size": 10240, "model_type": "gemma3_text", "num_hidden_layers": 34,
      "rope_scaling": {"factor": 8.0, "rope_type": "linear"}, "sliding_window": 1024}})"));
  EXPECT_EQ(gemma.window(0), 1024);
  EXPECT_EQ(gemma.rope.factor, 8);
  EXPECT_TRUE(gemma.is_text_part && gemma.tied);
  EXPECT_TRUE(has_parameter(gemma, "language_model.model.layers.33.self_attn.k_norm.weight"));
  EXPECT_EQ(total_numel(units_of(gemma)), 3'880'263'168) << "the text part of gemma-3-4b-it";

  const ModelConfig mistral = read(json::parse(R"({"model_type": "mistral3", "vision_config": {},
      "text_config": {"model_type": "mistral", "head_dim": 128, "hidden_size": 5120,
      "intermediate_size": 32768, "max_position_embeddings": 131072, "num_attention_heads": 32,
      "num_hidden_layers": 40, "num_key_value_heads": 8, "rms_norm_eps": 1e-05,
      "rope_theta": 1000000000.0, "sliding_window": null, "vocab_size": 131072}})"));
  EXPECT_TRUE(has_parameter(mistral, "language_model.lm_head.weight"));
  EXPECT_EQ(mistral.rope.theta, 1e9);
  EXPECT_EQ(total_numel(units_of(mistral)), 23'572'403'200)
      << "the text part of Mistral-Small-3.1-24B";

  const ModelConfig qwen = read(json::parse(R"({"model_type": "qwen2_5_vl", "hidden_size": 2048,
      "intermediate_size": 11008, "num_hidden_layers": 36, "num_attention_heads": 16,
      "num_key_value_heads": 2, "vocab_size": 151936, "max_position_embeddings": 128000,
      "max_window_layers": 70, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0,
      "sliding_window": 32768, "tie_word_embeddings": true, "use_sliding_window": false,
      "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]},
      "vision_config": {"depth": 32}})"));
  EXPECT_EQ(qwen.rope.scaling, RopeConfig::Scaling::Default);
  EXPECT_EQ(total_numel(units_of(qwen)), 3'085'938'688) << "the text part of Qwen2.5-VL-3B";

  EXPECT_NE(refusal(json::parse(R"({"model_type": "mistral3", "text_config": {"model_type":
      "qwen2"}})"))
                .find("\"text_config.model_type\" is \"qwen2\"; built are mistral, ministral3"),
            std::string::npos);
  EXPECT_NE(
      refusal(json::parse(R"({"model_type": "gemma3", "text_config": 3})")).find("text_config"),
      std::string::npos);
}

/// Fields that one class of transformers reads and its neighbours do not.
TEST(ModelConfig, AFieldCountsOnlyWhereItsClassReadsIt) {
  const auto of = [](const char* type, const char* more) {
    json config = json::parse(R"({"vocab_size": 96, "hidden_size": 32, "intermediate_size": 48,
        "num_hidden_layers": 2, "num_attention_heads": 4, "moe_intermediate_size": 16,
        "num_experts": 4, "num_experts_per_tok": 2, "sliding_window": 6})");
    config["model_type"] = type;
    config.update(json::parse(more));
    return read(config);
  };
  // All layers have the window.
  constexpr char kTypes[] = R"({"layer_types": ["full_attention", "sliding_attention"],
                                "use_sliding_window": true})";
  for (const char* type : {"starcoder2", "phi3", "mixtral", "qwen3_moe"})
    EXPECT_EQ(of(type, kTypes).window(0), 6) << type;
  for (const char* type : {"mistral", "ministral", "qwen3", "gpt_oss"})
    EXPECT_EQ(of(type, kTypes).window(0), 0) << type;
  const json text = {{"model_type", "mistral"},
                     {"vocab_size", 96},
                     {"hidden_size", 32},
                     {"intermediate_size", 48},
                     {"num_hidden_layers", 2},
                     {"num_attention_heads", 4},
                     {"num_key_value_heads", 2},
                     {"sliding_window", 6},
                     {"layer_types", {"full_attention", "sliding_attention"}}};
  for (const char* type : {"mistral3", "llava_next"})
    EXPECT_EQ(read({{"model_type", type}, {"text_config", text}}).window(0), 6) << type;
  // Only the first Gemma means the tanh form by gelu.
  EXPECT_EQ(of("gemma", R"({"hidden_act": "gelu"})").activation, Activation::GeluTanh);
  for (const char* type : {"gemma2", "gemma3_text", "vaultgemma"})
    EXPECT_EQ(of(type, R"({"hidden_activation": "gelu"})").activation, Activation::Gelu) << type;
  // The pretraining length beside an object for all layers comes first, also where the class has the object.
  constexpr char kYarn[] =
      R"({"rope_type": "yarn", "factor": 4, "original_max_position_embeddings": 16})";
  const json beside = {{"original_max_position_embeddings", 8},
                       {"rope_parameters", json::parse(kYarn)}};
  EXPECT_EQ(of("llama", beside.dump().c_str()).rope.original_max, 8);
  for (const char* type : {"cwm", "apertus", "gpt_oss"})
    EXPECT_EQ(of(type, R"({"original_max_position_embeddings": 8})").rope.original_max, 8) << type;
  const json by_type = {{"original_max_position_embeddings", 8},
                        {"rope_parameters", {{"full_attention", json::parse(kYarn)}}}};
  for (const char* type : {"gemma3_text", "mellum"})
    EXPECT_EQ(of(type, by_type.dump().c_str()).rope.original_max, 16) << type;
  // Their object has a base of its own.
  EXPECT_EQ(of("cwm", R"({"rope_theta": 500})").rope.theta, 1e6);
  EXPECT_EQ(of("apertus", R"({"rope_theta": 500})").rope.theta, 1.2e7);
  EXPECT_EQ(of("gpt_oss", R"({"rope_theta": 500, "output_router_logits": true})").rope.theta, 500);
  EXPECT_EQ(of("gpt_oss", R"({"output_router_logits": true})").experts.balance, 0.001);
}

TEST(ModelConfig, ANullHeadSizeIsTheQuotientAlsoWhereTheClassHasANumber) {
  for (const char* type : {"qwen3", "seed_oss", "internlm3", "iquestcoder", "ernie4_5"}) {
    json config = llama(R"({"head_dim": null})");
    config["model_type"] = type;
    EXPECT_EQ(read(config).head_dim, 8) << type;
    config.erase("head_dim");
    EXPECT_EQ(read(config).head_dim, 128) << type;
  }
}

/// By transformers' class of the whole model: whether a tie of the text part counts beside its own.
TEST(ModelConfig, TiesOfAModelWithAVisionPart) {
  const json part = llama(R"({"num_key_value_heads": 4, "moe_intermediate_size": 16})");
  const auto tied = [&](const char* type, const char* text_type, json whole, json text) {
    json config = {{"model_type", type}, {"vision_config", json::object()}, {"text_config", part}};
    config["text_config"]["model_type"] = text_type;
    if (whole.is_boolean()) config["tie_word_embeddings"] = whole;
    if (text.is_boolean()) config["text_config"]["tie_word_embeddings"] = text;
    return read(config).tied;
  };
  const json none;
  for (const auto& [type, text] : {std::pair{"llava", "llama"},
                                   {"llava_onevision", "qwen2"},
                                   {"qwen2_vl", "qwen2_vl_text"},
                                   {"qwen2_5_vl", "qwen2_5_vl_text"}}) {
    EXPECT_TRUE(tied(type, text, false, true)) << type;
    EXPECT_TRUE(tied(type, text, true, false)) << type;
    EXPECT_FALSE(tied(type, text, none, none)) << type;
  }
  for (const auto& [type, text] :
       {std::pair{"llava_next", "llama"}, {"smolvlm", "llama"}, {"qwen3_vl", "qwen3_vl_text"}})
    EXPECT_FALSE(tied(type, text, false, true)) << type;
  json experts = {{"model_type", "qwen3_vl_moe"}, {"text_config", part}};
  experts["text_config"]["model_type"] = "qwen3_vl_moe_text";
  EXPECT_FALSE(read(experts).tied);
  const json smol = {{"model_type", "smolvlm"}, {"text_config", part}};
  EXPECT_EQ(read(smol).norm_eps, 1e-6) << "Llama's, not the one of a missing text_config";
}

TEST(ModelConfig, WhatANewFamilyCannotDoIsRefused) {
  const auto refuses = [](const char* type, const char* key, const json& value) {
    json config = llama();
    config["model_type"] = type;
    for (const char* inner : {"ffn_dim", "ffn_hidden_size"}) config[inner] = 48;
    ASSERT_TRUE(model_config_from_json(config, "config.json")) << type;
    config[key] = value;
    EXPECT_NE(refusal(config).find(std::string("\"") + key + "\" is"), std::string::npos)
        << refusal(config);
  };
  refuses("cohere", "use_qk_norm", true);
  refuses("phi", "qk_layernorm", true);
  refuses("phi", "tie_word_embeddings", true);
  refuses("stablelm", "qk_layernorm", true);
  refuses("opt", "do_layer_norm_before", false);
  refuses("opt", "word_embed_proj_dim", 16);
  refuses("opt", "layerdrop", 0.1);
  refuses("falcon", "alibi", true);
  refuses("falcon", "hidden_dropout", 0.1);
  refuses("falcon", "num_ln_in_parallel_attn", 2);
  refuses("olmo", "clip_qkv", 8.0);
  refuses("internlm3", "bias", true);
}

/// torch's padding_idx: below 0 it counts from the end. A row that the table has not is none.
TEST(ModelConfig, ThePaddingTokenIsTheConfigs) {
  EXPECT_EQ(read(llama("{}")).padding_id, -1);
  EXPECT_EQ(read(llama(R"({"pad_token_id": null})")).padding_id, -1);
  EXPECT_EQ(read(llama(R"({"pad_token_id": 7})")).padding_id, 7);
  EXPECT_EQ(read(llama(R"({"vocab_size": 96, "pad_token_id": -1})")).padding_id, 95);
  EXPECT_EQ(read(llama(R"({"vocab_size": 96, "pad_token_id": 96})")).padding_id, -1);
}

TEST(ModelConfig, YarnNeedsABaseAboveOne) {
  EXPECT_NE(refusal(llama(R"({"rope_theta": 1, "rope_scaling": {"rope_type": "yarn",
                              "factor": 4.0, "original_max_position_embeddings": 16}})"))
                .find("rope_theta"),
            std::string::npos);
}

TEST(ModelConfig, WhatWouldChangeTheResultIsRefused) {
  for (const auto& [more, key] : {std::pair(R"({"pretraining_tp": 2})", "pretraining_tp"),
                                  {R"({"hidden_act": "xielu"})", "hidden_act"},
                                  {R"({"num_key_value_heads": 3})", "num_key_value_heads"},
                                  {R"({"num_attention_heads": 5})", "num_attention_heads"},
                                  {R"({"head_dim": 7})", "head_dim"},
                                  {R"({"attention_dropout": 1.5})", "attention_dropout"},
                                  {R"({"hidden_size": null})", "hidden_size"},
                                  {R"({"vocab_size": "96"})", "vocab_size"},
                                  {R"({"attention_bias": 1})", "attention_bias"}}) {
    EXPECT_NE(refusal(llama(more)).find(key), std::string::npos) << more;
  }
  EXPECT_EQ(read(llama(R"({"attention_dropout": 0.1})")).dropout.attention, 0.1);
}

TEST(ModelConfig, AGgufModelIsCalledThat) {
  const std::string folder = testing::TempDir() + "dsj_gguf_" + std::to_string(getpid());
  std::filesystem::create_directories(folder);
  const auto says = [](const std::string& path) {
    const auto model = read_model_config(path);
    EXPECT_FALSE(model);
    return model ? "" : model.error().to_string();
  };
  EXPECT_NE(says(folder).find("config.json: cannot be read"), std::string::npos) << says(folder);
  const std::string file = folder + "/model-Q4_K_M.gguf";
  std::ofstream(file) << "GGUF";
  EXPECT_NE(says(folder).find("holds GGUF files"), std::string::npos) << says(folder);
  EXPECT_NE(says(file).find("is a GGUF file"), std::string::npos) << says(file);
  std::filesystem::remove_all(folder);
}

TEST(ModelConfig, NumbersThatCannotBeCountedAreRefusedByFieldAndRange) {
  const json gpt2 = {
      {"model_type", "gpt2"}, {"vocab_size", 96}, {"n_embd", 32}, {"n_layer", 2}, {"n_head", 4}};
  struct Case {
    const char* type;
    const char* field;
    json value;
    const char* says;
  };
  const int64_t huge = int64_t{1} << 62;
  for (const auto& [type, field, value, says] :
       std::vector<Case>{{"llama", "vocab_size", huge, "from 1 to 2147483647"},
                         {"llama", "vocab_size", 18446744073709551615u, "from 1 to 2147483647"},
                         {"llama", "hidden_size", int64_t{1} << 31, "from 1 to 1048576"},
                         {"llama", "intermediate_size", huge, "from 1 to 8388608"},
                         {"llama", "num_hidden_layers", int64_t{1} << 31, "from 1 to 10000"},
                         {"llama", "num_attention_heads", 0, "from 1 to 1048576"},
                         {"llama", "num_attention_heads", -4, "from 1 to 1048576"},
                         {"llama", "num_key_value_heads", 0, "from 1 to 1048576"},
                         {"llama", "head_dim", huge, "from 1 to 1048576"},
                         {"llama", "max_position_embeddings", huge, "from 1 to 2147483647"},
                         {"llama", "rms_norm_eps", -1e-6, "from 0 to 1"},
                         {"llama", "rms_norm_eps", 1e300, "from 0 to 1"},
                         {"llama", "rope_theta", 0, "rope_theta"},
                         {"llama", "rope_theta", -1.0, "rope_theta"},
                         {"llama", "rope_theta", 1e300, "rope_theta"},
                         {"mistral", "sliding_window", huge, "from 1 to 2147483647"},
                         {"gpt2", "n_embd", int64_t{1} << 31, "from 1 to 1048576"},
                         {"gpt2", "n_layer", int64_t{1} << 31, "from 1 to 10000"},
                         {"gpt2", "n_head", 0, "from 1 to 1048576"},
                         {"gpt2", "n_positions", huge, "from 1 to 2147483647"},
                         {"gpt2", "layer_norm_epsilon", 2, "from 0 to 1"}}) {
    json config = std::string(type) == "gpt2" ? gpt2 : llama();
    config["model_type"] = type;
    config[field] = value;
    const std::string text = refusal(config);
    EXPECT_NE(text.find("\"" + std::string(field) + "\" is " + value.dump()), std::string::npos)
        << text;
    EXPECT_NE(text.find(says), std::string::npos) << text;
  }
  EXPECT_NE(refusal(llama(R"({"num_attention_heads": 1000, "head_dim": 100000})")).find("head_dim"),
            std::string::npos);
  EXPECT_NE(refusal(llama(R"({"rope_scaling": {"type": "linear", "factor": 1e300}})"))
                .find("\"rope_scaling.factor\" is 1e+300"),
            std::string::npos);
  EXPECT_NE(refusal(llama(R"({"hidden_size": 1048576, "intermediate_size": 8388608,
                              "num_hidden_layers": 10000})"))
                .find("parameters"),
            std::string::npos)
      << "each is in its range, the product is not";
}

/// Whatever number stands in a field: the file is refused with the field's name, or the model can be
/// counted.
TEST(ModelConfig, AnyNumberIsRefusedOrCounted) {
  const std::vector<json> values = {-1,
                                    0,
                                    1,
                                    2,
                                    3,
                                    7,
                                    64,
                                    4096,
                                    1 << 20,
                                    (1 << 20) + 1,
                                    INT32_MAX,
                                    int64_t{1} << 31,
                                    int64_t{1} << 53,
                                    INT64_MAX,
                                    INT64_MIN,
                                    UINT64_MAX,
                                    0.5,
                                    1e18,
                                    1e300,
                                    -1e300,
                                    5e-324};
  const std::vector<std::string> fields = {
      "vocab_size",          "hidden_size",         "intermediate_size", "num_hidden_layers",
      "num_attention_heads", "num_key_value_heads", "head_dim",          "max_position_embeddings",
      "rms_norm_eps",        "rope_theta",          "sliding_window",    "max_window_layers",
      "attention_dropout",   "pretraining_tp"};
  int counted = 0, refused = 0;
  for (const char* type : {"llama", "mistral", "qwen2", "qwen3", "qwen3_moe", "mixtral"}) {
    for (const std::string& field : fields) {
      for (const std::string& other : fields) {
        for (const json& value : values) {
          json config = llama(R"({"use_sliding_window": true, "head_dim": 8})");
          config["model_type"] = type;
          config[field] = value;
          config[other] = values[(counted + refused) % values.size()];
          const auto model = model_config_from_json(config, "config.json");
          if (!model) {
            ++refused;
            const std::string text = model.error().to_string();
            EXPECT_TRUE(text.find(field) != std::string::npos ||
                        text.find(other) != std::string::npos ||
                        text.find("parameters") != std::string::npos ||
                        text.find("does not divide") != std::string::npos)
                << config.dump() << ": " << text;
            continue;
          }
          ++counted;
          ASSERT_LE(model->num_layers, 10'000);
          if (model->num_layers > 100) continue;  // to be fast
          int64_t most = 0;
          for (const auto& unit : units_of(*model))
            for (const auto& parameter : unit.parameters) most = std::max(most, parameter.numel());
          EXPECT_GT(most, 0) << config.dump();
          EXPECT_GE(total_numel(units_of(*model)), most) << config.dump();
        }
      }
    }
  }
  EXPECT_GT(counted, 500);
  EXPECT_GT(refused, 5000);
}

TEST(ModelConfig, TextThatIsNoJsonNamesItsPlace) {
  const auto folder =
      std::filesystem::temp_directory_path() / ("dsj-model-config-" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  const auto said = [&](const std::string& text) {
    std::ofstream(folder / "config.json") << text;
    const auto model = read_model_config(folder.string());
    EXPECT_FALSE(model);
    return model ? "" : model.error().to_string();
  };
  EXPECT_NE(
      said("{\n  \"model_type\": \"llama\",\n  \"rms_norm_eps\": NaN\n}").find("config.json:3:"),
      std::string::npos)
      << "Python writes such numbers";
  EXPECT_NE(said("{").find("config.json:1:2: is not JSON: the text ends too early"),
            std::string::npos)
      << said("{");
  EXPECT_NE(said("").find("ends too early"), std::string::npos);
  EXPECT_NE(said(R"({"vocab_size": 1e999})").find("a number that is not finite"),
            std::string::npos);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace dsj::layout
