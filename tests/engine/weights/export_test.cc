#include "engine/weights/export.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "common/files/faulty_files.h"
#include "common/files/memory_files.h"
#include "engine/weights/weight_source.h"

namespace dsj::weights {
namespace {

const std::vector<ExportTensor> kTensors = {{"w", {2, 2}}, {"b", {2}}};

Status run_export(Files& files, const ExportOptions& options, float value) {
  DSJ_TRY(auto model, ModelExport::begin(files, options, kTensors));
  const std::vector<float> values(4, value);
  DSJ_TRY_STATUS(model.append("w", values));
  DSJ_TRY_STATUS(model.append("b", std::span(values).first(2)));
  return model.publish();
}

float exported_value(Files& files, const std::string& directory) {
  auto source = WeightSource::open(files, directory);
  std::vector<float> w(4, -1), b(2, -2);
  if (!source || !source->read("w", 0, w) || !source->read("b", 0, b)) return -1;
  return w[3] == b[1] ? w[0] : -2;
}

class Export : public testing::Test {
 protected:
  void SetUp() override { prepare(files_); }
  static void prepare(Files& files) {
    ASSERT_TRUE(files.make_dirs("/source"));
    ASSERT_TRUE(files.make_dirs("/out"));
    ASSERT_TRUE(files.write_atomically(
        "/source/config.json",
        R"({"zeta":1,"model_type":"qwen2","torch_dtype":"float32","rope_theta":1000000.0})"));
    ASSERT_TRUE(files.write_atomically("/source/tokenizer.json", "{\"t\":1}"));
    ASSERT_TRUE(files.write_atomically("/source/unrelated.bin", "x"));
    ASSERT_TRUE(files.sync_dir("/"));
  }
  const ExportOptions options_{
      .source_dir = "/source", .target_dir = "/out/model", .dtype = DType::BF16};
  MemoryFiles files_;
};

TEST_F(Export, DirectoryWithConfigTokenizerAndWeights) {
  ASSERT_TRUE(run_export(files_, options_, 3));
  EXPECT_EQ(exported_value(files_, "/out/model"), 3);
  EXPECT_EQ(*files_.read_all("/out/model/config.json"),
            "{\n  \"zeta\": 1,\n  \"model_type\": \"qwen2\",\n  \"torch_dtype\": \"bfloat16\",\n"
            "  \"rope_theta\": 1000000.0\n}\n");
  EXPECT_EQ(files_.read_all("/out/model/tokenizer.json"), "{\"t\":1}");
  EXPECT_EQ(files_.list_dir("/out/model")->size(), 3u);
  EXPECT_EQ(files_.list_dir("/out")->size(), 1u);
}

TEST_F(Export, NewNameOfTheDtypeIsKept) {
  ASSERT_TRUE(files_.write_atomically("/source/config.json", R"({"dtype":"float32"})"));
  ASSERT_TRUE(run_export(files_, options_, 3));
  EXPECT_EQ(nlohmann::json::parse(*files_.read_all("/out/model/config.json")),
            (nlohmann::json{{"dtype", "bfloat16"}}));
}

TEST_F(Export, TargetWithASlashAndASecondExport) {
  ExportOptions options = options_;
  options.target_dir = "/out/model/";
  ASSERT_TRUE(run_export(files_, options, 3));
  ASSERT_TRUE(run_export(files_, options, 4));
  EXPECT_EQ(exported_value(files_, "/out/model"), 4);
  EXPECT_EQ(files_.list_dir("/out")->size(), 1u);
}

TEST_F(Export, WithoutConfigNothingIsPublished) {
  ASSERT_TRUE(files_.remove("/source/config.json"));
  const Status done = run_export(files_, options_, 3);
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().where, "/source/config.json");
  EXPECT_EQ(files_.exists("/out/model"), false);
}

/// Death at every write, then power loss: the old model or the new one, never a mixture; and the
/// next export works.
TEST_F(Export, DeathAtEveryWriteLeavesTheOldOrTheNewModel) {
  for (const bool can_exchange : {true, false}) {
    MemoryFiles plain;
    prepare(plain);
    ASSERT_TRUE(run_export(plain, options_, 1));
    FaultyFiles counting(plain, {.can_exchange = can_exchange});
    ASSERT_TRUE(run_export(counting, options_, 2));
    const int64_t count = int64_t(counting.operations().size());
    ASSERT_GT(count, 10);
    int old_seen = 0, new_seen = 0;
    for (int64_t at = 0; at < count; ++at) {
      for (const bool power_fails : {false, true}) {
        MemoryFiles files;
        prepare(files);
        ASSERT_TRUE(run_export(files, options_, 1));
        ASSERT_TRUE(files.sync_dir("/"));
        FaultyFiles faulty(files, {.at = at, .torn = true, .can_exchange = can_exchange});
        EXPECT_FALSE(run_export(faulty, options_, 2));
        if (power_fails) files.power_loss(uint64_t(at));
        ASSERT_TRUE(recover_export(files, "/out/model"));
        const float value = exported_value(files, "/out/model");
        EXPECT_TRUE(value == 1 || value == 2) << counting.operations()[size_t(at)];
        ++(value == 1 ? old_seen : new_seen);
        ASSERT_TRUE(run_export(files, options_, 3));
        EXPECT_EQ(exported_value(files, "/out/model"), 3);
        EXPECT_EQ(files.list_dir("/out")->size(), 1u);
      }
    }
    EXPECT_GT(old_seen, 0);
    EXPECT_GT(new_seen, 0);
  }
}

TEST(SafetensorsWriterDeathTest, OrderAndCompletenessAreTheCallersDuty) {
  MemoryFiles files;
  const std::vector<float> two(2), three(3);
  const auto create = [&] {
    return SafetensorsWriter::create(files, "/f", {{"a", DType::F32, {2}}, {"b", DType::F32, {2}}});
  };
  auto writer = create();
  EXPECT_DEATH((void)writer->append("b", two), "b is not the next tensor");
  EXPECT_DEATH((void)writer->append("a", three), "12 bytes more");
  EXPECT_DEATH((void)writer->finish(), "a is not complete");
  ASSERT_TRUE(writer->append("a", two));
  ASSERT_TRUE(writer->append("b", two));
  ASSERT_TRUE(writer->finish());
  EXPECT_DEATH((void)SafetensorsWriter::create(files, "/f",
                                               {{"a", DType::F32, {2}}, {"a", DType::F32, {2}}}),
               "declared twice");
}

}  // namespace
}  // namespace dsj::weights
