// The search of `dsj tune` on files in memory and a simulated machine; the space comes from a
// real model's shape and real rows.
#include "cli/tune/tune_loop.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "common/files/memory_files.h"
#include "tests/cli/model_files.h"

namespace dsj::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

/// The speed of this machine for each job, a function of its ds_config.
class FakeTrials : public Trials {
 public:
  FakeTrials(Files& files, std::function<double(const json&)> seconds)
      : files_(files), seconds_(std::move(seconds)) {}
  Result<TrialResult> run(const Trial& trial) override {
    if (std::ssize(names) == stop_before) return TrialResult{.end = TrialResult::End::Interrupted};
    names.push_back(trial.name);
    const json job = json::parse(*files_.read_all(trial.job_file));
    last_job = job;
    const json& config = job["spec"]["deepspeed"]["config"];
    const double seconds = seconds_(config);
    if (seconds <= 0) return TrialResult{.failure = "exit code 3: out of memory"};
    EXPECT_TRUE(files_.make_dirs(path_join(trial.output, "model")));
    EXPECT_TRUE(files_.write_synced(path_join(trial.output, "model/weights"), "x"));
    const auto steps = static_cast<double>(trial.last_step - trial.first_step + 1);
    TrialResult result{.end = TrialResult::End::Ran, .tokens = 0};
    for (double step = 0; step < steps; ++step) result.step_seconds.push_back(seconds);
    result.tokens = steps * 2 * 40 * config["train_micro_batch_size_per_gpu"].get<double>() *
                    config.value("gradient_accumulation_steps", 1.0);
    return result;
  }

  std::vector<std::string> names;
  json last_job;
  int64_t stop_before = -1;

 private:
  Files& files_;
  std::function<double(const json&)> seconds_;
};

/// Each step has a fixed cost, and stage 3 gathers.
double machine(const json& config) {
  const double stage = config["zero_optimization"]["stage"].get<double>();
  return 0.5 + 0.1 * config["train_micro_batch_size_per_gpu"].get<double>() +
         (stage == 3 ? 0.3 : 0) + 0.02 * (stage == 0 ? 0 : stage) +
         (config["zero_optimization"].value("overlap_comm", true) ? 0 : 0.2);
}

class PlentyOfMemory : public Machine {
 public:
  std::optional<int64_t> container_memory() const override { return bytes; }
  std::optional<int64_t> memory() const override { return bytes; }
  std::optional<int64_t> free_disk(const std::string&) const override { return int64_t{1} << 50; }
  std::string lacking_gpu() const override { return {}; }
  std::optional<int64_t> gpu_memory() const override { return std::nullopt; }
  int64_t bytes = int64_t{1} << 40;
};

class TuneLoopTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::temp_directory_path() / ("dsj-tune-" + std::to_string(getpid()) + info->name());
    write_model(folder_ / "model");
    std::ofstream rows(folder_ / "rows.jsonl");
    for (int row = 0; row < 16; ++row)
      rows << json{{"input_ids", std::vector<int>(40, 7)}, {"labels", std::vector<int>(40, 7)}}
           << "\n";
  }
  void TearDown() override { fs::remove_all(folder_); }

  json ds_config(const json& settings = json::object()) const {
    json section = {{"enabled", true}, {"tuner_type", "model_based"}};
    if (settings.is_object()) section.update(settings);
    return {{"train_micro_batch_size_per_gpu", 4},
            {"gradient_accumulation_steps", 1},
            {"tensorboard", {{"enabled", true}}},
            {"zero_optimization", {{"stage", 2}}},
            {"autotuning", section}};
  }
  Result<TuneSpace> space(const json& config, TuneScope scope = {.stages = {0, 1, 2, 3}}) {
    const json manifest = {{"apiVersion", "training.dsj.dev/v1alpha1"},
                           {"kind", "DeepSpeedJob"},
                           {"metadata", {{"name", "tuned"}}},
                           {"spec",
                            {{"deepspeed", {{"config", config}}},
                             {"workers", {{"slotsPerWorker", 2}}},
                             {"training",
                              {{"modelNameOrPath", (folder_ / "model").string()},
                               {"dataPath", (folder_ / "rows.jsonl").string()},
                               {"outputDir", (folder_ / "out").string()},
                               {"maxSteps", 1000}}}}}};
    auto job = jobspec::parse_job_yaml(manifest.dump(), (folder_ / "job.yaml").string());
    EXPECT_TRUE(job) << job.error().to_string();
    const auto request = dsconfig::tune_request(job->ds_config);
    for (const auto& finding : request.findings) ADD_FAILURE() << finding.path << finding.message;
    job->ds_config = request.ds_config;
    return TuneSpace::make(std::move(*job), request.settings, scope, request.micro_batches, {},
                           machine_);
  }
  /// Runs a search with the settings of the config; returns its exit code.
  int tune(const json& config, Trials& trials, TuneScope scope = {.stages = {0, 1, 2, 3}},
           bool everything = false) {
    const auto made = space(config, scope);
    if (!made) {
      ADD_FAILURE() << made.error().to_string();
      return -1;
    }
    const std::string log = (folder_ / "said").string();
    std::FILE* out = std::fopen(log.c_str(), "w");
    const auto code =
        TuneLoop(
            *made,
            {.results = "/work/results", .experiments = "/work/exps", .everything = everything},
            {.files = files_, .trials = trials, .out = out})
            .run();
    std::fclose(out);
    std::ifstream in(log);
    said_.assign(std::istreambuf_iterator<char>(in), {});
    EXPECT_TRUE(code) << (code ? "" : code.error().to_string());
    return code ? *code : -1;
  }
  json read(const std::string& name) {
    const auto text = files_.read_all("/work/results/" + name);
    return text ? json::parse(*text) : json();
  }

  fs::path folder_;
  MemoryFiles files_;
  PlentyOfMemory machine_;
  std::string said_;
};

TEST_F(TuneLoopTest, FindsTheBestOfTheGridWithHalfTheTrials) {
  FakeTrials grid(files_, machine), model(files_, machine);
  ASSERT_EQ(tune(ds_config(), grid, {.stages = {0, 1, 2, 3}}, true), 0);
  const json best = read("ds_config_optimal.json");
  EXPECT_EQ(grid.names.size(), 20u) << "4 stages x 5 sizes";
  ASSERT_EQ(tune(ds_config(), model), 0);
  EXPECT_LE(model.names.size(), 10u);
  EXPECT_EQ(read("ds_config_optimal.json"), best);
  EXPECT_EQ(best["zero_optimization"]["stage"], 0);
  EXPECT_EQ(best["train_micro_batch_size_per_gpu"], 32);
  EXPECT_FALSE(best.contains("autotuning"));
  EXPECT_TRUE(best["tensorboard"]["enabled"]) << "the user's file, but for what was found";
  EXPECT_NE(said_.find("gained: 2.03 x"), std::string::npos) << said_;
  EXPECT_NE(said_.find("train_batch_size 8 -> 64"), std::string::npos) << said_;
}

TEST_F(TuneLoopTest, TheFoldersHaveDeepSpeedsLayout) {
  FakeTrials trials(files_, machine);
  ASSERT_EQ(tune(ds_config({{"tuner_num_trials", 2}}), trials), 0);
  const std::string name = trials.names[1];
  const json experiment = read(name + "/exp.json");
  EXPECT_EQ(experiment["name"], name);
  EXPECT_EQ(experiment["num_gpus"], 2);
  EXPECT_EQ(experiment["ds_config"], read(name + "/ds_config.json"));
  EXPECT_EQ(json::parse(*files_.read_all("/work/exps/" + name + ".json")), experiment);
  const json metrics = read("as_given/metrics.json");
  const double seconds = machine(ds_config());
  EXPECT_NEAR(metrics["latency"], seconds * 1e6, 1);
  EXPECT_NEAR(metrics["throughput"], 8 / seconds, 1e-6);
  EXPECT_NEAR(metrics["tokens_per_second"], 320 / seconds, 1e-6);
  EXPECT_GT(metrics["FLOPS_per_gpu"], 0);
  EXPECT_EQ(metrics["step_seconds"].size(), 3u) << "steps 3 to 5";
  EXPECT_FALSE(*files_.exists("/work/results/as_given/run/model")) << "nobody needs it";
  for (const char* file :
       {"summary.txt", "cmd_optimal.txt", "job_optimal.yaml", "as_given/cmd.txt"})
    EXPECT_TRUE(*files_.exists(std::string("/work/results/") + file)) << file;
  // A trial is short and has no monitors.
  const json& training = trials.last_job["spec"]["training"];
  EXPECT_EQ(training["maxSteps"], 5);
  EXPECT_EQ(training["saveStrategy"], "no");
  EXPECT_FALSE(trials.last_job["spec"]["deepspeed"]["config"]["tensorboard"]["enabled"]);
  // The resulting job is consistent.
  const auto job = jobspec::parse_job_yaml(*files_.read_all("/work/results/job_optimal.yaml"),
                                           (folder_ / "j.yaml").string());
  ASSERT_TRUE(job);
  EXPECT_TRUE(jobspec::resolve(*job, {.world_size = 2}).runnable());
}

TEST_F(TuneLoopTest, AFolderThatNoTrialMadeIsNotRemoved) {
  ASSERT_TRUE(files_.make_dirs("/work/results/as_given"));
  ASSERT_TRUE(files_.write_synced("/work/results/as_given/notes.txt", "mine"));
  const auto made = space(ds_config());
  ASSERT_TRUE(made);
  FakeTrials trials(files_, machine);
  const auto code = TuneLoop(*made, {.results = "/work/results", .experiments = "/work/exps"},
                             {.files = files_, .trials = trials})
                        .run();
  ASSERT_FALSE(code);
  EXPECT_EQ(code.error().where, "/work/results/as_given");
  EXPECT_EQ(files_.read_all("/work/results/as_given/notes.txt"), "mine");
}

TEST_F(TuneLoopTest, AStoppedSearchContinues) {
  FakeTrials whole(files_, machine);
  ASSERT_EQ(tune(ds_config(), whole), 0);
  ASSERT_TRUE(files_.remove_all("/work"));
  FakeTrials stopped(files_, machine);
  stopped.stop_before = 3;
  EXPECT_EQ(tune(ds_config(), stopped), 130);
  EXPECT_NE(said_.find("the same command continues"), std::string::npos);
  EXPECT_EQ(read("ds_config_optimal.json"), json());
  FakeTrials rest(files_, machine);
  ASSERT_EQ(tune(ds_config(), rest), 0);
  EXPECT_NE(said_.find("3 outcomes were known"), std::string::npos) << said_;
  std::vector<std::string> both = stopped.names;
  both.insert(both.end(), rest.names.begin(), rest.names.end());
  EXPECT_EQ(both, whole.names);
}

TEST_F(TuneLoopTest, OverwriteRestartsAFinishedSearch) {
  FakeTrials first(files_, machine);
  ASSERT_EQ(tune(ds_config(), first), 0);
  ASSERT_TRUE(files_.write_synced("/work/results/mine.txt", "not ours"));
  FakeTrials again(files_, machine), kept(files_, machine);
  ASSERT_EQ(tune(ds_config(), again), 0);
  EXPECT_EQ(again.names, first.names) << "a new search";
  EXPECT_TRUE(*files_.exists("/work/results/mine.txt"));
  ASSERT_EQ(tune(ds_config({{"overwrite", false}}), kept), 0);
  EXPECT_TRUE(kept.names.empty()) << "every outcome was known";
}

TEST_F(TuneLoopTest, AFailedTrialIsReportedAndTheSearchContinues) {
  FakeTrials fails(files_, [](const json& config) {
    return config["zero_optimization"]["stage"] == 0 ? 0 : machine(config);
  });
  ASSERT_EQ(tune(ds_config({{"tuner_early_stopping", 50}}), fails), 0);
  EXPECT_NE(said_.find("failed: exit code 3: out of memory"), std::string::npos) << said_;
  EXPECT_EQ(read("ds_config_optimal.json")["zero_optimization"]["stage"], 1);
  EXPECT_EQ(read("z0_gas1_tmbspg2/metrics.json"), json());
  ASSERT_TRUE(files_.remove_all("/work"));
  FakeTrials nothing(files_, [](const json&) { return 0.0; });
  EXPECT_EQ(tune(ds_config(), nothing), 1);
  EXPECT_NE(said_.find("nothing ran"), std::string::npos);
}

TEST_F(TuneLoopTest, ConfigurationsThatCannotFitAreNotStarted) {
  machine_.bytes = 12 << 20;
  const auto made = space(ds_config({{"num_tuning_micro_batch_sizes", 12}}));
  ASSERT_TRUE(made) << made.error().to_string();
  EXPECT_FALSE(made->pruned().empty());
  EXPECT_NE(made->pruned().front().find("DoesNotFit"), std::string::npos) << made->pruned().front();
  machine_.bytes = int64_t{1} << 40;
  size_t few = 0, many = 0;
  for (const auto& group : made->groups()) few += group.size();
  const auto roomy = space(ds_config({{"num_tuning_micro_batch_sizes", 12}}));
  ASSERT_TRUE(roomy);
  for (const auto& group : roomy->groups()) many += group.size();
  EXPECT_LT(few, many);
}

/// Each key of the section affects the trials.
TEST_F(TuneLoopTest, SizesAndBatchesAreBounded) {
  const auto sizes = [&](const json& settings, TuneScope scope = {.stages = {2}}) {
    std::vector<std::pair<int64_t, int64_t>> all;
    const auto made = space(ds_config(settings), scope);
    EXPECT_TRUE(made);
    if (made)
      for (const auto& group : made->groups())
        for (const auto& option : group)
          all.emplace_back(option.candidate.micro_batch, option.candidate.accumulation);
    return all;
  };
  using Sizes = std::vector<std::pair<int64_t, int64_t>>;
  EXPECT_EQ(sizes({}), (Sizes{{2, 1}, {4, 1}, {8, 1}, {16, 1}, {32, 1}}));
  EXPECT_EQ(sizes({{"num_tuning_micro_batch_sizes", 1}}), (Sizes{{2, 1}, {4, 1}, {8, 1}}));
  EXPECT_EQ(sizes({{"max_train_micro_batch_size_per_gpu", 8}}), (Sizes{{2, 1}, {4, 1}, {8, 1}}));
  EXPECT_EQ(sizes({{"min_train_micro_batch_size_per_gpu", 4}}),
            (Sizes{{4, 1}, {8, 1}, {16, 1}, {32, 1}}));
  EXPECT_EQ(sizes({{"max_train_batch_size", 16}}), (Sizes{{2, 1}, {4, 1}, {8, 1}}));
  EXPECT_EQ(sizes({{"min_train_batch_size", 16}, {"num_tuning_micro_batch_sizes", 1}}),
            (Sizes{{2, 4}, {4, 2}, {8, 1}}));
  EXPECT_EQ(sizes({}, {.stages = {2}, .keep_batch = true}), (Sizes{{2, 2}, {4, 1}}));
  EXPECT_EQ(
      sizes({{"num_tuning_micro_batch_sizes", 1}}, {.stages = {1, 2}, .offload = true}).size(),
      12u);
}

TEST(TuneLoop, EverySettingActs) {
  // Metric and tuner are tested in tests/cli/tune/choose_test.cc; sizes, batches, overwrite
  // above. This is about the steps that count, and the other ZeRO keys.
  const std::string metrics =
      R"({"step": 1, "step_seconds": 9.0, "tokens": 100}
{"step": 2, "step_seconds": 2.0, "tokens": 100}
{"step": 3, "step_seconds": 4.0, "tokens": 140}
)";
  const TrialResult two = measured_steps(metrics, 2, 3);
  ASSERT_EQ(two.end, TrialResult::End::Ran);
  EXPECT_EQ(two.step_seconds, (std::vector<double>{2.0, 4.0}));
  EXPECT_EQ(two.tokens, 240);
  EXPECT_EQ(measured_steps(metrics, 1, 1).tokens, 100);
  EXPECT_EQ(measured_steps(metrics, 3, 4).end, TrialResult::End::Failed);
  EXPECT_EQ(measured_steps("{\"step\": 1}\nnonsense", 1, 1).end, TrialResult::End::Failed);
}

TEST_F(TuneLoopTest, FastLimitsTheSearchToStagesAndSizes) {
  const auto slow_overlap = [](const json& config) {
    return machine(config) + (config["zero_optimization"].contains("overlap_comm") &&
                                      config["zero_optimization"]["overlap_comm"] == true
                                  ? 1.0
                                  : 0.0);
  };
  FakeTrials fast(files_, slow_overlap), slow(files_, slow_overlap);
  ASSERT_EQ(tune(ds_config(), fast, {.stages = {2}}), 0);
  ASSERT_TRUE(files_.remove_all("/work"));
  ASSERT_EQ(tune(ds_config({{"fast", false}}), slow, {.stages = {2}}), 0);
  ASSERT_GT(slow.names.size(), fast.names.size());
  EXPECT_NE(slow.names.back().find("_oc"), std::string::npos) << slow.names.back();
}

}  // namespace
}  // namespace dsj::cli
