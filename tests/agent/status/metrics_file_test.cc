#include "agent/status/metrics_file.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

namespace dsj::agent {
namespace {

struct MetricsFileTest : testing::Test {
  std::string path = testing::TempDir() + "metrics-" + std::to_string(getpid()) + ".jsonl";
  void SetUp() override { std::filesystem::remove(path); }
  void TearDown() override { std::filesystem::remove(path); }

  void append(MetricsFile& file, int64_t step, double loss = 1) {
    const auto status = file.append(report::Step{.step = step, .loss = loss}, {});
    ASSERT_TRUE(status) << status.error().to_string();
  }
  std::vector<nlohmann::json> lines() {
    std::vector<nlohmann::json> result;
    std::ifstream in(path);
    for (std::string line; std::getline(in, line);) result.push_back(nlohmann::json::parse(line));
    return result;
  }
  std::vector<int64_t> steps() {
    std::vector<int64_t> result;
    for (const auto& line : lines()) result.push_back(line["step"]);
    return result;
  }
};

TEST_F(MetricsFileTest, OneStrictLinePerStepWithTheFixedNames) {
  auto file = MetricsFile::open(path);
  ASSERT_TRUE(file);
  append(*file, 1);
  append(*file, 2, NAN);
  const auto all = lines();
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].size(), 11u);
  EXPECT_EQ(all[1]["loss"], "NaN");
  std::ifstream in(path);
  std::string first;
  std::getline(in, first);
  EXPECT_EQ(first.rfind("{\"step\":1,\"loss\":1.0,\"lr\":", 0), 0u) << first;
}

TEST_F(MetricsFileTest, EvaluationsLieBehindTheirStep) {
  const auto evaluated = [](MetricsFile& file, int64_t step) {
    const auto status = file.append(report::Eval{.step = step, .loss = 0.5, .rows = 7}, {});
    ASSERT_TRUE(status) << status.error().to_string();
  };
  {
    auto file = MetricsFile::open(path);
    evaluated(*file, 0);  // eval_on_start
    for (int step = 1; step <= 4; ++step) {
      append(*file, step);
      if (step % 2 == 0) evaluated(*file, step);
    }
    evaluated(*file, 3);  // of a step that is not the last: dropped
  }
  auto file = MetricsFile::open(path);
  EXPECT_EQ(steps(), (std::vector<int64_t>{0, 1, 2, 2, 3, 4, 4}));
  EXPECT_EQ(file->last_step(), 4);
  ASSERT_TRUE(file->drop_after(3));
  EXPECT_EQ(steps(), (std::vector<int64_t>{0, 1, 2, 2, 3}));
  append(*file, 2);
  EXPECT_EQ(steps(), (std::vector<int64_t>{0, 1, 2})) << "it is evaluated again";
  EXPECT_EQ(lines()[0].size(), 3u);
  EXPECT_EQ(lines()[0]["eval_loss"], 0.5);
}

TEST_F(MetricsFileTest, ResumeDropsLaterLinesAndGoesOn) {
  {
    auto file = MetricsFile::open(path);
    for (int step = 1; step <= 9; ++step) append(*file, step);
  }
  auto file = MetricsFile::open(path);
  EXPECT_EQ(file->last_step(), 9);
  ASSERT_TRUE(file->drop_after(5));
  EXPECT_EQ(steps(), (std::vector<int64_t>{1, 2, 3, 4, 5}));
  append(*file, 6, 2.0);
  append(*file, 7, 2.0);
  EXPECT_EQ(steps(), (std::vector<int64_t>{1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(lines()[5]["loss"], 2.0);
  EXPECT_TRUE(file->sync());
}

TEST_F(MetricsFileTest, AnAttemptFromTheStartReplacesAll) {
  auto file = MetricsFile::open(path);
  for (int step = 1; step <= 4; ++step) append(*file, step);
  append(*file, 1, 5.0);
  EXPECT_EQ(steps(), (std::vector<int64_t>{1}));
  EXPECT_EQ(lines()[0]["loss"], 5.0);
}

TEST_F(MetricsFileTest, TornAndDamagedLinesAreCut) {
  std::ofstream(path) << "{\"step\":1}\n{\"step\":2}\ngarbage\n{\"step\":3}\n{\"ste";
  auto file = MetricsFile::open(path);
  ASSERT_TRUE(file);
  EXPECT_EQ(file->last_step(), 2);
  append(*file, 3);
  EXPECT_EQ(steps(), (std::vector<int64_t>{1, 2, 3}));
}

TEST_F(MetricsFileTest, DirectoryInItsPlaceIsAnError) {
  const auto file = MetricsFile::open(testing::TempDir());
  ASSERT_FALSE(file);
  EXPECT_EQ(file.error().kind, ErrorKind::Environment);
}

TEST_F(MetricsFileTest, AFileOfThisNameThatNoRunWroteIsKept) {
  std::ofstream(path) << "{\"epoch\": 1, \"mine\": true}\n";
  {
    auto file = MetricsFile::open(path);
    ASSERT_TRUE(file);
    append(*file, 1);
  }
  EXPECT_EQ(steps(), std::vector<int64_t>{1});
  std::ifstream kept(path + ".kept");
  std::string line;
  std::getline(kept, line);
  EXPECT_EQ(line, "{\"epoch\": 1, \"mine\": true}");
  std::filesystem::remove(path + ".kept");
}

}  // namespace
}  // namespace dsj::agent
