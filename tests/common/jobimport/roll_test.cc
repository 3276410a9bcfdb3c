#include "common/jobimport/roll.h"

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "common/files/posix_files.h"
#include "common/jobspec/job.h"
#include "tests/common/jobimport/support.h"

namespace dsj::jobimport {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr char kZero2[] = R"(zero2:
  bf16: {enabled: true}
  train_batch_size: 512
  optimizer: {type: Adam}
  zero_optimization: {stage: 2, reduce_bucket_size: 5.0e+8}
)";

constexpr char kPipeline[] = R"(defaults:
  - ../config/zero2@_here_
exp_name: "My run"
seed: 7
pretrain: Qwen/Qwen2.5-0.5B
max_grad_norm: 0.5
max_steps: 100
prompt_length: 128
response_length: 384
num_gpus_per_node: 4
output_dir: ./output
micro: 2
actor_train:
  model_args: {dtype: bf16, disable_gradient_checkpointing: true, lora_rank: 8}
  training_args:
    learning_rate: 1e-6
    per_device_train_batch_size: ${micro}
    gradient_accumulation_steps: 1_0
    lr_scheduler_type: cosine
    warmup_steps: 020
    bf16_full_eval: yes
  data_args: {file_name: [data/a.jsonl, data/b.jsonl], template: qwen2_5}
  strategy_args: {strategy_name: deepspeed_train, strategy_config: "${zero2}"}
  device_mapping: list(range(0,8))
actor_infer:
  strategy_args: {strategy_name: vllm}
  device_mapping: "[8, 9]"
)";

Result<RollPipeline> pipeline_of(Folder& folder, const std::string& text) {
  folder.add("config/zero2.yaml", kZero2).add("run/p.yaml", text);
  return read_roll(folder.files, "run/p.yaml", {});
}

TEST(Roll, ARoleBecomesAJob) {
  Folder folder;
  const auto pipeline = pipeline_of(folder, kPipeline);
  ASSERT_TRUE(pipeline) << pipeline.error().to_string();
  ASSERT_EQ(pipeline->roles.size(), 2u);
  EXPECT_EQ(pipeline->roles[0].strategy, "vllm");
  EXPECT_EQ(pipeline->roles[0].ranks, 2);
  EXPECT_TRUE(pipeline->roles[1].imports());
  auto imported = import_role(*pipeline, "actor_train");
  ASSERT_TRUE(imported) << imported.error().to_string();
  ASSERT_TRUE(finish(*imported, {}));
  const json& spec = imported->manifest["spec"];
  const json training = {{"bf16", true},
                         {"dataPath", "data/a.jsonl"},
                         {"gradientAccumulationSteps", 10},
                         {"gradientCheckpointing", false},
                         {"learningRate", 1e-6},
                         {"lrSchedulerType", "cosine"},
                         {"maxGradNorm", 0.5},
                         {"maxSeqLength", 512},
                         {"modelNameOrPath", "Qwen/Qwen2.5-0.5B"},
                         {"outputDir", "./output/actor_train"},
                         {"perDeviceTrainBatchSize", 2},
                         {"seed", 7},
                         {"warmupSteps", 16}};  // 020 is octal to YAML 1.1
  EXPECT_EQ(spec["training"], training) << spec["training"].dump(1);
  EXPECT_EQ(spec["workers"], (json{{"replicas", 2}, {"slotsPerWorker", 4}}));
  const json config = {{"bf16", {{"enabled", true}}},
                       {"gradient_clipping", "auto"},
                       {"train_micro_batch_size_per_gpu", "auto"},
                       {"zero_optimization", {{"reduce_bucket_size", 5.0e8}, {"stage", 2}}}};
  EXPECT_EQ(spec["deepspeed"]["config"], config);
  EXPECT_EQ(imported->manifest["metadata"]["name"], "my-run-actor-train");
  for (const char* lost :
       {"model_args.lora_rank 8: there is no lora_target", "1 more files", "max_steps 100",
        "training_args.bf16_full_eval true", "strategy_config.optimizer",
        "strategy_config.train_batch_size", "actor_infer (vllm)"})
    EXPECT_TRUE(any_contains(imported->not_carried, lost)) << lost;
  const auto job = jobspec::parse_job_yaml(to_text(*imported), "job.yaml");
  ASSERT_TRUE(job) << job.error().to_string();
  EXPECT_TRUE(jobspec::resolve(*job, {}).ok());
}

TEST(Roll, OtherStrategiesAndUnknownRolesAreNamed) {
  Folder folder;
  const auto pipeline = pipeline_of(folder, kPipeline);
  ASSERT_TRUE(pipeline);
  const auto other = import_role(*pipeline, "actor_infer");
  ASSERT_FALSE(other);
  EXPECT_NE(other.error().message.find("\"vllm\""), std::string::npos);
  const auto unknown = import_role(*pipeline, "actor");
  ASSERT_FALSE(unknown);
  EXPECT_NE(unknown.error().hint.find("actor_infer, actor_train"), std::string::npos);
}

TEST(Roll, LoraIsCarriedOver) {
  Folder folder;
  std::string text = kPipeline;
  text.replace(text.find("lora_rank: 8"), 12, "lora_target: \"q_proj, v_proj\", lora_rank: 16");
  const auto pipeline = pipeline_of(folder, text);
  ASSERT_TRUE(pipeline);
  const auto imported = import_role(*pipeline, "actor_train");
  ASSERT_TRUE(imported) << imported.error().to_string();
  const json lora = imported->manifest["spec"]["training"]["lora"];
  EXPECT_EQ(lora["r"], 16);
  EXPECT_EQ(lora["alpha"], 32.0);  // twice the rank, as ROLL has it
  EXPECT_EQ(lora["targetModules"], (json{"q_proj", "v_proj"}));
  EXPECT_FALSE(any_contains(imported->not_carried, "lora"));
}

TEST(Roll, TheEnvironmentIsNotRead) {
  Folder folder;
  std::string text = kPipeline;
  text.replace(text.find("./output\n"), 8, "${oc.env:HOME}/out");
  const auto pipeline = pipeline_of(folder, text);
  ASSERT_TRUE(pipeline);
  const auto imported = import_role(*pipeline, "actor_train");
  ASSERT_TRUE(imported) << imported.error().to_string();
  EXPECT_EQ(imported->manifest["spec"]["training"]["outputDir"], "${oc.env:HOME}/out/actor_train");
  EXPECT_TRUE(any_contains(imported->left_open, "oc.env:HOME"));
}

TEST(Roll, WhatIsMissingComesFromAnOverride) {
  Folder folder;
  std::string text = kPipeline;
  text.replace(text.find("list(range(0,8))"), 16, "list(range(0,6))");
  text.replace(text.find("pretrain: Qwen/Qwen2.5-0.5B"), 27, "other: 1");
  const auto pipeline = pipeline_of(folder, text);
  ASSERT_TRUE(pipeline);
  auto imported = import_role(*pipeline, "actor_train");
  ASSERT_TRUE(imported);
  const auto missing = finish(*imported, {});
  ASSERT_FALSE(missing);
  EXPECT_NE(missing.error().message.find("node 0: 4, node 1: 2"), std::string::npos)
      << missing.error().message;
  EXPECT_NE(missing.error().message.find("names no model"), std::string::npos);
  EXPECT_TRUE(
      finish(*imported, {"spec.workers.slotsPerWorker=3", "spec.training.modelNameOrPath=m"}));
  EXPECT_EQ(imported->manifest["spec"]["workers"]["slotsPerWorker"], 3);
}

/// Every file of the corpus is read, every deepspeed_train role gives a job that validates.
TEST(Roll, TheWholeCorpus) {
  const char* named = std::getenv("DSJ_SHARED_DIR");
  const fs::path root =
      (named != nullptr ? fs::path(named) : fs::path(DSJ_SOURCE_DIR) / "../shared") / "corpus/roll";
  if (!fs::exists(root)) GTEST_SKIP() << "NO CORPUS: " << root;
  PosixFiles files;
  int count = 0, roles = 0, trained = 0, jobs = 0, written = 0;
  for (const auto& entry : fs::recursive_directory_iterator(root)) {
    if (entry.path().extension() != ".yaml") continue;
    ++count;
    std::ifstream lines(entry.path());
    for (std::string line; std::getline(lines, line);)
      written += line.substr(0, line.find('#')).find("strategy_name: deepspeed_train") != line.npos;
    const auto pipeline = read_roll(files, entry.path().string(), {});
    ASSERT_TRUE(pipeline) << pipeline.error().to_string();
    for (const RollRole& role : pipeline->roles) {
      ++roles;
      auto imported = import_role(*pipeline, role.path);
      EXPECT_EQ(imported.has_value(), role.imports()) << entry.path() << " " << role.path;
      if (!role.imports()) continue;
      ++trained;
      ASSERT_TRUE(imported) << imported.error().to_string();
      const auto done = finish(*imported, {});
      ASSERT_TRUE(done) << done.error().to_string();
      const auto job = jobspec::parse_job_yaml(to_text(*imported), "job.yaml");
      ASSERT_TRUE(job) << entry.path() << ": " << job.error().to_string();
      EXPECT_EQ(job->world_size(), role.ranks) << entry.path() << " " << role.path;
      const auto resolution = jobspec::resolve(*job, {});
      for (const auto& finding : resolution.findings)
        EXPECT_NE(finding.severity, dsconfig::Finding::Severity::Error)
            << jobspec::to_line(*job, finding);
      jobs += resolution.ok();
    }
  }
  std::printf("ROLL corpus: %d files, %d roles, %d of deepspeed_train, %d jobs valid\n", count,
              roles, trained, jobs);
  EXPECT_GE(count, 29);
  EXPECT_EQ(trained, written) << "roles found by their strategy_name lines";
  EXPECT_GE(trained, 14);
  EXPECT_EQ(jobs, trained);
}

}  // namespace
}  // namespace dsj::jobimport
