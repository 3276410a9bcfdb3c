#include "agent/rank_events.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace dsj::agent {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(LineSplitter, AnyCutGivesTheSameLines) {
  const std::string text = "one\n\ntwo\r\nthree is longer\n{\"a\":1}\npartial";
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    LineSplitter splitter;
    std::vector<std::string> lines;
    for (size_t at = 0; at < text.size();) {
      const size_t length = 1 + random() % 9;
      for (auto& line : splitter.feed(std::string_view(text).substr(at, length)))
        lines.push_back(line);
      at += length;
    }
    EXPECT_THAT(lines, ElementsAre("one", "two", "three is longer", "{\"a\":1}"));
  }
}

TEST(LineSplitter, OverlongLineIsDroppedWholeAndTheNextIsRead) {
  LineSplitter splitter;
  const std::string half(LineSplitter::kLineBytesMax / 2 + 1, 'x');
  EXPECT_THAT(splitter.feed(half), IsEmpty());
  EXPECT_THAT(splitter.feed(half), IsEmpty());
  EXPECT_THAT(splitter.feed("tail\nnext\n"), ElementsAre("next"));
  EXPECT_EQ(splitter.dropped(), 1);
}

TEST(RankEvents, ReadsEveryKind) {
  const auto step = parse_event(R"({"event":"step","step":12,"loss":1.5})");
  ASSERT_TRUE(step);
  EXPECT_EQ(step->kind, RankEventKind::Step);
  EXPECT_EQ(step->step, 12);
  EXPECT_EQ(step->body["loss"], 1.5);
  const auto error = parse_event(R"({"event":"error","reason":"HostOutOfMemory","message":"m"})");
  ASSERT_TRUE(error);
  EXPECT_EQ(error->kind, RankEventKind::Error);
  EXPECT_EQ(error->reason, "HostOutOfMemory");
  EXPECT_EQ(error->message, "m");
  EXPECT_EQ(parse_event(R"({"event":"start","pid":1,"rank":0})")->kind, RankEventKind::Start);
  EXPECT_EQ(parse_event(R"({"event":"resolved","config":{}})")->kind, RankEventKind::Resolved);
  EXPECT_EQ(parse_event(R"({"event":"resumed","step":5,"path":"p"})")->step, 5);
  EXPECT_EQ(parse_event(R"({"event":"checkpoint","step":7})")->kind, RankEventKind::Checkpoint);
  EXPECT_EQ(parse_event(R"({"event":"exported","path":"p"})")->kind, RankEventKind::Exported);
  EXPECT_EQ(parse_event(R"({"event":"memory","peak":{},"total":1})")->kind, RankEventKind::Memory);
  EXPECT_EQ(parse_event(R"({"event":"warning","message":"w"})")->message, "w");
  EXPECT_EQ(parse_event(R"({"event":"done","step":20})")->step, 20);
}

TEST(RankEvents, GarbageIsNoEvent) {
  for (const char* line :
       {"", "hello", "[1]", "{\"event\":5}", "{\"event\":\"dance\"}", "{\"event\":\"step\"}",
        "{\"event\":\"step\",\"step\":-1}", "{\"event\":\"step\",\"step\":\"1\"}",
        "{\"event\":\"step\",\"step\":1", "\xff\xfe", "{\"step\":1}"}) {
    EXPECT_FALSE(parse_event(line)) << line;
  }
}

}  // namespace
}  // namespace dsj::agent
