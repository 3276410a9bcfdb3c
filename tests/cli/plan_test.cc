#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/check/quantity.h"
#include "cli/verbs.h"
#include "job/spec/yaml.h"
#include "tests/cli/model_files.h"

namespace dsj::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

const char* kJob = R"(apiVersion: training.dsj.dev/v1alpha1
kind: DeepSpeedJob
metadata: {name: tiny}
spec:
  deepspeed:
    config:
      train_micro_batch_size_per_gpu: auto
      gradient_accumulation_steps: 2
      zero_optimization: {stage: 3, reduce_bucket_size: auto, stage3_param_persistence_threshold: auto}
  training:
    modelNameOrPath: model
    dataPath: data.json
    outputDir: out
    perDeviceTrainBatchSize: 2
    numTrainEpochs: 2
  workers: {slotsPerWorker: 2}
)";

class PlanTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    folder_ =
        fs::temp_directory_path() / ("dsj-plan-test-" + std::to_string(getpid()) + info->name());
    json config = small_config();
    config["max_position_embeddings"] = 128;
    write_model(folder_ / "model", config);
    write("data.json", token_rows(10, 128).dump());
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name) << text;
    return (folder_ / name).string();
  }
  std::string with(const std::string& from, const std::string& to) {
    std::string text = kJob;
    text.replace(text.find(from), from.size(), to);
    return write("job.yaml", text);
  }
  int run(std::vector<std::string> args) {
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    const int code = run_plan(args);
    out_ = testing::internal::GetCapturedStdout();
    err_ = testing::internal::GetCapturedStderr();
    return code;
  }

  fs::path folder_;
  std::string out_, err_;
};

TEST_F(PlanTest, ShowsWhatWouldRun) {
  const std::string file = write("job.yaml", kJob);
  ASSERT_EQ(run({file, "-o", "json"}), 0) << err_;
  const json plan = json::parse(out_);
  EXPECT_TRUE(plan["complete"]);
  EXPECT_EQ(plan["config"]["train_batch_size"], 8);
  EXPECT_EQ(plan["config"]["total_steps"], 4) << "ceil(10 rows / 8) x 2 epochs";
  EXPECT_EQ(plan["config"]["zero_optimization"]["reduce_bucket_size"], 4096);
  bool found = false;
  for (const json& origin : plan["origins"])
    found = found || (origin["path"] == "zero_optimization.reduce_bucket_size" &&
                      origin["value"] == "4096" && origin["from"] == "hidden_size^2");
  EXPECT_TRUE(found) << plan["origins"].dump(2);
  EXPECT_EQ(plan["topology"]["worldSize"], 2);
  EXPECT_EQ(plan["topology"]["ranks"][1],
            json::parse(R"({"rank": 1, "worker": 0, "localRank": 1})"));
  EXPECT_EQ(plan["memory"]["stage"], 3);
  const json& bytes = plan["memory"]["bytesPerRank"];
  const int64_t sum = bytes["parameters"].get<int64_t>() + bytes["gradients"].get<int64_t>() +
                      bytes["optimizer"].get<int64_t>() + bytes["buckets"].get<int64_t>() +
                      bytes["activations"].get<int64_t>();
  EXPECT_LE(bytes["peak"], sum);
  EXPECT_GT(bytes["peak"], sum / 2);
  EXPECT_EQ(bytes["nvme"], 0);
  EXPECT_EQ(bytes["host"], 0);
  EXPECT_EQ(plan["memory"]["hostBytesPerRank"]["gradients"], 0);
  EXPECT_GT(plan["memory"]["deepSpeedEstimatePerGpu"]["modelStates"], 0);
  EXPECT_EQ(plan["memory"]["deepSpeedEstimatePerGpu"]["overlapCommBuckets"],
            static_cast<int64_t>(4.5 * 2 * (4096 + 5e8)));
  EXPECT_GT(plan["wire"]["elementsPerStep"]["gradients"], 0);
  ASSERT_EQ(run({file, "-o", "yaml"}), 0);
  const auto yaml = jobspec::parse_yaml(out_, "plan");
  ASSERT_TRUE(yaml) << yaml.error().to_string() << out_;
  EXPECT_EQ(yaml->value["config"], plan["config"]);
  EXPECT_EQ(yaml->value["wire"], plan["wire"]);
}

/// The algorithm of the collectives, from the ranks' own function, and the traffic between hosts.
TEST_F(PlanTest, ShowsTheAlgorithmOfCollectivesAndTheBytesBetweenHosts) {
  const std::string file = write("job.yaml", kJob);
  const auto wire_at = [&](int replicas, int slots) {
    EXPECT_EQ(run({file, "-o", "json", "--set", "spec.workers.replicas=" + std::to_string(replicas),
                   "--set", "spec.workers.slotsPerWorker=" + std::to_string(slots)}),
              0)
        << err_;
    return json::parse(out_)["wire"];
  };
  const json one = wire_at(1, 2);
  EXPECT_EQ(one["way"]["collectives"], "shared memory");
  EXPECT_EQ(one["bytesBetweenHostsPerStep"]["gradients"], 0);
  const json flat = wire_at(4, 1);
  EXPECT_EQ(flat["way"]["collectives"], "one ring");
  EXPECT_EQ(flat["bytesBetweenHostsPerStep"]["gradients"], flat["bytesPerStep"]["gradients"]);
  const json levels = wire_at(2, 2);
  EXPECT_EQ(levels["way"], json::parse(R"({"collectives": "two levels", "hosts": 2,
      "ranksPerHost": 2, "because": "2 hosts of 2 ranks"})"));
  // 3/4 of a tensor by the ring's formula, 1/2 in two levels.
  EXPECT_EQ(levels["bytesBetweenHostsPerStep"]["gradients"].get<int64_t>(),
            levels["bytesPerStep"]["gradients"].get<int64_t>() / 3 * 2);
  ASSERT_EQ(run({file, "-o", "json", "--device", "h200", "--set",
                 "spec.deepspeed.config.bf16={enabled: true}"}),
            0)
      << err_;
  const json gpu = json::parse(out_)["wire"];
  EXPECT_EQ(gpu["way"]["collectives"], "NCCL");
  EXPECT_FALSE(gpu.contains("bytesBetweenHostsPerStep"));
}

TEST_F(PlanTest, AnElasticBatchListsTheWorldSizesThatFit) {
  const std::string elastic =
      "{enabled: true, max_train_batch_size: 24, micro_batch_sizes: [4, 6], version: 0.1}";
  const std::string file =
      with("train_micro_batch_size_per_gpu: auto\n      gradient_accumulation_steps: 2",
           "elasticity: " + elastic);
  ASSERT_EQ(run({file, "-o", "json"}), 0) << err_;
  const json config = json::parse(out_)["config"];
  EXPECT_EQ(config["elasticity"]["world_sizes"], (json{1, 2, 3, 4, 6}));
  EXPECT_EQ(config["train_batch_size"], 24);
  EXPECT_EQ(run({file, "--set", "spec.workers.slotsPerWorker=5"}), 1);
  EXPECT_NE(err_.find("the world size, 5, is not valid; valid are 1, 2, 3, 4, 6"),
            std::string::npos)
      << err_;
}

TEST_F(PlanTest, LoraCountsOnlyWhatIsTrained) {
  const std::string file = write("job.yaml", kJob);
  ASSERT_EQ(run({file, "-o", "json"}), 0) << err_;
  const json whole = json::parse(out_);
  ASSERT_EQ(run({file, "-o", "json", "--set", "spec.training.lora={r: 4}"}), 0) << err_;
  const json lora = json::parse(out_);
  EXPECT_EQ(whole["memory"]["trainableParameters"], whole["memory"]["parametersOfTheModel"]);
  // q: [4, 64] and [64, 4], v: [4, 64] and [32, 4], in two layers.
  EXPECT_EQ(lora["memory"]["trainableParameters"], 2 * (4 * 64 + 64 * 4 + 4 * 64 + 32 * 4));
  for (const char* of : {"gradients", "optimizer"}) {
    EXPECT_LT(lora["memory"]["bytesPerRank"][of].get<int64_t>(),
              whole["memory"]["bytesPerRank"][of].get<int64_t>() / 20);
  }
  EXPECT_LT(lora["wire"]["elementsPerStep"]["gradients"].get<int64_t>(),
            whole["wire"]["elementsPerStep"]["gradients"].get<int64_t>() / 20);
  EXPECT_EQ(run({file, "--set", "spec.training.lora={targetModules: [q_pro]}"}), 1);
  EXPECT_NE(err_.find("spec.training.lora.targetModules"), std::string::npos) << err_;
  EXPECT_NE(err_.find("did you mean \"q_proj\"?"), std::string::npos) << err_;
}

TEST_F(PlanTest, ABaseInFourBitsIsCodesAndScales) {
  const std::string file = with("stage: 3", "stage: 2");
  const auto parameters = [&](const char* lora) {
    EXPECT_EQ(run({file, "-o", "json", "--set", std::string("spec.training.lora=") + lora}), 0)
        << err_;
    return json::parse(out_)["memory"];
  };
  const json whole = parameters("{r: 4}"), packed = parameters("{r: 4, loadIn4bit: true}");
  const int64_t codes = packed["baseIn4BitsBytes"]["codes"];
  EXPECT_FALSE(whole.contains("baseIn4BitsBytes"));
  EXPECT_EQ(packed["baseIn4BitsBytes"]["scales"], codes / 8) << "fp32 for 64 numbers";
  EXPECT_EQ(whole["bytesPerRank"]["parameters"].get<int64_t>() -
                packed["bytesPerRank"]["parameters"].get<int64_t>(),
            4 * 2 * codes - codes - codes / 8);
  ASSERT_EQ(run({file, "--set", "spec.training.lora={r: 4, loadIn4bit: true}"}), 0) << err_;
  EXPECT_NE(out_.find("the base in 4 bits: codes"), std::string::npos) << out_;
  EXPECT_EQ(run({file, "--set", "spec.training.lora={loadIn4bit: true}", "--set",
                 "spec.deepspeed.config.zero_optimization.stage=3"}),
            1);
  EXPECT_NE(err_.find("spec.training.lora.loadIn4bit"), std::string::npos) << err_;
  EXPECT_NE(err_.find("not built for ZeRO stage 3"), std::string::npos) << err_;
}

TEST_F(PlanTest, OverridesApply) {
  const std::string file = write("job.yaml", kJob);
  ASSERT_EQ(run({file, "-o", "json", "--set", "spec.training.maxSteps=7", "--set",
                 "spec.workers.slotsPerWorker=4"}),
            0)
      << err_;
  EXPECT_EQ(json::parse(out_)["config"]["total_steps"], 7);
  EXPECT_EQ(json::parse(out_)["topology"]["worldSize"], 4);
  EXPECT_EQ(run({file, "--set", "nonsense"}), 2);
}

TEST_F(PlanTest, ARefusedJobExitsWithOneAndWrongUsageWithTwo) {
  EXPECT_EQ(run({with("gradient_accumulation_steps: 2", "nebula: {enabled: true}"), "-o", "yaml"}),
            1);
  EXPECT_NE(err_.find("unsupported: spec.deepspeed.config.nebula"), std::string::npos) << err_;
  EXPECT_NE(out_.find("runnable: false"), std::string::npos) << "the plan is shown all the same";
  EXPECT_EQ(run({with("gradient_accumulation_steps: 2", "train_batch_size: 7")}), 1);
  EXPECT_EQ(out_, "");
  EXPECT_NE(err_.find("job.yaml:8:7: error: spec.deepspeed.config.train_batch_size"),
            std::string::npos)
      << err_;
  EXPECT_EQ(run({write("ds.json", "{}")}), 2);
  EXPECT_NE(err_.find("bare ds_config"), std::string::npos);
  EXPECT_EQ(run({}), 2);
}

TEST_F(PlanTest, AJobThatDoesNotFitIsRefused) {
  const std::string file =
      with("workers: {",
           "workers: {template: {spec: {containers: [{name: log}, {name: worker, "
           "resources: {limits: {memory: 64Ki}}}]}}, ");
  const auto at = [&](const char* field, const char* name) {
    return std::string("spec.training.") + field + "=" + (folder_ / name).string();
  };
  EXPECT_EQ(run({file, "-o", "yaml", "--set", at("modelNameOrPath", "model"), "--set",
                 at("dataPath", "data.json"), "--set", at("outputDir", "out")}),
            1);
  EXPECT_NE(err_.find("DoesNotFit: 2 ranks need"), std::string::npos) << err_;
  EXPECT_NE(err_.find("memory limit is 64.0 KiB"), std::string::npos) << err_;
  EXPECT_NE(err_.find("no stage, recompute, micro-batch or number of workers makes it fit"),
            std::string::npos)
      << err_;
  EXPECT_NE(out_.find("runnable: false"), std::string::npos) << "the plan is shown all the same";
}

TEST_F(PlanTest, GivenLimitsApplyAndTheHintMakesItFit) {
  const std::string file = with("stage: 3", "stage: 0");
  ASSERT_EQ(run({file, "-o", "json"}), 0) << err_;
  const int64_t peak = json::parse(out_)["memory"]["bytesPerRank"]["peak"];
  EXPECT_EQ(run({file, "--device-memory", std::to_string(peak)}), 0) << err_;
  EXPECT_EQ(run({file, "--device-memory", std::to_string(peak - 1), "-o", "json"}), 1);
  EXPECT_NE(err_.find("1 rank needs"), std::string::npos) << err_;
  EXPECT_NE(err_.find("zero_optimization.stage 1 makes it fit"), std::string::npos) << err_;
  EXPECT_EQ(run({file, "--memory", std::to_string(2 * peak - 1)}), 1);
  EXPECT_NE(err_.find("2 ranks need"), std::string::npos) << err_;
  EXPECT_EQ(run({file, "--memory", std::to_string(2 * peak)}), 0) << err_;
  EXPECT_EQ(err_.find("the steps wait"), std::string::npos) << "one save, at the end: " << err_;
  EXPECT_EQ(run({file, "--memory", "lots"}), 2);
}

/// A snapshot that does not fit does not refuse a job.
TEST_F(PlanTest, ASnapshotThatDoesNotFitIsAWarning) {
  const std::string file = with("stage: 3", "stage: 0");
  const std::vector<std::string> saves = {file, "-o", "json", "--set", "spec.training.saveSteps=1"};
  const auto with_memory = [&](int64_t bytes) {
    auto arguments = saves;
    arguments.insert(arguments.end(), {"--memory", std::to_string(bytes)});
    EXPECT_EQ(run(arguments), 0) << err_;
    return json::parse(out_)["memory"];
  };
  ASSERT_EQ(run(saves), 0) << err_;
  const json bytes = json::parse(out_)["memory"]["bytesPerRank"];
  const int64_t peak = bytes["peak"], snapshot = bytes["snapshot"];
  EXPECT_GT(snapshot, 0);
  EXPECT_EQ(with_memory(2 * (peak + snapshot))["savesBehindTheSteps"], true);
  EXPECT_EQ(err_.find("the steps wait"), std::string::npos) << err_;
  EXPECT_EQ(with_memory(2 * (peak + snapshot) - 1)["savesBehindTheSteps"], false);
  EXPECT_NE(err_.find("the steps wait while a checkpoint is written: a copy of "),
            std::string::npos)
      << err_;
  EXPECT_NE(err_.find("per rank does not fit into --memory"), std::string::npos) << err_;
}

TEST_F(PlanTest, ADeviceGivesTheRooflineOfAStepAndItsMemoryIsTheLimit) {
  const std::string file = write("job.yaml", kJob);
  const std::string bf16 = "spec.deepspeed.config.bf16={enabled: true}";
  ASSERT_EQ(run({file, "-o", "json", "--device", "h200", "--set", bf16}), 0) << err_;
  const json plan = json::parse(out_), step = plan["roofline"]["step"];
  EXPECT_EQ(plan["roofline"]["computedNotMeasured"], true);
  EXPECT_EQ(plan["memory"]["limits"]["device"]["from"], "--device h200");
  EXPECT_NEAR(step["tokensPerSecond"].get<double>() * step["milliseconds"].get<double>() / 1e3,
              step["tokens"].get<double>(), 0.01 * step["tokens"].get<double>());
  EXPECT_EQ(step["boundBy"], "launches") << "a model of two tiny layers";
  EXPECT_GT(step["launchesPerRank"], 100);
  fs::remove(folder_ / "data.json");  // then every row is the longest
  EXPECT_EQ(
      run({file, "--elsewhere", "--device", "h100", "--set", bf16, "--set",
           "spec.training.perDeviceTrainBatchSize=400000", "--set", "spec.training.maxSteps=1"}),
      1);
  EXPECT_NE(err_.find("--device h100"), std::string::npos) << err_;
  // A job that the roofline does not model, and a GPU that is not in the table.
  write("data.json", token_rows(10, 128).dump());
  EXPECT_EQ(run({file, "--device", "h200"}), 2);
  EXPECT_NE(err_.find("fp32 attention takes no flash kernel"), std::string::npos) << err_;
  EXPECT_EQ(run({file, "--device", "v100"}), 2);
  for (const char* known : {"h200", "h100", "a100", "l40s", "4090", "b200", "3090", "a10g", "l4"})
    EXPECT_NE(err_.find(known), std::string::npos) << err_;
  EXPECT_EQ(run({file, "--device", "mi300x"}), 2);
  EXPECT_NE(err_.find("mi300x is AMD's"), std::string::npos) << err_;
}

TEST_F(PlanTest, WithoutTheModelItIsIncompleteAndRefusedUnlessTheJobIsForAnotherMachine) {
  const std::string file = with("modelNameOrPath: model", "modelNameOrPath: no/such-model");
  EXPECT_EQ(run({file, "-o", "json"}), 1);
  EXPECT_NE(err_.find("error: spec.training.modelNameOrPath: "), std::string::npos) << err_;
  ASSERT_EQ(run({file, "-o", "json", "--elsewhere"}), 0) << err_;
  const json plan = json::parse(out_);
  EXPECT_FALSE(plan["complete"]);
  EXPECT_TRUE(plan["memory"].is_null());
  EXPECT_NE(err_.find("warning: spec.training.modelNameOrPath: "), std::string::npos) << err_;
}

TEST_F(PlanTest, AConfigJsonSufficesForAJobOfAnotherMachine) {
  fs::remove(folder_ / "model/model.safetensors");
  fs::remove(folder_ / "data.json");
  const std::string file = write("job.yaml", kJob);
  EXPECT_EQ(run({file}), 1);
  EXPECT_NE(err_.find("there are no weights"), std::string::npos) << err_;
  EXPECT_NE(err_.find("there is no such data file"), std::string::npos) << err_;
  ASSERT_EQ(run({file, "-o", "json", "--elsewhere", "--set", "spec.training.maxSteps=3"}), 0)
      << err_;
  EXPECT_GT(json::parse(out_)["memory"]["bytesPerRank"]["peak"], 0);
}

TEST_F(PlanTest, TheTextIsOneScreenWithTheMainFigures) {
  const std::string file = write("job.yaml", kJob);
  ASSERT_EQ(run({file, "--device", "a100", "--set", "spec.deepspeed.config.bf16={enabled: true}"}),
            0)
      << err_;
  const auto has = [&](const std::string& text) {
    EXPECT_NE(out_.find(text), std::string::npos) << text << "\nin\n" << out_;
  };
  has("tiny: 1 worker, 2 ranks, ZeRO stage 3; behaves as DeepSpeed");
  has("  parameters ");
  has("(--device a100)  [");
  has("256 tokens in the largest micro-batch, of 10 rows that were measured");
  // 10 rows, batch 8 (2 x 2 x 2): 2 steps an epoch, 2 epochs; every row has 128 tokens.
  has("4 steps of 8 rows (2 x 2 accumulated x 2 ranks), 2 epochs of 2 steps");
  has("1,024 tokens a step, 4,096 in all");
  has("LEARNING RATE linear");
  has("  step           1           2           3           4\n");
  has("WIRE of one rank in a step");
  has("ROOFLINE of a step on A100");
  EXPECT_LE(std::ranges::count(out_, '\n'), 40);
  for (std::istringstream lines(out_); lines;) {
    std::string line;
    std::getline(lines, line);
    EXPECT_LE(line.size(), 120u) << line;
  }
}

TEST_F(PlanTest, LearningRatesEqualThoseOfTheRun) {
  const std::string file = write("job.yaml", kJob);
  ASSERT_EQ(run({file, "-o", "json", "--set", "spec.training.maxSteps=8", "--set",
                 "spec.training.lrSchedulerType=cosine", "--set", "spec.training.warmupSteps=2",
                 "--set", "spec.training.learningRate=0.001"}),
            0)
      << err_;
  const json schedule = json::parse(out_)["schedule"];
  EXPECT_EQ(schedule["type"], "cosine");
  EXPECT_EQ(schedule["warmupSteps"], 2);
  std::map<int64_t, double> rates;
  for (const json& one : schedule["rates"]) rates[one["step"]] = one["rate"];
  // transformers: s / 2 in the warm-up, then (1 + cos(pi (s - 2) / 6)) / 2, with s = step - 1.
  EXPECT_DOUBLE_EQ(rates[1], 0);
  EXPECT_DOUBLE_EQ(rates[2], 0.0005);
  EXPECT_NEAR(rates[4], 0.001 * (1 + std::cos(M_PI / 6)) / 2, 1e-12);
  EXPECT_NEAR(rates[8], 0.001 * (1 + std::cos(M_PI * 5 / 6)) / 2, 1e-12);
}

TEST_F(PlanTest, ATorchrunLineIsPlannedLikeItsManifest) {
  const std::string ds = write("ds.json", R"({"train_micro_batch_size_per_gpu": "auto",
      "gradient_accumulation_steps": 2, "zero_optimization": {"stage": 3}})");
  const std::vector<std::string> line = {"--nproc_per_node=2",
                                         "--deepspeed",
                                         ds,
                                         "--model_name_or_path",
                                         (folder_ / "model").string(),
                                         "--data_path",
                                         (folder_ / "data.json").string(),
                                         "--output_dir",
                                         (folder_ / "out").string(),
                                         "--per_device_train_batch_size",
                                         "2",
                                         "--num_train_epochs",
                                         "2",
                                         "--device",
                                         "cpu",
                                         "-o",
                                         "json"};
  ASSERT_EQ(run(line), 0) << err_;
  const json plan = json::parse(out_);
  EXPECT_EQ(plan["config"]["train_batch_size"], 8);
  EXPECT_EQ(plan["topology"]["worldSize"], 2);
  EXPECT_FALSE(plan.contains("roofline")) << "--device cpu is the line's own";
}

TEST(QuantityTest, ParsesKubernetesMemory) {
  EXPECT_EQ(parse_quantity("64Ki"), 65536);
  EXPECT_EQ(parse_quantity("1.5Gi"), 1610612736);
  EXPECT_EQ(parse_quantity("2G"), 2000000000);
  EXPECT_EQ(parse_quantity("1e9"), 1000000000);
  EXPECT_EQ(parse_quantity("123"), 123);
  for (const char* bad : {"", "Gi", "-1", "8 GB", "1e30", "lots"})
    EXPECT_FALSE(parse_quantity(bad)) << bad;
}

}  // namespace
}  // namespace dsj::cli
