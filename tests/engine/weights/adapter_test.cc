// The exported adapter against what PEFT's save_pretrained wrote (tests/fixtures/lora).
#include "engine/weights/adapter.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "common/files/memory_files.h"
#include "common/files/posix_files.h"
#include "engine/weights/export.h"
#include "engine/weights/weight_source.h"
#include "job/layout/lora.h"
#include "tests/engine/support/fixtures.h"

namespace dsj::weights {
namespace {

using nlohmann::json;
using testing_support::fixture;

json read_json(const std::string& path) {
  return json::parse(std::ifstream(path));
}

struct Case {
  const char* name;
  const char* model;
  LoraArgs lora;
};

/// The settings of tests/oracle/peft_oracle.py as spec.training.lora has them.
std::vector<Case> cases() {
  return {{"plain",
           "tiny-qwen2",
           {.r = 4, .alpha = 8, .target_modules = {"q_proj", "v_proj", "down_proj"}}},
          {"linear",
           "tiny-qwen2-tied",
           {.r = 2, .alpha = 3, .target_pattern = "all-linear", .use_rslora = true}},
          {"saved",
           "tiny-qwen2",
           {.r = 3,
            .alpha = 6,
            .target_pattern = R"(.*layers\.1\..*(k_proj|up_proj))",
            .modules_to_save = {"lm_head", "model.norm"}}},
          {"dora",
           "tiny-qwen2",
           {.r = 4,
            .alpha = 8,
            .target_modules = {"q_proj", "v_proj", "o_proj", "down_proj"},
            .use_dora = true}},
          {"patterns",
           "tiny-qwen2-tied",
           {.r = 3,
            .alpha = 6,
            .target_pattern = "all-linear",
            .rank_pattern = {{"down_proj", 5}, {R"(layers\.1\.self_attn\.q_proj)", 2}},
            .alpha_pattern = {{"v_proj", 9}}}},
          {"layers",
           "tiny-qwen2",
           {.r = 2,
            .alpha = 4,
            .target_modules = {"q_proj", "k_proj", "up_proj"},
            .use_rslora = true,
            .init = AdapterInit::Gaussian,
            .layers_to_transform = {1}}},
          {"experts",
           "tiny-qwen3-moe",
           {.r = 2,
            .alpha = 4,
            .target_modules = {"q_proj", "v_proj"},
            .target_parameters = {"mlp.experts.gate_up_proj", "mlp.experts.down_proj"}}},
          {"experts-router",
           "tiny-mixtral",
           {.r = 3,
            .alpha = 6,
            .no_modules = true,
            .target_parameters = {"gate.weight", "experts.down_proj"},
            .use_rslora = true}},
          {"experts-turned",
           "tiny-gpt-oss",
           {.r = 2,
            .alpha = 4,
            .target_pattern = "all-linear",
            .target_parameters = {"0.mlp.experts.gate_up_proj", "mlp.experts.down_proj",
                                  "router.weight"},
            .rank_pattern = {{"down_proj", 3}},
            .alpha_pattern = {{"gate_up_proj", 5}}}}};
}

class Adapter : public testing::TestWithParam<Case> {};

TEST_P(Adapter, ConfigAndTensorsAreLaidOutAsPefts) {
  const Case& c = GetParam();
  const auto model = layout::read_model_config(fixture(c.model));
  ASSERT_TRUE(model);
  const auto lora = layout::resolve_lora(*model, c.lora);
  ASSERT_TRUE(lora) << lora.error().to_string();
  std::vector<ExportTensor> tensors;
  for (const auto& unit : layout::units_of(*model, *lora))
    for (const auto& parameter : unit.parameters)
      if (!parameter.frozen) tensors.push_back({parameter.name, parameter.shape});
  MemoryFiles files;
  ASSERT_TRUE(files.make_dirs("/source"));
  ASSERT_TRUE(files.make_dirs("/out"));
  ASSERT_TRUE(files.write_atomically("/source/tokenizer.json", "{}"));
  ASSERT_TRUE(files.write_atomically("/source/generation_config.json", "{}"));
  auto made = ModelExport::begin(files,
                                 {.source_dir = "/source",
                                  .target_dir = "/out/model",
                                  .adapter = AdapterConfig{.lora = *lora, .base = "BASE"}},
                                 tensors);
  ASSERT_TRUE(made) << made.error().to_string();
  for (const auto& tensor : tensors) {
    const std::vector<float> values(TensorDeclaration{"", DType::F32, tensor.shape}.elements(), 1);
    ASSERT_TRUE(made->append(tensor.name, values));
  }
  ASSERT_TRUE(made->publish());
  EXPECT_EQ(files.list_dir("/out/model")->size(), 3u) << "config, weights, tokenizer; no model";

  json want = read_json(fixture("lora/") + c.name + "/final/adapter_config.json");
  json got = json::parse(*files.read_all("/out/model/adapter_config.json"));
  if (c.lora.target_pattern == "all-linear") {  // PEFT lists every module, we their common ends
    for (const auto& module : want["target_modules"]) {
      const std::string full = module;
      const json end = full.substr(full.rfind('.') + 1);
      EXPECT_NE(std::ranges::find(got["target_modules"], end), got["target_modules"].end()) << full;
    }
    got["target_modules"] = want["target_modules"];
  } else if (got["target_modules"].is_array()) {
    auto names = got["target_modules"].get<std::vector<std::string>>();
    std::ranges::sort(names);
    got["target_modules"] = names;
  }
  EXPECT_EQ(got, want);

  PosixFiles disk;
  const auto theirs =
      WeightSource::open_file(disk, fixture("lora/") + c.name + "/final/adapter_model.safetensors");
  const auto ours = WeightSource::open_file(files, "/out/model/adapter_model.safetensors");
  ASSERT_TRUE(theirs && ours);
  ASSERT_EQ(ours->tensors().size(), theirs->tensors().size());
  for (size_t i = 0; i < ours->tensors().size(); ++i) {
    EXPECT_EQ(ours->tensors()[i].name, theirs->tensors()[i].name);
    EXPECT_EQ(ours->tensors()[i].shape, theirs->tensors()[i].shape);
    EXPECT_EQ(ours->tensors()[i].dtype, theirs->tensors()[i].dtype);
  }
}

INSTANTIATE_TEST_SUITE_P(Peft, Adapter, testing::ValuesIn(cases()), [](const auto& info) {
  std::string name = info.param.name;
  std::ranges::replace(name, '-', '_');
  return name;
});

TEST(AdapterConfig, PeftsFileIsRead) {
  PosixFiles files;
  for (const Case& c : cases()) {
    const auto read = read_adapter_config(files, fixture("lora/") + c.name + "/final");
    ASSERT_TRUE(read) << read.error().to_string();
    EXPECT_EQ(read->lora.scaling(), c.lora.scaling());
    EXPECT_EQ(read->lora.modules_to_save, c.lora.modules_to_save);
    EXPECT_EQ(read->lora.target_parameters.size(), c.lora.target_parameters.size());
    EXPECT_EQ(read->base, "BASE");
    EXPECT_FALSE(read->fan_in_fan_out);
  }
  EXPECT_TRUE(read_adapter_config(files, fixture("lora/gpt2/final"))->fan_in_fan_out);
}

TEST(AdapterConfig, WhatChangesTheResultIsRefusedByName) {
  for (const auto& [key, value] : {std::pair<const char*, json>{"init_lora_weights", "pissa"},
                                   {"init_lora_weights", "olora"},
                                   {"layers_pattern", "blocks"},
                                   {"bias", "all"},
                                   {"lora_bias", true},
                                   {"trainable_token_indices", {1, 2}},
                                   {"peft_type", "IA3"}}) {
    json config = read_json(fixture("lora/plain/final/adapter_config.json"));
    config[key] = value;
    MemoryFiles files;
    ASSERT_TRUE(files.make_dirs("/a"));
    ASSERT_TRUE(files.write_atomically("/a/adapter_config.json", config.dump()));
    const auto read = read_adapter_config(files, "/a");
    ASSERT_FALSE(read) << key;
    EXPECT_NE(read.error().message.find(std::string("\"") + key + "\""), std::string::npos);
  }
}

}  // namespace
}  // namespace dsj::weights
