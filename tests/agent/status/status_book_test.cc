#include "agent/status/status_book.h"

#include <gtest/gtest.h>

#include <random>

#include "common/json.h"
#include "common/text.h"

namespace dsj::agent {
namespace {

using nlohmann::json;

const std::string kWall = "2026-01-01T00:00:00Z";
const report::Attempt kAttempt{.attempt = 3, .world_size = 4};
report::Step step_report(int64_t step, double loss = 1.5) {
  return {.step = step, .loss = loss, .lr = 1e-6};
}
report::Checkpoint checkpoint(int64_t step) {
  return {.step = step, .bytes = 10, .seconds = 0.5, .path = "/c/" + std::to_string(step)};
}
json current(int64_t attempt = 0) {
  json object = {
      {"metadata",
       {{"name", "tune"}, {"namespace", "team"}, {"uid", "u"}, {"resourceVersion", "7"}}}};
  if (attempt > 0) {
    object["status"]["training"] = {{"attempt", attempt}, {"step", 90}};
    object["status"]["checkpoint"]["lastSaved"] = {{"step", 80}, {"path", "/c/80"}};
  }
  return object;
}

struct BookTest : testing::Test {
  StatusBook book{4};
  /// Writes whenever it is due, until `end`; returns when.
  std::vector<int64_t> write_until(
      Time end, const std::function<void(Time)>& world,
      const std::function<bool(Time)>& works = [](Time) { return true; }) {
    std::vector<int64_t> writes;
    for (; now < end; now += Time(100)) {
      world(now);
      const auto due = book.due(0.5);
      if (!due || *due > now) continue;
      book.began(now);
      writes.push_back(now.count());
      if (works(now)) {
        book.stored(book.version());
      } else {
        book.failed(now, Time(1000));
      }
    }
    return writes;
  }
  Time now{0};
};

TEST_F(BookTest, NothingToldIsNothingWritten) {
  EXPECT_FALSE(book.due(0.5));
  EXPECT_TRUE(book.settled());
  book.take(report::Log{.step = 1}, kWall);
  book.take(report::Warning{.message = "x"}, kWall);
  EXPECT_FALSE(book.due(0.5)) << "not of the status";
}

TEST_F(BookTest, StepsAreCoalesced) {
  book.take(kAttempt, kWall);
  int64_t step = 0;
  const auto writes =
      write_until(Time(61'000), [&](Time) { book.take(step_report(++step), kWall); });
  EXPECT_EQ(writes.size(), 6u) << "610 steps";
  EXPECT_EQ(writes[0], 0);
  EXPECT_EQ(writes[1], 11'000);
  EXPECT_EQ(book.document().training["step"], 610);
}

TEST_F(BookTest, CheckpointsDoNotWaitButKeepTheGap) {
  book.take(kAttempt, kWall);
  int64_t step = 0;
  const auto writes =
      write_until(Time(15'000), [&](Time) { book.take(checkpoint(++step), kWall); });
  EXPECT_EQ(writes.size(), 8u);
  for (size_t i = 1; i < writes.size(); ++i) EXPECT_GE(writes[i] - writes[i - 1], 2000);
}

TEST_F(BookTest, TheJitterSpreadsByAFifth) {
  book.take(kAttempt, kWall);
  book.began(Time(0));
  book.stored(book.version());
  book.take(step_report(1), kWall);
  EXPECT_EQ(*book.due(0.0), Time(10'000));
  EXPECT_EQ(*book.due(1.0), Time(12'000));
}

TEST_F(BookTest, AJobThatSavesAllTheTimeWritesOnceInTenSeconds) {
  book.take(kAttempt, kWall);
  int64_t step = 0;
  const auto writes =
      write_until(Time(600'000), [&](Time) { book.take(checkpoint(++step), kWall); });
  EXPECT_LE(writes.size(), 60u + 7u) << "six and the attempt's own come early";
  EXPECT_GE(writes.size(), 54u);
  EXPECT_EQ(book.document().checkpoint["lastSaved"]["step"], step);
  // What the job stops at is waited for, however much was written before.
  book.stopping();
  book.take(checkpoint(step + 1), kWall);
  EXPECT_LE(*book.due(0.5), Time(writes.back() + 2000));
}

TEST_F(BookTest, TheResolvedConfigIsWrittenOnceAndIsNoPartOfTheOtherWrites) {
  book.take(kAttempt, kWall);
  EXPECT_TRUE(book.resolved().is_null());
  const report::Resolved resolved{.config = {{"zero_stage", 2}}, .total_steps = 9};
  book.take(resolved, kWall);
  EXPECT_EQ(book.resolved(), resolved.config);
  EXPECT_FALSE(book.document().training.contains("resolvedConfig"));
  EXPECT_EQ(book.document().training["totalSteps"], 9);
  EXPECT_EQ(resolved_body(book.resolved(), current(2))["status"],
            json({{"training", {{"resolvedConfig", {{"zero_stage", 2}}}}}}));
  book.resolved_stored();
  EXPECT_TRUE(book.resolved().is_null());
  book.take(resolved, kWall);
  EXPECT_TRUE(book.resolved().is_null()) << "another attempt with the same one";
  book.take(report::Resolved{.config = {{"zero_stage", 3}}}, kWall);
  EXPECT_FALSE(book.resolved().is_null());
}

TEST_F(BookTest, ThroughAnOutageTheCheckpointIsTriedUntilItIsStored) {
  book.take(kAttempt, kWall);
  write_until(Time(1'000), [](Time) {});
  ASSERT_TRUE(book.settled());
  book.take(checkpoint(50), kWall);
  int64_t step = 50;
  const auto tries = write_until(
      Time(600'000), [&](Time) { book.take(step_report(++step), kWall); },
      [](Time at) { return at > Time(500'000); });
  EXPECT_GT(tries.size(), 100u);
  EXPECT_TRUE(book.settled());
  EXPECT_EQ(book.document().checkpoint["lastSaved"]["step"], 50);
}

TEST_F(BookTest, WhatIsToldDuringAWriteIsNotTakenForStored) {
  book.take(kAttempt, kWall);
  book.began(Time(0));
  const int64_t version = book.version();
  book.take(checkpoint(5), kWall);
  book.stored(version);
  EXPECT_FALSE(book.settled());
  EXPECT_TRUE(book.due(0.5));
}

TEST_F(BookTest, ALossThatIsNotFiniteHasNoField) {
  book.take(kAttempt, kWall);
  book.take(report::Step{.step = 1}, kWall);
  EXPECT_FALSE(book.document().training.contains("loss"));
  EXPECT_EQ(book.document().training["step"], 1);
}

TEST_F(BookTest, TheStopStepIsTheCheckpointAfterTheStopRequest) {
  book.take(kAttempt, kWall);
  book.take(checkpoint(10), kWall);
  EXPECT_FALSE(book.document().training.contains("stopStep"));
  book.stopping();
  book.take(checkpoint(14), kWall);
  EXPECT_EQ(book.document().training["stopStep"], 14);
}

/// It was begun before the request, and told after it: the ranks still save the step they stop at.
TEST_F(BookTest, ACheckpointFromBehindTheStepsIsNotTheStopStep) {
  book.take(kAttempt, kWall);
  book.stopping();
  report::Checkpoint before = checkpoint(10);
  before.last = false;
  book.take(before, kWall);
  EXPECT_FALSE(book.document().training.contains("stopStep"));
  report::Checkpoint stop = checkpoint(14);
  stop.last = true;
  book.take(stop, kWall);
  EXPECT_EQ(book.document().training["stopStep"], 14);
}

TEST_F(BookTest, TheLastFailureIsKept) {
  book.take(kAttempt, kWall);
  book.take(report::Failure{.attempt = 3,
                            .worker = 1,
                            .rank = 2,
                            .exit_code = 1,
                            .reason = "HostOutOfMemory",
                            .message = "m",
                            .last_words = "w"},
            kWall);
  book.take(report::Attempt{.attempt = 4, .world_size = 4}, kWall);
  const json failure = book.document().training["lastFailure"];
  EXPECT_EQ(failure["attempt"], 3);
  EXPECT_EQ(failure["rank"], 2);
  EXPECT_EQ(failure["lastWords"], "w");
  EXPECT_EQ(book.document().attempt, 4);
}

/// While the operator is away, every failure waits for it in the status.
TEST_F(BookTest, EarlierFailuresAreKeptUntilTheOperatorHasCountedThem) {
  const auto fail = [&](int64_t attempt) {
    book.take(report::Failure{.attempt = attempt,
                              .worker = 1,
                              .rank = 2,
                              .exit_code = 1,
                              .reason = "RankFailed",
                              .message = std::string(999, 'm'),
                              .last_words = "w",
                              .saved_step = attempt * 10},
              kWall);
  };
  const auto kept = [&] {
    std::vector<int64_t> attempts;
    const json training = book.document().training;
    for (const json& failure : json_child(training, "earlierFailures"))
      attempts.push_back(failure["attempt"]);
    return attempts;
  };
  fail(1);
  EXPECT_FALSE(book.document().training.contains("earlierFailures")) << "the last one is there";
  fail(2);
  fail(3);
  EXPECT_EQ(kept(), (std::vector<int64_t>{1, 2}));
  const json first = book.document().training["earlierFailures"][0];
  EXPECT_EQ(first["exitCode"], 1);
  EXPECT_EQ(first["savedStep"], 10);
  EXPECT_EQ(first["message"], std::string(100, 'm'));
  EXPECT_FALSE(first.contains("lastWords"));
  book.account({{"status", {{"restarts", {{"attempt", 1}}}}}});
  EXPECT_EQ(kept(), std::vector<int64_t>{2});
  book.account({{"status", {{"restarts", {{"attempt", 3}}}}}});
  EXPECT_FALSE(book.document().training.contains("earlierFailures"));
  for (int64_t attempt = 4; attempt < 20; ++attempt) fail(attempt);
  EXPECT_EQ(kept().size(), report::kEarlierFailuresMax);
  EXPECT_EQ(kept().back(), 18);
}

TEST_F(BookTest, TheBodyCarriesUidAndTheVersionThatWasRead) {
  book.take(kAttempt, kWall);
  const auto body = status_body(book.document(), current(2), true);
  ASSERT_TRUE(body);
  EXPECT_EQ((*body)["metadata"]["uid"], "u");
  EXPECT_EQ((*body)["metadata"]["resourceVersion"], "7");
  EXPECT_EQ((*body)["status"]["training"]["attempt"], 3);
  EXPECT_FALSE((*body)["status"].contains("checkpoint")) << "nothing of another's is made ours";
}

TEST_F(BookTest, WhatAnEarlierLifeLeftStaysUntilThisOneHasItsOwn) {
  book.take(kAttempt, kWall);
  json before = current(2);
  before["status"]["training"]["stopStep"] = 80;
  before["status"]["training"]["estimatedRemainingSeconds"] = 9;
  book.inherit(before);
  for (int write = 0; write < 3; ++write) {  // not only in the first one
    const auto document = book.document();
    EXPECT_EQ(document.training["attempt"], 3);
    EXPECT_EQ(document.training["step"], write == 0 ? 90 : 80 + write);
    EXPECT_FALSE(document.training.contains("stopStep"));
    EXPECT_FALSE(document.training.contains("estimatedRemainingSeconds"));
    EXPECT_EQ(document.checkpoint["lastSaved"]["step"], 80);
    book.stored(book.version());
    book.take(step_report(81 + write), kWall);
    EXPECT_EQ(book.document().training["step"], 81 + write);
  }
  book.take(checkpoint(100), kWall);
  EXPECT_EQ(book.document().checkpoint["lastSaved"]["step"], 100);
}

TEST_F(BookTest, DamageIsWrittenAtOnceAndStaysInTheNextLife) {
  book.take(kAttempt, kWall);
  book.began(Time(0));
  book.stored(book.version());
  book.take(report::Damage{.step = 80, .message = "step-80"}, kWall);
  EXPECT_FALSE(book.settled());
  EXPECT_EQ(*book.due(0.5), Time(2000)) << "the gap between two writes";
  const json damaged = book.document().checkpoint["lastDamaged"];
  EXPECT_EQ(damaged, json({{"step", 80}, {"message", "step-80"}, {"attempt", 3}, {"time", kWall}}));
  json before = current(3);
  before["status"]["checkpoint"]["lastDamaged"] = damaged;
  StatusBook next(4);
  next.inherit(before);
  next.take(report::Attempt{.attempt = 4, .world_size = 4}, kWall);
  next.take(report::Resumed{.step = 90, .path = "/c/90"}, kWall);
  EXPECT_EQ(next.document().checkpoint["lastDamaged"], damaged);
}

TEST_F(BookTest, AfterDamageTheNewestCheckpointIsNotAnEarlierLifes) {
  book.inherit(current(2));
  book.take(kAttempt, kWall);
  EXPECT_EQ(book.document().checkpoint["lastSaved"]["step"], 80);
  book.take(report::Damage{.step = 80, .message = "step-80"}, kWall);
  book.take(report::Resumed{.step = 70, .path = "/c/70"}, kWall);
  EXPECT_EQ(book.document().checkpoint["lastSaved"], json({{"step", 70}, {"path", "/c/70"}}));
}

TEST_F(BookTest, AnOlderAttemptNeverWrites) {
  book.take(kAttempt, kWall);
  EXPECT_TRUE(status_body(book.document(), current(3), false));
  EXPECT_FALSE(status_body(book.document(), current(4), false));
  EXPECT_FALSE(status_body(book.document(), current(4), true));
  // Before its first attempt it has nothing to take back: what is there stays as it is.
  StatusBook fresh(4);
  fresh.inherit(current(9));
  const auto body = status_body(fresh.document(), current(9), true);
  ASSERT_TRUE(body);
  EXPECT_EQ((*body)["status"]["training"]["attempt"], 9);
}

/// Ranks of a user's own program report what they like, and an earlier life, or anybody who may patch the status, has
/// left what it likes.
TEST_F(BookTest, WhateverIsReportedAWriteIsSmall) {
  for (uint64_t seed = 0; seed < 400; ++seed) {
    std::mt19937_64 random(seed);
    const auto words = [&] {
      static constexpr size_t kSizes[] = {0, 5, 30, 31, 500, 1001, 4000, 200'000};
      std::string text;
      const size_t size = kSizes[random() % std::size(kSizes)];
      while (text.size() < size) text += random() % 3 == 0 ? "\xe2\x82\xac" : "a\"\n";
      return text;
    };
    const auto take = [&] {
      switch (random() % 9) {
        case 0:
          return book.take(report::Resumed{.step = 1, .path = words()}, kWall);
        case 1:
          return book.take(report::Damage{.step = 1, .message = words()}, kWall);
        case 2:
          return book.take(report::Step{.step = 1, .bad_gradient = words()}, kWall);
        case 3:
          return book.take(report::Stragglers{.who = words()}, kWall);
        case 4:
          return book.take(report::Checkpoint{.step = 1, .path = words()}, kWall);
        case 5:
          return book.take(report::Exported{.path = words()}, kWall);
        case 6: {
          report::Failure failure{.reason = words(), .message = words(), .last_words = words()};
          if (random() % 2) failure.collective = failure.missing_ranks = words();
          return book.take(failure, kWall);
        }
        case 7: {
          report::Memory memory;
          for (uint64_t i = random() % 2000; i > 0; --i) memory.peak[std::to_string(i)] = 1;
          memory.peak[words()] = 2;
          return book.take(memory, kWall);
        }
        default: {
          report::Resolved resolved;
          for (uint64_t i = random() % 5; i > 0; --i) resolved.config[std::to_string(i)] = words();
          return book.take(resolved, kWall);
        }
      }
    };
    book = StatusBook(4);
    if (random() % 2) {
      json before = current(2);
      before["status"]["training"]["stragglers"] = words();
      before["status"]["training"]["modelPath"] = words();
      before["status"]["training"]["lastFailure"] = {{"message", words()}, {"mine", words()}};
      before["status"]["training"]["earlierFailures"] = {{{"message", words()}}};
      before["status"]["checkpoint"]["lastDamaged"] = {{"message", words()}, {"step", 4}};
      book.inherit(before);
    }
    for (uint64_t i = random() % 12; i > 0; --i) take();
    const auto document = book.document();
    const std::string text = document.training.dump() + document.checkpoint.dump();
    EXPECT_LE(text.size(), report::kDocumentBytesMax) << "seed " << seed;
    EXPECT_EQ(text::invalid_utf8(text), std::string::npos) << "seed " << seed;
    EXPECT_LE(book.resolved().dump().size(), report::kResolvedBytesMax) << "seed " << seed;
  }
}

TEST_F(BookTest, WhatIsShortEnoughIsNotCut) {
  const std::string path = "/c/" + std::string(900, 'p'), message(1000, 'm');
  book.take(kAttempt, kWall);
  book.take(report::Checkpoint{.step = 5, .path = path}, kWall);
  book.take(report::Failure{.attempt = 3, .reason = "Killed", .message = message}, kWall);
  book.take(report::Memory{.peak = {{"params", 1}}, .total = 1}, kWall);
  EXPECT_EQ(book.document().checkpoint["lastSaved"]["path"], path);
  EXPECT_EQ(book.document().training["lastFailure"]["message"], message);
  EXPECT_EQ(book.document().training["peakBytes"]["params"], 1);
}

TEST_F(BookTest, AResolvedConfigThatIsTooLargeIsLeftOutWithAWord) {
  book.take(report::Resolved{.config = {{"x", std::string(8000, 'x')}}}, kWall);
  EXPECT_EQ(book.resolved(), json({{"omitted", "it has 8008 bytes; a status takes 7500"}}));
}

}  // namespace
}  // namespace dsj::agent
