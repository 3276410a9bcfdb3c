#include "job/worker_job.h"

#include <gtest/gtest.h>

namespace dsj {
namespace {

WorkerJob example_worker_job() {
  WorkerJob job;
  job.job.name = "tune";
  job.job.world_size = 4;
  job.job.output_dir = "/out";
  job.job.training.max_steps = 20;
  job.job.ds_config = {{"train_batch_size", "auto"}, {"optimizer", {{"params", {{"lr", 1e-6}}}}}};
  job.job.ds_config_source = "spec.deepspeed.config";
  job.replicas = 2;
  job.slots = 2;
  job.save_timeout = std::chrono::milliseconds(1234);
  return job;
}

TEST(WorkerJob, SurvivesTheRoundTripByteForByte) {
  const std::string text = to_text(example_worker_job());
  const auto read = worker_job_from_text(text, "job.json");
  ASSERT_TRUE(read) << read.error().to_string();
  EXPECT_EQ(to_text(*read), text);
  EXPECT_EQ(*read, example_worker_job());
  EXPECT_EQ(read->job.training.max_steps, 20);
  EXPECT_EQ(read->save_timeout.count(), 1234);
}

TEST(WorkerJob, WhatIsMissingOrOutOfRangeIsNamed) {
  const auto none = worker_job_from_text("{}", "/etc/dsj/job.json");
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().where, "/etc/dsj/job.json");
  EXPECT_NE(none.error().message.find("'job'"), std::string::npos) << none.error().message;
  EXPECT_FALSE(worker_job_from_text("not json", "x"));
  WorkerJob job = example_worker_job();
  job.replicas = 0;
  const auto range = worker_job_from_text(to_text(job), "x");
  ASSERT_FALSE(range);
  EXPECT_NE(range.error().message.find("replicas"), std::string::npos);
  job = example_worker_job();
  job.job.name = "";
  auto object = nlohmann::json::parse(to_text(job));
  object["job"].erase("name");
  const auto inner = worker_job_from_text(object.dump(), "x");
  ASSERT_FALSE(inner);
  EXPECT_NE(inner.error().message.find("name"), std::string::npos);
}

/// As the release before wrote it. A pod of a run that began then may be made anew by an operator of this one.
TEST(WorkerJob, TheFileOfTheReleaseBeforeIsRead) {
  const auto read = worker_job_from_text(R"({
 "job": {"attempt": 1, "dsConfig": {"train_batch_size": "auto"}, "dsConfigSource":
  "spec.deepspeed.config", "name": "tune", "outputDir": "/out", "training": {"maxSteps": 20}, "worldSize": 4},
 "replicas": 2, "restartLimit": 5, "saveTimeoutMs": 60000, "slots": 2, "stepTimeoutMs": 90000})",
                                         "job.json");
  ASSERT_TRUE(read) << read.error().to_string();
  EXPECT_EQ(read->replicas, 2);
  EXPECT_EQ(read->restart_limit, 5);
  EXPECT_EQ(read->save_timeout.count(), 60'000);
  EXPECT_EQ(read->job.training.max_steps, 20);
  // What a later one does not write has its default.
  auto object = nlohmann::json::parse(to_text(example_worker_job()));
  EXPECT_EQ(object["version"], kWorkerJobVersion);
  for (const char* name : {"restartLimit", "saveTimeoutMs", "stepTimeoutMs"}) object.erase(name);
  const auto least = worker_job_from_text(object.dump(), "job.json");
  ASSERT_TRUE(least) << least.error().to_string();
  EXPECT_EQ(least->save_timeout, WorkerJob().save_timeout);
}

TEST(WorkerJob, AFileOfANewerReleaseIsRefusedWithTheReason) {
  auto object = nlohmann::json::parse(to_text(example_worker_job()));
  object["version"] = kWorkerJobVersion + 1;
  object["job"]["somethingNew"] = 1;
  const auto read = worker_job_from_text(object.dump(), "job.json");
  ASSERT_FALSE(read);
  EXPECT_NE(read.error().to_string().find("releases too far apart"), std::string::npos);
}

}  // namespace
}  // namespace dsj
