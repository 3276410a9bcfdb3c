#include "job/spec/job.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "job/spec/yaml.h"
#include "tests/support/edited.h"

namespace dsj::jobspec {
namespace {

namespace fs = std::filesystem;
using dsconfig::Finding;
using nlohmann::json;
using Severity = Finding::Severity;

/// A directory of its own per test, with a model, a data file and a ds_config.
class JobTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    folder_ =
        fs::temp_directory_path() / ("dsj-job-test-" + std::to_string(getpid()) + info->name());
    fs::remove_all(folder_);
    fs::create_directories(folder_ / "model");
    write("data.json", "[]");
    write("ds.json", R"({
  // two ranks
  "train_micro_batch_size_per_gpu": "auto",
  "zero_optimization": {"stage": 2, "overlap_com": true}
})");
  }
  void TearDown() override { fs::remove_all(folder_); }

  void write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name) << text;
  }
  std::string at(const std::string& name) const { return (folder_ / name).string(); }

  fs::path folder_;
};

const char* kManifest = R"(apiVersion: training.dsj.dev/v1alpha1
kind: DeepSpeedJob
metadata:
  name: qwen-alpaca
spec:
  deepspeed:
    config:
      train_micro_batch_size_per_gpu: auto
      zero_optimization: {stage: 2, reduce_bucket_size: 2e8}
      bf16: {enabled: "auto"}
  training:
    modelNameOrPath: model
    dataPath: data.json
    outputDir: out
    maxSteps: 20
    learningRate: 1e-6
    bf16: true
    saveStrategy: no
  workers:
    replicas: 2
    slotsPerWorker: 3
    template: {spec: {containers: [{name: worker, image: dsj}]}}
)";

TEST_F(JobTest, AManifestIsRead) {
  write("job.yaml", kManifest);
  const auto job = load_job_yaml(at("job.yaml"));
  ASSERT_TRUE(job) << job.error().to_string();
  EXPECT_EQ(job->name, "qwen-alpaca");
  EXPECT_EQ(job->training.model_name_or_path, at("model"));
  EXPECT_EQ(job->training.data_path, at("data.json"));
  EXPECT_EQ(job->training.output_dir, at("out"));
  EXPECT_EQ(*job->training.max_steps, 20);
  EXPECT_DOUBLE_EQ(*job->training.learning_rate, 1e-6);
  EXPECT_EQ(*job->training.save_strategy, "no");
  EXPECT_EQ(job->world_size(), 6);
  EXPECT_EQ(job->backoff_limit, 3);
  EXPECT_EQ(job->ds_config["zero_optimization"]["reduce_bucket_size"], 2e8);
  EXPECT_EQ(job->ds_config["bf16"]["enabled"], "auto");
  EXPECT_EQ(job->worker_template["spec"]["containers"][0]["image"], "dsj");
  const auto resolution = resolve(*job, {.hidden_size = 64});
  EXPECT_TRUE(resolution.runnable());
  EXPECT_EQ(resolution.config.train_batch_size, 48) << "8 rows x 6 ranks";
  EXPECT_EQ(resolution.config.zero.reduce_bucket_size, 200'000'000);
  EXPECT_EQ(resolution.config.precision, dsconfig::Precision::Bf16);
}

TEST_F(JobTest, FindingsCarryThePlaceInTheRightFile) {
  std::string text = kManifest;
  text.replace(text.find("stage: 2"), 8, "stge: 2 ");
  text.replace(text.find("1e-6"), 4, "-1.0");
  const auto job = parse_job_yaml(text, at("job.yaml"));
  ASSERT_TRUE(job) << job.error().to_string();
  const auto resolution = resolve(*job, {});
  ASSERT_EQ(resolution.findings.size(), 2u);
  const Finding& slip = resolution.findings[0];
  EXPECT_EQ(slip.path, "spec.deepspeed.config.zero_optimization.stge");
  EXPECT_EQ(slip.line, 9);
  EXPECT_EQ(slip.column, 27);
  EXPECT_EQ(to_line(*job, slip),
            at("job.yaml") +
                ":9:27: error: spec.deepspeed.config.zero_optimization.stge: "
                "\"stge\" is not a key of ds_config (did you mean \"stage\"?)");
  EXPECT_EQ(resolution.findings[1].path, "spec.training.learningRate");
  EXPECT_EQ(resolution.findings[1].line, 16);
}

TEST_F(JobTest, AConfigFileHasItsOwnPlaces) {
  const auto job = parse_job_yaml(R"(apiVersion: training.dsj.dev/v1alpha1
kind: DeepSpeedJob
metadata: {name: a}
spec:
  deepspeed: {configFrom: {file: ds.json}}
  training: {modelNameOrPath: Qwen/Qwen2-0.5B, dataPath: data.json}
)",
                                  at("job.yaml"));
  ASSERT_TRUE(job) << job.error().to_string();
  EXPECT_EQ(job->ds_config_source, at("ds.json"));
  EXPECT_EQ(job->training.model_name_or_path, "Qwen/Qwen2-0.5B") << "a hub id stays";
  const auto resolution = resolve(*job, {});
  ASSERT_EQ(resolution.findings.size(), 1u);
  EXPECT_EQ(resolution.findings[0].line, 4);
  EXPECT_TRUE(to_line(*job, resolution.findings[0]).starts_with(at("ds.json") + ":4:37: error: "))
      << to_line(*job, resolution.findings[0]);
}

TEST_F(JobTest, OverridesWin) {
  write("job.yaml", kManifest);
  const auto job = load_job_yaml(
      at("job.yaml"), {"spec.training.maxSteps=7", "spec.workers.replicas=1",
                       "spec.deepspeed.config.zero_optimization.stage=3", "spec.backoffLimit=0",
                       "spec.training.dataPath=other.json", "spec.training.seed=1234"});
  ASSERT_TRUE(job) << job.error().to_string();
  EXPECT_EQ(*job->training.max_steps, 7);
  EXPECT_EQ(job->replicas, 1);
  EXPECT_EQ(job->ds_config["zero_optimization"]["stage"], 3);
  EXPECT_EQ(job->backoff_limit, 0);
  EXPECT_EQ(job->training.data_path, at("other.json"));
  for (const char* bad :
       {"spec.training.maxSteps", "training.maxSteps=1", "spec.=1", "=1",
        "spec.training.maxSteps=[1", "spec.training.maxSteps.x=1", "spec.trainng.maxSteps=1"}) {
    const auto refused = load_job_yaml(at("job.yaml"), {bad});
    ASSERT_FALSE(refused) << bad;
    EXPECT_EQ(refused.error().kind, ErrorKind::BadInput);
  }
  write("from.yaml", R"(apiVersion: training.dsj.dev/v1alpha1
kind: DeepSpeedJob
metadata: {name: a}
spec:
  deepspeed: {configFrom: {file: ds.json}}
  training: {modelNameOrPath: model, dataPath: data.json}
)");
  const auto from =
      load_job_yaml(at("from.yaml"), {"spec.deepspeed.config.zero_optimization.stage=1"});
  ASSERT_TRUE(from) << from.error().to_string();
  EXPECT_EQ(from->ds_config["zero_optimization"]["stage"], 1);
  EXPECT_EQ(from->ds_config["train_micro_batch_size_per_gpu"], "auto");
}

TEST_F(JobTest, RoundTrip) {
  write("job.yaml", kManifest);
  const auto job = load_job_yaml(at("job.yaml"));
  ASSERT_TRUE(job);
  const auto again = parse_job_yaml(to_yaml(to_json(*job)), "/elsewhere/job.yaml");
  ASSERT_TRUE(again) << again.error().to_string();
  EXPECT_EQ(to_json(*again), to_json(*job));
  const JobFile file = to_job_file(*job, 2, 6);
  const auto read = job_file_from_json(json::parse(to_json(file).dump()));
  ASSERT_TRUE(read) << read.error().to_string();
  EXPECT_EQ(read->attempt, 2);
  EXPECT_EQ(read->ds_config, job->ds_config);
}

struct BadEdit {
  const char* from;
  const char* to;
  const char* says;
};

TEST_F(JobTest, EveryWrongFieldIsRefusedWithItsPath) {
  for (const BadEdit& bad : {
           BadEdit{"v1alpha1", "v1beta1", "apiVersion: found"},
           BadEdit{"kind: DeepSpeedJob", "kind: PyTorchJob", "kind: found"},
           BadEdit{"kind: DeepSpeedJob", "kind: PyTorchJob", "dsj import pytorchjob"},
           BadEdit{"kind: DeepSpeedJob", "kind: Job", "add kind: DeepSpeedJob"},
           BadEdit{"name: qwen-alpaca", "name: {{ .Release.Name }}", "helm template"},
           BadEdit{"  workers:", "\tworkers:", "begins with a tab"},
           BadEdit{"name: qwen-alpaca", "name: Qwen", "metadata.name"},
           BadEdit{"replicas: 2", "replica: 2", "did you mean \"replicas\"?"},
           BadEdit{"replicas: 2", "replicas: 0", "spec.workers.replicas"},
           BadEdit{"replicas: 2", "replicas: two", "spec.workers.replicas"},
           BadEdit{"slotsPerWorker: 3", "slotsPerWorker: 65000", "ranks"},
           BadEdit{"slotsPerWorker: 3", "maxReplicas: 1", "not in this order"},
           BadEdit{"  training:", "  trainig:", "did you mean \"training\"?"},
           BadEdit{"maxSteps: 20", "maxStep: 20", "job.yaml:15:5: spec.training.maxStep"},
           BadEdit{"maxSteps: 20", "maxSteps: 2.5", "expected a whole number"},
           BadEdit{"maxSteps: 20", "learningRate: 1", "given twice, first at line 15"},
           BadEdit{"dataPath: data.json", "seed: 1", "spec.training.dataPath"},
           BadEdit{"    config:", "    confg:", "did you mean \"config\"?"},
           BadEdit{"  workers:", "  launcher: Comand\n  workers:", "did you mean \"Command\"?"},
           BadEdit{"  workers:", "  restartPolicy: Sometimes\n  workers:", "spec.restartPolicy"},
           BadEdit{"  workers:", "  backoffLimit: -1\n  workers:", "spec.backoffLimit"},
           BadEdit{"  workers:", "---\n  workers:", "several documents"},
           BadEdit{"name: qwen-alpaca", "name: [", "not YAML"},
           BadEdit{"name: qwen-alpaca", "<<: {a: 1}", "merge keys"},
       }) {
    std::string text = kManifest;
    text.replace(text.find(bad.from), std::string(bad.from).size(), bad.to);
    const auto job = parse_job_yaml(text, "job.yaml");
    ASSERT_FALSE(job) << bad.to;
    EXPECT_NE(job.error().to_string().find(bad.says), std::string::npos)
        << bad.to << ": " << job.error().to_string();
    EXPECT_NE(job.error().where.find("job.yaml"), std::string::npos) << job.error().to_string();
  }
  EXPECT_FALSE(parse_job_yaml("", "job.yaml"));
  EXPECT_FALSE(parse_job_yaml("[1]", "job.yaml"));
  EXPECT_FALSE(parse_job_yaml("a: \xff", "job.yaml"));
  EXPECT_FALSE(load_job_yaml(at("absent.yaml")));
}

/// As kubectl takes it: a ConfigMap and a claim beside the job.
TEST_F(JobTest, TheOnlyJobOfSeveralDocumentsIsRead) {
  const std::string other = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n";
  const auto job = parse_job_yaml(other + "---\n" + kManifest + "---\n" + other, "job.yaml");
  ASSERT_TRUE(job) << job.error().to_string();
  EXPECT_EQ(job->name, "qwen-alpaca");
  EXPECT_EQ(job->positions.at("kind").key.line, 6);
  for (const std::string& text :
       {other + "---\n" + other, std::string(kManifest) + "---\n" + kManifest})
    EXPECT_NE(parse_job_yaml(text, "job.yaml").error().to_string().find("several documents"),
              std::string::npos);
}

/// As `kubectl create` takes it. An API server appends five characters.
TEST_F(JobTest, ANameMayBeGenerated) {
  const auto with = [](const std::string& metadata) {
    std::string text = kManifest;
    text.replace(text.find("name: qwen-alpaca"), 17, metadata);
    return parse_job_yaml(text, "job.yaml");
  };
  const auto job = with("generateName: nightly-");
  ASSERT_TRUE(job) << job.error().to_string();
  EXPECT_EQ(job->name, "nightly");
  EXPECT_EQ(with("generateName: nightly-\n  name: mine")->name, "mine");
  EXPECT_TRUE(with("generateName: " + std::string(34, 'a') + "-"));
  for (const std::string& bad : {std::string("Nightly-"), std::string("\"\""), std::string("\"-\""),
                                 std::string(35, 'a') + "-", std::string("9-")}) {
    const auto refused = with("generateName: " + bad);
    ASSERT_FALSE(refused) << bad;
    EXPECT_NE(refused.error().to_string().find("metadata.generateName"), std::string::npos)
        << refused.error().to_string();
  }
}

TEST_F(JobTest, WhatIsNotBuiltStopsARunAndKeepsTheJobValid) {
  for (const char* field : {"parallelism: {tensor: 2}", "network: {tls: Required}",
                            "runPolicy: {cleanPodPolicy: All}", "suspend: true"}) {
    std::string text = kManifest;
    text.replace(text.find("  workers:"), 10, std::string("  ") + field + "\n  workers:");
    const auto job = parse_job_yaml(text, at("job.yaml"));
    ASSERT_TRUE(job) << field << job.error().to_string();
    const auto resolution = resolve(*job, {});
    EXPECT_TRUE(resolution.ok()) << field;
    EXPECT_FALSE(resolution.runnable()) << field;
  }
}

/// Any bytes: a job or an error with a place; what was read resolves.
TEST_F(JobTest, DamagedManifestsNeverCrash) {
  const std::string alphabet = "{}[],:-&*!|>'\"#%@ \n\t~<?a0.e\xc3\xa9\xff";
  std::mt19937 random(3);
  int read = 0;
  for (int round = 0; round < 3'000; ++round) {
    const std::string text = testing_support::edited(kManifest, alphabet, random, 3, 8);
    const auto job = parse_job_yaml(text, "job.yaml");
    if (!job) {
      EXPECT_TRUE(job.error().where.starts_with("job.yaml")) << job.error().to_string();
      EXPECT_FALSE(job.error().message.empty());
      continue;
    }
    ++read;
    EXPECT_GE(resolve(*job, {}).config.zero.stage, 0);
  }
  EXPECT_GT(read, 100);
}

TEST(YamlTest, AliasesCannotExplode) {
  std::string text = "a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n";
  for (int i = 1; i < 12; ++i) {
    const std::string before = "*a" + std::to_string(i - 1);
    text += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [";
    for (int k = 0; k < 10; ++k) text += (k ? ", " : "") + before;
    text += "]\n";
  }
  const auto document = parse_yaml(text, "bomb.yaml");
  ASSERT_FALSE(document);
  EXPECT_NE(document.error().message.find("too many values"), std::string::npos);
  std::string deep(5000, '[');
  EXPECT_FALSE(parse_yaml("a: " + deep, "deep.yaml"));
}

TEST(YamlTest, WhatTheLibraryWouldReadForEverIsRefused) {
  for (const char* text : {", a", "# x\n, b: 1\n", "]", "a: 1\n---\n}"}) {
    const auto document = parse_yaml(text, "f.yaml");
    ASSERT_FALSE(document) << text;
    EXPECT_NE(document.error().to_string().find("not YAML"), std::string::npos)
        << document.error().to_string();
  }
  EXPECT_FALSE(parse_yaml(std::string("a: b\0c", 6), "f.yaml"));
}

TEST(YamlTest, ScalarsAsTheCoreSchemaHasThem) {
  const auto document = parse_yaml(
      "{a: 2e8, b: 1e-6, c: no, d: \"5\", e: ~, f: True, g: 1.5, h: -3, i: .5, j: 1.2.3, k: auto}",
      "f");
  ASSERT_TRUE(document) << document.error().to_string();
  EXPECT_EQ(document->value,
            json::parse(R"({"a": 2e8, "b": 1e-6, "c": "no", "d": "5", "e": null, "f": true,
                           "g": 1.5, "h": -3, "i": 0.5, "j": "1.2.3", "k": "auto"})"));
  const auto again = parse_yaml(to_yaml(document->value), "f");
  ASSERT_TRUE(again) << again.error().to_string();
  EXPECT_EQ(again->value, document->value) << to_yaml(document->value);
}

/// A fuzzer's find: a key whose written form is longer than a reader takes before a colon.
TEST(YamlTest, LongKeysAreReadAgain) {
  for (const std::string& key :
       {std::string(300, '\x14'), std::string(2000, 'k'), std::string(250, '\x14')}) {
    const json written = {{"a", 1}, {key, {{"in", 2}}}, {"z", 3}};
    const auto again = parse_yaml(to_yaml(written), "f");
    ASSERT_TRUE(again) << again.error().to_string();
    EXPECT_EQ(again->value, written);
  }
}

}  // namespace
}  // namespace dsj::jobspec
