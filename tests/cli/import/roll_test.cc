#include "cli/import/roll.h"

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>

#include "common/files/posix_files.h"
#include "job/spec/job.h"
#include "job/spec/yaml.h"
#include "test_paths.h"
#include "tests/cli/import/support.h"
#include "tests/support/shared_files.h"

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
  EXPECT_EQ(lora["alpha"], 32.0);  // twice the rank, as in ROLL
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

/// A role that trains with one of ROLL's own DeepSpeed files; the pipeline names all four.
std::string with_predefined(const std::string& name) {
  return R"(defaults:
  - ../config/deepspeed_zero@_here_
  - ../config/deepspeed_zero2@_here_
  - ../config/deepspeed_zero3@_here_
  - ../config/deepspeed_zero3_cpuoffload@_here_
pretrain: m
actor_train:
  training_args: {per_device_train_batch_size: 1}
  data_args: {file_name: d.jsonl}
  strategy_args: {strategy_name: deepspeed_train, strategy_config: "${)" +
         name + R"(}"}
  device_mapping: list(range(0,2))
)";
}

TEST(Roll, EachPredefinedFileStandsInForTheCheckoutAndTheJobSaysSo) {
  struct Expected {
    int stage;
    json offload;
  };
  const std::map<std::string, Expected> all = {
      {"deepspeed_zero", {0, nullptr}},
      {"deepspeed_zero2", {2, nullptr}},
      {"deepspeed_zero3", {3, nullptr}},
      {"deepspeed_zero3_cpuoffload", {3, {{"device", "cpu"}, {"pin_memory", true}}}}};
  EXPECT_EQ(predefined_files().size(), all.size());
  for (const auto& [name, expected] : all) {
    SCOPED_TRACE(name);
    Folder folder;
    const auto pipeline = pipeline_of(folder, with_predefined(name));
    ASSERT_TRUE(pipeline) << pipeline.error().to_string();
    EXPECT_EQ(pipeline->substitutes.size(), 4u);
    auto imported = import_role(*pipeline, "actor_train");
    ASSERT_TRUE(imported) << imported.error().to_string();
    ASSERT_TRUE(finish(*imported, {}));
    const json& config = imported->manifest["spec"]["deepspeed"]["config"];
    EXPECT_EQ(config["bf16"], (json{{"enabled", true}}));
    EXPECT_EQ(config["zero_optimization"]["stage"], expected.stage);
    EXPECT_EQ(config["zero_optimization"].value("offload_optimizer", json()), expected.offload);
    // Only the one that the role uses, not all of the pipeline's.
    const std::string line = name + ": dsj's own configs/roll/" + name + ".yaml, because config/" +
                             name + ".yaml is not there (run/p.yaml: defaults[";
    ASSERT_EQ(imported->predefined.size(), 1u);
    EXPECT_TRUE(imported->predefined[0].starts_with(line)) << imported->predefined[0];
    EXPECT_NE(to_text(*imported).find("# Predefined:\n#   " + line), std::string::npos)
        << to_text(*imported);
    const auto job = jobspec::parse_job_yaml(to_text(*imported), "job.yaml");
    ASSERT_TRUE(job) << job.error().to_string();
    const auto resolution = jobspec::resolve(*job, {.world_size = 2, .hidden_size = 64});
    EXPECT_TRUE(resolution.runnable());
    EXPECT_EQ(resolution.config.zero.stage, expected.stage);
  }
}

TEST(Roll, AFileThatIsThereWinsOverThePredefinedOne) {
  Folder folder;
  folder.add("config/deepspeed_zero3.yaml",
             "deepspeed_zero3: {bf16: {enabled: true}, zero_optimization: {stage: 1}}\n");
  const auto pipeline = pipeline_of(folder, with_predefined("deepspeed_zero3"));
  ASSERT_TRUE(pipeline) << pipeline.error().to_string();
  EXPECT_EQ(pipeline->substitutes.size(), 3u);
  const auto imported = import_role(*pipeline, "actor_train");
  ASSERT_TRUE(imported) << imported.error().to_string();
  const json& config = imported->manifest["spec"]["deepspeed"]["config"];
  EXPECT_EQ(config["zero_optimization"], (json{{"stage", 1}}));
  EXPECT_TRUE(imported->predefined.empty());
  EXPECT_EQ(to_text(*imported).find("Predefined"), std::string::npos);
}

TEST(Roll, AnUnknownPredefinedNameIsRefusedWithThoseThereAre) {
  Folder folder;
  std::string text = with_predefined("deepspeed_zero");
  text.replace(text.find("deepspeed_zero2@"), 16, "deepspeed_zero4@");
  const auto pipeline = pipeline_of(folder, text);
  ASSERT_FALSE(pipeline);
  EXPECT_EQ(pipeline.error().where, "run/p.yaml: defaults[1]");
  EXPECT_EQ(pipeline.error().message, "there is no file \"config/deepspeed_zero4.yaml\"");
  EXPECT_EQ(pipeline.error().hint,
            "name its directory: --search-path DIR; predefined are deepspeed_zero, "
            "deepspeed_zero2, deepspeed_zero3, deepspeed_zero3_cpuoffload");
}

/// The compiled-in files equal those in configs/roll.
TEST(Roll, PredefinedFilesAreThoseOfTheRepository) {
  PosixFiles files;
  const std::string folder = std::string(DSJ_SOURCE_DIR) + "/configs/roll";
  const auto entries = files.list_dir(folder);
  ASSERT_TRUE(entries) << entries.error().to_string();
  EXPECT_EQ(entries->size(), predefined_files().size());
  for (const auto& [name, text] : predefined_files()) {
    const auto found = files.read_all(std::string(DSJ_SOURCE_DIR) + "/" + predefined_path(name));
    ASSERT_TRUE(found) << found.error().to_string();
    EXPECT_EQ(text, *found) << name;
  }
}

fs::path corpus() {
  return testing_support::shared_directory() / "corpus/roll";
}

TEST(Roll, PredefinedFilesSetWhatTheirNamesakesSet) {
  if (!fs::exists(corpus())) GTEST_SKIP() << "NO CORPUS: " << corpus();
  for (const auto& [name, text] : predefined_files()) {
    const auto ours = jobspec::parse_yaml(text, name, jobspec::Dialect::Omega);
    const auto theirs = jobspec::read_yaml(
        (corpus() / "examples/config" / (name + ".yaml")).string(), jobspec::Dialect::Omega);
    ASSERT_TRUE(ours) << ours.error().to_string();
    ASSERT_TRUE(theirs) << theirs.error().to_string();
    EXPECT_EQ(ours->value, theirs->value) << name;
  }
}

/// Real pipelines give the same jobs without their checkout as with it.
TEST(Roll, ThePipelinesOfTheCorpusImportWithoutTheirCheckout) {
  if (!fs::exists(corpus())) GTEST_SKIP() << "NO CORPUS: " << corpus();
  PosixFiles files;
  int jobs = 0;
  for (const char* path : {"examples/qwen2.5-7B-rlvr_megatron/rlvr_zero3_sp2.yaml",
                           "examples/qwen2.5-7B-rlvr_megatron/rlvr_lora_zero3.yaml",
                           "examples/qwen2.5-1.5B-distill_ds/distill_zero3.yaml",
                           "examples/ascend_examples/qwen3_8b_rlvr_deepspeed.yaml",
                           "examples/docs_examples/example_ppo.yaml"}) {
    SCOPED_TRACE(path);
    const std::string whole = (corpus() / path).string();
    const auto text = files.read_all(whole);
    ASSERT_TRUE(text) << text.error().to_string();
    Folder alone;
    alone.add("run/p.yaml", *text);
    const auto there = read_roll(files, whole, {});
    const auto here = read_roll(alone.files, "run/p.yaml", {});
    ASSERT_TRUE(there) << there.error().to_string();
    ASSERT_TRUE(here) << here.error().to_string();
    EXPECT_EQ(here->value, there->value);
    EXPECT_TRUE(there->substitutes.empty());
    EXPECT_EQ(here->substitutes.size(), 4u);
    for (const RollRole& role : here->roles) {
      if (!role.imports()) continue;
      const auto imported = import_role(*here, role.path);
      const auto expected = import_role(*there, role.path);
      ASSERT_TRUE(imported) << imported.error().to_string();
      ASSERT_TRUE(expected) << expected.error().to_string();
      EXPECT_EQ(imported->manifest, expected->manifest);
      EXPECT_EQ(imported->predefined.size(), 1u);
      ++jobs;
    }
  }
  EXPECT_GE(jobs, 5);
}

/// Every file of the corpus is read, and every deepspeed_train role gives a valid job.
TEST(Roll, TheWholeCorpus) {
  const fs::path root = corpus();
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
