// A universal checkpoint that we wrote, read as DeepSpeed's own are read. What DeepSpeed itself makes of it:
// tests/oracle/check_universal.py.
#include "engine/deepspeed/universal_export.h"

#include <gtest/gtest.h>

#include "common/files/memory_files.h"
#include "engine/checkpoint/reader.h"
#include "engine/deepspeed/convert.h"
#include "tests/engine/deepspeed/saved_model.h"

namespace dsj::deepspeed {
namespace {

using namespace testing_support;

class UniversalExport : public testing::Test {
 protected:
  void SetUp() override { model_.write_partitions(files_); }
  Checkpoint open(const std::string& path) {
    auto saved = Checkpoint::open(files_, path, {.universal = true});
    EXPECT_TRUE(saved) << saved.error().to_string();
    return std::move(*saved);
  }

  MemoryFiles files_;
  const SavedModel model_;
};

TEST_F(UniversalExport, HoldsParametersMomentsAndCounters) {
  Checkpoint theirs = open("/ds/global_step12");
  ASSERT_TRUE(import_checkpoint(files_, theirs, "/out/checkpoints"));
  auto ours = checkpoint::Reader::open(files_, "/out/checkpoints/step-12");
  ASSERT_TRUE(ours);
  const auto written = export_universal(files_, *ours, theirs.parameters(), "/universal");
  ASSERT_TRUE(written) << written.error().to_string();
  EXPECT_EQ(written->path, "/universal/global_step12_universal");
  EXPECT_TRUE(written->knows_learning_rate);
  EXPECT_EQ(*files_.read_all("/universal/latest_universal"), "global_step12_universal");

  Checkpoint back = open("/universal");
  EXPECT_TRUE(back.universal());
  EXPECT_TRUE(back.verify());
  EXPECT_EQ(back.step(), 12);
  for (const char* key : {"skipped", "updates", "train_batch_size"})
    EXPECT_EQ(back.run_state().value(key, -1), theirs.run_state().value(key, -1)) << key;
  EXPECT_EQ(back.run_state()["lr"], 0.5);
  ASSERT_EQ(back.parameters().size(), theirs.parameters().size());
  for (size_t i = 0; i < back.parameters().size(); ++i) {
    EXPECT_EQ(back.parameters()[i].name, theirs.parameters()[i].name) << "the model's order";
    EXPECT_EQ(back.parameters()[i].shape, theirs.parameters()[i].shape);
  }
  for (const Tensor& tensor : model_.groups[0]) {
    for (const std::string& state : SavedModel::states()) {
      std::vector<float> values(size_t(tensor.elements()));
      ASSERT_TRUE(back.read(state, tensor.name, 0, values)) << tensor.name;
      EXPECT_EQ(values, model_.values(state, tensor)) << tensor.name << " " << state;
    }
  }
}

/// Stage 3 looks for another name than stages 1 and 2.
TEST_F(UniversalExport, EveryStageFindsItsFile) {
  Checkpoint theirs = open("/ds/global_step12");
  ASSERT_TRUE(export_universal(files_, theirs, theirs.parameters(), "/universal"));
  const std::string tag = "/universal/global_step12_universal/";
  const auto one = files_.read_all(tag + "mp_rank_00_model_states.pt");
  ASSERT_TRUE(one);
  EXPECT_EQ(*one, *files_.read_all(tag + "zero_pp_rank_0_mp_rank_00_model_states.pt"));
}

/// They have no moments and no folder; our own reader finds their values, where the checkpoint has them.
TEST_F(UniversalExport, FrozenParametersAreLeftOut) {
  files_ = MemoryFiles();
  model_.write_shards(files_);
  Checkpoint theirs = open("/ds/global_step12");
  ASSERT_EQ(theirs.frozen_count(), 1u);
  const auto written = export_universal(files_, theirs, theirs.parameters(), "/universal");
  ASSERT_TRUE(written) << written.error().to_string();
  EXPECT_EQ(written->frozen, 1u);
  EXPECT_FALSE(*files_.exists(written->path + "/zero/frozen"));
  Checkpoint back = open("/universal");
  EXPECT_EQ(back.frozen_count(), 1u);
  EXPECT_EQ(back.parameters().size(), theirs.parameters().size());
  std::vector<float> values(4);
  ASSERT_TRUE(back.read("master", "frozen", 0, values));
  EXPECT_EQ(values, (std::vector<float>{1, 2, 3, 4}));
  EXPECT_FALSE(back.elements("exp_avg", "frozen"));
}

/// fp16: the first scales overflow, and DeepSpeed's optimizer makes its moments at its first update.
TEST_F(UniversalExport, WhereEveryStepWasSkippedTheMomentsAreZeros) {
  files_ = MemoryFiles();
  const SavedModel model{
      .skipped = 12, .updates = 0, .scheduler = dict({{"last_batch_iteration", number(-1)}})};
  model.write_partitions(files_);
  Checkpoint theirs = open("/ds/global_step12");
  ASSERT_FALSE(theirs.elements("exp_avg", "a.weight"));
  ASSERT_TRUE(import_checkpoint(files_, theirs, "/out/checkpoints"));
  auto ours = checkpoint::Reader::open(files_, "/out/checkpoints/step-12");
  ASSERT_TRUE(ours);
  const auto written = export_universal(files_, *ours, theirs.parameters(), "/universal");
  ASSERT_TRUE(written) << written.error().to_string();
  Checkpoint back = open("/universal");
  EXPECT_TRUE(back.verify());
  EXPECT_EQ(back.run_state()["updates"], 0);
  for (const Tensor& tensor : model.groups[0]) {
    const auto count = size_t(tensor.elements());
    std::vector<float> values(count);
    ASSERT_TRUE(back.read("master", tensor.name, 0, values)) << tensor.name;
    EXPECT_EQ(values, model.values("master", tensor)) << tensor.name;
    for (const char* state : {"exp_avg", "exp_avg_sq"}) {
      values.assign(count, 7);
      ASSERT_TRUE(back.read(state, tensor.name, 0, values)) << tensor.name;
      EXPECT_EQ(values, std::vector<float>(count, 0)) << tensor.name << " " << state;
    }
  }
}

TEST_F(UniversalExport, WithoutAdamsMomentsItIsRefusedBeforeAByteIsWritten) {
  Checkpoint theirs = open("/ds/global_step12");
  auto parameters = theirs.parameters();
  parameters[0].name = "another";
  const auto unknown = export_universal(files_, theirs, parameters, "/universal");
  ASSERT_FALSE(unknown);
  EXPECT_NE(unknown.error().message.find("\"another\" has 0 elements"), std::string::npos)
      << unknown.error().to_string();
  struct Sgd : checkpoint::SavedRun {
    const std::string name = "/sgd";
    const nlohmann::json state = {{"optimizer", "SGD"}, {"updates", 0}};
    const std::string& path() const override { return name; }
    int64_t step() const override { return 1; }
    const nlohmann::json& run_state() const override { return state; }
    std::optional<int64_t> elements(const std::string& what, const std::string&) const override {
      return what == "master" ? std::optional<int64_t>(2) : std::nullopt;
    }
    Status read(const std::string&, const std::string&, int64_t, std::span<float>) override {
      return {};
    }
  } sgd;
  const auto refused = export_universal(files_, sgd, {{"w", {2}, 2}}, "/universal");
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("optimizer is SGD"), std::string::npos)
      << refused.error().to_string();
  EXPECT_FALSE(*files_.exists("/universal"));
}

}  // namespace
}  // namespace dsj::deepspeed
