#include "job/report/reports.h"

#include <gtest/gtest.h>

namespace dsj::report {
namespace {

using nlohmann::json;

/// As released agents write them. They must stay readable.
const std::vector<std::string> kReportLines = {
    R"({"attempt":2,"report":"attempt","worldSize":8})",
    R"({"attempt":2,"exitCode":0,"lastWords":"w","message":"m","pauseMs":500,"rank":3,"reason":"Killed",)"
    R"("report":"failure","restart":true,"restartLimit":6,"restartsTotal":4,"restartsUsed":1,"savedStep":5,)"
    R"("signal":9,"step":7,"worker":1})",
    R"({"exitCode":87,"message":"m","reason":"Preempted","report":"end"})",
    R"({"message":"w","rank":-1,"report":"warning"})"};

TEST(Reports, EveryKindOfTheAgentIsReadAndWrittenAsItWas) {
  for (const auto& line : kReportLines) {
    const auto report = report_from_line(line);
    ASSERT_TRUE(report) << line;
    EXPECT_EQ(to_line(*report), line + "\n");
  }
  const auto failure = std::get<Failure>(*report_from_line(kReportLines[1]));
  EXPECT_EQ(failure.signal, 9);
  EXPECT_EQ(failure.restarts_total, 4);
  EXPECT_TRUE(failure.restart);
  EXPECT_EQ(failure.last_words, "w");
}

TEST(Reports, EventsArePassedOnUnderTheirOwnNames) {
  std::set<std::string> passed;
  [&]<typename... Kinds>(std::type_identity<std::variant<Kinds...>>) {
    const auto pass = [&](const auto& event) {
      const auto report = passed_on(event);
      if (!report) return;
      json sent = json::parse(to_line(*report)), told = json::parse(to_line(Event(event)));
      passed.insert(sent["report"]);
      EXPECT_EQ(sent["report"], told["event"]);
      sent.erase("report");
      told.erase("event");
      EXPECT_EQ(sent, told);
    };
    (pass(Kinds{}), ...);
  }(std::type_identity<Event>());
  EXPECT_EQ(passed,
            (std::set<std::string>{"resolved", "resumed", "damage", "step", "log", "eval",
                                   "cut_rows", "note", "memory", "checkpoint", "exported"}));
}

TEST(Reports, WhatIsNotKnownIsNoHarm) {
  for (const char* line : {"", "[]", "{}", "{\"report\":\"dance\"}", "{\"report\":7}",
                           "{\"event\":\"step\",\"step\":1}", "{\"report\":\"step\"}"}) {
    EXPECT_FALSE(report_from_line(line)) << line;
  }
  const auto newer = report_from_line(R"({"report":"attempt","attempt":1,"colour":"red"})");
  ASSERT_TRUE(newer);
  EXPECT_EQ(std::get<Attempt>(*newer).attempt, 1);
}

TEST(Reports, BytesThatAreNoUtf8AreReplaced) {
  const std::string line = to_line(Report(Warning{.rank = 1, .message = "\xff"}));
  EXPECT_TRUE(report_from_line(line)) << line;
}

}  // namespace
}  // namespace dsj::report
