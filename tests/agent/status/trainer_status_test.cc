#include "agent/status/trainer_status.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "job/contract.h"
#include "tests/kube/fake_clock.h"
#include "tests/support/soon.h"

namespace dsj::agent {
namespace {

using nlohmann::json;
using testing::HasSubstr;

struct TrainerVariables : testing::Test {
  std::map<std::string, std::string> variables;
  std::string folder = testing::TempDir() + "trainer-" + std::to_string(getpid());
  void SetUp() override {
    std::filesystem::create_directories(folder);
    std::ofstream(folder + "/ca.crt") << "an authority\n";
    variables = {{kEnvTrainerUrl, "https://trainer.kubeflow.svc:10443/apis/x/status"},
                 {kEnvTrainerAuthorities, folder + "/ca.crt"},
                 {kEnvTrainerToken, folder + "/token"}};
  }
  void TearDown() override { std::filesystem::remove_all(folder); }
  auto server() {
    return trainer_server([this](const char* name) {
      const auto found = variables.find(name);
      return found == variables.end() ? std::string() : found->second;
    });
  }
};

TEST_F(TrainerVariables, NameTheServerItsAuthoritiesAndTheToken) {
  const auto found = server();
  ASSERT_TRUE(found) << found.error().to_string();
  ASSERT_TRUE(*found);
  EXPECT_EQ((*found)->access.server, "https://trainer.kubeflow.svc:10443");
  EXPECT_EQ((*found)->path, "/apis/x/status");
  EXPECT_EQ((*found)->access.ca_pem, "an authority\n");
  EXPECT_EQ((*found)->access.token_file, folder + "/token") << "it rotates: read for each request";
}

TEST_F(TrainerVariables, WithoutThemNothingIsReported) {
  variables.erase(kEnvTrainerUrl);
  const auto found = server();
  ASSERT_TRUE(found);
  EXPECT_FALSE(*found);
}

TEST_F(TrainerVariables, HuggingFacesSwitchTurnsItOff) {
  variables[kEnvTrainerOff] = "true";
  EXPECT_FALSE(*server());
  variables[kEnvTrainerOff] = "false";
  EXPECT_TRUE(*server());
}

TEST_F(TrainerVariables, WhatNamesNoServerIsAnError) {
  for (const char* url : {"trainer:1/x", "http://trainer/x", "https://trainer", "https:///x"}) {
    variables[kEnvTrainerUrl] = url;
    const auto found = server();
    ASSERT_FALSE(found) << url;
    EXPECT_THAT(found.error().to_string(), HasSubstr("expected https://HOST"));
  }
  variables[kEnvTrainerUrl] = "https://trainer/x";
  variables[kEnvTrainerAuthorities] = folder + "/none";
  EXPECT_FALSE(server());
}

std::string metric(const json& body, const std::string& name) {
  for (const json& one : body["trainerStatus"].value("metrics", json::array()))
    if (one["name"] == name) return one["value"];
  return "";
}

TEST(TrainerBook, SaysWhatTrainersResourceHas) {
  TrainerBook book;
  EXPECT_FALSE(book.begun());
  book.take(report::Attempt{.attempt = 1, .world_size = 2}, "t0");
  EXPECT_TRUE(book.begun());
  EXPECT_EQ(book.body("t1"), json::parse(R"({"trainerStatus":
      {"progressPercentage": 0, "lastUpdatedTime": "t1"}})"));
  book.take(report::Resolved{.total_steps = 200}, "t1");
  for (int64_t step : {1, 2, 3})
    book.take(report::Step{.step = step,
                           .loss = 2.5,
                           .lr = 1e-5,
                           .step_seconds = 2,
                           .metrics = {{{"rewards/chosen", 0.5}}}},
              "t2");
  book.take(report::Eval{.step = 3, .loss = 1.25}, "t3");
  const json body = book.body("t3");
  EXPECT_EQ(body["trainerStatus"]["progressPercentage"], 1);
  EXPECT_EQ(body["trainerStatus"]["estimatedRemainingSeconds"], 394);
  EXPECT_EQ(metric(body, "loss"), "2.5");
  EXPECT_EQ(metric(body, "learning_rate"), "1e-05");
  EXPECT_EQ(metric(body, "rewards/chosen"), "0.5");
  EXPECT_EQ(metric(body, "eval_loss"), "1.25");
}

TEST(TrainerBook, OnlyACompleteRunIsAtAHundred) {
  TrainerBook book;
  book.take(report::Attempt{.attempt = 1}, "t");
  book.take(report::Resolved{.total_steps = 2}, "t");
  book.take(report::Step{.step = 2}, "t");
  EXPECT_EQ(book.body("t")["trainerStatus"]["progressPercentage"], 99);
  TrainerBook failed = book;
  failed.take(report::End{.exit_code = contract::kExitFailed}, "t");
  EXPECT_EQ(failed.body("t")["trainerStatus"]["progressPercentage"], 99);
  book.take(report::End{.exit_code = contract::kExitDone}, "t");
  EXPECT_EQ(book.body("t")["trainerStatus"]["progressPercentage"], 100);
  EXPECT_EQ(book.body("t")["trainerStatus"]["estimatedRemainingSeconds"], 0);
}

/// The length of a run may not be known before its end.
TEST(TrainerBook, WithoutATotalThereIsNoPercentage) {
  TrainerBook book;
  book.take(report::Attempt{.attempt = 1}, "t");
  book.take(report::Step{.step = 7, .loss = 1}, "t");
  EXPECT_FALSE(book.body("t")["trainerStatus"].contains("progressPercentage"));
  EXPECT_EQ(metric(book.body("t"), "loss"), "1.0");
}

/// Of Trainer's CRD: 256 metrics, 64 characters each, and no number in JSON that is none.
TEST(TrainerBook, StaysWithinTheBoundsOfTheResource) {
  TrainerBook book;
  std::map<std::string, double> many{{"", 1}, {std::string(100, 'x'), 2}};
  for (int i = 0; i < 300; ++i) many["m" + std::to_string(i)] = i;
  book.take(report::Attempt{.attempt = 1}, "t");
  book.take(report::Step{.step = 1, .loss = std::nan(""), .lr = -INFINITY, .metrics = many}, "t");
  const json body = book.body("t");
  ASSERT_EQ(body["trainerStatus"]["metrics"].size(), 256u);
  for (const json& one : body["trainerStatus"]["metrics"]) {
    EXPECT_LE(one["name"].get<std::string>().size(), 64u);
    EXPECT_GE(one["name"].get<std::string>().size(), 1u);
    EXPECT_LE(one["value"].get<std::string>().size(), 64u);
  }
  EXPECT_EQ(metric(body, "loss"), "NaN");
  EXPECT_EQ(metric(body, "learning_rate"), "-Infinity");
}

struct PlayedTrainer final : kube::Transport {
  std::expected<kube::Response, kube::NetError> call(const kube::Request& request,
                                                     const kube::Cancel&) override {
    const std::lock_guard lock(mutex);
    asked.push_back(request);
    if (away) return std::unexpected(kube::NetError{kube::NetError::Kind::Connect, "no route"});
    return kube::Response{.status = status, .body = "{}"};
  }
  std::expected<kube::StreamResponse, kube::NetError> open(const kube::Request&,
                                                           const kube::Cancel&) override {
    return std::unexpected(kube::NetError{});
  }
  size_t count() {
    const std::lock_guard lock(mutex);
    return asked.size();
  }
  json last() {
    const std::lock_guard lock(mutex);
    return json::parse(asked.back().body)["trainerStatus"];
  }
  void answer(int code, bool gone) {
    const std::lock_guard lock(mutex);
    status = code;
    away = gone;
  }
  std::mutex mutex;
  std::vector<kube::Request> asked;
  int status = 200;
  bool away = false;
};

TEST(TrainerStatus, PostsTheStartThenStepsApartThenTheEnd) {
  PlayedTrainer trainer;
  kube::testing::FakeClock clock;
  TrainerStatus status(trainer, clock, "/status", Time(5'000));
  status.report(report::Warning{.message = "before the first attempt nothing is told"});
  status.report(report::Attempt{.attempt = 1});
  ASSERT_TRUE(soon([&] { return trainer.count() == 1; }));
  EXPECT_EQ(trainer.asked[0].method, "POST");
  EXPECT_EQ(trainer.asked[0].path, "/status");
  EXPECT_EQ(trainer.last()["progressPercentage"], 0);
  for (int64_t step = 1; step <= 50; ++step) status.report(report::Step{.step = step, .loss = 2});
  status.report(report::End{.exit_code = contract::kExitDone});
  status.finish(Time(30'000));
  EXPECT_EQ(trainer.count(), 2u) << "fifty steps in no time are one report";
  EXPECT_EQ(trainer.last()["progressPercentage"], 100);
  EXPECT_FALSE(status.take_problem());
}

TEST(TrainerStatus, WhatWasNotTakenIsToldOnceAndTriedAgain) {
  PlayedTrainer trainer;
  trainer.answer(403, false);
  {
    TrainerStatus status(trainer, kube::system_clock(), "/status", Time(10));
    status.report(report::Attempt{.attempt = 1});
    std::optional<std::string> next;
    ASSERT_TRUE(soon([&] { return (next = status.take_problem()).has_value(); }));
    EXPECT_THAT(*next, HasSubstr("answered 403"));
    EXPECT_EQ(trainer.count(), 1u) << "the same would be refused again";
    trainer.answer(200, true);
    status.report(report::Step{.step = 1});
    ASSERT_TRUE(soon([&] { return (next = status.take_problem()).has_value(); }));
    EXPECT_THAT(*next, HasSubstr("no route"));
    ASSERT_TRUE(soon([&] { return trainer.count() >= 4; })) << "tried again without news";
    EXPECT_FALSE(status.take_problem()) << "once for each reason";
    trainer.answer(200, false);
    status.report(report::End{.exit_code = contract::kExitDone});
    status.finish(Time(30'000));
  }
  EXPECT_EQ(trainer.last()["progressPercentage"], 100);
}

}  // namespace
}  // namespace dsj::agent
