// The size of an elastic job as a table: what was seen, and what follows.
#include "operator/observe/elastic_size.h"

#include <gmock/gmock.h>

namespace dsj::op {
namespace {

using ::testing::HasSubstr;

const Time kNow(Seconds(1'767'225'600));

/// 1, 2 or 4 workers fit; 4 are wanted and there.
ElasticSeen seen() {
  return {.sizes = {1, 2, 4},
          .wanted = 4,
          .policy = {.min_replicas = 1, .max_replicas = 4},
          .recovery_deadline_seconds = 1200,
          .trains = true,
          .placed = 4,
          .running = 4};
}

ElasticState at(int size) {
  return {.replicas = size, .wanted = 4, .resizes = 7};
}

/// Some of four workers have nodes, and since some time wait for the others.
ElasticSeen short_of(int placed, int64_t seconds, bool no_place = true) {
  ElasticSeen now = seen();
  now.trains = false;
  now.placed = now.running = placed;
  now.no_place = no_place;
  now.short_since = kNow - Seconds(seconds);
  now.missing = "worker 3 has no node";
  return now;
}

ElasticSeen small_with_spares(int placed, int64_t saved) {
  ElasticSeen now = seen();
  now.placed = now.running = 2;
  now.spares_placed = placed;
  now.saved_step = saved;
  return now;
}

TEST(ElasticSize, AWholeGangStaysAsItIs) {
  const auto choice = choose_size(seen(), at(4), kNow);
  EXPECT_FALSE(choice.resized);
  EXPECT_EQ(choice.spares, 0);
  EXPECT_FALSE(choice.due);
}

TEST(ElasticSize, ShrinksToTheWorkersThatHaveNodes) {
  const struct {
    int placed;
    int64_t seconds;
    bool no_place;
    int size;      ///< afterwards
    int64_t wait;  ///< seconds until time changes the answer; 0: never
  } table[] = {
      {3, 59, true, 4, 1},    {3, 60, true, 2, 0},    {2, 60, true, 2, 0},
      {1, 60, true, 1, 0},    {0, 3600, true, 4, 0},  {3, 60, false, 4, 1140},
      {3, 1199, false, 4, 1}, {3, 1200, false, 2, 0}, {4, 60, true, 4, 0},
      {4, 1200, true, 4, 0},
  };
  for (const auto& row : table) {
    SCOPED_TRACE(std::to_string(row.placed) + " placed for " + std::to_string(row.seconds) + " s");
    const auto choice = choose_size(short_of(row.placed, row.seconds, row.no_place), at(4), kNow);
    EXPECT_EQ(choice.state.replicas, row.size);
    EXPECT_EQ(choice.resized, row.size != 4);
    EXPECT_EQ(choice.state.resizes, row.size != 4 ? 8 : 7);
    EXPECT_EQ(choice.due.has_value(), row.wait > 0);
    EXPECT_EQ(choice.due.value_or(kNow), kNow + Seconds(row.wait));
  }
  const auto shrunk = choose_size(short_of(3, 60), at(4), kNow).state;
  EXPECT_EQ(shrunk.message, "2 workers in place of 4: worker 3 has no node");
  EXPECT_EQ(shrunk.changed, kNow);
}

TEST(ElasticSize, NeverBelowTheSmallestSize) {
  ElasticSeen now = short_of(1, 1200);
  now.sizes = {2, 4};
  EXPECT_FALSE(choose_size(now, at(4), kNow).resized) << "the gang is released, as any other";
  EXPECT_FALSE(choose_size(now, at(2), kNow).resized);
}

TEST(ElasticSize, WorkersThatHaveNodesAndDoNotRunAreWaitedForUntilTheDeadline) {
  ElasticSeen now = short_of(4, 1199);
  now.running = 2;
  EXPECT_FALSE(choose_size(now, at(4), kNow).resized);
  now.short_since = kNow - Seconds(1200);
  EXPECT_EQ(choose_size(now, at(4), kNow).state.replicas, 2);
}

TEST(ElasticSize, AGangThatWaitsForNothingStays) {
  ElasticSeen now = short_of(2, 0);
  now.short_since.reset();
  EXPECT_FALSE(choose_size(now, at(4), kNow).resized);
}

TEST(ElasticSize, ASmallGangAsksForTheOthersPlaces) {
  const auto choice = choose_size(small_with_spares(0, 5), at(2), kNow);
  EXPECT_FALSE(choice.resized);
  EXPECT_EQ(choice.spares, 2);
  ElasticSeen stands = small_with_spares(2, 5);
  stands.trains = false;
  EXPECT_EQ(choose_size(stands, at(2), kNow).spares, 0) << "its own workers come first";
}

TEST(ElasticSize, GrowsAtTheNextCheckpoint) {
  auto choice = choose_size(small_with_spares(2, 5), at(2), kNow);
  EXPECT_FALSE(choice.resized);
  EXPECT_EQ(choice.state.growable, kNow);
  EXPECT_EQ(choice.due, kNow + Seconds(600));
  const ElasticState waiting = choice.state;
  EXPECT_FALSE(choose_size(small_with_spares(2, 5), waiting, kNow + Seconds(599)).resized);
  choice = choose_size(small_with_spares(2, 6), waiting, kNow + Seconds(30));
  EXPECT_TRUE(choice.resized);
  EXPECT_EQ(choice.state.replicas, 4);
  EXPECT_EQ(choice.state.message, "4 workers in place of 2: there are nodes for them");
  EXPECT_FALSE(choice.state.growable);
  EXPECT_EQ(choice.spares, 0);
}

TEST(ElasticSize, GrowsWithoutACheckpointAfterItsTime) {
  const ElasticState waiting = choose_size(small_with_spares(2, 5), at(2), kNow).state;
  EXPECT_TRUE(choose_size(small_with_spares(2, 5), waiting, kNow + Seconds(600)).resized);
}

TEST(ElasticSize, GrowsAsFarAsThereAreNodes) {
  ElasticState one = at(1);
  ElasticSeen now = small_with_spares(2, 5);
  EXPECT_EQ(choose_size(now, one, kNow).spares, 3);
  one.growable = kNow - Seconds(600);
  EXPECT_EQ(choose_size(now, one, kNow).state.replicas, 2);
  one.growable.reset();
  now.wanted = 3;
  EXPECT_EQ(choose_size(now, one, kNow).spares, 1) << "3 does not fit the batch";
}

TEST(ElasticSize, PlacesThatWentAgainAreForgotten) {
  ElasticState waiting = choose_size(small_with_spares(2, 5), at(2), kNow).state;
  waiting = choose_size(small_with_spares(0, 6), waiting, kNow + Seconds(1)).state;
  EXPECT_FALSE(waiting.growable);
  const auto choice = choose_size(small_with_spares(2, 6), waiting, kNow + Seconds(2));
  EXPECT_FALSE(choice.resized) << "that checkpoint was before";
}

TEST(ElasticSize, SparesThatMakeNoSizeGiveTheirNodesBack) {
  auto choice = choose_size(small_with_spares(1, 5), at(2), kNow);
  EXPECT_EQ(choice.spares, 2);
  EXPECT_EQ(choice.due, kNow + Seconds(1200));
  choice = choose_size(small_with_spares(1, 9), choice.state, kNow + Seconds(1200));
  EXPECT_EQ(choice.spares, 0);
  EXPECT_EQ(choice.due, kNow + Seconds(1260));
  EXPECT_EQ(choose_size(small_with_spares(0, 9), choice.state, kNow + Seconds(1259)).spares, 0);
  EXPECT_EQ(choose_size(small_with_spares(0, 9), choice.state, kNow + Seconds(1260)).spares, 2);
}

TEST(ElasticSize, NodesThatComeAndGoDoNotMakeItComeAndGo) {
  ElasticState state = at(4);
  Time now = kNow;
  for (const int64_t pause : {60, 120, 240, 480, 960, 1800, 1800}) {
    ElasticSeen lost = short_of(2, 60);
    lost.short_since = now - Seconds(60);
    state = choose_size(lost, state, now).state;
    ASSERT_EQ(state.replicas, 2);
    EXPECT_EQ(choose_size(small_with_spares(2, 1), state, now + Seconds(pause - 1)).spares, 0);
    now += Seconds(pause);
    state = choose_size(small_with_spares(2, 1), state, now).state;
    state = choose_size(small_with_spares(2, 2), state, now).state;
    ASSERT_EQ(state.replicas, 4);
    now += Seconds(100);
  }
  state = choose_size(seen(), state, now + Seconds(3600)).state;
  EXPECT_EQ(state.setbacks, 0) << "a quiet hour";
}

TEST(ElasticSize, AnotherWishIsTriedAtOnce) {
  ElasticState state = choose_size(short_of(2, 60), at(4), kNow).state;
  EXPECT_EQ(choose_size(small_with_spares(0, 1), state, kNow).spares, 0);
  ElasticSeen now = small_with_spares(0, 1);
  now.sizes = {1, 2, 4, 8};
  now.wanted = 8;
  EXPECT_EQ(choose_size(now, state, kNow).spares, 6);
}

TEST(ElasticSize, ASpareThatEndsIsTriedAgainLater) {
  ElasticSeen now = small_with_spares(0, 1);
  now.spares_failed = true;
  const auto choice = choose_size(now, at(2), kNow);
  EXPECT_EQ(choice.spares, 0);
  EXPECT_EQ(choice.due, kNow + Seconds(60));
  EXPECT_EQ(choose_size(now, choice.state, kNow + Seconds(1)).state.not_before, kNow + Seconds(60))
      << "counted once";
}

TEST(ElasticSize, TheSpecDecidesWhatIsPermitted) {
  EXPECT_EQ(permitted_size({1, 2, 4}, 4, 0), 4);
  EXPECT_EQ(permitted_size({1, 2, 4}, 3, 0), 2);
  EXPECT_EQ(permitted_size({1, 2, 4}, 4, 2), 2) << "growing takes more than a wish";
  EXPECT_EQ(permitted_size({1, 2, 4}, 2, 4), 2);
  EXPECT_EQ(permitted_size({1, 3}, 3, 2), 1) << "another batch";
  EXPECT_EQ(permitted_size({3, 4}, 4, 2), 3);
}

TEST(ElasticSize, AStartFromNoPodsForgets) {
  ElasticState state = choose_size(short_of(2, 60), at(4), kNow).state;
  start_large({1, 2, 4}, 4, state);
  EXPECT_EQ(state.replicas, 4);
  EXPECT_EQ(state.resizes, 9);
  EXPECT_FALSE(state.not_before);
  const ElasticState once = state;
  start_large({1, 2, 4}, 4, state);
  EXPECT_EQ(state.resizes, once.resizes) << "the same again changes nothing";
}

TEST(ElasticSize, RevisionsSayBaseAndSize) {
  EXPECT_EQ(sized_revision("0a1b2c3d4e", 4, 12), "0a1b2c3d4e-4-12");
  EXPECT_EQ(base_revision("0a1b2c3d4e-4-12"), "0a1b2c3d4e");
  EXPECT_EQ(base_revision("0a1b2c3d4e"), "0a1b2c3d4e");
  EXPECT_EQ(resizes_of("0a1b2c3d4e-4-12"), "12");
  EXPECT_EQ(resizes_of("0a1b2c3d4e"), "");
}

}  // namespace
}  // namespace dsj::op
