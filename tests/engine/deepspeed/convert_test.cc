// A DeepSpeed checkpoint as one of ours, and the weights of both.
#include "engine/deepspeed/convert.h"

#include <gtest/gtest.h>

#include "common/files/memory_files.h"
#include "engine/checkpoint/search.h"
#include "engine/weights/weight_source.h"
#include "tests/engine/deepspeed/saved_model.h"

namespace dsj::deepspeed {
namespace {

using namespace testing_support;

class Convert : public testing::Test {
 protected:
  Checkpoint open() {
    auto saved = Checkpoint::open(files_, "/ds/global_step12");
    EXPECT_TRUE(saved) << saved.error().to_string();
    return std::move(*saved);
  }
  MemoryFiles files_;
};

TEST_F(Convert, AnImportedCheckpointIsOneOfOurs) {
  const SavedModel model;
  model.write_partitions(files_);
  Checkpoint theirs = open();
  const auto imported = import_checkpoint(files_, theirs, "/out/checkpoints");
  ASSERT_TRUE(imported) << imported.error().to_string();
  EXPECT_EQ(imported->path, "/out/checkpoints/step-12");
  auto found = checkpoint::newest(files_, "/out/checkpoints");
  ASSERT_TRUE(found && found->reader);
  checkpoint::Reader& ours = *found->reader;
  ASSERT_TRUE(ours.verify());
  EXPECT_EQ(ours.step(), 12);
  EXPECT_EQ(ours.run_state(), theirs.run_state());
  EXPECT_EQ(ours.extents().size(), 3 * model.groups[0].size());
  for (const Tensor& tensor : model.groups[0]) {
    for (const std::string& state : SavedModel::states()) {
      std::vector<float> values(size_t(tensor.elements()));
      ASSERT_TRUE(ours.read(state, tensor.name, 0, values)) << tensor.name;
      EXPECT_EQ(values, model.values(state, tensor));
    }
  }
  const auto again = import_checkpoint(files_, theirs, "/out/checkpoints");
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().kind, ErrorKind::BadInput);
}

TEST_F(Convert, FrozenParametersKeepTheirValuesAndHaveNoMoments) {
  SavedModel().write_shards(files_);
  Checkpoint theirs = open();
  ASSERT_TRUE(import_checkpoint(files_, theirs, "/out/checkpoints"));
  auto found = checkpoint::newest(files_, "/out/checkpoints");
  ASSERT_TRUE(found && found->reader);
  checkpoint::Reader& ours = *found->reader;
  EXPECT_EQ(ours.run_state()["frozen"], nlohmann::json({"frozen"}));
  std::vector<float> values(4);
  ASSERT_TRUE(ours.read("master", "frozen", 0, values));
  EXPECT_EQ(values, (std::vector<float>{1, 2, 3, 4}));
  EXPECT_FALSE(ours.elements("exp_avg", "frozen"));
}

TEST_F(Convert, TheWeightsForTorchLoad) {
  const SavedModel model;
  model.write_partitions(files_);
  Checkpoint theirs = open();
  ASSERT_TRUE(export_torch(files_, theirs, theirs.parameters(), "/weights"));
  auto source = weights::WeightSource::open(files_, "/weights");
  ASSERT_TRUE(source) << source.error().to_string();
  ASSERT_EQ(source->tensors().size(), model.groups[0].size());
  for (const Tensor& tensor : model.groups[0]) {
    SCOPED_TRACE(tensor.name);
    ASSERT_EQ(source->find(tensor.name)->shape, tensor.extents);
    std::vector<float> values(size_t(tensor.elements()));
    ASSERT_TRUE(source->read(tensor.name, 0, values));
    EXPECT_EQ(values, model.values("master", tensor));
  }
}

TEST_F(Convert, TheWeightsOfBoth) {
  const SavedModel model;
  model.write_shards(files_);
  Checkpoint theirs = open();
  ASSERT_TRUE(export_fp32(files_, theirs, theirs.parameters(), "/weights/theirs"));
  auto source = weights::WeightSource::open(files_, "/weights/theirs");
  ASSERT_TRUE(source) << source.error().to_string();
  EXPECT_EQ(source->tensors().size(), model.groups[0].size() + 1) << "the frozen one, too";
  EXPECT_EQ(source->find("a.weight")->shape, (std::vector<int64_t>{3, 5}));
  std::vector<float> values(15);
  ASSERT_TRUE(source->read("a.weight", 0, values));
  EXPECT_EQ(values, model.values("master", model.groups[0][0]));

  files_ = MemoryFiles();
  model.write_partitions(files_);
  Checkpoint whole = open();
  ASSERT_TRUE(import_checkpoint(files_, whole, "/out/checkpoints"));
  auto ours = checkpoint::Reader::open(files_, "/out/checkpoints/step-12");
  ASSERT_TRUE(export_fp32(files_, *ours, whole.parameters(), "/weights/ours"));
  source = weights::WeightSource::open(files_, "/weights/ours");
  ASSERT_TRUE(source->read("a.weight", 0, values));
  EXPECT_EQ(values, model.values("master", model.groups[0][0]));
  auto other = whole.parameters();
  other[0].elements = 14;
  const Status refused = export_fp32(files_, *ours, other, "/weights/other");
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().to_string().find("15 elements in the checkpoint, the model 14"),
            std::string::npos);
}

}  // namespace
}  // namespace dsj::deepspeed
