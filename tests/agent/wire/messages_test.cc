#include "agent/wire/messages.h"

#include <gtest/gtest.h>

namespace dsj::agent {
namespace {

WorkerReport full_report() {
  return {.worker = 3,
          .incarnation = 2,
          .sequence = 99,
          .slots = 2,
          .attempt = 7,
          .fence = 6,
          .stop_requested = true,
          .departing = true,
          .leaving = true,
          .ranks = {{.running = true, .step = 12},
                    {.running = false,
                     .exit_code = 1,
                     .signal = 0,
                     .stopped = false,
                     .asked = true,
                     .own_codes = true,
                     .exit_order = 1,
                     .step = 11,
                     .pace = {12, 6000, 4000},
                     .reason = "HostOutOfMemory",
                     .message = "no memory",
                     .last_words = "one\ntwo"}},
          .look = 5,
          .looks = {{.known = true,
                     .phase = "training",
                     .step = 12,
                     .ticks = 7,
                     .issued = 3,
                     .ended = 2,
                     .quiet_ms = 100,
                     .begun = {{3, "all_gather", "layer 1", 64}}},
                    {.stopped = true}},
          .stacks = 9,
          .where = {"in wait < main", "not running"},
          .link = {"node-4", "10.0.0.4", 40123, "secret", true},
          .link_rate = {3, 1'000'000, "none"}};
}

TEST(Messages, RoundTrip) {
  const auto report = worker_report_from_json(to_text(full_report()));
  ASSERT_TRUE(report) << report.error().to_string();
  EXPECT_EQ(*report, full_report());

  const Directive directive{.order = Order::Preempt,
                            .attempt = 4,
                            .world_size = 8,
                            .first_rank = 2,
                            .master_addr = "10.0.0.1",
                            .master_port = 29500,
                            .exit_code = 87,
                            .next_beat = Time(250),
                            .look = 6,
                            .stacks = 7,
                            .link = {3, "10.0.0.5", 40124, "its key"},
                            .slow_link = "its link carries 5 MB/s"};
  const auto read = directive_from_json(to_text(directive));
  ASSERT_TRUE(read) << read.error().to_string();
  EXPECT_EQ(*read, directive);
}

TEST(Messages, WithoutARequestNobodySendsALook) {
  WorkerReport report = full_report();
  report.look = 0;
  EXPECT_EQ(to_text(report).find("look"), std::string::npos);
  report.looks.clear();
  report.stacks = 0;
  EXPECT_EQ(to_text(report).find("stacks"), std::string::npos);
  report.where.clear();
  report.link = {};
  report.link_rate = {};
  EXPECT_EQ(to_text(report).find("link"), std::string::npos);
  EXPECT_EQ(*worker_report_from_json(to_text(report)), report) << "as agents of an older version";
  EXPECT_EQ(to_text(Directive{}).find("look"), std::string::npos);
  EXPECT_EQ(to_text(Directive{}).find("stacks"), std::string::npos);
}

TEST(Messages, PlacesOfAWrongShapeAreRefused) {
  const nlohmann::json good = nlohmann::json::parse(to_text(full_report()));
  for (const nlohmann::json& wrong :
       {nlohmann::json{"one of two"}, nlohmann::json{"a", 7}, nlohmann::json("text"),
        nlohmann::json{"a", std::string(kWhereBytesMax + 1, 'x')}}) {
    nlohmann::json beat = good;
    beat["where"] = wrong;
    EXPECT_FALSE(worker_report_from_json(beat.dump())) << wrong;
  }
}

TEST(Messages, LinksOfAWrongShapeAreRefused) {
  const nlohmann::json beat = nlohmann::json::parse(to_text(full_report()));
  for (const auto& [pointer, value] : std::initializer_list<std::pair<const char*, nlohmann::json>>{
           {"/link", "text"},
           {"/link/port", 0},
           {"/link/port", 70'000},
           {"/link/key", std::string(256, 'k')},
           {"/link/moves", "yes"},
           {"/linkRate", nullptr},
           {"/linkRate/round", 0},
           {"/linkRate/bytesPerSecond", -1},
           {"/linkRate/problem", std::string(kLinkTextMax + 1, 'p')}}) {
    nlohmann::json wrong = beat;
    wrong[nlohmann::json::json_pointer(pointer)] = value;
    EXPECT_FALSE(worker_report_from_json(wrong.dump())) << pointer;
  }
  const nlohmann::json answer = nlohmann::json::parse(
      to_text(Directive{.link = {1, "10.0.0.5", 1, "k"}, .slow_link = "why"}));
  for (const auto& [pointer, value] : std::initializer_list<std::pair<const char*, nlohmann::json>>{
           {"/link/round", 0}, {"/link/address", 7}, {"/link", 7}, {"/slowLink", 7}}) {
    nlohmann::json wrong = answer;
    wrong[nlohmann::json::json_pointer(pointer)] = value;
    EXPECT_FALSE(directive_from_json(wrong.dump())) << pointer;
  }
}

TEST(Messages, ALookOfAWrongShapeIsRefused) {
  nlohmann::json beat = nlohmann::json::parse(to_text(full_report()));
  beat["looks"].erase(1);
  EXPECT_FALSE(worker_report_from_json(beat.dump())) << "one rank is missing";
  beat["looks"].push_back({{"known", true}});
  EXPECT_FALSE(worker_report_from_json(beat.dump()));
  beat["look"] = -1;
  EXPECT_FALSE(worker_report_from_json(beat.dump()));
}

// A beat that is refused is worse than one that says less: its worker would be lost.
TEST(Messages, LooksAtVeryManyRanksLeaveOutTheGroups) {
  const CollectiveSeen one{1 << 20, "reduce_scatter", "layer 31", 1 << 20};
  GroupLook group{.id = INT64_MAX, .name = "hosts of rail 1", .members = "0+8x512", .within = 0};
  group.begun.assign(4, one);
  WorkerReport report{.worker = 1, .sequence = 1, .look = 5};
  const auto sent = [&](int slots) {
    RankLook look{.known = true, .phase = "training"};
    look.begun.assign(4, one);
    look.groups.assign(3, group);
    report.slots = slots;
    report.ranks.assign(static_cast<size_t>(slots), RankState());
    report.looks.assign(static_cast<size_t>(slots), look);
    const std::string text = to_text(report);
    EXPECT_LE(text.size(), kMessageBytesMax);
    return worker_report_from_json(text);
  };
  const auto few = sent(8);
  ASSERT_TRUE(few) << few.error().to_string();
  EXPECT_EQ(*few, report);
  const auto many = sent(256);
  ASSERT_TRUE(many) << many.error().to_string();
  for (RankLook& look : report.looks) look.groups.clear();
  EXPECT_EQ(*many, report);
}

TEST(Messages, BytesThatAreNotUtf8AreReplaced) {
  WorkerReport report = full_report();
  report.ranks[1].last_words = "bad \xff\xfe bytes";
  const auto read = worker_report_from_json(to_text(report));
  ASSERT_TRUE(read) << read.error().to_string();
  EXPECT_EQ(read->ranks[1].last_words, "bad \xef\xbf\xbd\xef\xbf\xbd bytes");
}

TEST(Messages, WrongShapesAreRefusedWithTheKey) {
  const std::string good = to_text(full_report());
  auto broken = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    text.replace(at, from.size(), to);
    const auto read = worker_report_from_json(text);
    EXPECT_FALSE(read) << text;
    return read ? std::string() : read.error().message;
  };
  EXPECT_NE(broken("\"slots\":2", "\"slots\":1").find("more ranks than slots"), std::string::npos);
  EXPECT_NE(broken("\"slots\":2", "\"slots\":-2").find("\"slots\""), std::string::npos);
  EXPECT_NE(broken("\"worker\":3", "\"worker\":\"3\"").find("\"worker\""), std::string::npos);
  EXPECT_NE(broken("\"fence\":6,", "").find("\"fence\""), std::string::npos);
  EXPECT_NE(broken("\"running\":true", "\"running\":1").find("\"running\""), std::string::npos);
  EXPECT_NE(broken("no memory", std::string(5000, 'x')).find("\"message\""), std::string::npos);
  EXPECT_FALSE(worker_report_from_json(""));
  EXPECT_FALSE(worker_report_from_json("[1,2]"));
  EXPECT_FALSE(worker_report_from_json(good.substr(0, good.size() / 2)));
  EXPECT_FALSE(directive_from_json("{\"order\":\"dance\"}"));
}

}  // namespace
}  // namespace dsj::agent
