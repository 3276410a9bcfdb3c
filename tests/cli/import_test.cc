#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "cli/verbs.h"

namespace dsj::cli {
namespace {

namespace fs = std::filesystem;

class ImportTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    folder_ =
        fs::temp_directory_path() / ("dsj-import-test-" + std::to_string(getpid()) + info->name());
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name) << text;
    return (folder_ / name).string();
  }
  std::string read(const std::string& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  int run(std::vector<std::string> args, int (*verb)(Arguments) = run_import) {
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    const int code = verb(args);
    out_ = testing::internal::GetCapturedStdout();
    err_ = testing::internal::GetCapturedStderr();
    return code;
  }

  fs::path folder_;
  std::string out_, err_;
};

TEST_F(ImportTest, RollListsRolesAndWritesAJobThatValidates) {
  const std::string file = write("p.yaml", R"(pretrain: m
actor_train:
  training_args: {per_device_train_batch_size: 2}
  strategy_args: {strategy_name: deepspeed_train, strategy_config: {zero_optimization: {stage: 2}}}
  device_mapping: list(range(0,2))
critic:
  strategy_args: {strategy_name: deepspeed_train}
actor_infer:
  strategy_args: {strategy_name: vllm}
)");
  EXPECT_EQ(run({"roll", file}), 0) << "two roles train: which one is for the user to say";
  EXPECT_NE(out_.find("actor_infer"), std::string::npos);
  EXPECT_NE(out_.find("left alone"), std::string::npos);
  const std::string job = (folder_ / "job.yaml").string();
  EXPECT_EQ(run({"roll", file, "--role", "actor_train", "--output", job}), 0) << err_;
  EXPECT_NE(err_.find("left open: spec.training.dataPath"), std::string::npos) << err_;
  EXPECT_EQ(run({job, "--elsewhere"}, run_validate), 0) << out_;
  EXPECT_EQ(run({"roll", file, "--role", "actor_train", "--output", job}), 2);
  EXPECT_NE(err_.find("--force"), std::string::npos);
  EXPECT_EQ(run({"roll", file, "--role", "actor_train", "--output", job, "--force", "--set",
                 "spec.training.dataPath=/rows.jsonl"}),
            0);
  EXPECT_NE(read(job).find("dataPath: /rows.jsonl"), std::string::npos);
  ASSERT_EQ(run({"roll", file, "--role", "actor_train", "-o", "json", "--set",
                 "spec.training.dataPath=/rows.jsonl"}),
            0);
  EXPECT_EQ(nlohmann::json::parse(out_)["spec"]["training"]["dataPath"], "/rows.jsonl");
  EXPECT_EQ(run({"roll", file, "--role", "actor_infer"}), 2);
}

/// Users append the override of a hint to the line, after its own arguments.
TEST_F(ImportTest, AnOverrideMayFollowTheLine) {
  const std::vector<std::string> line = {
      "torchrun", "--", "torchrun", "--nproc_per_node=2", "train.py", "--model_name_or_path=m"};
  ASSERT_EQ(run(line), 2);
  EXPECT_NE(err_.find("--set spec.training.dataPath="), std::string::npos) << err_;
  for (const std::vector<std::string>& added :
       {std::vector<std::string>{"--set", "spec.training.dataPath=rows.jsonl"},
        std::vector<std::string>{"--set=spec.training.dataPath=rows.jsonl"}}) {
    std::vector<std::string> whole = line;
    whole.insert(whole.end(), added.begin(), added.end());
    EXPECT_EQ(run(whole), 0) << err_;
    EXPECT_NE(out_.find("dataPath: rows.jsonl"), std::string::npos) << out_;
  }
}

TEST_F(ImportTest, TheOnlyTrainingRoleOfARollPipelineIsImported) {
  const std::string file = write("p.yaml", R"(pretrain: m
actor_train:
  training_args: {per_device_train_batch_size: 2}
  strategy_args: {strategy_name: deepspeed_train, strategy_config: {zero_optimization: {stage: 2}}}
  device_mapping: list(range(0,2))
actor_infer:
  strategy_args: {strategy_name: vllm}
)");
  EXPECT_EQ(run({"roll", file}), 0) << err_;
  EXPECT_NE(out_.find("kind: DeepSpeedJob"), std::string::npos) << out_;
  EXPECT_NE(err_.find("role: actor_train"), std::string::npos) << err_;
}

TEST_F(ImportTest, RollWithoutItsCheckoutUsesPredefinedFilesAndSaysSo) {
  const std::string text = R"(defaults: [../config/deepspeed_zero2@_here_]
pretrain: m
actor_train:
  training_args: {per_device_train_batch_size: 2}
  strategy_args: {strategy_name: deepspeed_train, strategy_config: "${deepspeed_zero2}"}
  device_mapping: list(range(0,2))
)";
  fs::create_directories(folder_ / "run");
  const std::string file = write("run/p.yaml", text), job = (folder_ / "job.yaml").string();
  EXPECT_EQ(run({"roll", file, "--role", "actor_train", "--output", job}), 0) << err_;
  const std::string missing = (folder_ / "config/deepspeed_zero2.yaml").string();
  const std::string said =
      "deepspeed_zero2: dsj's own configs/roll/deepspeed_zero2.yaml, because " + missing +
      " is not there";
  EXPECT_NE(err_.find("predefined: " + said), std::string::npos) << err_;
  EXPECT_NE(read(job).find("# Predefined:\n#   " + said), std::string::npos) << read(job);
  EXPECT_NE(read(job).find("stage: 2"), std::string::npos) << read(job);
  EXPECT_EQ(run({job, "--elsewhere"}, run_validate), 0) << out_;
  EXPECT_EQ(run({"roll", file}), 0);
  EXPECT_NE(err_.find("predefined: " + said), std::string::npos) << err_;
  fs::create_directories(folder_ / "config");
  write("config/deepspeed_zero2.yaml", "deepspeed_zero2: {zero_optimization: {stage: 1}}\n");
  EXPECT_EQ(run({"roll", file, "--role", "actor_train", "--output", job, "--force"}), 0) << err_;
  EXPECT_EQ(err_.find("predefined"), std::string::npos) << err_;
  EXPECT_NE(read(job).find("stage: 1"), std::string::npos) << read(job);
}

TEST_F(ImportTest, ALineMayFollowTwoDashes) {
  const std::string config = write("ds.json", R"({"train_micro_batch_size_per_gpu": "auto"})");
  const std::vector<std::string> line = {
      "--",          "torchrun", "--nproc_per_node",     "2", "finetune.py",
      "--deepspeed", config,     "--model_name_or_path", "m", "--data_path",
      "rows.json"};
  std::vector<std::string> args = {"torchrun"};
  args.insert(args.end(), line.begin(), line.end());
  EXPECT_EQ(run(args), 0) << err_;
  EXPECT_NE(out_.find("slotsPerWorker: 2"), std::string::npos) << out_;
  EXPECT_NE(out_.find("# Not carried over:"), std::string::npos);
  // In another directory, relative paths would mean something else.
  args = {"torchrun", "--output", (folder_ / "job.yaml").string()};
  args.insert(args.end(), line.begin(), line.end());
  EXPECT_EQ(run(args), 0) << err_;
  EXPECT_NE(
      read(folder_ / "job.yaml").find("dataPath: " + (fs::current_path() / "rows.json").string()),
      std::string::npos);
  args.insert(args.end(), {"--eval_strategy", "steps", "--eval_data_path", "a.json,/b.json"});
  args.insert(args.begin() + 1, "--force");
  EXPECT_EQ(run(args), 0) << err_;
  EXPECT_NE(read(folder_ / "job.yaml")
                .find("evalDataPath: " + (fs::current_path() / "a.json").string() + ",/b.json"),
            std::string::npos)
      << read(folder_ / "job.yaml");
}

/// If the evaluation rows are a split on a hub, the import asks for rows, or for no evaluation.
TEST_F(ImportTest, AJobThatEvaluatesNeedsRowsForIt) {
  const std::string config = write("ds.json", R"({"train_micro_batch_size_per_gpu": "auto"})");
  const auto import = [&](const std::vector<std::string>& sets) {
    std::vector<std::string> args = {"torchrun"};
    for (const std::string& set : sets) args.insert(args.end(), {"--set", set});
    args.insert(args.end(), {"--", "torchrun", "sft.py", "--deepspeed", config,
                             "--model_name_or_path", "m", "--data_path", "d.json",
                             "--eval_strategy", "epoch", "--dataset_test_split", "test"});
    return run(args);
  };
  EXPECT_EQ(import({}), 2);
  EXPECT_NE(err_.find("--set spec.training.evalDataPath="), std::string::npos) << err_;
  EXPECT_NE(err_.find("--set spec.training.evaluationStrategy=no"), std::string::npos) << err_;
  EXPECT_EQ(import({"spec.training.evalDataPath=e.json"}), 0) << err_;
  EXPECT_EQ(import({"spec.training.valSize=0.1"}), 0) << err_;
  EXPECT_EQ(import({"spec.training.evaluationStrategy=no"}), 0) << err_;
}

TEST_F(ImportTest, AJobThatWouldNotValidateIsNotWritten) {
  const std::string config = write("ds.json", R"({"zero_optimization": {"stage": 7}})");
  const std::string job = (folder_ / "job.yaml").string();
  EXPECT_EQ(run({"torchrun", "--output", job, "--", "torchrun", "t.py", "--deepspeed", config,
                 "--model_name_or_path", "m", "--data_path", "d"}),
            1);
  EXPECT_FALSE(fs::exists(job));
  EXPECT_NE(err_.find("zero_optimization.stage"), std::string::npos) << err_;
}

TEST_F(ImportTest, AHostfileGivesWorkers) {
  EXPECT_EQ(run({"hostfile", write("h", "a slots=4\nb slots=4\n")}), 0) << err_;
  EXPECT_NE(out_.find("replicas: 2\n    slotsPerWorker: 4"), std::string::npos) << out_;
  EXPECT_EQ(run({"hostfile", write("u", "a slots=4\nb slots=2\n")}), 2);
  EXPECT_NE(err_.find("a: 4, b: 2"), std::string::npos) << err_;
}

TEST_F(ImportTest, Usage) {
  EXPECT_EQ(run({}), 2);
  EXPECT_EQ(run({"--help"}), 0);
  EXPECT_EQ(run({"slurm", "x"}), 2);
  EXPECT_EQ(run({"roll"}), 2);
  EXPECT_EQ(run({"torchrun"}), 2);
  EXPECT_EQ(run({"roll", (folder_ / "absent.yaml").string()}), 2);
}

TEST_F(ImportTest, AKubeflowJobIsCheckedByTheClustersRules) {
  const std::string config = write("ds.json", R"({"train_micro_batch_size_per_gpu": "auto"})");
  const std::string file = write("job.yaml", R"(
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: tune}
spec:
  nprocPerNode: "2"
  runPolicy: {suspend: true}
  pytorchReplicaSpecs:
    Worker:
      template:
        spec:
          containers:
            - name: pytorch
              image: i
              command: [torchrun, train.py, --deepspeed, inside.json, --model_name_or_path, org/model,
                        --data_path, /d.json, --output_dir, /o]
)");
  EXPECT_EQ(run({"pytorchjob", file}), 2);
  EXPECT_NE(err_.find("--ds-config"), std::string::npos) << err_;
  EXPECT_EQ(run({"pytorchjob", file, "--ds-config", config}), 1);
  EXPECT_NE(err_.find("modelNameOrPath"), std::string::npos) << err_;
  ASSERT_EQ(run({"pytorchjob", file, "--ds-config", config, "--set",
                 "spec.training.modelNameOrPath=/models/m"}),
            0)
      << err_;
  EXPECT_EQ(err_.find("unsupported"), std::string::npos) << err_;
  EXPECT_NE(out_.find("slotsPerWorker: 2"), std::string::npos);
  EXPECT_NE(out_.find("suspend: true"), std::string::npos);
  ASSERT_EQ(run({"pytorchjob", file, "--launcher", "Command"}), 0) << err_;
  EXPECT_NE(out_.find("launcher: Command"), std::string::npos);
  EXPECT_EQ(run({"mpijob", file}), 2);
}

}  // namespace
}  // namespace dsj::cli
