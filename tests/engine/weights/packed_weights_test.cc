#include "engine/weights/formats/packed_weights.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <nlohmann/json.hpp>

#include "common/files/memory_files.h"
#include "common/files/posix_files.h"
#include "engine/weights/tensor_check.h"
#include "engine/weights/weight_source.h"
#include "test_paths.h"

namespace dsj::weights {
namespace {

const std::string kPackedFixtures = DSJ_SOURCE_DIR "/tests/engine/weights/fixtures/packed";

/// Codes and scales in two files, against what transformers unpacks (tests/oracle/packed_oracle.py).
TEST(PackedWeights, AreTheTensorsOfTransformersBitForBit) {
  PosixFiles files;
  const auto source = WeightSource::open(files, kPackedFixtures);
  ASSERT_TRUE(source) << source.error().to_string();
  const auto expected = WeightSource::open_file(files, kPackedFixtures + "/expected.safetensors");
  ASSERT_TRUE(expected) << expected.error().to_string();
  ASSERT_EQ(source->tensors().size(), expected->tensors().size());
  EXPECT_EQ(source->dtype(), DType::BF16);
  for (size_t i = 0; i < expected->tensors().size(); ++i) {
    const TensorInfo &tensor = source->tensors()[i], &want = expected->tensors()[i];
    ASSERT_EQ(tensor.name, want.name);
    ASSERT_EQ(tensor.shape, want.shape) << tensor.name;
    ASSERT_EQ(tensor.elements, want.elements) << tensor.name;
    EXPECT_EQ(tensor.dtype, DType::BF16) << tensor.name;
    std::vector<float> values(static_cast<size_t>(want.elements), NAN), numbers(values.size());
    ASSERT_TRUE(source->read(tensor.name, 0, values));
    ASSERT_TRUE(expected->read(tensor.name, 0, numbers));
    const auto bits = [](float value) { return std::bit_cast<uint32_t>(value); };
    for (size_t at = 0; at < values.size(); ++at)
      ASSERT_EQ(bits(values[at]), bits(numbers[at])) << tensor.name << " " << at;
    // Any stretch is the same as the whole.
    using Stretch = std::pair<size_t, size_t>;
    for (const auto& [first, count] :
         {Stretch{values.size() / 3, 17}, Stretch{values.size() - 4, 4},
          Stretch{1, values.size() - 2}}) {
      if (first + count > values.size()) continue;
      std::vector<float> part(count, NAN);
      ASSERT_TRUE(source->read(tensor.name, static_cast<int64_t>(first), part));
      for (size_t at = 0; at < count; ++at)
        ASSERT_EQ(bits(part[at]), bits(values[first + at])) << tensor.name << " " << first + at;
    }
  }
}

/// Directories as they are published: config.json asks for the unpacked tensors.
TEST(PackedWeights, PublishedDirectoriesHoldWhatTheirConfigAsksFor) {
  PosixFiles files;
  for (const char* name : {"tiny-gpt-oss-mxfp4", "tiny-qwen3-fp8"}) {
    const std::string directory = std::string(DSJ_SOURCE_DIR "/tests/fixtures/") + name;
    const auto model = layout::read_model_config(directory);
    ASSERT_TRUE(model) << model.error().to_string();
    const auto source = WeightSource::open(files, directory);
    ASSERT_TRUE(source) << source.error().to_string();
    const Status whole = check_tensors(*source, layout::units_of(*model));
    EXPECT_TRUE(whole) << whole.error().to_string();
  }
}

TEST(PackedWeights, WhatDoesNotFitIsRefusedWithTheTensorsName) {
  const auto place = [](const char* name, DType dtype, std::vector<int64_t> shape) {
    TensorPlace place{{.name = name, .dtype = dtype, .shape = std::move(shape)}, nullptr, "/m/x"};
    for (const int64_t size : place.info.shape) place.info.elements *= size;
    return std::pair{std::string(name), place};
  };
  const auto refusal = [&](std::map<std::string, TensorPlace> places) {
    PackedWeights packed;
    const auto taken = packed.take(places, {128, 128});
    EXPECT_FALSE(taken);
    return taken ? "" : taken.error().message;
  };
  EXPECT_EQ(refusal({place("e_blocks", DType::U8, {2, 3, 1, 16})}),
            "holds \"e_blocks\" and not \"e_scales\"");
  EXPECT_EQ(refusal({place("w_scale_inv", DType::F32, {1, 1})}),
            "holds \"w_scale_inv\" and not \"w\"");
  EXPECT_EQ(refusal({place("e_blocks", DType::U8, {2, 3, 1, 16}),
                     place("e_scales", DType::U8, {2, 1, 3})}),
            "tensor \"e_scales\" [2,1,3] does not have the scales of \"e_blocks\" [2,3,1,16]");
  EXPECT_EQ(
      refusal({place("w", DType::F8E4M3, {256, 128}), place("w_scale_inv", DType::F32, {3, 1})}),
      "tensor \"w_scale_inv\" [3,1] does not have the scales of \"w\" [256,128]");
  EXPECT_NE(refusal({place("w", DType::I8, {128, 128}), place("w_scale_inv", DType::F32, {1, 1})})
                .find("\"w\" is I8 with scales of F32"),
            std::string::npos);
}

TEST(PackedWeights, TheBlockIsThatOfTheConfig) {
  EXPECT_EQ(scale_block_of(""), ScaleBlock(128, 128));
  EXPECT_EQ(scale_block_of(R"({"quantization_config": {"weight_block_size": null}})"),
            ScaleBlock(128, 128));
  EXPECT_EQ(scale_block_of(R"({"quantization_config": {"weight_block_size": [64, 32]}})"),
            ScaleBlock(64, 32));
  EXPECT_EQ(
      scale_block_of(R"({"text_config": {"quantization_config": {"weight_block_size": [16, 8]}}})"),
      ScaleBlock(16, 8));
}

}  // namespace
}  // namespace dsj::weights
