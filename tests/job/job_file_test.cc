#include "job/job_file.h"

#include <gtest/gtest.h>

namespace dsj {
namespace {

using nlohmann::json;

JobFile example_job_file() {
  JobFile job;
  job.name = "qwen";
  job.attempt = 3;
  job.world_size = 2;
  job.output_dir = "/out";
  job.training.model_name_or_path = "/model";
  job.training.learning_rate = 1e-6;
  job.ds_config = {{"train_batch_size", "auto"}, {"zero_optimization", {{"stage", 2}}}};
  job.ds_config_source = "ds_config.json";
  return job;
}

TEST(JobFileTest, RoundTrip) {
  const json written = to_json(example_job_file());
  const auto read = job_file_from_json(json::parse(written.dump()));
  ASSERT_TRUE(read) << read.error().to_string();
  EXPECT_EQ(to_json(*read), written);
  EXPECT_EQ(read->world_size, 2);
  EXPECT_EQ(read->attempt, 3);
}

TEST(JobFileTest, TheRunMayBeUnknown) {
  JobFile job = example_job_file();
  EXPECT_FALSE(to_json(job).contains("run")) << "the operator's text is that of older versions";
  EXPECT_EQ(job_file_from_json(to_json(job))->run, "");
  job.run = "0f";
  EXPECT_EQ(job_file_from_json(to_json(job))->run, "0f");
}

TEST(JobFileTest, AMissingOrWrongFieldIsNamed) {
  const json good = to_json(example_job_file());
  for (const auto& [key, value] : good.items()) {
    json without = good;
    without.erase(key);
    const auto missing = job_file_from_json(without);
    ASSERT_FALSE(missing) << key;
    EXPECT_NE(missing.error().where.find(key), std::string::npos);
    json wrong = good;
    wrong[key] = json::array();
    EXPECT_FALSE(job_file_from_json(wrong)) << key;
  }
  json unknown = good;
  unknown["worldSiz"] = 2;
  EXPECT_FALSE(job_file_from_json(unknown));
  json zero = good;
  zero["worldSize"] = 0;
  EXPECT_FALSE(job_file_from_json(zero));
  EXPECT_FALSE(job_file_from_json(json::array()));
}

}  // namespace
}  // namespace dsj
