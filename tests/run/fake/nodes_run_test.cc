// `dsj run` as several nodes, each a process of its own on this machine, as torchrun starts them; and as the node of a TrainJob of
// Kubeflow Trainer. With real agents and fake ranks (rank.cc); the losses are compared in ../train_run_test.cc.
#include <gmock/gmock.h>

#include <atomic>
#include <mutex>

#include "agent/status/trainer_status.h"
#include "common/http/http_listener.h"
#include "operator/webhook/certificate.h"
#include "test_paths.h"
#include "tests/run/nodes_support.h"

namespace dsj::run_test {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

class NodesRun : public NodesTest {
 protected:
  void SetUp() override {
    NodesTest::SetUp();
    variables_["DSJ_TRAIN_PROGRAM"] = std::string(DSJ_BIN_DIR) + "/fake_rank";
  }
  /// The last steps; the job's length.
  static std::vector<std::string> line(int steps, int save_steps = 5) {
    return {"--nproc_per_node=2",
            "--deepspeed=ds.json",
            "--model_name_or_path=model",
            "--data_path=data.json",
            "--output_dir=out",
            "--max_steps=" + std::to_string(steps),
            "--per_device_train_batch_size=1",
            "--save_strategy=steps",
            "--save_steps=" + std::to_string(save_steps)};
  }
};

TEST_F(NodesRun, TorchrunsWordsStartTheRanksOfEachNode) {
  start_nodes(2, line(12));
  EXPECT_EQ(finish_node(0), 0) << said(0);
  EXPECT_EQ(finish_node(1), 0) << said(1);
  EXPECT_EQ(metric_steps(), one_to(12));
  EXPECT_EQ(status()["phase"], "Complete");
  EXPECT_EQ(status()["worldSize"], 4);
  for (const int rank : {0, 1, 2, 3})
    EXPECT_THAT(read_text(out() / ("logs/rank-" + std::to_string(rank) + ".log")),
                HasSubstr("rank " + std::to_string(rank) + " of 4"));
  EXPECT_THAT(said(0), HasSubstr("this machine is node 0, at 127.0.0.1"));
  EXPECT_THAT(said(1), HasSubstr("node 1 of 2: done"));
  EXPECT_FALSE(fs::exists(out() / ".dsj/agent.json")) << "nobody joins a run that is over";
  EXPECT_THAT(processes(), IsEmpty());
}

TEST_F(NodesRun, TheOrderOfTheNodesDoesNotMatter) {
  start_node(1, 3, line(6));
  start_node(2, 3, line(6));
  ASSERT_TRUE(soon([&] { return said(2).contains("waits for node 0"); }));
  start_node(0, 3, line(6));
  for (const int node : {0, 1, 2}) EXPECT_EQ(finish_node(node), 0) << said(node);
  EXPECT_EQ(status()["worldSize"], 6);
}

/// As Kubeflow Trainer and PyTorchJob start a pod.
TEST_F(NodesRun, ThePodsOfATrainJobGetTheirPlaceFromTheEnvironment) {
  auto job = line(6);
  job.erase(job.begin());  // --nproc_per_node
  for (const int node : {1, 0}) {
    environment_[node] = {"PET_NNODES=2", "PET_NPROC_PER_NODE=3",
                          "PET_NODE_RANK=" + std::to_string(node), "PET_MASTER_ADDR=localhost",
                          "PET_MASTER_PORT=" + std::to_string(port_)};
    start_line(node, job);
  }
  EXPECT_EQ(finish_node(0), 0) << said(0);
  EXPECT_EQ(finish_node(1), 0) << said(1);
  EXPECT_EQ(status()["worldSize"], 6);
}

TEST_F(NodesRun, AStopOnAnyNodeSavesOneStepOnAll) {
  start_nodes(2, line(100'000, 1'000));
  ASSERT_TRUE(soon([&] { return steps_done() >= 20; }));
  signal_node(1, SIGTERM);
  EXPECT_EQ(finish_node(1), 130) << said(1);
  EXPECT_EQ(finish_node(0), 130) << said(0);
  const int64_t saved = status()["checkpoint"]["lastSaved"]["step"];
  EXPECT_EQ(saved, steps_done());
  EXPECT_THAT(processes(), IsEmpty());
  start_nodes(2, line(static_cast<int>(saved) + 5, 1'000));
  EXPECT_EQ(finish_node(0), 0) << said(0);
  EXPECT_EQ(finish_node(1), 0) << said(1);
  EXPECT_EQ(metric_steps(), one_to(saved + 5));
}

TEST_F(NodesRun, ALostAgentOfAnotherNodeCostsAnAttempt) {
  start_nodes(2, line(400));
  ASSERT_TRUE(soon([&] { return steps_done() >= 12; }));
  const auto agents = processes(std::string("--worker") + '\0' + "1");
  ASSERT_EQ(agents.size(), 1u);
  kill(agents[0], SIGKILL);
  EXPECT_EQ(finish_node(0), 0) << said(0);
  EXPECT_EQ(finish_node(1), 0) << said(1);
  EXPECT_EQ(metric_steps(), one_to(400));
  EXPECT_THAT(said(1), HasSubstr("its agent ended with signal 9 (Killed); it is started again"));
}

/// As where node 0's pod is lost: its successor has a new key, and finds the other node waiting.
TEST_F(NodesRun, ANodeJoinsTheNextRunOfNodeZero) {
  start_nodes(2, line(400));
  ASSERT_TRUE(soon([&] { return steps_done() >= 12; }));
  kill_node(0);
  start_node(0, 2, line(400));
  EXPECT_EQ(finish_node(0), 0) << said(0);
  EXPECT_EQ(finish_node(1), 0) << said(1);
  EXPECT_EQ(metric_steps(), one_to(400));
}

TEST_F(NodesRun, ANodeThatDoesNotComeEndsAllWithItsName) {
  auto job = line(6);
  job.push_back("--rdzv_conf=timeout=3");
  for (const int node : {2, 0}) start_node(node, 3, job);
  EXPECT_EQ(finish_node(0), 8) << said(0);
  EXPECT_EQ(finish_node(2), 8) << said(2);
  EXPECT_THAT(said(0), HasSubstr("NodesMissing: node 1 of 3 did not join in 3 s"));
  EXPECT_THAT(processes(), IsEmpty());
  start_node(1, 3, job);  // nobody begins
  EXPECT_EQ(finish_node(1), 8) << said(1);
  EXPECT_THAT(said(1), HasSubstr("node 0 has not begun"));
}

TEST_F(NodesRun, AStopEndsTheWaitForNodes) {
  start_node(0, 2, line(6));
  ASSERT_TRUE(soon([&] { return fs::exists(out() / ".dsj/endpoint.json"); }));
  signal_node(0, SIGINT);
  EXPECT_EQ(finish_node(0), 130) << said(0);
  EXPECT_THAT(processes(), IsEmpty());
}

TEST_F(NodesRun, AFailedJobFailsOnEveryNode) {
  variables_["FAKE_FAULT"] = "attempt=0,rank=3,step=2,do=exit2";
  start_nodes(2, line(100));
  EXPECT_EQ(finish_node(0), 2) << said(0);
  EXPECT_EQ(finish_node(1), 2) << said(1);
}

TEST_F(NodesRun, NodeZeroRunsWhereItsAddressLeads) {
  auto words = line(5);
  words.insert(words.end(), {"--nnodes=2", "--master_addr=203.0.113.7"});
  start_line(0, words);
  EXPECT_EQ(finish_node(0), 2);
  EXPECT_THAT(said(0), HasSubstr("203.0.113.7: leads to 203.0.113.7, which is not an address of "
                                 "this machine"));
  EXPECT_FALSE(fs::exists(out()));
}

TEST_F(NodesRun, AManifestIsRefusedOnSeveralNodes) {
  write_job({{"maxSteps", "4"}});
  environment_[0] = {"PET_NNODES=2", "PET_NODE_RANK=0"};
  start_line(0, {"job.yaml"});
  EXPECT_EQ(finish_node(0), 2);
  EXPECT_THAT(said(0), HasSubstr("PET_NNODES: found 2 nodes: a manifest runs on one machine"));
  environment_[0] = {"PET_NNODES=1", "PET_NODE_RANK=0", "PET_NPROC_PER_NODE=7"};
  start_line(0, {"job.yaml"});
  EXPECT_EQ(finish_node(0), 0) << said(0);
  EXPECT_EQ(status()["worldSize"], 2) << "what the manifest says counts";
}

/// What Trainer's server does with a request, by its source: the token, then one JSON object.
class TrainerServerPlayed final : public HttpHandler {
 public:
  std::optional<HttpAnswer> refuse(const HttpHead& head) override {
    if (head.method != "POST" || head.path != kPath) return HttpAnswer{404, "{}"};
    if (head.authorization != "Bearer a-token") return HttpAnswer{403, "{}"};
    return std::nullopt;
  }
  HttpAnswer answer(const HttpHead&, const std::string& body) override {
    const std::lock_guard lock(mutex_);
    told_.push_back(json::parse(body)["trainerStatus"]);
    return {200, body};
  }
  std::vector<json> told() {
    const std::lock_guard lock(mutex_);
    return told_;
  }
  static constexpr char kPath[] =
      "/apis/trainer.kubeflow.org/v1alpha1/namespaces/team/trainjobs/tune/status";

 private:
  std::mutex mutex_;
  std::vector<json> told_;
};

TEST_F(NodesRun, ATrainJobIsToldItsProgress) {
  const auto made = op::issue_certificate({"127.0.0.1"}, "trainer",
                                          std::chrono::system_clock::now(), std::chrono::hours(1));
  ASSERT_TRUE(made) << made.error().to_string();
  const auto context = server_tls(made->chain_pem, made->key_pem);
  ASSERT_TRUE(context) << context.error().to_string();
  const auto server = std::make_shared<TrainerServerPlayed>();
  const auto listener =
      HttpListener::open("127.0.0.1", 0, {.body_bytes = 1 << 16}, server, [&] { return *context; });
  ASSERT_TRUE(listener) << listener.error().to_string();
  write("ca.crt", made->authority_pem);
  write("token", "a-token\n");
  environment_[0] = {std::string(agent::kEnvTrainerUrl) + "=https://127.0.0.1:" +
                         std::to_string((*listener)->port()) + TrainerServerPlayed::kPath,
                     std::string(agent::kEnvTrainerAuthorities) + "=" + at("ca.crt").string(),
                     std::string(agent::kEnvTrainerToken) + "=" + at("token").string()};
  start_line(0, line(12));
  ASSERT_EQ(finish_node(0), 0) << said(0);
  const auto told = server->told();
  ASSERT_GE(told.size(), 2u);
  EXPECT_EQ(told.front()["progressPercentage"], 0);
  EXPECT_EQ(told.back()["progressPercentage"], 100);
  EXPECT_EQ(told.back()["estimatedRemainingSeconds"], 0);
  std::map<std::string, std::string> metrics;
  for (const json& metric : told.back()["metrics"]) metrics[metric["name"]] = metric["value"];
  EXPECT_THAT(metrics["loss"], testing::StartsWith("0.833"));
  EXPECT_EQ(metrics["learning_rate"], "0.001");
  EXPECT_THAT(said(0), Not(HasSubstr("Kubeflow")));
  // A refusal ends no run; the user hears of it.
  write("token", "another\n");
  start_line(0, line(20));
  EXPECT_EQ(finish_node(0), 0) << said(0);
  EXPECT_THAT(said(0),
              HasSubstr("warning: the progress does not reach Kubeflow Trainer: the server "
                        "answered 403"));
}

/// configs/trainer, as Trainer 2.2 makes pods of it (its torch policy, and its builder of JobSets): the container `node` of the
/// replicated job with the trainer's label gets PET_*; a TrainJob's args take the place of the container's.
TEST_F(NodesRun, TheSampleOfATrainJobTrains) {
  const auto sample = [](const std::string& name) {
    const std::string path = std::string(DSJ_SOURCE_DIR) + "/configs/trainer/" + name;
    const auto read = jobspec::parse_yaml(read_text(path), path);
    EXPECT_TRUE(read) << read.error().to_string();
    return read ? read->value["spec"] : json();
  };
  const json runtime = sample("runtime.yaml"), job = sample("trainjob.yaml")["trainer"];
  ASSERT_TRUE(runtime["mlPolicy"].contains("torch"));
  const std::string label = "trainer.kubeflow.org/trainjob-ancestor-step";
  std::map<std::string, json> containers;
  for (const json& replicated : runtime["template"]["spec"]["replicatedJobs"]) {
    EXPECT_EQ(replicated.value("replicas", 1), 1) << "Trainer's webhook refuses another number";
    const json& pod = replicated["template"]["spec"]["template"]["spec"];
    ASSERT_EQ(pod["containers"].size(), 1u);
    containers[replicated["template"]["metadata"]["labels"][label]] = pod["containers"][0];
  }
  for (const char* step : {"dataset-initializer", "model-initializer"})
    EXPECT_EQ(containers[step]["name"], step) << "Trainer's webhook asks for that name";
  ASSERT_EQ(containers["trainer"]["name"], "node");
  EXPECT_FALSE(containers["trainer"].contains("args")) << "a TrainJob's would take their place";
  auto words = containers["trainer"]["command"].get<std::vector<std::string>>();
  ASSERT_EQ((std::vector<std::string>{words[0], words[1]}),
            (std::vector<std::string>{"dsj", "run"}));
  words.erase(words.begin(), words.begin() + 2);
  for (const json& word : job["args"]) words.push_back(word);
  const fs::path workspace = at("workspace");
  for (std::string& word : words)
    if (const size_t path = word.find("/workspace"); path != std::string::npos)
      word.replace(path, 10, workspace.string());
  fs::create_directories(workspace / "dataset/data");
  fs::rename(at("model"), workspace / "model");
  fs::rename(at("data.json"), workspace / "dataset/data/train.json");
  const int nodes = job["numNodes"];
  const std::string ranks = job["resourcesPerNode"]["requests"]["cpu"];
  for (int node = 0; node < nodes; ++node) {
    environment_[node] = {"PET_NNODES=" + std::to_string(nodes), "PET_NPROC_PER_NODE=" + ranks,
                          "PET_NODE_RANK=" + std::to_string(node), "PET_MASTER_ADDR=localhost",
                          "PET_MASTER_PORT=" + std::to_string(port_)};
    start_line(node, words);
  }
  for (int node = 0; node < nodes; ++node) EXPECT_EQ(finish_node(node), 0) << said(node);
  EXPECT_THAT(said(0), HasSubstr("step 60/60"));
  EXPECT_TRUE(fs::exists(workspace / "output/model/config.json"));
}

}  // namespace
}  // namespace dsj::run_test
