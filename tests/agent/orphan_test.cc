#include "agent/orphan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/files/memory_files.h"
#include "job/contract.h"
#include "job/report/run_end.h"
#include "job/spec/yaml.h"

namespace dsj::agent {
namespace {

using nlohmann::json;
using testing::HasSubstr;

constexpr char kNow[] = "2026-01-02T00:00:00Z";

std::string running() {
  json status = {{"phase", "Running"}, {"training", {{"step", 7}}}};
  report::set_condition(status, "Running", true, "AttemptStarted", "attempt 1",
                        "2026-01-01T00:00:00Z");
  return jobspec::to_yaml(status);
}

LastReports last(int exit_code) {
  return {.end = report::End{.exit_code = exit_code, .reason = "Preempted", .message = "m"},
          .saved = report::Checkpoint{.step = 9, .path = "/o/checkpoints/step-9"},
          .world_size = 2};
}

TEST(Orphan, TheStatusSaysHowTheRunEndedAndWhatItSaved) {
  MemoryFiles files;
  ASSERT_TRUE(files.make_dirs("/o"));
  ASSERT_TRUE(files.write_atomically("/o/status.yaml", running()));
  ASSERT_TRUE(write_end(files, "/o", last(contract::kExitPreempted), kNow));
  const json status = jobspec::parse_yaml(*files.read_all("/o/status.yaml"), "s")->value;
  EXPECT_EQ(status["phase"], "Interrupted");
  EXPECT_EQ(status["training"]["step"], 7) << "what stood there stays";
  EXPECT_EQ(status["checkpoint"]["lastSaved"]["step"], 9);
  ASSERT_EQ(status["conditions"].size(), 3u);
  EXPECT_EQ(status["conditions"][0]["status"], "False");
  EXPECT_EQ(status["conditions"][2]["type"], "Interrupted");
  EXPECT_EQ(status["conditions"][2]["reason"], "SupervisorLost");
  EXPECT_THAT(status["conditions"][2]["message"].get<std::string>(), HasSubstr("dsj run is gone"));
}

TEST(Orphan, ARunThatFailedOrWasDoneMeanwhileIsThat) {
  for (const auto& [code, phase] : {std::pair{contract::kExitDone, "Complete"},
                                    std::pair{contract::kExitNotFinite, "Failed"}}) {
    const auto text = with_end(running(), "s", last(code), kNow);
    ASSERT_TRUE(text);
    const json status = jobspec::parse_yaml(*text, "s")->value;
    EXPECT_EQ(status["phase"], phase);
    EXPECT_EQ(status["completionTime"], kNow);
  }
}

TEST(Orphan, WhatIsNoStatusStaysAsItIs) {
  MemoryFiles files;
  ASSERT_TRUE(files.make_dirs("/o"));
  EXPECT_FALSE(write_end(files, "/o", last(3), kNow)) << "there is none";
  ASSERT_TRUE(files.write_atomically("/o/status.yaml", "- a list"));
  EXPECT_FALSE(write_end(files, "/o", last(3), kNow));
  EXPECT_EQ(files.read_all("/o/status.yaml").value_or(""), "- a list");
  EXPECT_TRUE(write_end(files, "/o", {}, kNow)) << "the job has not ended";
}

}  // namespace
}  // namespace dsj::agent
