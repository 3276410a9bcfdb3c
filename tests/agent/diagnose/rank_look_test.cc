// What an agent makes of its rank's flight log.
#include "agent/diagnose/rank_look.h"

#include <gtest/gtest.h>

#include "job/flight_log.h"

namespace dsj::agent {
namespace {

std::unique_ptr<FlightLog> log_in_step(int64_t step) {
  auto log = FlightLog::open(-1);
  (*log)->enter(FlightPhase::Training, step);
  return std::move(*log);
}

TEST(RankLook, ShowsWhereTheRankIsAndWhatItBegan) {
  const auto log = log_in_step(41);
  for (uint64_t i = 1; i <= 9; ++i) log->issued(i, "all_gather", "layer 3", 4096);
  for (int i = 0; i < 7; ++i) log->ended();
  const RankLook look = look_at(log->bytes(), false, flight_clock() + 5'000'000'000);
  EXPECT_TRUE(look.known);
  EXPECT_FALSE(look.stopped);
  EXPECT_EQ(look.phase, "training");
  EXPECT_EQ(look.step, 41);
  EXPECT_EQ(look.issued, 9);
  EXPECT_EQ(look.ended, 7);
  EXPECT_EQ(look.quiet_ms / 1000, 5);
  ASSERT_EQ(look.begun.size(), 4u) << "the last ones, without what was only issued";
  EXPECT_EQ(look.begun.front().sequence, 5);
  EXPECT_EQ(look.begun.back(), (CollectiveSeen{8, "all_gather", "layer 3", 4096}));
  EXPECT_EQ(begun(look), 8);
  EXPECT_TRUE(inside(look));
  EXPECT_EQ(to_text(look.begun.back()), "all_gather #8 (layer 3, 4096 bytes)");
}

TEST(RankLook, ShowsItsGroupsAndTheirMovement) {
  const auto log = log_in_step(41);
  const auto rail = log->group({.id = 7, .name = "rail 1", .members = "1+2x2", .within = 0});
  log->issued(1, "all_gather", "layer 3", 4096);
  const RankLook before = look_at(log->bytes(), false, flight_clock());
  rail->issued(1, "all_gather", "layer 3", 2048);
  rail->waits_for(3);
  const RankLook look = look_at(log->bytes(), false, flight_clock() + 5'000'000'000);
  EXPECT_TRUE(moved(before, look));
  EXPECT_EQ(look.waits_for, -1);
  ASSERT_EQ(look.groups.size(), 1u);
  const GroupLook& group = look.groups[0];
  EXPECT_EQ(group.name, "rail 1");
  EXPECT_EQ(group.members, "1+2x2");
  EXPECT_EQ(group.within, 0);
  EXPECT_EQ(group.waits_for, 3);
  EXPECT_EQ(group.quiet_ms / 1000, 5);
  EXPECT_TRUE(inside(group));
  EXPECT_EQ(group.begun, (std::vector<CollectiveSeen>{{1, "all_gather", "layer 3", 2048}}));
  rail->waits_for(-1);
  EXPECT_FALSE(moved(look, look_at(log->bytes(), false, flight_clock())))
      << "it looks again in vain";
}

TEST(RankLook, BetweenTwoCollectivesItIsInNone) {
  const auto log = log_in_step(1);
  EXPECT_FALSE(inside(look_at(log->bytes(), false, flight_clock())));
  log->issued(1, "barrier", "", 0);
  log->ended();
  const RankLook look = look_at(log->bytes(), true, flight_clock());
  EXPECT_FALSE(inside(look));
  EXPECT_EQ(begun(look), 1);
  EXPECT_TRUE(look.stopped);
  EXPECT_EQ(to_text(look.begun.back()), "barrier #1 (0 bytes)");
}

TEST(RankLook, WhatHasNoFlightLogIsNotKnown) {
  const RankLook look = look_at("", true, flight_clock());
  EXPECT_FALSE(look.known);
  EXPECT_TRUE(look.stopped);
}

TEST(RankLook, AnythingThatHappensIsMovementAndTimeIsNot) {
  const auto log = log_in_step(1);
  const RankLook before = look_at(log->bytes(), false, flight_clock());
  EXPECT_FALSE(moved(before, look_at(log->bytes(), false, flight_clock() + 1'000'000'000)));
  const auto moves = [&] { return moved(before, look_at(log->bytes(), false, flight_clock())); };
  log->issued(1, "barrier", "", 0);
  EXPECT_TRUE(moves());
  const auto other = log_in_step(1);
  EXPECT_FALSE(moved(before, look_at(other->bytes(), false, flight_clock())));
  other->tick();
  EXPECT_TRUE(moved(before, look_at(other->bytes(), false, flight_clock())));
}

TEST(RankLook, RoundTripAndRefusals) {
  const RankLook look{.known = true,
                      .stopped = true,
                      .phase = "saving",
                      .step = 3,
                      .ticks = 9,
                      .issued = 5,
                      .ended = 4,
                      .quiet_ms = 1200,
                      .begun = {{4, "barrier", "", 0}, {5, "all_reduce", "step", 48}},
                      .waits_for = 2,
                      .groups = {{.id = 9,
                                  .name = "half",
                                  .members = "0+2x2",
                                  .issued = 2,
                                  .ended = 1,
                                  .quiet_ms = 30,
                                  .waits_for = 2,
                                  .begun = {{2, "barrier", "", 0}}}}};
  const auto read = rank_look_from_json(nlohmann::json::parse(to_json(look).dump()));
  ASSERT_TRUE(read) << read.error().to_string();
  EXPECT_EQ(*read, look);
  const auto refused = [&](const char* key, const nlohmann::json& value) {
    auto object = to_json(look);
    object[key] = value;
    return !rank_look_from_json(object);
  };
  EXPECT_TRUE(refused("step", "three"));
  EXPECT_TRUE(refused("waitsFor", "two"));
  EXPECT_TRUE(refused("phase", std::string(65, 'x')));
  EXPECT_TRUE(refused("begun", nlohmann::json::array({{1, "barrier"}})));
  EXPECT_TRUE(refused("begun", nlohmann::json::array({{1, std::string(65, 'x'), "", 0}})));
  EXPECT_TRUE(refused(
      "begun",
      nlohmann::json::array(
          {{1, "", "", 0}, {2, "", "", 0}, {3, "", "", 0}, {4, "", "", 0}, {5, "", "", 0}})));
  EXPECT_FALSE(rank_look_from_json(nlohmann::json::object()));
  const auto groups = to_json(look)["groups"];
  EXPECT_TRUE(refused("groups", "none"));
  EXPECT_TRUE(refused("groups", nlohmann::json(17, groups[0])));
  for (const auto& [key, value] : {std::pair<const char*, nlohmann::json>{"id", 0},
                                   {"name", std::string(65, 'x')},
                                   {"members", std::string(129, '1')},
                                   {"begun", "none"},
                                   {"waitsFor", "two"}}) {
    auto other = groups;
    other[0][key] = value;
    EXPECT_TRUE(refused("groups", other)) << key;
  }
  auto older = to_json(look);
  older.erase("groups");
  older.erase("waitsFor");
  EXPECT_TRUE(rank_look_from_json(older)) << "of an agent before there were groups";
}

}  // namespace
}  // namespace dsj::agent
