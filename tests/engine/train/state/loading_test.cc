// Where attempts begin when the user said where the run begins, and what is told of damage. More of damage:
// tests/run/damaged_run_test.cc.
#include "engine/train/state/loading.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "engine/data/files/data_record.h"
#include "engine/train/state/saving.h"
#include "tests/engine/train/support.h"

namespace dsj::train {
namespace {

class LoadingTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    output_ = testing::TempDir() + "loading_" + info->name() + "_" + std::to_string(getpid());
    std::filesystem::remove_all(output_);
  }
  void TearDown() override {
    std::filesystem::remove_all(output_);
    std::filesystem::remove(said_path());
  }

  /// The step that an attempt begins with; `from`: resume_from_checkpoint. Then it takes `steps`
  /// steps and saves the last. -1: it fails.
  int64_t attempt(int64_t number, const std::string& run, const std::optional<std::string>& from,
                  int steps) {
    const SmallRun& small = run_;
    int64_t began = -1;
    const int said = open(said_path().c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_APPEND, 0600);
    testing_support::run_ranks(small.world, [&](comm::Collectives& collectives, memory::Ledger&) {
      Inputs in;
      in.job = {.run = run, .attempt = number, .output_dir = output_};
      in.job.training.model_name_or_path = fixture(small.model);
      in.job.training.resume_from_checkpoint = from;
      in.model = fixture_model(small.model);
      in.job.training.lora = small.lora;
      if (small.lora) in.lora = in.trained = resolved_lora(small);
      in.resolution.config = small.config;
      if (collectives.rank() == 0) in.data_record = data_;
      in.job.training.ignore_data_skip = ignore_data_skip_;
      Rank rank(small, collectives);
      PosixFiles files;
      const Events events(said);
      auto search = AgreedSearch::begin(files, in.job, collectives, at::kCPU);
      if (!search) return;
      auto progress = Loading(files, in, rank.state, rank.stepper, events, at::kCPU).load(*search);
      if (!progress) return;
      if (collectives.rank() == 0) began = progress->step;
      if (on_weights_) rank.state.visit_weights(on_weights_, true);
      if (collectives.rank() == small.world - 1) dealt_from_ = progress->dealt_from;
      if (steps == 0) return;
      for (int i = 0; i < steps; ++i) rank.step(progress->step++);
      const auto saved =
          Saver(files, in, rank.state, rank.stepper, events, at::kCPU).save(*progress, true);
      ASSERT_TRUE(saved) << saved.error().to_string();
    });
    close(said);
    return began;
  }
  /// What the last attempt told its agent.
  std::string said() const {
    std::ifstream in(said_path());
    return {std::istreambuf_iterator<char>(in), {}};
  }
  std::vector<report::Damage> told_damage() const {
    std::vector<report::Damage> told;
    std::istringstream lines(said());
    for (std::string line; std::getline(lines, line);) {
      const auto read = report::event_from_line(line);
      if (const auto* damage = read ? std::get_if<report::Damage>(&read->event) : nullptr) {
        told.push_back(*damage);
      }
    }
    return told;
  }
  std::string checkpoint(int64_t step) const {
    return output_ + "/checkpoints/" + checkpoint::step_name(step);
  }
  void damage_manifest(int64_t step) const {
    PosixFiles files;
    ASSERT_TRUE(files.write_synced(checkpoint(step) + "/manifest.json", "{"));
  }

  SmallRun run_{.world = 2, .config = small_config(2)};
  nlohmann::json data_;  ///< what rank 0 records
  bool ignore_data_skip_ = false;
  /// Told of every trained parameter after the load; of rank 0.
  std::function<void(const layout::Slot&, const at::Tensor&)> on_weights_;
  int64_t dealt_from_ = -1;  ///< of the last rank

 private:
  std::string said_path() const { return output_ + ".said"; }
  std::string output_;
};

TEST_F(LoadingTest, ANamedCheckpointIsWhereTheFirstAttemptBegins) {
  ASSERT_EQ(attempt(1, "first", {}, 2), 0);
  ASSERT_EQ(attempt(2, "first", {}, 3), 2);
  const std::string named = checkpoint(2);
  EXPECT_EQ(attempt(3, "second", named, 1), 2) << "step 5 is another run's";
  EXPECT_EQ(attempt(4, "second", named, 1), 3) << "it goes on from what it saved itself";
  EXPECT_EQ(attempt(5, "second", named, 0), 4);
  EXPECT_EQ(attempt(5, "third", named, 0), 2) << "the user asks for it again";
  EXPECT_EQ(attempt(5, "second", checkpoint(3), 0), 3) << "the user names another one";
  EXPECT_EQ(attempt(5, "third", {}, 0), 4) << "the newest, whoever saved it";
}

/// What is not a checkpoint's is the adapter's; later attempts go on from what the run saved.
TEST_F(LoadingTest, TheAdapterThatTheJobNamesIsWhereTheRunBegins) {
  const std::string directory = fixture("lora/dora/final");
  PosixFiles files;
  const auto config = weights::read_adapter_config(files, directory);
  const auto saved =
      weights::WeightSource::open_file(files, directory + "/" + weights::kAdapterWeightsFile);
  ASSERT_TRUE(config && saved);
  for (int stage = 0; stage <= 3; ++stage) {
    SCOPED_TRACE("stage " + std::to_string(stage));
    SetUp();
    run_.config = small_config(stage);
    run_.lora = config->lora;
    run_.lora->adapter = directory;
    int64_t same = 0, other = 0;
    on_weights_ = [&](const layout::Slot& slot, const at::Tensor& value) {
      at::Tensor want = at::empty({slot.numel});
      ASSERT_TRUE(saved->read(weights::kAdapterPrefix + slot.name, 0,
                              {want.data_ptr<float>(), static_cast<size_t>(slot.numel)}));
      ++(value.reshape({-1}).equal(want) ? same : other);
    };
    ASSERT_EQ(attempt(1, "run", {}, 2), 0);
    EXPECT_EQ(same, static_cast<int64_t>(saved->tensors().size()));
    EXPECT_EQ(std::exchange(other, 0), 0);
    EXPECT_EQ(attempt(2, "run", {}, 0), 2);
    EXPECT_GT(other, 0) << "trained";
  }
}

TEST_F(LoadingTest, AnewIsWhatTheFirstAttemptBegins) {
  ASSERT_EQ(attempt(1, "first", "true", 3), 0);
  EXPECT_EQ(attempt(2, "second", "false", 1), 0);
  EXPECT_EQ(attempt(3, "second", "false", 1), 1);
  EXPECT_EQ(attempt(4, "second", "false", 0), 2);
  EXPECT_EQ(attempt(4, "third", "false", 0), 0);
}

/// An older agent gives no run: nothing tells whose a checkpoint is.
TEST_F(LoadingTest, WithoutARunEveryAttemptBeginsWhereTheUserSaid) {
  ASSERT_EQ(attempt(1, "", "false", 2), 0);
  EXPECT_EQ(attempt(2, "", "false", 0), 0);
}

/// transformers trains such a layer by itself; ours would ignore it.
TEST_F(LoadingTest, ATiedModelWithAnotherOutputLayerIsRefusedByEveryRank) {
  testing_support::run_ranks(2, [&](comm::Collectives& collectives, memory::Ledger&) {
    Inputs in;
    in.job = {.run = "a", .attempt = 1, .output_dir = testing::TempDir() + "no_run_of_its_own"};
    in.job.training.model_name_or_path = fixture(run_.model);
    in.model = fixture_model(run_.model);
    in.model.tied = true;
    Rank rank(run_, collectives);
    PosixFiles files;
    const Events events(-1);
    auto search = AgreedSearch::begin(files, in.job, collectives, at::kCPU);
    ASSERT_TRUE(search);
    const auto loaded =
        Loading(files, in, rank.state, rank.stepper, events, at::kCPU).load(*search);
    ASSERT_FALSE(loaded);
    EXPECT_NE(loaded.error().to_string().find("set tie_word_embeddings to false"),
              std::string::npos)
        << loaded.error().to_string();
  });
}

TEST_F(LoadingTest, ADamagedOneOfTheRunsOwnIsPassedOver) {
  ASSERT_EQ(attempt(1, "run", "false", 1), 0);
  ASSERT_EQ(attempt(2, "run", "false", 1), 1);
  EXPECT_THAT(told_damage(), testing::IsEmpty());
  damage_manifest(2);
  EXPECT_EQ(attempt(3, "run", "false", 0), 1);
  ASSERT_EQ(told_damage().size(), 1u);
  EXPECT_EQ(told_damage()[0].step, 2);
  EXPECT_EQ(told_damage()[0].message,
            "the run continues from step 1; checkpoint step-2 is passed over and set aside as "
            "damaged-step-2: manifest.json: no sealed JSON object");
  EXPECT_EQ(attempt(3, "run", "false", 0), 1);
  EXPECT_THAT(told_damage(), testing::IsEmpty()) << "once";
  damage_manifest(1);
  EXPECT_EQ(attempt(4, "run", "false", 0), 0) << "nothing of it can be read";
}

TEST_F(LoadingTest, AllThatAreDamagedAreToldTogether) {
  ASSERT_EQ(attempt(1, "run", {}, 1), 0);
  ASSERT_EQ(attempt(2, "run", {}, 1), 1);
  ASSERT_EQ(attempt(3, "run", {}, 1), 2);
  std::filesystem::remove(checkpoint(3) + "/rank-00001.bin");
  damage_manifest(2);
  EXPECT_EQ(attempt(4, "run", {}, 0), 1);
  ASSERT_EQ(told_damage().size(), 1u);
  EXPECT_EQ(told_damage()[0].step, 3);
  EXPECT_THAT(
      told_damage()[0].message,
      testing::MatchesRegex(
          "the run continues from step 1; checkpoint step-3 is passed over and set aside as "
          "damaged-step-3: rank-00001.bin: .*No such file.* .read for [a-z_]+ of [^ ]+.; "
          "checkpoint step-2 is passed over and set aside as damaged-step-2: "
          "manifest.json: no sealed JSON object"));
}

/// At another world size the errors of a 1-bit optimizer's compression start at zero, with a warning.
TEST_F(LoadingTest, CompressionErrorsThatAreDroppedAreTold) {
  const char* const warning = "compression errors belong to other ranks or vectors";
  run_.config = small_config(0);
  run_.config.optimizer.kind = dsconfig::OptimizerKind::OneBitAdam;
  run_.config.optimizer.freeze_step = 2;
  ASSERT_EQ(attempt(1, "run", {}, 5), 0);
  EXPECT_EQ(attempt(2, "run", {}, 1), 5);
  EXPECT_THAT(said(), testing::Not(testing::HasSubstr(warning)));
  run_.world = 3;
  EXPECT_EQ(attempt(3, "run", {}, 0), 6);
  EXPECT_THAT(said(), testing::HasSubstr(warning));
}

TEST_F(LoadingTest, OtherDataAreRefusedUnlessAskedFor) {
  const auto data = [](const char* content, int64_t rows, int64_t split, int64_t length) {
    return to_json(data::DataRecord{
        .train = content, .rows = rows, .split_rows = split, .max_seq_length = length});
  };
  data_ = data("monday", 8, 0, 64);
  ASSERT_EQ(attempt(1, "run", {}, 2), 0);
  EXPECT_EQ(dealt_from_, 0);
  EXPECT_EQ(attempt(2, "run", {}, 0), 2) << "the same data";
  data_ = data("monday", 8, 0, 32);
  EXPECT_EQ(attempt(2, "run", {}, 0), 2) << "the rows keep their order";
  EXPECT_THAT(said(), testing::HasSubstr("rows are cut at another length (64 then, 32 now)"));
  EXPECT_EQ(dealt_from_, 0);
  data_ = data("monday", 8, 2, 64);
  EXPECT_EQ(attempt(2, "run", {}, 0), -1) << "trained rows may be evaluated on";
  data_ = data("tuesday", 9, 0, 64);
  EXPECT_EQ(attempt(2, "run", {}, 0), -1);
  EXPECT_EQ(attempt(2, "run", checkpoint(2), 0), -1) << "named, too";

  ignore_data_skip_ = true;
  EXPECT_EQ(attempt(2, "run", {}, 0), 2);
  EXPECT_EQ(dealt_from_, 2) << "every rank begins the new order there";
  EXPECT_THAT(said(), testing::HasSubstr("(8 then, 9 now rows)"));
  EXPECT_EQ(attempt(3, "run", {}, 3), 2);
  EXPECT_EQ(attempt(4, "run", {}, 0), 5);
  EXPECT_EQ(dealt_from_, 2) << "a later attempt goes on in that order";
  ignore_data_skip_ = false;
  EXPECT_EQ(attempt(4, "run", {}, 0), 5) << "the checkpoint is of these data now";
  EXPECT_EQ(dealt_from_, 2);
  data_ = nullptr;
  EXPECT_EQ(attempt(4, "run", {}, 0), 5) << "nothing is known";
}

}  // namespace
}  // namespace dsj::train
