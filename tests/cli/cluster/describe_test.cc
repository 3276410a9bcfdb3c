#include "tests/cli/cluster/world.h"

namespace dsj::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class Describe : public testing::World {
 protected:
  void add_failed_job() {
    add_job("quick", [](Json& job) {
      job["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"] = "copy";
      job["spec"]["workers"]["template"] = Json::parse(R"({"spec": {"containers": [
        {"name": "worker", "env": [{"name": "HF_TOKEN", "value": "hf_abcdefghijklmnop"},
                                   {"name": "OMP_NUM_THREADS", "value": "7"}]},
        {"name": "copier", "args": ["--hub-token", "abcdef", "--steps", "3"]}]}})");
    });
    set_status("quick",
               {{"phase", "Restarting"},
                {"workers", "1/2"},
                {"zeroStage", 2},
                {"observedGeneration", 1},
                {"restarts", {{"total", 3}, {"counted", 1}}},
                {"training", {{"step", 42}, {"totalSteps", 50}, {"attempt", 2}, {"loss", "1.93"}}},
                {"checkpoint", {{"lastSaved", {{"step", 40}, {"path", "/o/checkpoints/40"}}}}},
                {"conditions", Json::array({{{"type", "Scheduled"},
                                             {"status", "False"},
                                             {"reason", "Unschedulable"},
                                             {"message",
                                              "quick-worker-1-2: 0/3 nodes are available: 3 "
                                              "Insufficient nvidia.com/gpu."},
                                             {"lastTransitionTime", "2026-01-01T00:00:00Z"}}})},
                {"failureHistory", Json::array({failure()})},
                {"lastFailure", failure()}});
    add_pod("quick", 0, 1, "Running", {"[rank 0] loaded", "password=hunter2 was given"});
    add_pod("quick", 1, 1, "Failed", {"[rank 3] Bearer abcdefghijklmnop"});
    ASSERT_TRUE(client_.create(kube::resources::events(), "team",
                               {{"apiVersion", "events.k8s.io/v1"},
                                {"kind", "Event"},
                                {"metadata", {{"name", "quick.1"}}},
                                {"regarding", {{"kind", "DeepSpeedJob"}, {"name", "quick"}}},
                                {"type", "Warning"},
                                {"reason", "RankFailed"},
                                {"note", "rank 3 ended"},
                                {"eventTime", "2026-01-01T00:00:00.000000Z"}}));
  }
  static Json failure() {
    return {{"time", "2025-12-31T23:59:00Z"},
            {"reason", "RankFailed"},
            {"message", "rank 3 ended with signal 9"},
            {"pod", "quick-worker-1-1"},
            {"node", "node-1"},
            {"rank", 3},
            {"attempt", 2},
            {"signal", 9},
            {"lastWords", "step 42\nKilled"}};
  }
};

TEST_F(Describe, ShowsEveryPartOfAJob) {
  add_failed_job();
  ASSERT_EQ(run(run_describe, {"quick"}), 0) << err_;
  for (const char* part :
       {"State:        Restarting", "Step:         42 of 50, attempt 2, loss 1.93",
        "Checkpoint:   step 40: /o/checkpoints/40\n", "3; 1 of 3 counted", "ds_config: in the job",
        "train_micro_batch_size_per_gpu", "training.perDeviceTrainBatchSize",
        "Scheduled   False    Unschedulable", "Insufficient nvidia.com/gpu",
        "  0-1     0        quick-worker-0-1   node-0   Running",
        "  2-3     1        quick-worker-1-1   node-1   Failed",
        "RankFailed, attempt 2, rank 3, pod quick-worker-1-1 on node-1, signal 9",
        "      | step 42\n      | Killed\n", "Warning   RankFailed   DeepSpeedJob quick"})
    EXPECT_THAT(out_, HasSubstr(part));
  ASSERT_EQ(run(run_describe, {"quick", "-o", "json"}), 0) << err_;
  const Json all = Json::parse(out_);
  EXPECT_EQ(all["job"]["status"]["phase"], "Restarting");
  EXPECT_EQ(all["pods"].size(), 2u);
  EXPECT_EQ(all["events"][0]["reason"], "RankFailed");
  EXPECT_FALSE(all["configOrigins"].empty());
  EXPECT_EQ(run(run_describe, {"slow"}), kExitNotFound);
  EXPECT_EQ(run(run_describe, {}), 2);
}

TEST_F(Describe, NamesTheControllerOfAJobThatAnotherOneManages) {
  add_job("quick", [](Json& job) { job["spec"]["managedBy"] = "kueue.x-k8s.io/multikueue"; });
  ASSERT_EQ(run(run_describe, {"quick"}), 0) << err_;
  EXPECT_THAT(out_,
              HasSubstr("State:        run by kueue.x-k8s.io/multikueue (spec.managedBy): the "
                        "operator of this cluster ignores it"));
  set_status("quick", Json::parse(R"({"phase": "Running"})"));
  ASSERT_EQ(run(run_describe, {"quick"}), 0) << err_;
  EXPECT_THAT(out_, HasSubstr("State:        Running, run by kueue.x-k8s.io/multikueue"));
}

TEST_F(Describe, ShowsReportsByTheirTables) {
  add_job("quick");
  set_status("quick", Json::parse(R"({"phase": "Running",
    "training": {"step": 6, "totalSteps": 9, "attempt": 2, "loss": "1.5", "learningRate": "1e-06",
      "gradNorm": "0.5", "tokensPerSecond": "48", "estimatedRemainingSeconds": 4,
      "evalLoss": "2.5", "evalStep": 5, "lastUpdatedTime": "2025-12-31T23:59:50Z"},
    "checkpoint": {
      "lastSaved": {"step": 5, "path": "/c/5", "time": "2025-12-31T23:59:00Z", "worldSize": 4,
        "sizeBytes": 10, "durationSeconds": "0.5"},
      "lastRestored": {"step": 3, "path": "/c/3", "time": "2025-12-31T23:58:00Z"},
      "lastDamaged": {"step": 6, "message": "step-6\nis damaged", "attempt": 2,
        "time": "2025-12-31T23:58:00Z"}}})"));
  ASSERT_EQ(run(run_describe, {"quick"}), 0) << err_;
  for (const char* part :
       {"Step:         6 of 9, attempt 2, loss 1.5, lr 1e-06, 48 tokens/s, 4 s left, eval loss "
        "2.5, "
        "reported ",
        " ago\nCheckpoint:   step 5, ", " ago, by 4 ranks, 10 bytes in 0.5 s: /c/5\n",
        "Restored:     step 3: /c/3\n", "Damaged:      step 6, ",
        " ago, attempt 2: step-6 is damaged\n"})
    EXPECT_THAT(out_, HasSubstr(part));
  ASSERT_EQ(run(run_debug, {"quick"}), 0) << err_;
  EXPECT_THAT(out_, HasSubstr("checkpoints were damaged: step-6\nis damaged"));
  EXPECT_THAT(out_, HasSubstr("then delete what was renamed"));
}

TEST_F(Describe, ShowsWhatIsFetchedAndHidesItsVariables) {
  add_job("quick", [](Json& job) {
    job["spec"]["initializers"]["model"] = Json::parse(R"({"storageUri": "hf://org/m", "image": "i",
      "args": ["--token", "abcdef"], "env": [{"name": "USER_KEY", "value": "opensesame"}]})");
  });
  set_status("quick", Json::parse(R"({"phase": "Starting", "conditions": [
    {"type": "DataReady", "status": "False", "reason": "Fetching", "message": "worker 0 fetches model",
     "lastTransitionTime": "2026-01-01T00:00:00Z"},
    {"type": "Initialized", "status": "False", "reason": "Initializing", "message": "m",
     "lastTransitionTime": "2026-01-01T00:00:00Z"}],
    "lastFailure": {"reason": "InitializerFailed", "exitCode": 2, "message": "no such model"}})"));
  ASSERT_EQ(run(run_describe, {"quick"}), 0) << err_;
  for (const char* part : {"Model from:   hf://org/m\n", "Fetching:     worker 0 fetches model\n"})
    EXPECT_THAT(out_, HasSubstr(part));
  ASSERT_EQ(run(run_debug, {"quick"}), 0) << err_;
  for (const char* part : {"kubectl logs POD -c initialize-model", "is storageUri right"})
    EXPECT_THAT(out_, HasSubstr(part));
  for (const char* secret : {"opensesame", "abcdef"}) EXPECT_THAT(out_, Not(HasSubstr(secret)));
}

TEST_F(Describe, TheConfigOfAConfigMapIsTheAcceptedOne) {
  add_job("mapped", [](Json& job) {
    job["spec"]["deepspeed"] = {
        {"configFrom", {{"configMapKeyRef", {{"name", "mine"}, {"key", "ds.json"}}}}}};
  });
  ASSERT_EQ(run(run_describe, {"mapped"}), 0);
  EXPECT_THAT(out_, HasSubstr("not resolved here: ConfigMap mine"));
  ASSERT_TRUE(
      client_.create(kube::resources::config_maps(), "team",
                     {{"metadata", {{"name", "mapped-config-1"}}},
                      {"data", {{"ds_config", R"({"train_micro_batch_size_per_gpu": "auto"})"}}}}));
  set_status("mapped", {{"configMapName", "mapped-config-1"}});
  ASSERT_EQ(run(run_describe, {"mapped"}), 0);
  EXPECT_THAT(out_, HasSubstr("as accepted in ConfigMap mapped-config-1"));
  EXPECT_THAT(out_, HasSubstr("training.perDeviceTrainBatchSize"));
}

TEST_F(Describe, AUsersProgramMayHaveNoConfig) {
  add_job("own", [](Json& job) {
    job["spec"] = Json::parse(R"({"launcher": "Command", "training": {"outputDir": "/o"},
      "workers": {"template": {"spec": {"containers": [
        {"name": "worker", "image": "i", "command": ["python", "t.py"]}]}}}})");
  });
  ASSERT_EQ(run(run_describe, {"own"}), 0) << err_;
  EXPECT_THAT(out_, HasSubstr("ds_config: none"));
  EXPECT_THAT(out_, Not(HasSubstr("not resolved")));
}

TEST_F(Describe, DebugAdvisesAndRemovesSecrets) {
  add_failed_job();
  ASSERT_EQ(run(run_debug, {"quick"}), 0) << err_;
  for (const char* part :
       {"==== Findings\n- Scheduled is False (Unschedulable): quick-worker-1-2",
        "lower workers.template's resources", "last failure: RankFailed, signal 9",
        "raise the memory limit", "==== Pod quick-worker-1-1", "[rank 0] loaded",
        "OMP_NUM_THREADS\n", "value: \"7\"", "--steps"})
    EXPECT_THAT(out_, HasSubstr(part)) << out_;
  for (const char* secret :
       {"hf_abcdef", "abcdef\n", "geheim", "hunter2", "abcdefghijklmnop", "copy"})
    EXPECT_THAT(out_, Not(HasSubstr(secret)));
}

TEST_F(Describe, DebugOfAJobThatNoOperatorSaw) {
  add_job("lonely");
  clock_.now += std::chrono::minutes(5);
  ASSERT_EQ(run(run_debug, {"lonely"}), 0);
  EXPECT_THAT(out_, HasSubstr("no operator has taken up the job in 300 s"));
}

}  // namespace
}  // namespace dsj::cli
