// A bare ds_config: what it leaves to the job is a note, what no job can satisfy is an error.
#include <gtest/gtest.h>

#include <random>

#include "job/dsconfig/keys/keys.h"
#include "job/dsconfig/resolve.h"
#include "tests/support/json_path.h"

namespace dsj::dsconfig {
namespace {

using nlohmann::json;

std::string noted(const Resolution& resolution) {
  std::string paths;
  for (const Note& note : resolution.notes) {
    EXPECT_FALSE(note.message.empty());
    EXPECT_FALSE(note.hint.empty());
    paths += (paths.empty() ? "" : " ") + note.path;
  }
  return paths;
}

constexpr char kBatch[] = "train_micro_batch_size_per_gpu";

/// What guides show, and the job's arguments that complete it.
TEST(Alone, AFragmentIsValidAndAJobCompletesIt) {
  struct Fragment {
    const char* text;
    std::string notes;
  };
  const std::string batch = kBatch;
  for (const auto& [text, notes] : {
           Fragment{R"({"zero_optimization": {"stage": 1}})", batch},
           Fragment{R"({"optimizer": {"type": "AdamW", "params": {"lr": 3e-5}}})", batch},
           Fragment{R"({"gradient_accumulation_steps": 4})", batch},
           Fragment{R"({"bf16": {"enabled": "auto"}})", batch},
           Fragment{"{}", batch},
           Fragment{R"({"scheduler": {"type": "WarmupDecayLR", "params": {}}})",
                    batch + " scheduler.params.total_num_steps"},
           Fragment{R"({"train_batch_size": 8, "data_types": {"param_dtype": "bf16"}})",
                    "bf16.enabled"},
           Fragment{R"({"train_batch_size": 8})", ""},
           Fragment{R"({"train_batch_size": "auto"})", ""},
       }) {
    SCOPED_TRACE(text);
    const Resolution alone = resolve_alone(json::parse(text));
    EXPECT_TRUE(alone.runnable()) << alone.findings.front().message;
    EXPECT_EQ(noted(alone), notes);
    TrainingArgs job;
    if (notes.starts_with(kBatch)) job.per_device_train_batch_size = 1;
    if (notes.ends_with("total_num_steps")) job.max_steps = 10;
    if (notes == "bf16.enabled") job.bf16 = true;
    const Resolution together = resolve(json::parse(text), job, {.world_size = 2});
    EXPECT_TRUE(together.ok()) << together.findings.front().message;
    EXPECT_TRUE(together.notes.empty());
  }
}

TEST(Alone, AContradictionStaysAnError) {
  for (const char* text :
       {R"({"train_batch_size": 33, "train_micro_batch_size_per_gpu": 4,
            "gradient_accumulation_steps": 2})",
        R"({"fp16": {"enabled": true}, "bf16": {"enabled": true}})", R"({"train_batch_size": 0})",
        R"({"zero_optimization": {"stage": 4}})",
        R"({"bf16": {"enabled": false}, "data_types": {"param_dtype": "bf16"}})",
        R"({"data_types": {"param_dtype": "bf16", "grad_accum_dtype": "fp16"}})",
        R"({"optimizer": {"params": {"lr": 1}}})",
        R"({"zero_optimization": {"stage": 3, "offload_param": {"device": "nvme"}}})"}) {
    const Resolution alone = resolve_alone(json::parse(text));
    EXPECT_FALSE(alone.ok()) << text;
  }
  // An error of the batch itself is not spoken of twice.
  EXPECT_EQ(noted(resolve_alone({{"train_batch_size", 0}})), "");
}

/// A job still has to say what its ds_config does not.
TEST(Alone, AJobWithoutABatchSizeIsRefused) {
  const Resolution job = resolve({{"zero_optimization", {{"stage", 1}}}}, {}, {.world_size = 2});
  ASSERT_EQ(job.findings.size(), 1u);
  EXPECT_EQ(job.findings[0].severity, Finding::Severity::Error);
  EXPECT_EQ(job.findings[0].path, kBatch);
  EXPECT_NE(job.findings[0].message.find("needs to be given"), std::string::npos);
  EXPECT_NE(job.findings[0].hint.find("perDeviceTrainBatchSize"), std::string::npos);
  EXPECT_TRUE(job.notes.empty());
}

/// Random configs: some job takes each that is valid alone, and none takes one that is not.
TEST(Alone, ValidMeansThatSomeJobTakesIt) {
  std::mt19937 random(5);
  const std::vector<json> values = {true, false,  0,      1,      2,      8,     0.5,
                                    4.0,  "auto", "bf16", "fp16", "fp32", "cpu", 1000};
  std::vector<TrainingArgs> jobs;
  for (const bool batch : {true, false})
    for (const int type : {0, 1, 2}) {
      TrainingArgs job;
      if (batch) job.per_device_train_batch_size = 1;
      if (type == 1) job.bf16 = true;
      if (type == 2) job.fp16 = true;
      job.max_steps = 1;
      jobs.push_back(job);
    }
  int valid = 0, with_notes = 0, refused = 0;
  for (int round = 0; round < 1'500; ++round) {
    json config = json::object();
    for (int edits = 1 + static_cast<int>(random() % 4); edits > 0; --edits) {
      const Key& key = all_keys()[random() % all_keys().size()];
      if (key.type == Type::Section) continue;
      testing_support::set_at(config, key.path, values[random() % values.size()]);
    }
    const Resolution alone = resolve_alone(config);
    bool taken = false;
    for (const TrainingArgs& job : jobs)
      for (const int world : {1, 2, 4, 8, 125, 250, 500, 1000})  // train_batch_size by the others
        taken = taken || resolve(config, job, {.world_size = world}).ok();
    EXPECT_EQ(alone.ok(), taken) << config.dump();
    (alone.ok() ? valid : refused) += 1;
    with_notes += alone.ok() && !alone.notes.empty();
  }
  EXPECT_GT(valid, 100);
  EXPECT_GT(with_notes, 100);
  EXPECT_GT(refused, 100);
}

}  // namespace
}  // namespace dsj::dsconfig
