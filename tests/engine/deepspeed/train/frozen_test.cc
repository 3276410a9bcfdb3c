// Runs that go on from a checkpoint of DeepSpeed 0.19.8 in which the embedding and an MLP were frozen
// (tests/fixtures/ds-frozen, made by `scripts/oracle.sh frozen`): the next losses are DeepSpeed's, what was frozen stays
// frozen over attempts and in what is exported, and what cannot be gone on with is refused.
#include "engine/train/state/frozen.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>

#include "common/files/counting_files.h"
#include "common/files/posix_files.h"
#include "engine/checkpoint/reader.h"
#include "engine/deepspeed/convert.h"
#include "engine/optim/lr_schedule.h"
#include "engine/train/state/loading.h"
#include "engine/train/state/saving.h"
#include "job/dsconfig/resolve.h"
#include "test_paths.h"
#include "tests/engine/support/bare_deepspeed.h"
#include "tests/engine/support/golden_runs.h"
#include "tests/engine/support/micro_batch.h"
#include "tests/engine/support/ranks.h"

namespace dsj::train {
namespace {

using nlohmann::json;

const std::filesystem::path kFixture =
    std::filesystem::path(DSJ_SOURCE_DIR) / "tests/fixtures/ds-frozen";

class Frozen : public testing::Test {
 protected:
  Frozen() : output_(testing::TempDir() + "frozen_" + std::to_string(getpid())) {
    std::filesystem::remove_all(output_);
  }
  ~Frozen() override { std::filesystem::remove_all(output_); }

  /// The fixture's run at another number of ranks and stage.
  Inputs inputs(int world, int stage, const std::optional<std::string>& from) const {
    Inputs in;
    in.job = {.run = "run", .attempt = 1, .output_dir = output_};
    in.job.training.model_name_or_path = kFixture / "model";
    in.job.training.resume_from_checkpoint = from;
    const auto model = layout::read_model_config(kFixture / "model");
    EXPECT_TRUE(model) << model.error().to_string();
    in.model = *model;
    json ds_config = record_["ds_config"]["2"];
    ds_config["zero_optimization"] = {{"stage", stage}};
    ds_config["gradient_accumulation_steps"] = 2 / world;
    in.resolution = dsconfig::resolve(ds_config, testing_support::bare_deepspeed(ds_config, 6),
                                      {.world_size = world});
    EXPECT_TRUE(in.resolution.runnable());
    return in;
  }
  models::MicroBatch batch(int64_t index) const {
    std::vector<int64_t> ids, labels;
    const json& rows = record_["rows"];
    for (int64_t row = 2 * index; row < 2 * index + 2; ++row) {
      const json& sample = rows[static_cast<size_t>(row) % rows.size()];
      for (const auto& id : sample["input_ids"]) ids.push_back(id);
      for (const auto& label : sample["labels"]) labels.push_back(label);
    }
    return testing_support::rectangle(at::tensor(ids).view({2, -1}),
                                      at::tensor(labels).view({2, -1}));
  }

  struct Done {
    std::vector<double> losses;
    std::string error;
  };
  /// An attempt: loads, steps until `until`, saves; at step 6 it exports.
  Done attempt(int world, int stage, const std::optional<std::string>& from, int64_t until) const {
    Done done;
    testing_support::run_ranks(world, [&](comm::Collectives& collectives, memory::Ledger&) {
      const Inputs in = inputs(world, stage, from);
      const Status went = go_on(in, collectives, until, collectives.rank() == 0 ? &done : nullptr);
      if (!went && collectives.rank() == 0) done.error = went.error().to_string();
    });
    return done;
  }
  Status go_on(const Inputs& in, comm::Collectives& collectives, int64_t until, Done* done) const {
    PosixFiles files;
    return go_on(files, in, collectives, until, done);
  }
  Status go_on(Files& files, const Inputs& in, comm::Collectives& collectives, int64_t until,
               Done* done) const {
    DSJ_TRY(auto search, AgreedSearch::begin(files, in.job, collectives, at::kCPU));
    DSJ_TRY(const auto frozen,
            frozen_in_checkpoint(files, search, in.job, in.config(), collectives, at::kCPU));
    DSJ_TRY(const auto trained, trained_part(in, frozen));
    zero::ModelState state(in.model, in.config(), at::kCPU, collectives, trained);
    Stepper stepper(in.model, in.config(), {.normalization = testing_support::kBareNormalization},
                    state, at::kCPU);
    const Events events(-1);
    DSJ_TRY(Progress progress, Loading(files, in, state, stepper, events, at::kCPU).load(search));
    const int64_t micro_steps = in.config().gradient_accumulation_steps;
    while (progress.step < until) {
      std::vector<models::MicroBatch> batches;
      for (int64_t i = 0; i < micro_steps; ++i)
        batches.push_back(batch(2 * progress.step + i * collectives.world() + collectives.rank()));
      const double lr =
          optim::learning_rate(in.config().scheduler, in.config().optimizer.lr, progress.step);
      const auto result = stepper.run({.micro_batches = batches,
                                       .step = progress.step++,
                                       .rates = {.lr = lr, .previous_lr = lr},
                                       .tokens = 1});
      if (done) done->losses.push_back(result.loss);
    }
    Saver saver(files, in, state, stepper, events, at::kCPU);
    DSJ_TRY_STATUS(saver.save(progress, true));
    return until == 6 ? saver.export_model({}) : Status{};
  }
  /// The largest relative distance from DeepSpeed's losses of step `first` and those that follow.
  double distance(const Done& done, int saved_stage, int64_t first = 3) const {
    const json& theirs = record_["losses"][std::to_string(saved_stage)];
    EXPECT_TRUE(done.error.empty()) << done.error;
    EXPECT_EQ(done.losses.size(), static_cast<size_t>(6 - first));
    double most = done.losses.empty() ? 1 : 0;
    for (size_t i = 0; i < done.losses.size(); ++i)
      most = std::max(
          most,
          std::abs(done.losses[i] / theirs[static_cast<size_t>(first) + i].get<double>() - 1));
    return most;
  }
  std::vector<float> values(const std::string& directory, const std::string& name) const {
    PosixFiles files;
    const auto source = weights::WeightSource::open(files, directory);
    EXPECT_TRUE(source) << source.error().to_string();
    const auto* found = source->find(name);
    EXPECT_NE(found, nullptr) << name;
    std::vector<float> read(found ? static_cast<size_t>(found->elements) : 0);
    EXPECT_TRUE(found == nullptr || source->read(name, 0, read));
    return read;
  }

  const json record_ = testing_support::read_golden(kFixture / "record.json");
  const std::string output_;
};

TEST_F(Frozen, TheNextLossesAreDeepSpeeds) {
  for (const auto& [saved, world, stage] : {std::tuple{2, 2, 2}, {2, 1, 3}, {3, 2, 3}, {3, 2, 0}}) {
    std::filesystem::remove_all(output_);
    const auto done = attempt(world, stage, kFixture / ("z" + std::to_string(saved)), 6);
    const double far = distance(done, saved);
    std::printf("result: frozen, saved at stage %d, %d ranks at stage %d: %.1e\n", saved, world,
                stage, far);
    EXPECT_LE(far, 1e-5);
  }
}

TEST_F(Frozen, TheyStayFrozenOverAttemptsAndAreExported) {
  const std::string from = kFixture / "z3";
  ASSERT_EQ(attempt(2, 2, from, 4).error, "");
  PosixFiles files;
  auto saved = checkpoint::Reader::open(files, output_ + "/checkpoints/step-4");
  ASSERT_TRUE(saved);
  const auto weights = deepspeed::export_fp32(
      files, *saved, {{"model.embed_tokens.weight", {64, 16}, 1024}}, output_ + "/weights");
  ASSERT_FALSE(weights);
  EXPECT_NE(weights.error().message.find("was frozen"), std::string::npos) << "model/ has it";
  EXPECT_LE(distance(attempt(1, 3, from, 6), 3, 4), 1e-5) << "from what the run saved itself";
  const std::string base = kFixture / "model", made = output_ + "/model";
  for (const char* name : {"model.embed_tokens.weight", "model.layers.0.mlp.up_proj.weight"})
    EXPECT_EQ(values(made, name), values(base, name)) << name;
  EXPECT_NE(values(made, "model.layers.1.mlp.up_proj.weight"),
            values(base, "model.layers.1.mlp.up_proj.weight"));
}

TEST_F(Frozen, AnImportedCheckpointKeepsThem) {
  PosixFiles files;
  auto theirs = deepspeed::Checkpoint::open(files, kFixture / "z2");
  ASSERT_TRUE(theirs) << theirs.error().to_string();
  const auto imported = deepspeed::import_checkpoint(files, *theirs, output_ + "/checkpoints");
  ASSERT_TRUE(imported) << imported.error().to_string();
  EXPECT_LE(distance(attempt(2, 2, {}, 6), 2), 1e-5);
}

TEST_F(Frozen, AModelWithOtherValuesIsRefused) {
  const std::string own = output_ + "-model";
  for (const std::string name : {"lm_head.weight", "model.embed_tokens.weight"}) {
    const bool frozen = name != "lm_head.weight";
    std::filesystem::remove_all(own);
    std::filesystem::copy(kFixture / "model", own);
    PosixFiles files;
    const auto source = weights::WeightSource::open(files, own);
    auto text = files.read_all(own + "/model.safetensors");
    ASSERT_TRUE(source && text);
    (*text)[static_cast<size_t>(source->find(name)->begin)] ^= 1;
    ASSERT_TRUE(files.write_synced(own + "/model.safetensors", *text));
    Inputs in = inputs(1, 0, kFixture / "z3");
    in.job.training.model_name_or_path = own;
    testing_support::run_ranks(1, [&](comm::Collectives& collectives, memory::Ledger&) {
      const Status went = go_on(in, collectives, 4, nullptr);
      EXPECT_EQ(went.has_value(), !frozen) << "what was trained may differ";
      if (went) return;
      EXPECT_NE(went.error().message.find("was frozen, and its values are not those of " + own),
                std::string::npos)
          << went.error().to_string();
    });
    std::filesystem::remove_all(output_);
  }
  std::filesystem::remove_all(own);
}

TEST_F(Frozen, ARankThatSeesAnotherCheckpointIsNamedByAll) {
  const std::string saved = "/checkpoints/step-4", trained = output_ + "-trained";
  std::filesystem::remove_all(trained);
  ASSERT_EQ(attempt(1, 0, {}, 4).error, "");
  std::filesystem::rename(output_, trained);
  ASSERT_EQ(attempt(1, 0, kFixture / "z3", 4).error, "");
  struct Case {
    std::optional<std::string> from[2];  ///< each rank's; unset: the newest of its output directory
    std::string reason;
  };
  const std::string others = "0 parameters were frozen in the checkpoint, 4 in that of rank 0";
  for (const Case& one : {Case{{output_ + saved, trained + saved}, "on rank 1: " + others},
                          Case{{output_ + saved, output_ + "/none"}, "on rank 1: "},
                          Case{{}, "on rank 1: " + others}}) {
    testing_support::run_ranks(2, [&](comm::Collectives& collectives, memory::Ledger&) {
      const auto rank = static_cast<size_t>(collectives.rank());
      Inputs in = inputs(2, 2, one.from[rank]);
      in.job.output_dir = one.from[rank] ? output_ + "-new" : rank == 1 ? trained : output_;
      const Status went = go_on(in, collectives, 5, nullptr);
      ASSERT_FALSE(went) << one.reason;
      EXPECT_NE(went.error().message.find(one.reason), std::string::npos)
          << "rank " << rank << ": " << went.error().to_string();
    });
  }
  std::filesystem::remove_all(trained);
}

/// Each model file of stage 3 has a share of every frozen parameter.
TEST_F(Frozen, ARankOpensTheModelFileOfItsShareAndOneRankListsThem) {
  for (const int world : {1, 2}) {
    std::filesystem::remove_all(output_);
    testing_support::run_ranks(world, [&](comm::Collectives& collectives, memory::Ledger&) {
      PosixFiles posix;
      CountingFiles files(posix);
      const Status went = go_on(files, inputs(world, 3, kFixture / "z3"), collectives, 3, nullptr);
      ASSERT_TRUE(went) << went.error().to_string();
      const std::string tag = kFixture / "z3" / "global_step3";
      const auto opens = [&](int rank) {
        const std::string name = "zero_pp_rank_" + std::to_string(rank);
        return files.of(tag + "/" + name + "_mp_rank_00_model_states.pt").opens;
      };
      EXPECT_GT(opens(0), 0) << "it tells the form of all";
      if (world == 2) {
        EXPECT_EQ(opens(1) > 0, collectives.rank() == 1) << "rank " << collectives.rank();
      }
      for (const std::string& listed : {std::string(kFixture / "z3"), tag})
        EXPECT_EQ(files.of(listed).lists > 0, collectives.rank() == 0)
            << "rank " << collectives.rank() << ", " << listed;
    });
  }
}

/// A rank opens another's file when it reads of it: only then it is found to be cut off, and by some ranks.
TEST_F(Frozen, ADamagedPartStopsAllRanksAndIsNamed) {
  const std::string own = output_ + "-saved";
  for (const char* saved : {"z2", "z3"}) {
    std::filesystem::remove_all(own);
    std::filesystem::copy(kFixture / saved, own, std::filesystem::copy_options::recursive);
    std::string part;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(own))
      if (entry.path().string().ends_with("pp_rank_1_mp_rank_00_optim_states.pt"))
        part = entry.path();
    ASSERT_FALSE(part.empty()) << saved;
    std::filesystem::resize_file(part, std::filesystem::file_size(part) - 100);
    std::vector<Error> errors(2);
    testing_support::run_ranks(2, [&](comm::Collectives& collectives, memory::Ledger&) {
      const Status went = go_on(inputs(2, 2, own), collectives, 4, nullptr);
      ASSERT_FALSE(went) << saved;
      errors[static_cast<size_t>(collectives.rank())] = went.error();
    });
    int named = 0;
    for (const Error& error : errors) {
      const bool heard = error.message == "another rank failed";
      EXPECT_TRUE(heard ||
                  (error.where == part && error.message.find("(read for ") != std::string::npos))
          << error.to_string();
      named += !heard;
    }
    EXPECT_GE(named, 1) << saved;
  }
  std::filesystem::remove_all(own);
}

TEST_F(Frozen, WhatIsNoWholeModuleIsRefused) {
  const Inputs in = inputs(1, 0, {});
  const auto refusal = [&](const std::vector<std::string>& names) {
    const auto part = trained_part(in, names);
    return part ? "" : part.error().message;
  };
  EXPECT_EQ(refusal({"model.norm.weight"}), "");
  EXPECT_NE(
      refusal({"model.layers.0.self_attn.q_proj.bias"}).find("\"model.layers.0.self_attn.q_proj\""),
      std::string::npos);
  EXPECT_NE(refusal({"model.norm.weight", "other.weight"}).find("\"other.weight\" is frozen"),
            std::string::npos);
  std::vector<std::string> all;
  for (const auto& unit : layout::units_of(in.model))
    for (const auto& parameter : unit.parameters) all.push_back(parameter.name);
  EXPECT_NE(refusal(all).find("every parameter is frozen"), std::string::npos);
}

}  // namespace
}  // namespace dsj::train
