// Files of the safetensors library, both ways; the fixtures' generator is
// tests/oracle/export_oracle.py.
#include <gtest/gtest.h>

#include <bit>
#include <nlohmann/json.hpp>

#include "common/files/memory_files.h"
#include "common/files/posix_files.h"
#include "engine/weights/formats/safetensors_writer.h"
#include "engine/weights/weight_source.h"
#include "test_paths.h"

namespace dsj::weights {
namespace {

const std::string kFixtures = DSJ_SOURCE_DIR "/tests/engine/weights/fixtures/";

std::vector<float> values_of_all_sizes(int64_t count) {
  constexpr float kScale[] = {1, 1e-6f, 1e4f, 1e-39f};
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) {
    values.push_back(float(i * 7919 % 1009 - 504) * 0.1f * kScale[i % 4]);
  }
  return values;
}

TEST(SafetensorsOracle, TheLibrarysFileIsReadBitForBit) {
  PosixFiles disk;
  MemoryFiles files;
  ASSERT_TRUE(files.make_dir("/m"));
  ASSERT_TRUE(files.write_synced("/m/model.safetensors",
                                 *disk.read_all(kFixtures + "library.safetensors")));
  const auto oracle = nlohmann::json::parse(*disk.read_all(kFixtures + "export_oracle.json"));
  auto source = WeightSource::open(files, "/m");
  ASSERT_TRUE(source) << source.error().to_string();
  ASSERT_EQ(source->tensors().size(), oracle["tensors"].size());
  int compared = 0;
  for (const auto& row : oracle["tensors"]) {
    const std::string name = row["name"];
    const TensorInfo* tensor = source->find(name);
    ASSERT_NE(tensor, nullptr) << name;
    EXPECT_EQ(tensor->shape, row["shape"].get<std::vector<int64_t>>()) << name;
    std::vector<float> values(size_t(tensor->elements));
    const Status read = source->read(name, 0, values);
    ASSERT_EQ(read.has_value(), row.contains("fp32_bits")) << name;
    if (!read) continue;
    EXPECT_EQ(row["dtype"], config_dtype_name(tensor->dtype)) << name;
    for (size_t i = 0; i < values.size(); ++i, ++compared) {
      ASSERT_EQ(std::bit_cast<uint32_t>(values[i]), row["fp32_bits"][i].get<uint32_t>()) << name;
    }
  }
  EXPECT_EQ(compared, 30 + 33 + 35 + 1 + 2);
}

TEST(SafetensorsOracle, OurFileIsTheOneTheLibraryReads) {
  const std::vector<TensorDeclaration> tensors = {{"model.b", DType::BF16, {3, 50}},
                                                  {"model.a", DType::F32, {7}},
                                                  {"empty", DType::F32, {0}},
                                                  {"model.h", DType::F16, {101}},
                                                  {"scalar", DType::F32, {}}};
  MemoryFiles files;
  auto writer = SafetensorsWriter::create(files, "/ours", tensors);
  ASSERT_TRUE(writer);
  for (const TensorDeclaration& tensor : tensors) {
    const auto values = values_of_all_sizes(tensor.elements());
    const std::span<const float> all = values;
    ASSERT_TRUE(writer->append(tensor.name, all.first(values.size() / 3)));
    ASSERT_TRUE(writer->append(tensor.name, all.subspan(values.size() / 3)));
  }
  ASSERT_TRUE(writer->finish());
  PosixFiles disk;
  EXPECT_TRUE(*files.read_all("/ours") == *disk.read_all(kFixtures + "ours.safetensors"));
}

}  // namespace
}  // namespace dsj::weights
