// The bytes of weights in 4 bits, and which weights of a model they are.
#include "job/layout/packing.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "job/layout/lora.h"
#include "test_paths.h"

namespace dsj::layout {
namespace {

std::vector<Parameter> packed_parameters(Packing packing) {
  std::vector<Parameter> all;
  for (const std::vector<int64_t>& shape :
       {std::vector<int64_t>{64, 64}, {17, 33}, {1}, {300, 64}, {8, 8}})
    all.push_back({.name = "p" + std::to_string(all.size()),
                   .shape = shape,
                   .frozen = true,
                   .packing = packing});
  return all;
}

TEST(Packing, SlotsFollowOneAnotherAndBlocksAreOfOneParameter) {
  const FlatLayout flat("f", packed_parameters(Packing::Nf4TwoLevels), 2, 1 << 30, kPackedBlock);
  const auto slots = packed_slots(flat);
  int64_t code = 0, block = 0, group = 0;
  for (const PackedSlot& slot : slots) {
    EXPECT_GE(slot.code, code);
    EXPECT_GE(slot.block, block);
    EXPECT_EQ(slot.group, group);
    EXPECT_EQ(slot.blocks, (slot.numel + 63) / 64);
    EXPECT_EQ(slot.groups, (slot.blocks + 255) / 256);
    code = slot.code + (slot.numel + 1) / 2;
    block = slot.block + slot.blocks;
    group = slot.group + slot.groups;
  }
  EXPECT_LE(code, packed_bytes(flat).codes);
  EXPECT_LE(block, flat.numel() / kPackedBlock);
  EXPECT_EQ(slots[3].groups, 2) << "300 scales";
}

TEST(Packing, BytesByHand) {
  // 4096 + 576 + 64 + 19200 + 64 elements with padding: a multiple of 2 x 64.
  const int64_t numel = 4096 + 576 + 64 + 19200 + 64, blocks = numel / 64;
  const FlatLayout one("f", packed_parameters(Packing::Nf4), 1, 1 << 30, kPackedBlock);
  ASSERT_EQ(one.numel(), numel);
  EXPECT_EQ(packed_bytes(one).codes, numel / 2);
  EXPECT_EQ(packed_bytes(one).scales, 4 * blocks);
  const FlatLayout two("f", packed_parameters(Packing::Nf4TwoLevels), 1, 1 << 30, kPackedBlock);
  EXPECT_EQ(packed_bytes(two).scales, blocks + 4 * (6 + 5)) << "6 groups, 5 means";
  EXPECT_EQ(whole_bytes(two, 2), packed_bytes(two).codes + packed_bytes(two).scales);
  const FlatLayout plain("f", packed_parameters(Packing::None), 1, 1 << 30);
  EXPECT_EQ(whole_bytes(plain, 2), 2 * plain.numel());
}

ModelConfig small_llama(const char* type) {
  const nlohmann::json config = {{"model_type", type},
                                 {"vocab_size", 64},
                                 {"hidden_size", 32},
                                 {"intermediate_size", 96},
                                 {"num_hidden_layers", 2},
                                 {"num_attention_heads", 4},
                                 {"num_key_value_heads", 2},
                                 {"moe_intermediate_size", 16},
                                 {"shared_expert_intermediate_size", 24},
                                 {"num_experts", 6},
                                 {"num_experts_per_tok", 2}};
  return *model_config_from_json(config, "config.json");
}

std::set<std::string> packed_names(const ModelConfig& model, const LoraArgs& lora) {
  std::set<std::string> names;
  const auto resolved = resolve_lora(model, lora);
  EXPECT_TRUE(resolved) << resolved.error().to_string();
  for (const UnitSpec& unit : units_of(model, *resolved))
    for (const Parameter& parameter : unit.parameters)
      if (parameter.packing != Packing::None) {
        EXPECT_TRUE(parameter.frozen);
        EXPECT_EQ(parameter.packing, lora.double_quant ? Packing::Nf4TwoLevels : Packing::Nf4);
        names.insert(parameter.name);
      }
  return names;
}

TEST(Packing, LinearLayersArePackedAndNothingElse) {
  LoraArgs lora{.target_modules = {"q_proj"}};
  EXPECT_TRUE(packed_names(small_llama("qwen2"), lora).empty());
  lora.load_in_4bit = true;
  std::set<std::string> want;
  for (const char* layer : {"0", "1"})
    for (const char* name : {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
                             "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"})
      want.insert(std::string("model.layers.") + layer + "." + name + ".weight");
  EXPECT_EQ(packed_names(small_llama("qwen2"), lora), want);
  lora.double_quant = true;
  EXPECT_EQ(packed_names(small_llama("qwen2"), lora), want);
  lora.modules_to_save = {"layers.1.mlp.down_proj", "lm_head"};
  want.erase("model.layers.1.mlp.down_proj.weight");
  EXPECT_EQ(packed_names(small_llama("qwen2"), lora), want)
      << "what is trained whole is not frozen";
  lora.modules_to_save.clear();
  for (const std::string& name : packed_names(small_llama("qwen2_moe"), lora)) {
    EXPECT_FALSE(name.contains(".experts.")) << name;
    EXPECT_FALSE(name.ends_with("mlp.gate.weight")) << "a router";
  }
}

/// tests/oracle/linear_layers_oracle.py asked transformers. It leaves subclasses of nn.Linear as they are, which
/// Falcon's layers are; here they are linear layers, too.
TEST(Packing, TheLayersAreThoseThatTransformersPutsIn4Bits) {
  const std::string fixtures = DSJ_SOURCE_DIR "/tests/fixtures/";
  std::ifstream file(fixtures + "linear_layers.json");
  const auto record = nlohmann::json::parse(file);
  int families = 0, falcons = 0;
  for (const auto& [name, modules] : record["modules"].items()) {
    const auto model = read_model_config(fixtures + name);
    ASSERT_TRUE(model) << model.error().to_string();
    if (stored_in_out(*model)) continue;  // refused by name
    const auto lora = resolve_lora(*model, {.target_pattern = "all-linear", .load_in_4bit = true});
    ASSERT_TRUE(lora) << name << ": " << lora.error().to_string();
    std::set<std::string> packed;
    for (const UnitSpec& unit : units_of(*model, *lora)) {
      for (const Adapter& adapter : unit.adapters) {  // which have the modules' names
        EXPECT_NE(unit.parameters[static_cast<size_t>(adapter.weight)].packing, Packing::None);
        packed.insert(module_of(module_of(unit.parameters[static_cast<size_t>(adapter.a)].name)));
      }
      EXPECT_EQ(
          std::ranges::count_if(unit.parameters,
                                [](const Parameter& one) { return one.packing != Packing::None; }),
          std::ssize(unit.adapters))
          << name;
    }
    ++families;
    if (modules.empty()) {
      EXPECT_TRUE(name.starts_with("tiny-falcon")) << name;
      EXPECT_FALSE(packed.empty()) << name;
      ++falcons;
      continue;
    }
    auto want = modules.get<std::set<std::string>>();
    // A router is no layer for adapters here, Hunyuan's and Gemma 4's neither, which are linear
    // layers there.
    std::erase_if(want, [](const std::string& module) {
      return module.ends_with(".gate.wg") || module.ends_with(".router.proj");
    });
    EXPECT_EQ(packed, want) << name;
  }
  EXPECT_GE(families, 60);
  EXPECT_EQ(falcons, 3);
}

TEST(Packing, PackedParametersHaveAFlatOfTheirOwnInEveryUnit) {
  const auto model = small_llama("qwen2");
  const auto units =
      units_of(model, *resolve_lora(model, {.target_modules = {"q_proj"}, .load_in_4bit = true}));
  const FlatPlan plan = plan_flats(units, {.shard_world = 2, .chunk_limit = 1000});
  for (size_t unit = 0; unit < units.size(); ++unit)
    for (size_t i = 0; i < units[unit].parameters.size(); ++i) {
      const auto& parameter = units[unit].parameters[i];
      const auto place = plan.places[unit][i];
      const FlatLayout& flat = plan.flats[static_cast<size_t>(place.flat)];
      EXPECT_EQ(flat.slots()[static_cast<size_t>(place.slot)].name, parameter.name);
      EXPECT_EQ(flat.packing(), parameter.packing);
      EXPECT_EQ(flat.frozen(), parameter.frozen);
    }
  EXPECT_EQ(plan.unit_packed.front(), -1) << "the embedding";
  EXPECT_EQ(plan.unit_packed.back(), -1) << "the head";
}

TEST(Packing, AModelWithTurnedMatricesIsRefused) {
  const nlohmann::json config = {{"model_type", "gpt2"}, {"vocab_size", 48}, {"n_positions", 32},
                                 {"n_embd", 16},         {"n_layer", 1},     {"n_head", 2}};
  const auto gpt2 = model_config_from_json(config, "config.json");
  ASSERT_TRUE(gpt2) << gpt2.error().to_string();
  const auto refused = resolve_lora(*gpt2, {.load_in_4bit = true});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().where, "lora.loadIn4bit");
  EXPECT_TRUE(refused.error().message.contains("transposed"));
}

/// A run that says its products' type, or a second level without a first one, has the same values.
TEST(Packing, OnlyWhatDecidesValuesIsKeptOfTheSettings) {
  const auto model = small_llama("qwen2");
  const LoraArgs plain{.target_modules = {"q_proj"}};
  LoraArgs said = plain;
  said.double_quant = true;
  said.compute_dtype = "bfloat16";
  EXPECT_EQ(*resolve_lora(model, said), *resolve_lora(model, plain));
  said.load_in_4bit = true;
  EXPECT_TRUE(resolve_lora(model, said)->double_quant);
  EXPECT_EQ(resolve_lora(model, said)->compute_dtype, "");
}

}  // namespace
}  // namespace dsj::layout
