#include "engine/checkpoint/background_save.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <future>

#include "common/files/faulty_files.h"
#include "common/files/memory_files.h"
#include "tests/engine/checkpoint/support.h"

namespace dsj::checkpoint {
namespace {

SaveVotes operator+(const SaveVotes& a, const SaveVotes& b) {
  return {a.written + b.written, a.failed + b.failed, a.published + b.published};
}

/// Two ranks that save behind steps which the test takes.
struct TwoRanks {
  const ModelWorld model = ModelWorld::make(100'000);
  std::vector<std::vector<float>> buffers;
  std::vector<std::unique_ptr<BackgroundSave>> ranks;

  explicit TwoRanks(Files& files) : TwoRanks(files, files) {}
  TwoRanks(Files& first, Files& second) {
    for (Files* files : {&first, &second}) {
      buffers.emplace_back(model.share(options(0, 1)).elements() + 100);
      ranks.push_back(std::make_unique<BackgroundSave>(*files, buffers.back()));
    }
  }
  static WriteOptions options(int rank, int64_t step) {
    return {.checkpoints_dir = kDir, .step = step, .rank = rank, .world = 2};
  }
  void begin(int64_t step) {
    for (int rank = 0; rank < 2; ++rank) {
      const auto share = model.share(options(rank, step));  // gone after the copy
      ranks[size_t(rank)]->begin(options(rank, step), model.publication(step),
                                 [&](const EmitPiece& emit) { return share.produce(emit); });
    }
  }
  /// What each rank concludes after a step.
  std::vector<BackgroundSave::Saved> step() {
    const SaveVotes all = ranks[0]->votes() + ranks[1]->votes();
    std::vector<BackgroundSave::Saved> results;
    for (auto& rank : ranks) results.push_back(rank->advance(all));
    return results;
  }
};

TEST(BackgroundSaveTest, IsPublishedBehindTheStepsWithTheValuesOfItsStep) {
  MemoryFiles files;
  TwoRanks two(files);
  for (const int64_t step : {10, 20}) {
    two.begin(step);
    for (auto& rank : two.ranks) {
      EXPECT_FALSE(rank->idle());
      rank->wait();
    }
    EXPECT_FALSE(*files.exists(path_join(kDir, step_name(step)))) << "not before all ranks agree";
    for (const auto& result : two.step()) EXPECT_FALSE(*result);
    two.ranks[0]->wait();
    const auto saved = two.step();
    ASSERT_TRUE(saved[0] && *saved[0] && saved[1] && *saved[1]);
    EXPECT_EQ((*saved[0])->step, step);
    EXPECT_EQ((*saved[1])->step, step);
    EXPECT_LE((*saved[0])->stall, (*saved[0])->seconds);
    EXPECT_EQ((*saved[0])->published->path, path_join(kDir, step_name(step)));
    EXPECT_FALSE((*saved[1])->published);
    EXPECT_TRUE(two.ranks[0]->idle() && two.ranks[1]->idle());
    auto reader = Reader::open(files, path_join(kDir, step_name(step)));
    ASSERT_TRUE(reader);
    two.model.expect_whole(*reader, 3);
  }
}

/// The disk is slow: steps go on, nobody waits, nothing is told.
TEST(BackgroundSaveTest, StepsGoOnWhileItIsPublished) {
  MemoryFiles memory;
  std::promise<void> go;
  const std::shared_future<void> gate = go.get_future().share();
  FaultyFiles slow(memory, {.reading = [&](const std::string&) -> std::optional<Error> {
                     gate.wait();  // publish() reads the parts
                     return {};
                   }});
  TwoRanks two(slow);
  two.begin(10);
  for (auto& rank : two.ranks) rank->wait();
  for (int step = 0; step < 50; ++step) {
    for (const auto& result : two.step()) {
      ASSERT_TRUE(result);
      EXPECT_FALSE(*result);
    }
  }
  EXPECT_FALSE(*memory.exists(path_join(kDir, "step-10")));
  go.set_value();
  two.ranks[0]->wait();
  EXPECT_TRUE(*two.step()[1]);
  EXPECT_TRUE(*memory.exists(path_join(kDir, "step-10/manifest.json")));
}

TEST(BackgroundSaveTest, AFailureOfOneRankEndsTheSaveOfAll) {
  MemoryFiles memory;
  FaultyFiles full(memory, {.at = 2, .dies = false});
  TwoRanks two(memory, full);
  two.begin(10);
  for (auto& rank : two.ranks) rank->wait();
  const auto results = two.step();
  ASSERT_FALSE(results[0]);
  EXPECT_EQ(results[0].error().kind, ErrorKind::Transient);
  EXPECT_EQ(results[0].error().message, "another rank failed");
  ASSERT_FALSE(results[1]);
  EXPECT_EQ(results[1].error().message, "no space left (injected)");
  EXPECT_FALSE(newest(memory, kDir)->reader);
}

TEST(BackgroundSaveTest, AFailedPublicationEndsTheSaveOfAll) {
  MemoryFiles memory;
  ASSERT_TRUE(memory.make_dirs(kDir));
  ASSERT_TRUE(memory.write_synced(path_join(kDir, "attempt"), "2"));
  TwoRanks two(memory);
  two.begin(10);
  for (auto& rank : two.ranks) rank->wait();
  ASSERT_TRUE(two.step()[0]);
  two.ranks[0]->wait();
  const auto results = two.step();
  ASSERT_FALSE(results[0]);
  EXPECT_EQ(results[0].error().message,
            "attempt 2 owns the checkpoints, attempt 1 may not publish any more");
  ASSERT_FALSE(results[1]);
  EXPECT_EQ(results[1].error().message, "another rank failed");
}

TEST(BackgroundSaveTest, WhatCannotBeCopiedIsAFailure) {
  MemoryFiles files;
  std::vector<float> buffer(10);
  BackgroundSave save(files, buffer);
  save.begin({.checkpoints_dir = kDir, .step = 1}, {},
             [](const EmitPiece&) -> Status { return bad_input("no state"); });
  EXPECT_EQ(save.votes().failed, 1);
  EXPECT_EQ(save.advance(save.votes()).error().message, "no state");
}

/// The last save of a run, or the next one while this one is in flight.
TEST(BackgroundSaveTest, FinishWaitsUntilItIsPublished) {
  MemoryFiles files;
  std::vector<float> buffer(10), values = {1, 2, 3};
  BackgroundSave save(files, buffer);
  const auto alone = [](const SaveVotes& votes) { return votes; };
  EXPECT_FALSE(*save.finish(alone)) << "there is none";
  for (const int64_t step : {1, 2}) {
    save.begin({.checkpoints_dir = kDir, .step = step}, {.extents = {{"master", "w", 3}}},
               [&](const EmitPiece& emit) {
                 return emit({"master", "w", 0, values});
               });
    values[0] = 7;  // the next step
    const auto saved = save.finish(alone);
    ASSERT_TRUE(saved && *saved) << saved.error().to_string();
    EXPECT_EQ((*saved)->published->path, path_join(kDir, step_name(step)));
  }
  auto reader = Reader::open(files, path_join(kDir, "step-1"));
  std::vector<float> found(3);
  ASSERT_TRUE(reader->read("master", "w", 0, found));
  EXPECT_EQ(found, (std::vector<float>{1, 2, 3}));
}

/// The run ended by an error of its own while the save was in flight.
TEST(BackgroundSaveTest, TheEndOfTheRunGivesUpWhatIsNotWritten) {
  MemoryFiles files;
  {
    TwoRanks two(files);
    two.begin(10);
  }
  EXPECT_FALSE(*files.exists(path_join(kDir, "step-10")));
  EXPECT_EQ(clear_leftovers(files, kDir, 2), std::vector<std::string>{});
  const ModelWorld model = ModelWorld::make(1000);
  ASSERT_TRUE(model.save(files, {.checkpoints_dir = kDir, .step = 20, .world = 2}));
  EXPECT_EQ(files.list_dir(kDir)->size(), 1u) << "the next attempt cleans up";
}

/// A piece that stays, in three chunks. The thread beside the step is held up after `ahead` of them.
void expect_copied_before_the_update(size_t ahead) {
  SCOPED_TRACE(ahead);
  constexpr size_t kChunk = size_t{1} << 20;
  MemoryFiles files;
  std::vector<float> values(2 * kChunk + 7), buffer(values.size() + 2);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 1000);
  const std::vector<float> saved_values = values;
  std::vector<float> small = {1, 2};
  std::promise<void> go, reached;
  const std::shared_future<void> gate = go.get_future().share();
  std::atomic<size_t> beside = 0, waiting = 0;
  BackgroundSave save(files, buffer,
                      {.waiting =
                           [&](std::span<float> to, std::span<const float> from) {
                             if (++waiting == 4 - ahead)
                               go.set_value();  // the small piece, and its part of three
                             std::ranges::copy(from, to.begin());
                           },
                       .beside =
                           [&](std::span<float> to, std::span<const float> from) {
                             std::ranges::copy(from, to.begin());
                             if (++beside == ahead) {
                               reached.set_value();
                               if (ahead < 3) gate.wait();
                             }
                           }});
  save.begin({.checkpoints_dir = kDir, .step = 1},
             {.extents = {{"master", "s", 2}, {"master", "w", int64_t(values.size())}}},
             [&](const EmitPiece& emit) -> Status {
               DSJ_TRY_STATUS(emit({"master", "s", 0, small}));
               small = {7, 7};  // it does not stay
               return emit({"master", "w", 0, values, true});
             });
  EXPECT_EQ(waiting, 1u) << "what stays is not waited for";
  reached.get_future().wait();
  save.settle();
  std::ranges::fill(values, -1.0f);  // the update
  EXPECT_EQ(beside, ahead);
  EXPECT_EQ(waiting, 1 + 3 - ahead) << "what the thread left";
  const auto saved = save.finish([](const SaveVotes& votes) { return votes; });
  ASSERT_TRUE(saved && *saved) << saved.error().to_string();
  auto reader = Reader::open(files, path_join(kDir, "step-1"));
  std::vector<float> found(values.size());
  ASSERT_TRUE(reader->read("master", "w", 0, found));
  EXPECT_TRUE(found == saved_values);
  std::vector<float> found_small(2);
  ASSERT_TRUE(reader->read("master", "s", 0, found_small));
  EXPECT_EQ(found_small, (std::vector<float>{1, 2}));
}

TEST(BackgroundSaveTest, WhatStaysIsCopiedBesideTheStepAndTheRestBeforeItsUpdate) {
  for (const size_t ahead : {1, 2, 3}) expect_copied_before_the_update(ahead);
}

/// Begins to save one tensor that stays.
void begin_staying(BackgroundSave& save, const std::vector<float>& values) {
  save.begin({.checkpoints_dir = kDir, .step = 1},
             {.extents = {{"master", "w", static_cast<int64_t>(values.size())}}},
             [&](const EmitPiece& emit) {
               return emit({"master", "w", 0, values, true});
             });
}

/// A caller that forgets to settle would save a mixture of two steps.
TEST(BackgroundSaveDeathTest, AStepThatDidNotSettleIsABug) {
  MemoryFiles files;
  std::vector<float> buffer(10), values = {1, 2, 3};
  BackgroundSave save(files, buffer);
  begin_staying(save, values);
  EXPECT_DEATH(static_cast<void>(save.advance(save.votes())), "was not copied yet");
  save.settle();
  EXPECT_TRUE(save.advance(save.votes()));
}

/// The run ends, or the next save begins, before any update.
TEST(BackgroundSaveTest, FinishCopiesWhatStays) {
  MemoryFiles files;
  std::vector<float> buffer(3), values = {1, 2, 3};
  BackgroundSave save(files, buffer);
  begin_staying(save, values);
  EXPECT_TRUE(*save.finish([](const SaveVotes& votes) { return votes; }));
  EXPECT_EQ(buffer, values);
}

TEST(BackgroundSaveTest, CopiesByTheGivenFunction) {
  MemoryFiles files;
  std::vector<float> buffer(4), values = {1, 2};
  int copies = 0;
  BackgroundSave::Copies given = BackgroundSave::plain_copies();
  given.waiting = [&](std::span<float> to, std::span<const float> from) {
    ++copies;
    std::ranges::copy(from, to.begin());
  };
  BackgroundSave save(files, buffer, given);
  save.begin({.checkpoints_dir = kDir, .step = 1}, {.extents = {{"m", "w", 4}}},
             [&](const EmitPiece& emit) -> Status {
               DSJ_TRY_STATUS(emit({"m", "w", 0, values}));
               return emit({"m", "w", 2, values});
             });
  EXPECT_EQ(copies, 2);
  EXPECT_TRUE(*save.finish([](const SaveVotes& votes) { return votes; }));
  EXPECT_EQ(buffer, (std::vector<float>{1, 2, 1, 2}));
}

}  // namespace
}  // namespace dsj::checkpoint
