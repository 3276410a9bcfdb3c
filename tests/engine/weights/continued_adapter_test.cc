// What a run that begins with an adapter of PEFT's (tests/fixtures/lora) takes from it, and what it refuses.
#include "engine/weights/continued_adapter.h"

#include <gtest/gtest.h>

#include "common/files/memory_files.h"
#include "common/files/posix_files.h"
#include "engine/weights/adapter.h"
#include "engine/weights/formats/safetensors_writer.h"
#include "engine/weights/tensor_check.h"
#include "job/layout/lora.h"
#include "job/layout/units.h"
#include "test_paths.h"

namespace dsj::weights {
namespace {

using nlohmann::json;

std::string lora_fixture(const std::string& name) {
  return std::string(DSJ_SOURCE_DIR) + "/tests/fixtures/lora/" + name;
}

Result<LoraArgs> continued(const std::string& adapter, json said,
                           const std::string& base = "tiny-qwen2") {
  PosixFiles files;
  const auto model =
      layout::read_model_config(std::string(DSJ_SOURCE_DIR) + "/tests/fixtures/" + base);
  EXPECT_TRUE(model);
  said["adapterNameOrPath"] = lora_fixture(adapter);
  const auto asked = lora_args_from_json(said, "lora");
  EXPECT_TRUE(asked) << asked.error().to_string();
  return resolve_adapter(files, *model, *asked);
}

TEST(ContinuedAdapter, WhatTheJobDoesNotSayIsTheAdapters) {
  for (const auto& [base, name] : {std::pair{"tiny-qwen2", "plain"},
                                   {"tiny-qwen2-tied", "linear"},
                                   {"tiny-qwen2", "saved"},
                                   {"tiny-qwen2-tied", "tied"},
                                   {"tiny-qwen2", "dora"},
                                   {"tiny-qwen2-tied", "patterns"},
                                   {"tiny-qwen2", "layers"},
                                   {"lora/gpt2-base", "gpt2"},
                                   {"tiny-qwen3-moe", "experts"},
                                   {"tiny-mixtral", "experts-router"},
                                   {"tiny-gpt-oss", "experts-turned"}}) {
    PosixFiles files;
    const std::string directory = name + std::string("/final");
    const auto got = continued(directory, json::object(), base);
    ASSERT_TRUE(got) << name << ": " << got.error().to_string();
    const auto file = read_adapter_config(files, lora_fixture(directory));
    ASSERT_TRUE(file);
    EXPECT_EQ(got->r, file->lora.r) << name;
    EXPECT_EQ(got->alpha, file->lora.alpha) << name;
    EXPECT_EQ(got->use_rslora, file->lora.use_rslora) << name;
    EXPECT_EQ(got->use_dora, file->lora.use_dora) << name;
    EXPECT_EQ(got->rank_pattern, file->lora.rank_pattern) << name;
    EXPECT_EQ(got->target_parameters, file->lora.target_parameters) << name;
    EXPECT_EQ(got->layers_to_transform, file->lora.layers_to_transform) << name;
    EXPECT_TRUE(got->adapter.empty()) << "resolved";
  }
}

TEST(ContinuedAdapter, TheRunsOwnSettingsAreTheJobs) {
  const auto got = continued("plain/final", {{"dropout", 0.25}, {"loadIn4bit", true}, {"r", 4}});
  ASSERT_TRUE(got) << got.error().to_string();
  EXPECT_EQ(got->dropout, 0.25);
  EXPECT_TRUE(got->load_in_4bit);
  EXPECT_EQ(continued("plain/final", json::object())->dropout, 0);
}

TEST(ContinuedAdapter, WhatIsSaidAgreesOrIsRefused) {
  for (const json& same :
       {json{{"r", 4}, {"alpha", 8}, {"useRslora", false}, {"useDora", false}},
        json{{"targetModules", {"down_proj", "v_proj", "q_proj"}},
             {"modulesToSave", json::array()}},
        json{{"targetModules", ".*(q|v|down)_proj"}}, json{{"layersToTransform", {0, 1}}},
        json{{"rankPattern", json::object()}}}) {
    const auto got = continued("plain/final", same);
    EXPECT_TRUE(got) << same << ": " << got.error().to_string();
  }
  for (const auto& [said, where] : {std::pair<json, const char*>{{{"r", 8}}, "lora.r"},
                                    {{{"alpha", 16}}, "lora.alpha"},
                                    {{{"useRslora", true}}, "lora.useRslora"},
                                    {{{"useDora", true}}, "lora.useDora"},
                                    {{{"rankPattern", {{"q_proj", 2}}}}, "lora.rankPattern"},
                                    {{{"targetModules", {"q_proj"}}}, "lora.targetModules"},
                                    {{{"targetModules", "all-linear"}}, "lora.targetModules"},
                                    {{{"modulesToSave", {"lm_head"}}}, "lora.modulesToSave"},
                                    {{{"layersToTransform", {1}}}, "lora.layersToTransform"}}) {
    const auto got = continued("plain/final", said);
    ASSERT_FALSE(got) << said;
    EXPECT_EQ(got.error().where, where) << got.error().to_string();
    EXPECT_EQ(got.error().kind, ErrorKind::BadInput);
    EXPECT_NE(got.error().to_string().find("lora/plain/final"), std::string::npos)
        << got.error().to_string();
  }
}

TEST(ContinuedAdapter, TheTwoCopiesOfATiedWeightAgree) {
  for (const json& same : {json{{"modulesToSave", {"lm_head"}}}, json{{"ensureWeightTying", true}}})
    EXPECT_TRUE(continued("tied/final", same, "tiny-qwen2-tied")) << same;
  EXPECT_EQ(
      continued("tied/final", {{"ensureWeightTying", false}}, "tiny-qwen2-tied").error().where,
      "lora.ensureWeightTying");

  PosixFiles disk;
  const auto source =
      WeightSource::open_file(disk, lora_fixture("tied/final") + "/" + kAdapterWeightsFile);
  ASSERT_TRUE(source);
  const layout::TiedPair tied{"model.embed_tokens.weight", "lm_head.weight"};
  EXPECT_TRUE(check_tied_copies(*source, tied));
  MemoryFiles files;
  for (const int difference : {0, 1}) {
    auto writer =
        SafetensorsWriter::create(files, "/a.safetensors",
                                  {{kAdapterPrefix + tied.head, DType::F32, {2, 2}},
                                   {kAdapterPrefix + tied.embedding, DType::F32, {2, 2}}});
    ASSERT_TRUE(writer);
    ASSERT_TRUE(writer->append(kAdapterPrefix + tied.head, std::vector<float>{1, 2, 3, 4}));
    ASSERT_TRUE(writer->append(kAdapterPrefix + tied.embedding,
                               std::vector<float>{1, 2, 3, 4.0f + static_cast<float>(difference)}));
    ASSERT_TRUE(writer->finish());
    const auto copies = WeightSource::open_file(files, "/a.safetensors");
    ASSERT_TRUE(copies) << copies.error().to_string();
    EXPECT_EQ(check_tied_copies(*copies, tied).has_value(), difference == 0);
  }
}

/// An adapter that PEFT made with exclude_modules has fewer modules than its targets name.
TEST(ContinuedAdapter, ExcludedModulesStayWithoutAnAdapter) {
  PosixFiles disk;
  MemoryFiles files;
  ASSERT_TRUE(files.make_dirs("/adapter"));
  const std::string from = lora_fixture("plain/final");
  auto config = json::parse(*disk.read_all(path_join(from, kAdapterConfigFile)));
  config["target_modules"] = ".*_proj";
  config["exclude_modules"] = {"k_proj", "o_proj", "gate_proj", "up_proj"};
  ASSERT_TRUE(files.write_atomically("/adapter/adapter_config.json", config.dump()));
  ASSERT_TRUE(files.write_atomically("/adapter/adapter_model.safetensors",
                                     *disk.read_all(path_join(from, kAdapterWeightsFile))));
  const auto model =
      layout::read_model_config(std::string(DSJ_SOURCE_DIR) + "/tests/fixtures/tiny-qwen2");
  const auto asked = lora_args_from_json({{"adapterNameOrPath", "/adapter"}}, "lora");
  ASSERT_TRUE(model && asked);
  const auto got = resolve_adapter(files, *model, *asked);
  ASSERT_TRUE(got) << got.error().to_string();
  int adapters = 0;
  for (const layout::UnitSpec& unit : layout::units_of(*model, *got))
    for (const layout::Parameter& parameter : unit.parameters)
      adapters += parameter.name.ends_with("lora_A.weight");
  EXPECT_EQ(adapters, 6) << "q, v and down of two layers";
}

TEST(ContinuedAdapter, AnAdapterOfAnotherModelIsRefused) {
  for (const auto& [name, base] : {std::pair{"gpt2/final", "tiny-qwen2"},
                                   {"plain/final", "tiny-qwen1.5"},
                                   {"linear/final", "tiny-qwen2"},
                                   {"none", "tiny-qwen2"}}) {
    const auto got = continued(name, json::object(), base);
    ASSERT_FALSE(got) << name << " on " << base;
    EXPECT_EQ(got.error().where, "lora.adapterNameOrPath") << got.error().to_string();
  }
}

}  // namespace
}  // namespace dsj::weights
