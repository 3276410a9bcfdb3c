// DeepSpeed's checkpoints in every layout, made by saved_model.h: each element is read from where it lies, padding enters
// nothing, and what is damaged or not read is refused by name.
#include "engine/deepspeed/checkpoint.h"

#include <gtest/gtest.h>

#include <cmath>

#include "common/files/counting_files.h"
#include "common/files/memory_files.h"
#include "tests/engine/deepspeed/saved_model.h"

namespace dsj::deepspeed {
namespace {

using namespace testing_support;

class DeepSpeedCheckpoint : public testing::Test {
 protected:
  Result<Checkpoint> open(const std::string& path = "/ds/global_step12") {
    return Checkpoint::open(files_, path);
  }

  /// Every state of every parameter, read whole and in pieces of three elements.
  void expect_all(const SavedModel& model,
                  const std::vector<std::string>& states = SavedModel::states()) {
    auto saved = open();
    ASSERT_TRUE(saved) << saved.error().to_string();
    for (const auto& group : model.groups) {
      for (const Tensor& tensor : group) {
        for (const std::string& state : states) {
          const auto expected = model.values(state, tensor);
          ASSERT_EQ(saved->elements(state, tensor.name), tensor.elements())
              << state << " of " << tensor.name;
          std::vector<float> found(expected.size(), -1);
          ASSERT_TRUE(saved->read(state, tensor.name, 0, found)) << tensor.name;
          EXPECT_EQ(found, expected) << state << " of " << tensor.name;
          for (size_t begin = 0; begin + 3 <= expected.size(); begin += 2) {
            std::vector<float> piece(3);
            ASSERT_TRUE(saved->read(state, tensor.name, int64_t(begin), piece));
            EXPECT_EQ(piece, std::vector<float>(expected.begin() + int64_t(begin),
                                                expected.begin() + int64_t(begin) + 3));
          }
        }
      }
    }
  }
  std::string refusal(ErrorKind kind = ErrorKind::BadInput,
                      const std::string& path = "/ds/global_step12") {
    const auto saved = open(path);
    EXPECT_FALSE(saved);
    if (saved) return {};
    EXPECT_EQ(saved.error().kind, kind) << saved.error().to_string();
    return saved.error().to_string();
  }
  static std::string optim_path(int rank) {
    return "/ds/global_step12/" + SavedModel::rank_file("", rank, "optim_states");
  }
  MemoryFiles files_;
};

TEST_F(DeepSpeedCheckpoint, PartitionsOfStages1And2AtAnyNumberOfRanks) {
  for (const int ranks : {1, 2, 3, 7, 40}) {
    for (const bool elastic : {false, true}) {
      files_ = MemoryFiles();
      SavedModel model{.ranks = ranks, .elastic = elastic};
      model.write_partitions(files_, elastic ? 1 : 2);
      SCOPED_TRACE(std::to_string(ranks) + " ranks");
      expect_all(model);
      const auto saved = open();
      ASSERT_TRUE(saved);
      EXPECT_EQ(saved->stage(), elastic ? 1 : 2);
      EXPECT_EQ(saved->world(), ranks);
      EXPECT_EQ(saved->run_state()["updates"], 10);
    }
  }
}

TEST_F(DeepSpeedCheckpoint, GroupsAndPaddingBetweenParameters) {
  SavedModel model{
      .groups = {{{"a.weight", {3, 5}}, {"c.weight", {2, 2}}}, {{"b.bias", {7}}, {"e.bias", {1}}}},
      .alignment = {{1, 0}, {1, 0}}};
  model.write_partitions(files_);
  expect_all(model);
  const auto saved = open();
  ASSERT_EQ(saved->notes().size(), 1u);
  EXPECT_NE(saved->notes()[0].find("weight_decay of param group 1 is 0, of group 0 0.1"),
            std::string::npos)
      << saved->notes()[0];
}

TEST_F(DeepSpeedCheckpoint, Bf16OptimizersFormKeepsItsPadding) {
  SavedModel model{.padded_masters = true};
  model.write_partitions(files_, 0, "bf16_");
  expect_all(model);
  EXPECT_EQ(open()->stage(), 1);
}

TEST_F(DeepSpeedCheckpoint, ShardsOfStage3AtAnyNumberOfRanks) {
  for (const int ranks : {1, 2, 3, 5, 16}) {
    files_ = MemoryFiles();
    SavedModel model{.groups = {{{"a.weight", {3, 5}}, {"c.weight", {2, 2}}},
                                {{"b.bias", {7}}, {"e.bias", {1}}}},
                     .ranks = ranks,
                     .fused_step = true};
    model.write_shards(files_);
    SCOPED_TRACE(std::to_string(ranks) + " ranks");
    expect_all(model);
    auto saved = open();
    ASSERT_TRUE(saved);
    EXPECT_EQ(saved->stage(), 3);
    std::vector<float> frozen(4);
    ASSERT_TRUE(saved->read("master", "frozen", 0, frozen));
    EXPECT_EQ(frozen, (std::vector<float>{1, 2, 3, 4}));
    EXPECT_EQ(saved->run_state()["updates"], 10);
    EXPECT_FALSE(saved->run_state().contains("loss_scaler")) << "a fixed scale has no state";
    EXPECT_EQ(saved->frozen_count(), 1u);
  }
}

TEST_F(DeepSpeedCheckpoint, Stage0HasOneStatePerParameter) {
  const SavedModel model;
  PtFile file;
  Entries module;
  std::vector<Value> states;
  for (const Tensor& tensor : model.groups[0]) {
    module.emplace_back(tensor.name, file.tensor(tensor.extents, model.values("master", tensor)));
    states.push_back(
        dict({{"step", model.step_of(file)},
              {"exp_avg", file.tensor(tensor.extents, model.values("exp_avg", tensor))},
              {"exp_avg_sq", file.tensor(tensor.extents, model.values("exp_avg_sq", tensor))}}));
  }
  Entries all = {{"module", dict(module)},
                 {"buffer_names", list({})},
                 {"optimizer", dict({{"state", numbered(states)},
                                     {"param_groups", model.param_groups({states.size()})}})},
                 {"param_shapes", none()}};
  for (const auto& entry : model.counters()) all.push_back(entry);
  model.write(files_, "mp_rank_00_model_states.pt", file, dict(all));
  expect_all(model);
  const auto saved = open();
  EXPECT_EQ(saved->stage(), 0);
  EXPECT_EQ(saved->frozen_count(), 0u);
}

/// Stage 0 of fp16 and bf16: 16-bit weights in the module, one fp32 vector per group. Its groups are the matrices and the
/// rest, which the file does not say.
TEST_F(DeepSpeedCheckpoint, Stage0In16BitsHasOneVectorPerGroup) {
  const SavedModel model{
      .groups = {{{"a.weight", {3, 5}}, {"c.weight", {2, 2}}}, {{"b.bias", {7}}, {"e.bias", {1}}}}};
  PtFile file;
  Entries module;
  std::vector<Value> states, masters;
  for (const size_t i : {size_t{0}, size_t{1}})  // as a module has them: mixed
    for (size_t g = 0; g < 2; ++g) {
      const Tensor& tensor = model.groups[g][i];
      module.emplace_back(tensor.name, file.bf16(tensor.extents, model.values("master", tensor)));
    }
  for (const auto& group : model.groups) {
    std::map<std::string, std::vector<float>> flat;
    for (const std::string& state : SavedModel::states())
      for (const Tensor& tensor : group) {
        const auto more = model.values(state, tensor);
        flat[state].insert(flat[state].end(), more.begin(), more.end());
      }
    masters.push_back(file.flat(flat["master"]));
    states.push_back(dict({{"step", number(10)},
                           {"exp_avg", file.flat(flat["exp_avg"])},
                           {"exp_avg_sq", file.flat(flat["exp_avg_sq"])}}));
  }
  Entries all = {
      {"module", dict(module)},
      {"optimizer",
       dict({{"dynamic_loss_scale", boolean(true)},
             {"cur_scale", real(128)},
             {"cur_iter", number(12)},
             {"last_overflow_iter", number(-1)},
             {"optimizer_state_dict",
              dict({{"state", numbered(states)}, {"param_groups", model.param_groups({1, 1})}})},
             {"fp32_groups_flat", list(masters)}})}};
  for (const auto& entry : model.counters()) all.push_back(entry);
  model.write(files_, "mp_rank_00_model_states.pt", file, dict(all));
  expect_all(model);
  const auto saved = open();
  EXPECT_EQ(saved->run_state()["loss_scaler"]["scale"], 128);
  EXPECT_EQ(saved->run_state()["loss_scaler"]["last_overflow"], -1);
}

TEST_F(DeepSpeedCheckpoint, AUniversalCheckpointHasAFolderPerParameter) {
  for (const bool bare : {false, true}) {  // as stages 1 and 2 write it, as stage 3 does
    files_ = MemoryFiles();
    const SavedModel model;
    model.write_model(files_);
    for (const Tensor& tensor : model.groups[0]) {
      for (const auto& [name, state] :
           {std::pair("fp32", "master"), {"exp_avg", "exp_avg"}, {"exp_avg_sq", "exp_avg_sq"}}) {
        PtFile file;
        const auto values = model.values(state, tensor);
        const Value root =
            bare ? file.flat(values)
                 : dict({{"cat_dim", number(0)}, {"param", file.tensor(tensor.extents, values)}});
        model.write(files_, "zero/" + tensor.name + "/" + name + ".pt", file, root);
      }
      PtFile step;
      model.write(files_, "zero/" + tensor.name + "/step.pt", step,
                  bare ? number(10) : step.scalar(10));
    }
    PtFile common;
    model.write(files_, "zero/optimizer_state.pt", common,
                dict({{"loss_scaler", SavedModel::scaler()},
                      {"dynamic_loss_scale", boolean(true)},
                      {"zero_stage", call(global("deepspeed.runtime.zero.config", "ZeroStageEnum"),
                                          {number(bare ? 3 : 2)})}}));
    expect_all(model);
    const auto saved = open();
    EXPECT_TRUE(saved->universal());
    EXPECT_EQ(saved->stage(), bare ? 3 : 2);
    EXPECT_EQ(saved->run_state()["updates"], 10);
  }
}

TEST_F(DeepSpeedCheckpoint, TheRunStateGoesOnWhereDeepSpeedStood) {
  SavedModel model;
  model.write_partitions(files_);
  const auto saved = open();
  ASSERT_TRUE(saved) << saved.error().to_string();
  EXPECT_EQ(saved->step(), 12);
  const auto& state = saved->run_state();
  EXPECT_EQ(state["skipped"], 2) << "the schedule saw 10 updates";
  EXPECT_EQ(state["train_batch_size"], 6);
  EXPECT_EQ(state["world_size"], 3);
  EXPECT_EQ(
      state["loss_scaler"],
      (nlohmann::json{{"scale", 512.0}, {"hysteresis", 2}, {"step", 11}, {"last_overflow", 4}}));
  EXPECT_EQ(saved->aliases().at("tied"), "a.weight");
  EXPECT_TRUE(saved->notes().empty());

  model.scheduler = dict({{"last_epoch", number(11)}});  // torch's schedules
  model.write_partitions(files_);
  EXPECT_EQ(open()->run_state()["skipped"], 1);
  model.scheduler = none();
  model.write_partitions(files_);
  EXPECT_EQ(open()->run_state()["skipped"], 2) << "as the engine counted";
  model.scheduler = dict({{"last_batch_iteration", number(99)}});
  model.write_partitions(files_);
  EXPECT_EQ(open()->notes().size(), 1u);
}

/// fp16: the first scales overflow, and the optimizer makes its states at its first update.
TEST_F(DeepSpeedCheckpoint, WhereEveryStepWasSkippedThereAreNoStatesAndNoUpdates) {
  SavedModel model{
      .skipped = 12, .updates = 0, .scheduler = dict({{"last_batch_iteration", number(-1)}})};
  const auto expect_none = [&](int64_t skipped) {
    expect_all(model, {"master"});
    const auto saved = open();
    ASSERT_TRUE(saved) << saved.error().to_string();
    EXPECT_FALSE(saved->elements("exp_avg", "a.weight"));
    EXPECT_EQ(saved->run_state()["updates"], 0);
    EXPECT_EQ(saved->run_state()["skipped"], skipped);
  };
  model.write_partitions(files_);
  expect_none(12);
  EXPECT_EQ(open()->run_state()["loss_scaler"]["scale"], 512.0);
  model.elastic = true;
  model.write_partitions(files_, 1);
  expect_none(12);
  model.elastic = false;
  model.scheduler = dict({{"last_epoch", number(12)}});  // one that does not wait for the optimizer
  model.write_partitions(files_);
  expect_none(0);

  files_ = MemoryFiles();
  model.groups = {{{"a.weight", {3, 5}}, {"c.weight", {2, 2}}}, {{"b.bias", {7}}, {"e.bias", {1}}}};
  model.write_shards(files_);
  expect_none(0);
}

TEST_F(DeepSpeedCheckpoint, OnlyTheAskedElementsAreRead) {
  SavedModel model{.groups = {{{"big", {100, 100}}}}};
  model.write_partitions(files_);
  CountingFiles counting(files_);
  auto saved = Checkpoint::open(counting, "/ds/global_step12");
  ASSERT_TRUE(saved);
  std::vector<float> out(5);
  ASSERT_TRUE(saved->read("exp_avg", "big", 9000, out)) << "the same file's: what it holds is read";
  counting.reset();
  ASSERT_TRUE(saved->read("exp_avg", "big", 7000, out));
  EXPECT_EQ(counting.total().bytes_read, 20);
}

TEST_F(DeepSpeedCheckpoint, AFileIsOpenedOnceAndWhenItIsReadFirst) {
  for (const bool shards : {false, true}) {
    files_ = MemoryFiles();
    SavedModel model{.groups = {{{"big", {100, 100}}, {"bias", {10}}}}, .ranks = 10};
    shards ? model.write_shards(files_) : model.write_partitions(files_);
    CountingFiles counting(files_);
    auto saved = Checkpoint::open(counting, "/ds/global_step12");
    ASSERT_TRUE(saved) << saved.error().to_string();
    EXPECT_EQ(counting.of(optim_path(0)).opens, 1);
    for (int rank = 1; rank < 10; ++rank) EXPECT_EQ(counting.of(optim_path(rank)).opens, 0);
    std::vector<float> out(5);
    for (const int64_t offset : {7100, 3100, 7500})
      for (const std::string& state : SavedModel::states()) {
        ASSERT_TRUE(saved->read(state, "big", offset, out));
        EXPECT_EQ(out[0], element(state, 0, offset));
      }
    for (int rank = 1; rank < 10; ++rank)
      EXPECT_EQ(counting.of(optim_path(rank)).opens, rank == 3 || rank == 7) << rank;
    ASSERT_TRUE(saved->check_parts());
    for (int rank = 1; rank < 10; ++rank) EXPECT_EQ(counting.of(optim_path(rank)).opens, 1);
  }
}

TEST_F(DeepSpeedCheckpoint, AFileOfAnotherFormIsNamedWhereItIsRead) {
  const SavedModel model{.groups = {{{"a", {30}}}, {{"b", {60}}}}};
  std::vector<float> out(30);
  const auto fails = [&](const std::string& reason) {
    auto saved = open();
    ASSERT_TRUE(saved) << saved.error().to_string();
    EXPECT_TRUE(saved->read("exp_avg", "b", 0, std::span(out).first(1)))
        << "rank 0's file is as it was";
    const Status read = saved->read("exp_avg", "b", 15, out);
    ASSERT_FALSE(read) << reason;
    EXPECT_EQ(read.error().where, optim_path(1));
    EXPECT_NE(read.error().message.find(reason), std::string::npos) << read.error().to_string();
    EXPECT_NE(read.error().message.find("(read for exp_avg of b)"), std::string::npos);
    const Status parts = saved->check_parts();
    ASSERT_FALSE(parts);
    EXPECT_EQ(parts.error().where, optim_path(1));
  };
  const auto swap_for = [&](const SavedModel& other, bool shards) {
    MemoryFiles others;
    shards ? other.write_shards(others) : other.write_partitions(others);
    ASSERT_TRUE(files_.write_synced(optim_path(1), *others.read_all(optim_path(1))));
  };
  SavedModel longer = model, shorter = model, one = model;
  longer.groups[1][0].extents = {90};
  shorter.groups[1][0].extents = {30};
  one.groups.pop_back();

  model.write_partitions(files_);
  swap_for(longer, false);
  fails("exp_avg has more elements than on rank 0");
  swap_for(shorter, false);
  fails("exp_avg of b: 10 of 20 elements are there");
  swap_for(one, false);
  fails("the optimizer has 1 groups, that of rank 0 2");
  ASSERT_TRUE(files_.write_synced(optim_path(1), "PK"));
  fails("");

  files_ = MemoryFiles();
  model.write_shards(files_);
  swap_for(longer, true);
  fails("the file has 40 elements of each state, that of rank 0 30");
}

TEST_F(DeepSpeedCheckpoint, AForeignClassIsRefusedByName) {
  SavedModel model{.client = {{"args", object("argparse", "Namespace", {{"lr", real(1)}})}}};
  model.write_partitions(files_);
  EXPECT_NE(refusal().find("the name \"argparse.Namespace\" is not part of a DeepSpeed checkpoint"),
            std::string::npos);
  model.client = {{"boom", call(global("os", "system"), {text("true")})}};
  model.write_partitions(files_);
  EXPECT_NE(refusal().find("\"os.system\""), std::string::npos);
}

TEST_F(DeepSpeedCheckpoint, WhatTheCallerAddedIsNotInTheWay) {
  SavedModel model{.client = {{"note", text("x")},
                              {"epoch", number(1)},
                              {"list", list({real(1), none()})},
                              {"names", call(global("__builtin__", "set"), {list({text("a")})})}}};
  model.write_partitions(files_);
  expect_all(model);
}

TEST_F(DeepSpeedCheckpoint, DamageIsNamed) {
  const SavedModel model;
  model.write_partitions(files_);
  ASSERT_TRUE(files_.remove("/ds/global_step12/zero_pp_rank_1_mp_rank_00_optim_states.pt"));
  EXPECT_NE(refusal().find("the optimizer states of rank 1 are missing"), std::string::npos)
      << refusal();
  ASSERT_TRUE(files_.remove("/ds/global_step12/zero_pp_rank_2_mp_rank_00_optim_states.pt"));
  EXPECT_NE(refusal().find("of 1 ranks, 3 ranks wrote it"), std::string::npos) << refusal();

  model.write_partitions(files_);
  SavedModel other = model;
  other.groups[0][0].extents = {4, 5};
  other.write_model(files_);
  const auto lacking = open()->check_parts();
  ASSERT_FALSE(lacking);
  EXPECT_EQ(lacking.error().kind, ErrorKind::Environment);
  EXPECT_EQ(lacking.error().where, optim_path(2));
  EXPECT_EQ(lacking.error().message, "master of c.weight: 4 of 8 elements are there");

  model.write_partitions(files_);
  auto saved = open();
  ASSERT_TRUE(saved->verify());
  const std::string path = optim_path(1);
  auto bytes = files_.read_all(path);
  const float value = model.values("exp_avg", model.groups[0][0])[14];
  const size_t at = bytes->find(std::string(reinterpret_cast<const char*>(&value), sizeof(value)));
  ASSERT_NE(at, std::string::npos);
  (*bytes)[at] ^= 1;
  ASSERT_TRUE(files_.write_synced(path, *bytes));
  const auto damage = open()->verify();
  ASSERT_FALSE(damage);
  EXPECT_EQ(damage.error().kind, ErrorKind::Environment);
  EXPECT_EQ(damage.error().where, path);
}

TEST_F(DeepSpeedCheckpoint, EveryCutFileIsRefused) {
  const SavedModel model{.ranks = 1};
  model.write_partitions(files_);
  for (const char* name :
       {"mp_rank_00_model_states.pt", "zero_pp_rank_0_mp_rank_00_optim_states.pt"}) {
    const std::string path = "/ds/global_step12/" + std::string(name);
    const auto whole = files_.read_all(path);
    for (size_t length = 0; length < whole->size(); length += 97) {
      ASSERT_TRUE(files_.write_synced(path, whole->substr(0, length)));
      EXPECT_FALSE(open()) << length;
    }
    ASSERT_TRUE(files_.write_synced(path, *whole));
  }
  EXPECT_TRUE(open());
}

TEST_F(DeepSpeedCheckpoint, ARangeOutsideATensorIsRefused) {
  SavedModel().write_partitions(files_);
  auto saved = open();
  std::vector<float> out(4);
  EXPECT_EQ(saved->read("master", "b.bias", 4, out).error().kind, ErrorKind::BadInput);
  EXPECT_EQ(saved->read("momentum", "b.bias", 0, out).error().kind, ErrorKind::BadInput);
  EXPECT_FALSE(saved->elements("momentum", "b.bias"));
}

}  // namespace
}  // namespace dsj::deepspeed
