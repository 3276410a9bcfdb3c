// `dsj run` end to end with the engine: a tiny Qwen2, two ranks, Gloo or what is faster, real
// checkpoints. The losses of a run that was cut must be those of one that was not.
#include <gmock/gmock.h>

#include <cmath>

#include "common/format.h"
#include "test_paths.h"
#include "tests/run/nodes_support.h"
#include "tests/support/ipv6_only.h"

namespace dsj::run_test {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

class TrainRun : public NodesTest {
 protected:
  void SetUp() override {
    if (!has_engine()) GTEST_SKIP() << "dsj-train is not built (DSJ_ENGINE=OFF)";
    RunTest::SetUp();
    write("data.json", counting_rows(48, 24).dump());
    write_config(2);
  }
  void write_config(int stage) {
    write("ds.json", R"({"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": 2,
      "gradient_clipping": 1.0, "optimizer": {"type": "AdamW", "params": {"lr": "auto"}},
      "zero_optimization": {"stage": )" +
                         std::to_string(stage) + "}}");
  }
  void write_train_job(int steps, int save_steps, int replicas = 1, int slots = 2) {
    write_job({{"maxSteps", std::to_string(steps)},
               {"saveSteps", std::to_string(save_steps)},
               {"learningRate", "3e-3"},
               {"lrSchedulerType", "cosine"}},
              replicas, slots);
  }
  std::vector<double> losses() const {
    std::vector<double> values;
    std::ifstream in(out() / "metrics.jsonl");
    for (std::string line; std::getline(in, line);) values.push_back(json::parse(line)["loss"]);
    return values;
  }
  /// The losses of a run that nothing disturbs.
  std::vector<double> undisturbed(int steps) {
    write_train_job(steps, 1000);
    EXPECT_EQ(run({"job.yaml"}), 0);
    auto values = losses();
    fs::remove_all(out());
    return values;
  }
};

/// The torchrun line of two nodes: the losses of one node with as many ranks.
TEST_F(TrainRun, TwoNodesComputeWhatOneComputes) {
  const std::vector<std::string> line = {"--deepspeed=ds.json",   "--model_name_or_path=model",
                                         "--data_path=data.json", "--output_dir=out",
                                         "--max_steps=8",         "--per_device_train_batch_size=1",
                                         "--learning_rate=3e-3",  "--save_strategy=steps",
                                         "--save_steps=4"};
  for (const int stage : {2, 3}) {
    SCOPED_TRACE("stage " + std::to_string(stage));
    write_config(stage);
    auto one = line, each = line;
    one.push_back("--nproc_per_node=2");
    each.push_back("--nproc_per_node=1");
    ASSERT_EQ(run(one), 0);
    const auto expected = losses();
    const std::string model = read_text(out() / "model/model.safetensors");
    fs::remove_all(out());
    start_nodes(2, each);
    ASSERT_EQ(finish_node(1), 0) << said(1);
    ASSERT_EQ(finish_node(0), 0) << said(0);
    EXPECT_EQ(expected.size(), 8u);
    EXPECT_EQ(losses(), expected);
    EXPECT_EQ(read_text(out() / "model/model.safetensors"), model);
    fs::remove_all(out());
  }
}

TEST_F(TrainRun, LearnsAndLeavesAModel) {
  for (const int stage : {0, 3}) {
    fs::remove_all(out());
    write_config(stage);
    write_train_job(12, 5);
    ASSERT_EQ(run({"job.yaml"}), 0) << "stage " << stage;
    EXPECT_EQ(metric_steps(), one_to(12));
    EXPECT_LT(losses().back(), losses().front());
    for (const char* name : {"config.json", "model.safetensors"}) {
      EXPECT_TRUE(fs::exists(out() / "model" / name)) << name;
    }
    EXPECT_EQ(status()["phase"], "Complete");
    EXPECT_EQ(status()["checkpoint"]["lastSaved"]["step"], 12);
    EXPECT_EQ(status()["training"]["resolvedConfig"]["train_batch_size"], 4);
    EXPECT_THAT(processes(), IsEmpty());
  }
}

TEST_F(TrainRun, LearnsOnAMachineWithIpv6Alone) {
  write_train_job(6, 1000, 2, 1);
  ASSERT_EQ(run({"job.yaml"}), 0);
  const auto usual = losses();
  fs::remove_all(out());
  const Ipv6Only network;
  if (!network.made()) GTEST_SKIP() << "no network with IPv6 alone can be made here: NOT RUN";
  write_train_job(6, 1000, 2, 1);
  ASSERT_EQ(run({"job.yaml"}), 0);
  EXPECT_EQ(losses(), usual);
}

TEST_F(TrainRun, TellsWhereTheTimeOfAStartWent) {
  variables_["DSJ_STARTUP_TRACE"] = "1";
  write_train_job(2, 1000);
  ASSERT_EQ(run({"job.yaml"}), 0);
  const std::string text = stdout_text();
  EXPECT_THAT(text, HasSubstr("start of attempt 1, milliseconds\n"));
  const std::vector<std::pair<std::string, std::vector<std::string>>> processes = {
      {"dsj", {"exec and libraries", "checks", "agents launched"}},
      {"agent 0", {"exec and libraries", "settings", "gang", "attempt", "ranks launched"}},
      {"rank 0",
       {"exec and libraries", "settings", "tokenizer", "rows", "device", "rendezvous", "weights",
        "first rows", "first step"}}};
  size_t at = 0;
  for (const auto& [process, stages] : processes) {
    for (const auto& stage : stages) {
      at = text.find(text::format("\n  %-9s%-20s", process.c_str(), stage.c_str()), at);
      ASSERT_NE(at, std::string::npos) << process << ": " << stage << " is not there, in order";
    }
  }
  EXPECT_THAT(text, HasSubstr("\n  all      2 ranks"));
}

TEST_F(TrainRun, ATraceIsSwitchedOnByANumber) {
  variables_["DSJ_STARTUP_TRACE"] = "yes";
  write_train_job(2, 1000);
  EXPECT_EQ(run({"job.yaml"}), 2);
  EXPECT_THAT(stderr_text(), HasSubstr("DSJ_STARTUP_TRACE is \"yes\", expected 0 or 1"));
}

/// A checkpoint that was written behind the steps holds the step that it names.
TEST_F(TrainRun, WhatIsSavedBehindTheStepsGoesOnBitForBit) {
  for (const int stage : {0, 2, 3}) {
    fs::remove_all(out());
    write_config(stage);
    write_train_job(12, 3);
    ASSERT_EQ(run({"job.yaml"}), 0) << "stage " << stage;
    const auto expected = losses();
    for (const std::string step : {"3", "6", "9"}) {
      EXPECT_THAT(stdout_text(), testing::ContainsRegex("saved step " + step +
                                                        " \\(.*\\), the steps waited [0-9]+ ms"));
    }
    EXPECT_THAT(stdout_text(), testing::ContainsRegex("saved step 12 \\([^)]*\\)\n"));
    for (const char* later : {"checkpoints/step-9", "checkpoints/step-12", "status.yaml"})
      fs::remove_all(out() / later);
    ASSERT_EQ(run({"job.yaml"}), 0);
    EXPECT_THAT(stdout_text(), HasSubstr("resumed from step 6"));
    EXPECT_EQ(losses(), expected) << "stage " << stage;
  }
}

TEST_F(TrainRun, TheCpuIsTakenAndNamedWhereNoGpuIs) {
  variables_["CUDA_VISIBLE_DEVICES"] = "";
  write_train_job(1, 1000);
  ASSERT_EQ(run({"job.yaml"}), 0);
  EXPECT_THAT(read_text(out() / "logs/rank-0.log"), HasSubstr("on cpu ("));
}

TEST_F(TrainRun, AJobThatAsksForAGpuAndFindsNoneIsRefused) {
  variables_["CUDA_VISIBLE_DEVICES"] = "";
  const std::string gpus =
      "spec.workers.template={spec: {containers: [{name: worker, resources: {limits: "
      "{nvidia.com/gpu: 2}}}]}}";
  for (const char* asked : {"spec.training.device=cuda", gpus.c_str()}) {
    SCOPED_TRACE(asked);
    fs::remove_all(out());
    write_train_job(2, 1000);
    EXPECT_EQ(run({"job.yaml", "--set", asked}), 1) << "as validate says";
    EXPECT_THAT(stderr_text(), HasSubstr("the job asks for GPUs, and "));
    EXPECT_THAT(stderr_text(), HasSubstr("set training.device to cpu (--device cpu)"));
    EXPECT_FALSE(fs::exists(out())) << "nothing was started";
  }
}

/// A driver with GPUs, and this build's plugin without CUDA's libraries.
TEST_F(TrainRun, GpusThatThisBuildCannotUseAreNotPassedOverInSilence) {
  variables_["LD_LIBRARY_PATH"] = std::string(DSJ_BIN_DIR) + "/../fake_driver";
  variables_["FAKE_GPUS"] = "2";
  write_train_job(1, 1000);
  if (fs::exists(fs::path(DSJ_BIN_DIR) / "libdsj_cuda.so")) {
    EXPECT_EQ(run({"job.yaml"}), 3);
    EXPECT_THAT(stderr_text(),
                HasSubstr("this machine has 2 GPUs, but libdsj_cuda.so cannot be loaded: "));
  } else {
    EXPECT_EQ(run({"job.yaml"}), 0);
    EXPECT_THAT(read_text(out() / "logs/rank-0.log"),
                HasSubstr("training on the CPU: this machine has 2 GPUs, but "));
  }
  fs::remove_all(out());
  EXPECT_EQ(run({"job.yaml", "--set", "spec.training.device=cpu"}), 0);
  EXPECT_THAT(read_text(out() / "logs/rank-0.log"), HasSubstr("on cpu (training.device is cpu)"));
}

TEST_F(TrainRun, KilledRankCostsNoAccuracy) {
  constexpr int kSteps = 120;
  const auto expected = undisturbed(kSteps);
  ASSERT_EQ(expected.size(), static_cast<size_t>(kSteps));
  write_train_job(kSteps, 10);
  start({"job.yaml"});
  pid_t rank = 0;  // a step takes milliseconds: who is killed is known before
  ASSERT_TRUE(soon([&] { return (rank = rank_process(1)) != 0; }));
  ASSERT_TRUE(soon([&] { return steps_done() >= 15; }));
  kill(rank, SIGKILL);
  ASSERT_TRUE(soon([&] { return status().value("restarts", json()).value("total", 0) == 1; }));
  ASSERT_EQ(finish(), 0);
  EXPECT_EQ(metric_steps(), one_to(kSteps)) << "exactly one line per step";
  EXPECT_EQ(losses(), expected) << "bit for bit";
  EXPECT_EQ(status()["training"]["attempt"], 2);
  EXPECT_EQ(status()["lastFailure"]["rank"], 1);
  EXPECT_EQ(status()["lastFailure"]["signal"], 9);
  EXPECT_THAT(processes(), IsEmpty());
}

TEST_F(TrainRun, StopAndTheSameCommandGiveTheSameRun) {
  constexpr int kSteps = 120;
  const auto expected = undisturbed(kSteps);
  for (const int save_steps : {1000, 2}) {  // 2: another save is in flight at the stop
    fs::remove_all(out());
    write_train_job(kSteps, save_steps);
    start({"job.yaml"});
    ASSERT_TRUE(soon([&] { return steps_done() >= 10; }));
    kill(pid_, SIGTERM);
    ASSERT_EQ(finish(), 130);
    EXPECT_THAT(processes(), IsEmpty());
    const int64_t saved = status()["checkpoint"]["lastSaved"]["step"];
    EXPECT_GE(saved, 10);
    EXPECT_LT(saved, kSteps);
    EXPECT_EQ(metric_steps(), one_to(saved));
    ASSERT_EQ(run({"job.yaml"}), 0);
    EXPECT_THAT(stdout_text(), HasSubstr("resumed from step " + std::to_string(saved)));
    EXPECT_EQ(metric_steps(), one_to(kSteps));
    EXPECT_EQ(losses(), expected) << "bit for bit";
  }
}

TEST_F(TrainRun, TwoWorkersGiveTheSameLossesAsOne) {
  const auto expected = undisturbed(8);
  write_train_job(8, 1000, 2, 1);
  ASSERT_EQ(run({"job.yaml"}), 0);
  EXPECT_EQ(losses(), expected);
  EXPECT_EQ(status()["workers"], "2/2");
}

/// An elastic job's life: 4 ranks, then 2, then 4 again, each from the last checkpoint. The batch
/// is the same for each size: the accumulation follows from the number of ranks.
TEST_F(TrainRun, AnotherNumberOfRanksGivesTheSameLosses) {
  constexpr int kSteps = 12;
  for (const int stage : {0, 3}) {
    SCOPED_TRACE("stage " + std::to_string(stage));
    fs::remove_all(out());
    write("ds.json", R"({"train_batch_size": 8, "train_micro_batch_size_per_gpu": 1,
      "gradient_clipping": 1.0, "optimizer": {"type": "AdamW", "params": {"lr": "auto"}},
      "zero_optimization": {"stage": )" +
                         std::to_string(stage) + "}}");
    write_train_job(kSteps, 4, 1, 4);
    ASSERT_EQ(run({"job.yaml"}), 0);
    const auto fixed = losses();
    ASSERT_EQ(fixed.size(), static_cast<size_t>(kSteps));
    for (const auto& [ranks, from, gone] :
         {std::tuple{2, "4", std::vector{"step-8", "step-12"}}, {4, "8", {"step-12"}}}) {
      for (const char* step : gone) fs::remove_all(out() / "checkpoints" / step);
      fs::remove_all(out() / "status.yaml");
      write_train_job(kSteps, 4, 1, ranks);
      ASSERT_EQ(run({"job.yaml"}), 0);
      EXPECT_THAT(stdout_text(), HasSubstr(std::string("resumed from step ") + from));
      EXPECT_EQ(status()["training"]["resolvedConfig"]["train_batch_size"], 8);
      EXPECT_EQ(status()["training"]["resolvedConfig"]["gradient_accumulation_steps"], 8 / ranks);
    }
    const auto elastic = losses();
    EXPECT_EQ(metric_steps(), one_to(kSteps));
    double worst = 0;
    for (int i = 0; i < kSteps; ++i) worst = std::max(worst, std::abs(elastic[i] - fixed[i]));
    std::printf(
        "result: stage %d, 4 -> 2 -> 4 ranks: losses %.4f to %.4f, largest difference %.1e\n",
        stage, fixed.front(), fixed.back(), worst);
    EXPECT_LE(worst, 1e-6);
    EXPECT_LT(fixed.back(), fixed.front());
  }
}

/// Rows of many lengths, packed: each of them once in an epoch, and the same run after a stop.
/// Groups of ranks: MiCS and hpZ on 4 ranks, and a resume with other groups and without any.
TEST_F(TrainRun, GroupsOfRanksTrainAsStageThreeAndResumeAtAnySize) {
  constexpr int kSteps = 9;
  const auto write_groups = [&](const std::string& keys) {
    write("ds.json", R"({"train_batch_size": 8, "train_micro_batch_size_per_gpu": 1,
      "gradient_clipping": 1.0, "optimizer": {"type": "AdamW", "params": {"lr": "auto"}},
      "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 64)" +
                         keys + "}}");
  };
  const auto run_on = [&](int ranks, const std::string& keys) {
    write_groups(keys);
    write_train_job(kSteps, 3, 1, ranks);
    ASSERT_EQ(run({"job.yaml"}), 0);
  };
  const std::string mics = R"(, "mics_shard_size": 2)", hpz = R"(, "zero_hpz_partition_size": 2)";
  run_on(4, "");
  const auto plain = losses();
  ASSERT_EQ(plain.size(), static_cast<size_t>(kSteps));
  fs::remove_all(out());
  run_on(4, hpz);
  EXPECT_EQ(losses(), plain) << "hpZ has stage 3's bits";
  fs::remove_all(out());
  run_on(4, mics);
  const auto again = [&](int ranks, const std::string& keys, const char* from,
                         std::vector<const char*> gone) {
    for (const char* step : gone) fs::remove_all(out() / "checkpoints" / step);
    fs::remove_all(out() / "status.yaml");
    run_on(ranks, keys);
    EXPECT_THAT(stdout_text(), HasSubstr(std::string("resumed from step ") + from));
  };
  again(2, "", "3", {"step-6", "step-9"});  // 2 ranks, no groups
  again(4, mics, "6", {"step-9"});          // groups of 2 again
  again(2, R"(, "mics_shard_size": 1)", "6", {"step-9"});
  again(4, hpz, "6", {"step-9"});
  const auto groups = losses();
  ASSERT_EQ(groups.size(), plain.size());
  for (size_t i = 0; i < plain.size(); ++i) EXPECT_NEAR(groups[i], plain[i], 1e-6) << i;
  EXPECT_LT(plain.back(), plain.front());
}

TEST_F(TrainRun, GroupsThatDoNotDivideTheRanksAreRefused) {
  write("ds.json", R"({"train_micro_batch_size_per_gpu": 1,
      "zero_optimization": {"stage": 3, "mics_shard_size": 8}})");
  write_train_job(2, 2, 1, 2);
  EXPECT_EQ(run({"job.yaml"}), 1);
  EXPECT_THAT(stderr_text(), HasSubstr("mics_shard_size is 8, but there are 2 ranks"));
  EXPECT_FALSE(fs::exists(out()));
}

TEST_F(TrainRun, PackedRowsAreAllTrainedOnAndResumed) {
  json rows = json::array();
  int64_t tokens = 0;
  for (int i = 0; i < 24; ++i) {
    std::vector<int> ids;
    for (int t = 0; t < 4 + i * 7 % 13; ++t) ids.push_back((i * 31 + t * 17) % 100);
    tokens += std::ssize(ids);
    rows.push_back({{"input_ids", ids}, {"labels", ids}});
  }
  write("data.json", rows.dump());
  write("ds.json", R"({"train_micro_batch_size_per_gpu": 1, "optimizer": {"type": "AdamW",
      "params": {"lr": 1e-3, "eps": 1e-3}}, "zero_optimization": {"stage": 2}})");
  write_job({{"numTrainEpochs", "2"}, {"packing", "true"}, {"maxSeqLength", "32"}});
  const std::vector<std::string> command = {"job.yaml", "--set",
                                            "spec.training.saveStrategy=epoch"};
  const auto tokens_of = [&] {
    int64_t sum = 0;
    std::ifstream in(out() / "metrics.jsonl");
    for (std::string line; std::getline(in, line);) sum += json::parse(line)["tokens"].get<int>();
    return sum;
  };
  ASSERT_EQ(run(command), 0);
  EXPECT_THAT(stdout_text(), testing::ContainsRegex("packing: 24 rows in [0-9]+ packed ones"));
  const auto whole = losses();
  const auto steps = std::ssize(whole) / 2;
  ASSERT_LT(steps, 12) << "24 rows alone make 12 steps";
  EXPECT_GE(tokens_of(), 2 * tokens);
  EXPECT_LE(tokens_of(), 2 * (tokens + 32))
      << "beside an odd pack the epoch's first one comes again";
  fs::remove_all(out() / ("checkpoints/step-" + std::to_string(2 * steps)));
  fs::remove_all(out() / "status.yaml");
  ASSERT_EQ(run(command), 0);
  EXPECT_THAT(stdout_text(), HasSubstr("resumed from step " + std::to_string(steps)));
  EXPECT_EQ(losses(), whole);
}

TEST_F(TrainRun, WrappedRowsAreTheRowsThatOneWouldCutByHand) {
  json rows = json::array(), cut = json::array();
  std::vector<int> text;
  for (int i = 0; i < 24; ++i) {
    std::vector<int> ids;
    for (int t = 0; t < 4 + i * 7 % 41; ++t) ids.push_back((i * 31 + t * 17) % 100);
    rows.push_back({{"input_ids", ids}, {"labels", ids}});
    text.insert(text.end(), ids.begin(), ids.end());
  }
  for (size_t first = 0; first < text.size(); first += 16) {
    const std::vector<int> ids(
        text.begin() + static_cast<std::ptrdiff_t>(first),
        text.begin() + static_cast<std::ptrdiff_t>(std::min(text.size(), first + 16)));
    cut.push_back({{"input_ids", ids}, {"labels", ids}});
  }
  write("ds.json", R"({"train_micro_batch_size_per_gpu": 1, "optimizer": {"type": "AdamW",
      "params": {"lr": 1e-3, "eps": 1e-3}}, "zero_optimization": {"stage": 2}})");
  write("data.json", cut.dump());
  write_job({{"numTrainEpochs", "1"}, {"maxSeqLength", "16"}});
  ASSERT_EQ(run({"job.yaml"}), 0);
  const auto expected = losses();
  fs::remove_all(out());
  write("data.json", rows.dump());
  write_job({{"numTrainEpochs", "1"},
             {"maxSeqLength", "16"},
             {"packing", "true"},
             {"packingStrategy", "wrapped"}});
  ASSERT_EQ(run({"job.yaml"}), 0);
  EXPECT_EQ(losses(), expected) << "bit for bit";
  write_job({{"numTrainEpochs", "2"},
             {"maxSeqLength", "16"},
             {"packing", "true"},
             {"packingStrategy", "bfd_split"}});
  EXPECT_EQ(run({"job.yaml"}), 2);
  EXPECT_THAT(stderr_text(),
              HasSubstr("packed in another way (\"wrapped\" then, \"bfd_split\" now)"));
}

TEST_F(TrainRun, LoraTrainsATiedEmbeddingAndMergesIt) {
  fs::remove_all(at("model"));
  fs::copy(fs::path(DSJ_SOURCE_DIR) / "tests/fixtures/tiny-qwen2-tied", at("model"));
  write_config(3);
  write_train_job(4, 4);
  const std::string lora = "spec.training.lora={r: 4, modulesToSave: [embed_tokens, lm_head]";
  EXPECT_EQ(run({"job.yaml", "--set", lora + "}"}), 1);
  EXPECT_THAT(stderr_text(), HasSubstr("ensureWeightTying: true"));
  ASSERT_EQ(run({"job.yaml", "--set", lora + ", ensureWeightTying: true}"}), 0);
  const json config = json::parse(read_text(out() / "model/adapter_config.json"));
  EXPECT_EQ(config["ensure_weight_tying"], true);
  // `dsj merge` compares the two copies of the weight.
  ASSERT_EQ(run({"--base", "model", "--adapter", "out/model", "--output", "merged"}, "merge"), 0);
  EXPECT_FALSE(read_text(at("merged/model.safetensors")).contains("lm_head.weight"));
}

TEST_F(TrainRun, LoraLeavesAnAdapterAndGoesOnOnlyAsItself) {
  write_config(3);
  const std::string lora = "spec.training.lora=";
  write_train_job(8, 4);
  ASSERT_EQ(run({"job.yaml", "--set", lora + "{r: 4, targetModules: all-linear}"}), 0);
  const auto expected = losses();
  EXPECT_LT(expected.back(), expected.front());
  EXPECT_TRUE(fs::exists(out() / "model/adapter_model.safetensors"));
  EXPECT_FALSE(fs::exists(out() / "model/model.safetensors"));
  const json config = json::parse(read_text(out() / "model/adapter_config.json"));
  EXPECT_EQ(config["r"], 4);
  EXPECT_EQ(config["target_modules"].size(), 7u);

  fs::remove_all(out() / "checkpoints/step-8");
  fs::remove(out() / "status.yaml");  // it says that the run is complete
  ASSERT_EQ(run({"job.yaml", "--set", lora + "{r: 4, targetModules: all-linear}"}), 0);
  EXPECT_THAT(stdout_text(), HasSubstr("resumed from step 4"));
  EXPECT_EQ(losses(), expected) << "bit for bit";

  write_train_job(10, 4);
  EXPECT_EQ(run({"job.yaml", "--set", lora + "{r: 8, targetModules: all-linear}"}), 2);
  EXPECT_THAT(stderr_text(), HasSubstr("r 4 → 8"));
  EXPECT_EQ(run({"job.yaml"}), 2);
  EXPECT_THAT(stderr_text(), HasSubstr("made with LoRA"));
}

class Fp16Run : public TrainRun {
 protected:
  void write_fp16(const json& fp16, int steps) {
    write("ds.json", json{{"train_micro_batch_size_per_gpu", "auto"},
                          {"gradient_accumulation_steps", 2},
                          {"optimizer", {{"type", "AdamW"}, {"params", {{"lr", 3e-3}}}}},
                          {"zero_optimization", {{"stage", 2}}},
                          {"fp16", fp16}}
                         .dump());
    write_job(
        {{"maxSteps", std::to_string(steps)}, {"saveSteps", "6"}, {"lrSchedulerType", "constant"}},
        1, 2);
  }
  /// Loss and scale of every step.
  std::vector<std::pair<double, double>> steps() const {
    std::vector<std::pair<double, double>> values;
    std::ifstream in(out() / "metrics.jsonl");
    for (std::string line; std::getline(in, line);) {
      const json step = json::parse(line);
      values.emplace_back(step["loss"], step["loss_scale"]);
    }
    return values;
  }
};

TEST_F(Fp16Run, TheScaleGoesOnFromTheCheckpoint) {
  const json fp16 = {{"enabled", true}, {"initial_scale_power", 15}, {"loss_scale_window", 2}};
  write_fp16(fp16, 14);
  ASSERT_EQ(run({"job.yaml"}), 0);
  const auto expected = steps();
  ASSERT_EQ(expected.size(), 14u);
  EXPECT_EQ(expected.front().second, 32768);
  EXPECT_NE(expected.back().second, 32768);
  EXPECT_EQ(status()["training"]["lossScale"], std::to_string(int64_t(expected.back().second)));
  fs::remove_all(out());
  write_fp16(fp16, 7);
  ASSERT_EQ(run({"job.yaml"}), 0);
  write_fp16(fp16, 14);
  ASSERT_EQ(run({"job.yaml"}), 0);
  EXPECT_EQ(steps(), expected) << "bit for bit";
}

TEST_F(Fp16Run, AnOverflowAtTheSmallestScaleEndsTheRunAndNamesTheGradient) {
  write_fp16({{"enabled", true},
              {"initial_scale_power", 41},
              {"hysteresis", 1},
              {"min_loss_scale", std::ldexp(1.0, 40)}},
             14);
  EXPECT_EQ(run({"job.yaml"}), 2);
  EXPECT_EQ(read_text(out() / "checkpoints/attempt"), "1\n") << "not retried";
  EXPECT_EQ(metric_steps(), one_to(2)) << "the first overflow is skipped, the second is the end";
  EXPECT_THAT(stderr_text(), HasSubstr("the gradient of \""));
  EXPECT_THAT(stderr_text(), HasSubstr(".weight\" is not finite"));
  EXPECT_THAT(stderr_text(), HasSubstr("bf16"));
}

TEST_F(TrainRun, BadRowIsNamedAndNothingStarts) {
  write("data.json", R"([{"input_ids": [1, 2, 3], "labels": [1, 2, 3]},
    {"input_ids": [1, "two"], "labels": [1, 2]}])");
  write_train_job(4, 100);
  EXPECT_EQ(run({"job.yaml"}), 1);
  EXPECT_THAT(stderr_text(), HasSubstr("data.json"));
  EXPECT_THAT(stderr_text(), HasSubstr("input_ids"));
  EXPECT_FALSE(fs::exists(out()));
}

TEST_F(TrainRun, RowsWithoutATargetAreTold) {
  json rows = counting_rows(8, 24);
  for (json& row : rows)
    for (int i = 0; i < 20; ++i) row["labels"][i] = -100;
  write("data.json", rows.dump());
  const auto train = [&](const char* length) {
    fs::remove_all(out());
    write_job({{"maxSteps", "1"}, {"maxSeqLength", length}, {"learningRate", "3e-3"}});
    EXPECT_EQ(run({"job.yaml"}), 0);
    return stdout_text() + stderr_text();
  };
  EXPECT_THAT(train("16"), HasSubstr("no row of a micro-batch has a target"));
  EXPECT_EQ(losses(), std::vector<double>{0});
  EXPECT_THAT(train("24"), testing::Not(HasSubstr("has a target")));
}

/// validate, plan and run refuse alike, and nothing is touched.
TEST_F(TrainRun, TheBaseModelIsNotReplacedByTheTrainedOne) {
  write_train_job(2, 100);
  fs::create_directories(out());
  fs::rename(at("model"), out() / "model");
  fs::create_symlink("out/model", at("model"));
  const std::string config = read_text(out() / "model/config.json");
  for (const char* verb : {"validate", "plan", "run"}) {
    EXPECT_NE(run({"job.yaml"}, verb), 0) << verb;
    EXPECT_THAT(stdout_text() + stderr_text(), HasSubstr("spec.training.modelNameOrPath")) << verb;
    EXPECT_THAT(stdout_text() + stderr_text(), HasSubstr("the run replaces it")) << verb;
  }
  EXPECT_EQ(read_text(out() / "model/config.json"), config);
  EXPECT_FALSE(fs::exists(out() / "checkpoints"));
}

TEST_F(TrainRun, OtherDataInTheSameFolderAreAnotherRun) {
  write_train_job(3, 1);
  ASSERT_EQ(run({"job.yaml"}), 0);
  ASSERT_EQ(run({"job.yaml"}), 0) << "the same run, complete";
  write("tuesday.json", counting_rows(40, 20).dump());
  const std::string other = "spec.training.dataPath=tuesday.json";
  EXPECT_EQ(run({"job.yaml", "--set", other}), 1);
  EXPECT_THAT(stderr_text(), HasSubstr("tuesday.json"));
  EXPECT_THAT(stderr_text(), HasSubstr("--overwrite_output_dir True"));
  EXPECT_THAT(stderr_text(), HasSubstr("--output_dir DIR"));
  EXPECT_EQ(run({"job.yaml", "--set", "spec.training.learningRate=1e-2"}), 1);
  EXPECT_THAT(stderr_text(), HasSubstr("learningRate was 0.003 and is 0.01"));
  EXPECT_EQ(run({"job.yaml", "--set", other, "--set", "spec.training.maxSteps=4"}), 1);
  // Asked for, it goes on with the first of the new rows.
  ASSERT_EQ(run({"job.yaml", "--set", other, "--set", "spec.training.maxSteps=4", "--set",
                 "spec.training.ignoreDataSkip=true"}),
            0);
  EXPECT_THAT(stderr_text(), HasSubstr("the order of the rows begins anew"));
  EXPECT_EQ(metric_steps(), one_to(4));
  EXPECT_EQ(run({"job.yaml", "--set", "spec.training.maxSteps=5"}), 1) << "monday's again";
}

/// The engine's own check: an operator's jobs do not pass dsj run.
TEST_F(TrainRun, AResumeBesideRowsThatWereAddedIsRefusedByTheRanks) {
  write_train_job(2, 1);
  ASSERT_EQ(run({"job.yaml"}), 0);
  fs::remove(out() / ".dsj/inputs.json");
  write("data.json", counting_rows(60, 24).dump());
  EXPECT_EQ(run({"job.yaml", "--set", "spec.training.maxSteps=4"}), 2);
  EXPECT_THAT(stderr_text(), HasSubstr("the data file has other content (48 then, 60 now rows)"));
  EXPECT_THAT(stderr_text(), HasSubstr("ignoreDataSkip"));
  EXPECT_EQ(metric_steps(), one_to(2));
  EXPECT_TRUE(fs::exists(out() / "checkpoints/step-2/manifest.json"));
}

TEST_F(TrainRun, OverwritingBeginsAnewAndKeepsTheOldRunUntilACheckpointIsSaved) {
  write_train_job(3, 1);
  ASSERT_EQ(run({"job.yaml"}), 0);
  const auto first = losses();
  const std::string overwrite = "spec.training.overwriteOutputDir=true";
  // What is refused before the start moves nothing.
  write("data.json", "[{\"input_ids\": [1], \"labels\": [1, 2]}]");
  EXPECT_EQ(run({"job.yaml", "--set", overwrite}), 1);
  EXPECT_TRUE(fs::exists(out() / "checkpoints/step-3/manifest.json"));
  EXPECT_TRUE(fs::exists(out() / "model/config.json"));
  write("data.json", counting_rows(48, 24).dump());
  // It fails before a checkpoint: the old run is still there.
  EXPECT_EQ(run({"job.yaml", "--set", overwrite, "--set", "spec.training.saveSteps=3", "--set",
                 "spec.training.learningRate=1e38", "--set", "spec.training.maxSkippedSteps=1"}),
            7)
      << stderr_text();
  EXPECT_TRUE(fs::exists(out() / "checkpoints/.dsj-overwritten/step-3/manifest.json"));
  EXPECT_TRUE(fs::exists(out() / ".dsj-overwritten/model/config.json"));
  EXPECT_FALSE(fs::exists(out() / "checkpoints/step-3"));
  ASSERT_EQ(run({"job.yaml", "--set", overwrite, "--set", "spec.training.learningRate=1e-2"}), 0);
  EXPECT_EQ(metric_steps(), one_to(3));
  EXPECT_NE(losses(), first);
  EXPECT_THAT(stdout_text(), testing::Not(HasSubstr("resumed")));
  EXPECT_FALSE(fs::exists(out() / ".dsj-overwritten"));
  EXPECT_FALSE(fs::exists(out() / ".dsj-overwritten-2"));
  EXPECT_FALSE(fs::exists(out() / "checkpoints/.dsj-overwritten"));
  EXPECT_TRUE(fs::exists(out() / "model/config.json"));
}

/// docs/cluster.md: a checkpoint goes into a new output directory. Its run had more attempts.
TEST_F(TrainRun, ACopiedCheckpointIsWhereARunBeginsAndNotWhereItStays) {
  write_train_job(6, 1);
  ASSERT_EQ(run({"job.yaml", "--set", "spec.training.maxSteps=2"}), 0);
  for (int i = 0; i < 3; ++i)  // more attempts of the same two steps
    ASSERT_EQ(run({"job.yaml", "--set", "spec.training.resumeFromCheckpoint=out/checkpoints/step-1",
                   "--set", "spec.training.maxSteps=" + std::to_string(3 + i)}),
              0);
  fs::create_directories(at("copied/checkpoints"));
  fs::create_directory_symlink(out() / "checkpoints/step-2", at("copied/checkpoints/step-2"));
  ASSERT_EQ(run({"job.yaml", "--output", at("copied").string(), "--set",
                 "spec.training.saveTotalLimit=1"}),
            0);
  EXPECT_THAT(stdout_text(), HasSubstr("resumed from step 2"));
  std::vector<std::string> steps;
  for (const auto& entry : fs::directory_iterator(at("copied/checkpoints")))
    if (entry.is_directory()) steps.push_back(entry.path().filename());
  EXPECT_THAT(steps, testing::ElementsAre("step-6"));
  EXPECT_TRUE(fs::exists(out() / "checkpoints/step-2/manifest.json")) << "the link's target stays";
}

TEST_F(TrainRun, WrongInputWritesNothing) {
  write("ds.json", R"({"train_micro_batch_size_per_gpu": 1, "train_batch_size": 7})");
  write_train_job(4, 100);
  EXPECT_EQ(run({"job.yaml"}), 1);
  EXPECT_FALSE(fs::exists(out()));
  EXPECT_THAT(stderr_text(), HasSubstr("train_batch_size"));
}

}  // namespace
}  // namespace dsj::run_test
