#include "job/spec/stored_job.h"

#include <gtest/gtest.h>

#include <random>

#include "job/spec/cluster_spec.h"
#include "tests/job/spec/refusal.h"

namespace dsj::jobspec {
namespace {

using nlohmann::json;

/// `long_words`: bytes in the ds_config.
json spec_of(size_t long_words) {
  json spec = json::parse(R"({
      "deepspeed": {"config": {"train_batch_size": "auto", "zero_optimization": {"stage": 2}}},
      "training": {"modelNameOrPath": "/m", "dataPath": "/d.json", "outputDir": "/tmp/o", "maxSteps": 10},
      "workers": {"replicas": 2, "slotsPerWorker": 1}})");
  if (long_words > 0)
    spec["deepspeed"]["config"]["tensorboard"] = {{"enabled", false},
                                                  {"job_name", std::string(long_words, 'x')}};
  return spec;
}

TEST(StoredJob, AJobThatNoConfigMapHoldsIsRefusedWithSizes) {
  EXPECT_EQ(refusal(spec_of(0)), "");
  EXPECT_EQ(refusal(spec_of(400'000)), "");
  // In spec.json and in job.json: 1.2 MB.
  const std::string found = refusal(spec_of(600'000));
  EXPECT_NE(found.find("spec: found 1"), std::string::npos) << found;
  EXPECT_NE(found.find("spec.json 600"), std::string::npos) << found;
  EXPECT_NE(found.find("expected at most 1015808"), std::string::npos) << found;
}

/// By hand: the sum of the values is what an API server counts.
TEST(StoredJob, TheLimitIsOnTheSumOfAllTexts) {
  std::mt19937 random(3);
  const auto job = check_cluster_spec("j", spec_of(0), std::nullopt).job;
  int refused = 0;
  for (int i = 0; i < 60; ++i) {
    StoredTexts texts{.spec = std::string(random() % 700'000, 's')};
    if (random() % 2) texts.config = std::string(random() % 700'000, 'c');
    if (random() % 2) texts.worker_template = std::string(random() % 700'000, 't');
    size_t bytes = 0;
    for (const auto& [key, text] : stored_data(job, texts)) bytes += text.size();
    const size_t least = texts.spec.size() + texts.config.size() + texts.worker_template.size();
    EXPECT_GT(bytes, least);
    EXPECT_LT(bytes, least + 20'000);
    const bool wrong = check_stored_size(job, texts).has_value();
    EXPECT_EQ(wrong, bytes > (1u << 20) - kTokenKeysBytesMax) << bytes;
    refused += wrong;
  }
  EXPECT_GT(refused, 5);
  EXPECT_LT(refused, 55);
}

}  // namespace
}  // namespace dsj::jobspec
