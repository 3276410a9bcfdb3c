#include "job/layout/lora.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "job/layout/partition.h"
#include "job/layout/schedule.h"
#include "test_paths.h"

namespace dsj::layout {
namespace {

ModelConfig model(bool tied = false) {
  const nlohmann::json config = {{"model_type", "qwen2"},    {"vocab_size", 64},
                                 {"hidden_size", 32},        {"intermediate_size", 96},
                                 {"num_hidden_layers", 2},   {"num_attention_heads", 4},
                                 {"num_key_value_heads", 2}, {"tie_word_embeddings", tied}};
  return *model_config_from_json(config, "config.json");
}

ModelConfig with_experts() {
  const nlohmann::json config = {{"model_type", "qwen2_moe"},
                                 {"vocab_size", 64},
                                 {"hidden_size", 32},
                                 {"intermediate_size", 96},
                                 {"moe_intermediate_size", 16},
                                 {"shared_expert_intermediate_size", 24},
                                 {"num_hidden_layers", 2},
                                 {"num_attention_heads", 4},
                                 {"num_experts", 6},
                                 {"num_experts_per_tok", 2}};
  return *model_config_from_json(config, "config.json");
}

/// PEFT's "all-linear" finds what transformers 5 holds as linear layers: no router, no expert.
TEST(Lora, ExpertsAndRoutersHaveNoAdapter) {
  const auto resolved = resolve_lora(with_experts(), {.target_pattern = "all-linear"});
  ASSERT_TRUE(resolved) << resolved.error().to_string();
  const std::vector<std::string> want = {"k_proj",
                                         "o_proj",
                                         "q_proj",
                                         "shared_expert.down_proj",
                                         "shared_expert.gate_proj",
                                         "shared_expert.up_proj",
                                         "shared_expert_gate",
                                         "v_proj"};
  EXPECT_EQ(resolved->target_modules, want);
  const UnitSpec unit = units_of(with_experts(), *resolved)[1];
  for (const Adapter& adapter : unit.adapters)
    EXPECT_FALSE(unit.parameters[adapter.weight].routed) << unit.parameters[adapter.weight].name;
  EXPECT_EQ(unit.adapters.size(), 4u + 3 + 1) << "attention, the shared expert, its scale";
  const auto refused = [](const LoraArgs& lora) {
    const auto got = resolve_lora(with_experts(), lora);
    EXPECT_FALSE(got);
    return got ? "" : got.error().to_string();
  };
  EXPECT_NE(refused({.target_modules = {"gate_proj"}}).find("adapters on experts"),
            std::string::npos);
  EXPECT_NE(refused({.target_pattern = ".*mlp.gate"}).find("a router"), std::string::npos);
  EXPECT_NE(refused({.modules_to_save = {"mlp"}}).find("experts"), std::string::npos);
  EXPECT_NE(refused({.modules_to_save = {"experts"}}).find("experts"), std::string::npos);
}

/// As PEFT's "all-linear": no convolution, and no parameter that no layer holds.
TEST(Lora, AdaptersOfTheDeltaRuleGoOnItsProjections) {
  nlohmann::json config = {{"model_type", "qwen3_5_text"},
                           {"vocab_size", 64},
                           {"hidden_size", 32},
                           {"intermediate_size", 96},
                           {"num_hidden_layers", 2},
                           {"num_attention_heads", 4},
                           {"num_key_value_heads", 2},
                           {"full_attention_interval", 2}};
  const auto names = [&](const LoraArgs& lora, int unit) {
    const ModelConfig hybrid = *model_config_from_json(config, "config.json");
    const auto resolved = resolve_lora(hybrid, lora);
    EXPECT_TRUE(resolved) << resolved.error().to_string();
    const UnitSpec spec = units_of(hybrid, *resolved)[unit];
    std::string text;
    for (const Adapter& adapter : spec.adapters) {
      const std::string module = module_of(spec.parameters[adapter.weight].name);
      text += (text.empty() ? "" : " ") + module.substr(module.rfind('.') + 1);
    }
    return text;
  };
  const LoraArgs all{.target_pattern = "all-linear"};
  EXPECT_EQ(names(all, 1),
            "in_proj_qkv in_proj_b in_proj_a in_proj_z out_proj gate_proj up_proj down_proj");
  EXPECT_EQ(names(all, 2), "q_proj k_proj v_proj o_proj gate_proj up_proj down_proj");
  EXPECT_EQ(names({}, 1), "") << "PEFT's default names attention alone";
  const auto refused =
      resolve_lora(*model_config_from_json(config, "config.json"), {.target_modules = {"conv1d"}});
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().to_string().find("not a linear layer"), std::string::npos);
  config["model_type"] = "qwen3_next";
  config["num_experts"] = 4, config["num_experts_per_tok"] = 2;
  EXPECT_EQ(names({.target_modules = {"in_proj_qkvz", "in_proj_ba", "out_proj"}}, 1),
            "in_proj_qkvz in_proj_ba out_proj");
}

/// "q_proj v_proj": what gets an adapter in a unit.
std::string adapted(const LoraArgs& lora, int unit = 1) {
  const auto resolved = resolve_lora(model(), lora);
  EXPECT_TRUE(resolved) << resolved.error().to_string();
  const UnitSpec spec = units_of(model(), *resolved)[unit];
  std::string text;
  for (const Adapter& adapter : spec.adapters) {
    const std::string module = module_of(spec.parameters[adapter.weight].name);
    text += (text.empty() ? "" : " ") + module.substr(module.rfind('.') + 1);
  }
  return text;
}

TEST(Lora, TargetsMatchAsPefts) {
  EXPECT_EQ(adapted({}), "q_proj v_proj") << "PEFT's default for the model type";
  EXPECT_EQ(adapted({.target_modules = {"self_attn.o_proj", "down_proj"}}), "o_proj down_proj");
  EXPECT_EQ(adapted({.target_modules = {"layers.1.mlp.up_proj"}}, 1), "");
  EXPECT_EQ(adapted({.target_modules = {"layers.1.mlp.up_proj"}}, 2), "up_proj");
  EXPECT_EQ(adapted({.target_pattern = "All-Linear"}),
            "q_proj k_proj v_proj o_proj gate_proj up_proj down_proj");
  EXPECT_EQ(adapted({.target_pattern = R"(.*layers\.0\..*(q|k)_proj)"}), "q_proj k_proj");
  EXPECT_EQ(adapted({.target_pattern = R"(.*layers\.0\..*(q|k)_proj)"}, 2), "");
  EXPECT_EQ(resolve_lora(model(), {.target_pattern = "all-linear"})->target_modules.size(), 7u);
}

TEST(Lora, TheOrderOfNamesMeansNothing) {
  EXPECT_EQ(*resolve_lora(model(), {.target_modules = {"v_proj", "q_proj"}}),
            *resolve_lora(model(), {.target_modules = {"q_proj", "v_proj"}}));
}

/// PEFT's get_pattern_key: the first key that the module's name, or its end after a dot, matches whole.
TEST(Lora, RanksAndAlphasFollowPatterns) {
  const LoraArgs args{.r = 4,
                      .alpha = 8,
                      .target_modules = {"q_proj", "k_proj", "down_proj"},
                      .rank_pattern = {{"down_proj", 2}, {R"(layers\.1\.self_attn\.q_.*)", 16}},
                      .alpha_pattern = {{"self_attn.k_proj", 20}, {"proj", 99}}};
  const auto resolved = resolve_lora(model(), args);
  ASSERT_TRUE(resolved) << resolved.error().to_string();
  EXPECT_EQ(resolved->largest_rank(), 16);
  const auto units = units_of(model(), *resolved);
  std::map<std::string, std::pair<int64_t, double>> got;
  for (const UnitSpec& unit : units) {
    for (const Adapter& adapter : unit.adapters) {
      got[module_of(unit.parameters[adapter.weight].name)] = {adapter.rank, adapter.scaling};
      EXPECT_EQ(unit.parameters[adapter.a].shape[0], adapter.rank);
      EXPECT_EQ(unit.parameters[adapter.b].shape[1], adapter.rank);
    }
  }
  const std::string layer = "model.layers.";
  EXPECT_EQ(got[layer + "0.self_attn.q_proj"], std::pair(int64_t{4}, 2.0));
  EXPECT_EQ(got[layer + "1.self_attn.q_proj"], std::pair(int64_t{16}, 0.5));
  EXPECT_EQ(got[layer + "0.self_attn.k_proj"], std::pair(int64_t{4}, 5.0));
  EXPECT_EQ(got[layer + "1.mlp.down_proj"], std::pair(int64_t{2}, 4.0));
  LoraArgs torn = args;
  torn.rank_pattern = {{"down_proj", 2}, {"mlp.*", 3}};
  const auto refused = resolve_lora(model(), torn);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().where, "lora.rankPattern.mlp.*");
  torn.rank_pattern = {{"(q", 2}};
  EXPECT_FALSE(resolve_lora(model(), torn));
}

TEST(Lora, LayersToTransformLeaveTheOthersAlone) {
  const LoraArgs one{.target_modules = {"q_proj"}, .layers_to_transform = {1}};
  EXPECT_EQ(adapted(one, 1), "");
  EXPECT_EQ(adapted(one, 2), "q_proj");
  EXPECT_EQ(adapted({.target_pattern = "all-linear", .layers_to_transform = {0}}, 2), "");
  for (const LoraArgs& bad : {LoraArgs{.layers_to_transform = {7}},
                              LoraArgs{.target_pattern = ".*q_proj", .layers_to_transform = {0}}}) {
    const auto refused = resolve_lora(model(), bad);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().where, "lora.layersToTransform");
  }
}

TEST(Lora, DoraAddsAMagnitudeForEachOutput) {
  const auto lora =
      *resolve_lora(model(), {.r = 4, .target_modules = {"k_proj"}, .use_dora = true});
  const UnitSpec unit = units_of(model(), lora)[1];
  const Adapter& adapter = unit.adapters.at(0);
  const Parameter& magnitude = unit.parameters[adapter.magnitude];
  EXPECT_EQ(magnitude.name, "model.layers.0.self_attn.k_proj.lora_magnitude_vector");
  EXPECT_EQ(magnitude.shape, (std::vector<int64_t>{16}));
  EXPECT_FALSE(magnitude.frozen);
  const LoraArgs four{.use_dora = true, .load_in_4bit = true};
  const LoraArgs random{.use_dora = true, .init = AdapterInit::Random};
  for (const LoraArgs& bad : {four, random}) {
    const auto refused = resolve_lora(model(), bad);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().where, "lora.useDora");
  }
}

TEST(Lora, AdaptersFollowTheUnitsOwnParametersAllAFirst) {
  const auto lora = *resolve_lora(model(), {.r = 4, .target_modules = {"q_proj", "k_proj"}});
  const auto plain = units_of(model());
  const auto units = units_of(model(), lora);
  ASSERT_EQ(units[1].parameters.size(), plain[1].parameters.size() + 4);
  for (size_t i = 0; i < plain[1].parameters.size(); ++i) {
    EXPECT_EQ(units[1].parameters[i].name, plain[1].parameters[i].name);
    EXPECT_TRUE(units[1].parameters[i].frozen);
  }
  const auto* added = &units[1].parameters[plain[1].parameters.size()];
  const std::pair<const char*, std::vector<int64_t>> want[] = {
      {"model.layers.0.self_attn.q_proj.lora_A.weight", {4, 32}},
      {"model.layers.0.self_attn.k_proj.lora_A.weight", {4, 32}},
      {"model.layers.0.self_attn.q_proj.lora_B.weight", {32, 4}},
      {"model.layers.0.self_attn.k_proj.lora_B.weight", {16, 4}}};
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(added[i].name, want[i].first);
    EXPECT_EQ(added[i].shape, want[i].second);
    EXPECT_FALSE(added[i].frozen);
  }
  EXPECT_EQ(trainable_numel(units), 2 * (2 * 4 * 32 + 4 * 32 + 4 * 16));
}

/// transformers and PEFT name the text part otherwise than the files do, and the vision part has
/// modules of the same names.
TEST(Lora, OfATextPartAreNamedAsPeftNamesThem) {
  auto part = [](const char* type, const char* text_type) {
    const nlohmann::json text = {{"model_type", text_type}, {"vocab_size", 64},
                                 {"hidden_size", 32},       {"intermediate_size", 96},
                                 {"num_hidden_layers", 1},  {"num_attention_heads", 4},
                                 {"num_key_value_heads", 2}};
    return *model_config_from_json({{"model_type", type}, {"text_config", text}}, "config.json");
  };
  for (const auto& [type, text_type, base, pattern] :
       {std::tuple{"gemma3", "gemma3_text", "model.language_model.",
                   R"((.*language_model\..*\.)?(q_proj|v_proj))"},
        {"qwen2_5_vl", "qwen2_5_vl_text", "model.language_model.",
         R"((.*language_model\..*\.)?(q_proj|v_proj))"},
        {"smolvlm", "llama", "model.text_model.", R"((.*text_model\..*\.)?(q_proj|v_proj))"}}) {
    const ModelConfig model = part(type, text_type);
    const auto lora = resolve_lora(model, {});
    ASSERT_TRUE(lora) << lora.error().to_string();
    EXPECT_EQ(lora->target_pattern, pattern);
    EXPECT_TRUE(lora->target_modules.empty());
    EXPECT_EQ(*resolve_lora(model, *lora), *lora);
    const UnitSpec layer = units_of(model, *lora)[1];
    ASSERT_EQ(layer.adapters.size(), 2u);
    const auto& parameters = layer.parameters;
    EXPECT_EQ(parameters[static_cast<size_t>(layer.adapters[0].a)].name,
              base + std::string("layers.0.self_attn.q_proj.lora_A.weight"));
    EXPECT_EQ(parameters[static_cast<size_t>(layer.adapters[1].b)].name,
              base + std::string("layers.0.self_attn.v_proj.lora_B.weight"));
  }
  EXPECT_FALSE(resolve_lora(part("gemma3", "gemma3_text"), {.modules_to_save = {"norm"}}));
}

TEST(Lora, DefaultsArePefts) {
  auto of = [](nlohmann::json config) {
    config.update({{"vocab_size", 64},
                   {"hidden_size", 32},
                   {"num_hidden_layers", 1},
                   {"intermediate_size", 96},
                   {"num_attention_heads", 4}});
    return resolve_lora(*model_config_from_json(config, "config.json"), {})->target_modules;
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(of({{"model_type", "gpt_neox"}}), Names{"query_key_value"});
  EXPECT_EQ(of({{"model_type", "falcon"}}), Names{"query_key_value"});
  EXPECT_EQ(of({{"model_type", "phi"}}), (Names{"fc1", "fc2", "q_proj", "v_proj"}));
  EXPECT_EQ(of({{"model_type", "phi3"}}), Names{"qkv_proj"});
}

TEST(Lora, ModulesToSaveAreTrainedWhole) {
  auto trained = [](const LoraArgs& lora) {
    std::vector<std::string> names;
    for (const auto& unit : units_of(model(), *resolve_lora(model(), lora)))
      for (const auto& parameter : unit.parameters)
        if (!parameter.frozen && !parameter.name.contains("lora_")) names.push_back(parameter.name);
    return names;
  };
  EXPECT_EQ(trained({.modules_to_save = {"lm_head"}}), std::vector<std::string>{"lm_head.weight"});
  EXPECT_EQ(trained({.modules_to_save = {"embed_tokens"}}),
            std::vector<std::string>{"model.embed_tokens.weight"});
  EXPECT_EQ(trained({.modules_to_save = {"norm"}}).size(), 5u)
      << "PEFT matches the end of a name, so \"norm\" means every norm";
  EXPECT_EQ(trained({.modules_to_save = {"layers.1.mlp"}}).size(), 3u);
}

/// As PEFT 0.21: whichever of the two is named, the one weight is trained.
TEST(Lora, TheWeightOfATiedPairIsTrainedWholeAsOne) {
  using Names = std::vector<std::string>;
  for (const Names& saved :
       {Names{"embed_tokens"}, Names{"lm_head"}, Names{"lm_head", "embed_tokens"},
        Names{"model.embed_tokens"}, Names{"model.embed_tokens", "lm_head"}}) {
    const auto lora =
        resolve_lora(model(/*tied=*/true), {.modules_to_save = saved, .ensure_weight_tying = true});
    ASSERT_TRUE(lora) << lora.error().to_string();
    EXPECT_TRUE(lora->ensure_weight_tying);
    EXPECT_EQ(lora->modules_to_save, (Names{"lm_head", "model.embed_tokens"}));
    const auto tied = tied_pair(model(true), *lora);
    ASSERT_TRUE(tied);
    EXPECT_EQ(tied->head, "lm_head.weight");
    Names trained;
    for (const auto& unit : units_of(model(true), *lora))
      for (const auto& parameter : unit.parameters)
        if (!parameter.frozen && !parameter.name.contains("lora_"))
          trained.push_back(parameter.name);
    EXPECT_EQ(trained, Names{tied->embedding});
  }
  const auto norms =
      resolve_lora(model(true), {.modules_to_save = {"norm"}, .ensure_weight_tying = true});
  ASSERT_TRUE(norms);
  EXPECT_FALSE(tied_pair(model(true), *norms)) << "nothing of the pair is trained";
  const auto untied =
      resolve_lora(model(false), {.modules_to_save = {"lm_head"}, .ensure_weight_tying = true});
  ASSERT_TRUE(untied);
  EXPECT_FALSE(untied->ensure_weight_tying);
  EXPECT_EQ(untied->modules_to_save, Names{"lm_head"});
}

TEST(Lora, AGpt2sPositionsAreNoPartOfItsTiedWeight) {
  const auto gpt2 =
      read_model_config(std::string(DSJ_SOURCE_DIR) + "/tests/fixtures/lora/gpt2-base");
  ASSERT_TRUE(gpt2) << gpt2.error().to_string();
  EXPECT_TRUE(resolve_lora(*gpt2, {.modules_to_save = {"wpe"}}));
  const auto words = resolve_lora(*gpt2, {.modules_to_save = {"wte"}, .ensure_weight_tying = true});
  ASSERT_TRUE(words) << words.error().to_string();
  EXPECT_EQ(words->modules_to_save, (std::vector<std::string>{"lm_head", "transformer.wte"}));
}

/// PEFT's names and shapes of adapters on the experts' parameters and on routers: every family.
TEST(Lora, ParametersOfExpertsAreNamedAsPefts) {
  const std::string fixtures = std::string(DSJ_SOURCE_DIR) + "/tests/fixtures/";
  const auto named = nlohmann::json::parse(std::ifstream(fixtures + "lora/expert_names.json"));
  ASSERT_GE(named.size(), 20u);
  for (const auto& [name, tensors] : named.items()) {
    const auto model = read_model_config(fixtures + name);
    ASSERT_TRUE(model) << model.error().to_string();
    LoraArgs args{.r = 2, .no_modules = true};
    args.target_parameters = {"experts.gate_up_proj", "experts.down_proj"};
    const nlohmann::json text = tensors;
    for (const char* router : {"gate", "router", "wg", "router.proj"})
      if (text.dump().contains("." + std::string(router) + ".lora_A"))
        args.target_parameters.push_back(router + std::string(".weight"));
    ASSERT_GE(args.target_parameters.size(), 3u) << name;
    const auto lora = resolve_lora(*model, args);
    ASSERT_TRUE(lora) << name << ": " << lora.error().to_string();
    nlohmann::json got = nlohmann::json::object();
    for (const UnitSpec& unit : units_of(*model, *lora)) {
      for (const Parameter& parameter : unit.parameters)
        if (!parameter.frozen) got["base_model.model." + parameter.name] = parameter.shape;
      for (const Adapter& adapter : unit.adapters) {
        int64_t changed = 0;
        for (const AdaptedPart& part : adapted_parts(unit, adapter))
          changed += unit.parameters[part.weight].numel();
        EXPECT_EQ(changed, std::max<int64_t>(1, adapter.experts) *
                               unit.parameters[adapter.a].shape[1] *
                               unit.parameters[adapter.b].shape[0]);
      }
    }
    EXPECT_EQ(got, text) << name;
  }
}

TEST(Lora, RoutersBecomeParameters) {
  const auto lora = resolve_lora(with_experts(), {.target_modules = {"q_proj", "gate"}});
  ASSERT_TRUE(lora) << lora.error().to_string();
  EXPECT_EQ(lora->target_modules, std::vector<std::string>{"q_proj"});
  EXPECT_EQ(lora->target_parameters, std::vector<std::string>{"gate.weight"});
  EXPECT_TRUE(resolve_lora(with_experts(), {.target_modules = {"mlp.gate"}})->no_modules);
}

/// Of the types with experts, PEFT's table of defaults has mixtral.
TEST(Lora, ModulesByDefaultBesideParameters) {
  const auto of = [](const char* name) {
    const auto model =
        read_model_config(std::string(DSJ_SOURCE_DIR) + "/tests/fixtures/tiny-" + name);
    LoraArgs args;
    args.target_parameters = {"experts.down_proj"};
    return *resolve_lora(*model, args);
  };
  EXPECT_EQ(of("mixtral").target_modules, (std::vector<std::string>{"q_proj", "v_proj"}));
  EXPECT_TRUE(of("qwen3-moe").no_modules);
  EXPECT_TRUE(of("gpt-oss").no_modules);
}

TEST(Lora, WhatParametersDoNotGoWith) {
  struct Case {
    LoraArgs lora;
    const char *where, *says;
  };
  const std::vector<std::string> down = {"experts.down_proj"};
  for (Case bad :
       {Case{{.dropout = 0.1, .target_parameters = down}, "lora.dropout", "set it to 0"},
        Case{{.target_parameters = down, .use_dora = true}, "lora.useDora", "DoRA of parameters"},
        Case{{.target_parameters = down, .layers_to_transform = {1}},
             "lora.layersToTransform",
             "7.mlp.experts.down_proj"},
        Case{{.target_parameters = {"experts.gate_proj"}},
             "lora.targetParameters",
             "the model has: mlp.gate.weight, mlp.experts.gate_up_proj, mlp.experts.down_proj"},
        Case{{.target_parameters = {"q_proj.weight"}},
             "lora.targetParameters",
             "write targetModules: [q_proj]"},
        Case{{.target_parameters = {"xperts.down_proj"}}, "lora.targetParameters", "ends with"},
        Case{{.target_parameters = {"gate.weight"}, .modules_to_save = {"mlp.gate"}},
             "lora.modulesToSave",
             "trained whole"}}) {
    const auto got = resolve_lora(with_experts(), bad.lora);
    ASSERT_FALSE(got) << bad.says;
    EXPECT_EQ(got.error().where, bad.where);
    EXPECT_NE(got.error().to_string().find(bad.says), std::string::npos) << got.error().to_string();
  }
  LoraArgs plain;
  plain.target_parameters = down;
  const auto dense = resolve_lora(model(), plain);
  ASSERT_FALSE(dense);
  EXPECT_NE(dense.error().to_string().find("no experts"), std::string::npos);
}

struct Bad {
  LoraArgs lora;
  bool tied;
  const char* where;
  const char* says;
};

TEST(Lora, RefusalsListTheModulesOfTheModel) {
  for (const Bad& bad : {
           Bad{{.target_modules = {"q_pro"}}, false, "targetModules", "did you mean \"q_proj\"?"},
           Bad{{.target_modules = {"q_proj", "c_attn"}},
               false,
               "targetModules",
               "the model has: embed_tokens, input_layernorm, q_proj, k_proj, v_proj, o_proj, "
               "post_attention_layernorm, gate_proj, up_proj, down_proj, norm, lm_head"},
           Bad{{.target_modules = {"lm_head"}}, false, "targetModules", "modulesToSave: [lm_head]"},
           Bad{{.target_modules = {"embed_tokens"}}, false, "targetModules", "an embedding"},
           Bad{{.target_modules = {"input_layernorm"}}, false, "targetModules", "not a linear"},
           Bad{{.target_modules = {"mlp"}}, false, "targetModules", "not a layer itself"},
           Bad{{.target_pattern = "q_proj"}, false, "targetModules", "full name"},
           Bad{{.target_pattern = "(q"}, false, "targetModules", "not a regular expression"},
           Bad{{.target_pattern = ".*attn"}, false, "targetModules", "not a layer itself"},
           Bad{{.target_pattern = "(([a-z0-9_.]+)+)+[#@]"},
               false,
               "targetModules",
               "cannot be matched"},
           Bad{{.modules_to_save = {"lm_heat"}}, false, "modulesToSave", "\"lm_head\"?"},
           Bad{{.modules_to_save = {"proj"}}, false, "modulesToSave", "would have an adapter"},
           Bad{{.target_modules = {"q_proj"}, .modules_to_save = {"q_proj"}},
               false,
               "targetModules",
               "trained whole"},
           Bad{{.modules_to_save = {"lm_head"}}, true, "modulesToSave", "tie_word_embeddings"},
           Bad{{.modules_to_save = {"embed_tokens"}},
               true,
               "modulesToSave",
               "ensureWeightTying: true"},
       }) {
    const auto resolved = resolve_lora(model(bad.tied), bad.lora);
    ASSERT_FALSE(resolved) << bad.says;
    EXPECT_EQ(resolved.error().where, std::string("lora.") + bad.where);
    EXPECT_NE(resolved.error().to_string().find(bad.says), std::string::npos)
        << resolved.error().to_string();
  }
}

FlatPlanOptions stage3(int64_t threshold) {
  return {.shard_world = 2, .persistence_threshold = threshold};
}

TEST(Lora, TrainedAndFrozenParametersHaveFlatsOfTheirOwn) {
  const auto units = units_of(model(), *resolve_lora(model(), {.r = 4}));
  const auto plan = plan_flats(units, stage3(40));
  int64_t trained = 0, frozen = 0;
  for (const auto& flat : plan.flats) {
    (flat.frozen() ? frozen : trained) += flat.parameter_numel();
    for (const auto& slot : flat.slots())
      EXPECT_EQ(slot.name.contains("lora_"), !flat.frozen()) << flat.name() << " " << slot.name;
  }
  EXPECT_EQ(trained, trainable_numel(units));
  EXPECT_EQ(trained + frozen, total_numel(units));
  EXPECT_EQ(plan.unit_flat[0], -1);
  EXPECT_GE(plan.unit_frozen[0], 0);
  EXPECT_GE(plan.unit_flat[1], 0);
  EXPECT_EQ(plan.persisted, -1) << "no adapter is that small";
  EXPECT_GE(plan.persisted_frozen, 0) << "norms and biases are";
  for (size_t u = 0; u < units.size(); ++u) {
    for (size_t i = 0; i < units[u].parameters.size(); ++i) {
      const auto place = plan.places[u][i];
      EXPECT_EQ(plan.flats[place.flat].slots()[place.slot].name, units[u].parameters[i].name);
    }
  }
}

TEST(Lora, BackwardEndsAtTheLowestTrainedUnit) {
  auto backward = [](const LoraArgs& lora) {
    const auto units = units_of(model(), *resolve_lora(model(), lora));
    const auto plan = plan_flats(units, stage3(0));
    std::vector<int> visits;
    for (const auto& action : make_schedule(units, plan, {.sharded_parameters = true}, 1).actions) {
      if (action.kind == Action::Kind::Backward) visits.push_back(action.unit);
      if (action.kind != Action::Kind::Reduce) continue;
      EXPECT_FALSE(plan.flats[action.flat].frozen());
    }
    return visits;
  };
  EXPECT_EQ(backward({}), (std::vector<int>{2, 1}));
  EXPECT_EQ(backward({.target_pattern = R"(model\.layers\.1\..*q_proj)"}), (std::vector<int>{2}));
  EXPECT_EQ(backward({.modules_to_save = {"embed_tokens"}}), (std::vector<int>{2, 1, 0}));
}

TEST(Lora, SmallAdaptersAreReducedOnceAfterTheLastBackward) {
  const auto units = units_of(model(), *resolve_lora(model(), {.r = 4}));
  const auto plan = plan_flats(units, stage3(100'000));
  ASSERT_GE(plan.persisted, 0);
  int reduces = 0;
  const auto schedule = make_schedule(units, plan, {.sharded_parameters = true}, 3);
  for (const auto& action : schedule.actions) {
    if (action.kind != Action::Kind::Reduce) continue;
    EXPECT_EQ(action.flat, plan.persisted);
    ++reduces;
  }
  EXPECT_EQ(reduces, 3);
  EXPECT_EQ(schedule.actions.back().kind, Action::Kind::Reduce);
}

}  // namespace
}  // namespace dsj::layout
