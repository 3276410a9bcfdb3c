#include "agent/pod.h"

#include <gtest/gtest.h>

#include <map>

#include "job/contract.h"
#include "job/node_health.h"
#include "job/spec/pod_policies.h"

namespace dsj::agent {
namespace {

using namespace dsj::contract;

std::map<std::string, std::string> environment() {
  return {{kEnvJobName, "tune"},
          {kEnvNamespace, "team"},
          {kEnvJobUid, "uid-1"},
          {kEnvWorker, "1"},
          {kEnvIncarnation, "2"},
          {kEnvRevision, "r1"},
          {kEnvWorkerZeroHost, "tune-worker-0.tune.team.svc"},
          {kEnvPodName, "tune-worker-1-2"},
          {kEnvPodIp, "10.0.0.7"},
          {kEnvServiceAccount, "tune-worker"}};
}
Result<Pod> read_pod(const std::map<std::string, std::string>& variables) {
  return pod_from_environment([&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? "" : found->second;
  });
}
WorkerJob worker_job() {
  WorkerJob job;
  job.job.name = "tune";
  job.job.output_dir = "/out";
  job.replicas = 2;
  job.slots = 4;
  job.restart_limit = 5;
  job.save_timeout = std::chrono::seconds(60);
  job.step_timeout = std::chrono::seconds(90);
  return job;
}

TEST(Pod, IsReadFromItsEnvironment) {
  const auto pod = read_pod(environment());
  ASSERT_TRUE(pod) << pod.error().to_string();
  EXPECT_EQ(pod->worker, 1);
  EXPECT_EQ(pod->incarnation, 2);
  EXPECT_EQ(pod->revision, "r1");
  EXPECT_EQ(pod->ip, "10.0.0.7");
}

TEST(Pod, HowItsNodeIsJudged) {
  auto variables = environment();
  const auto action = [&] { return read_pod(variables)->node_health.action; };
  EXPECT_EQ(action(), jobspec::NodeHealthAction::Off) << "an older operator";
  EXPECT_EQ(pod_config(*read_pod(variables), worker_job(), "/s", "/p", {})->link_percent, 0);
  variables[jobspec::kEnvPolicies] =
      R"({"failurePolicy": {"nodeHealth": {"action": "Move", "minPeerBandwidthPercent": 30}},
          "later": {"field": 1}})";
  variables[kEnvMemoryRequest] = "4096";
  variables[kEnvGpus] = "8";
  variables[kEnvNode] = "node-4";
  const auto pod = read_pod(variables);
  ASSERT_TRUE(pod) << pod.error().to_string();
  EXPECT_EQ(action(), jobspec::NodeHealthAction::Move);
  EXPECT_EQ(pod->memory_request, 4096);
  EXPECT_EQ(pod->gpus, 8);
  EXPECT_EQ(pod->node, "node-4");
  EXPECT_EQ(pod_config(*pod, worker_job(), "/s", "/p", {})->link_percent, 30);
  variables[jobspec::kEnvPolicies] = R"({"failurePolicy": {"nodeHealth": {"action": "Maybe"}}})";
  EXPECT_FALSE(read_pod(variables));
}

TEST(Pod, EverythingThatIsWrongIsToldAtOnce) {
  auto variables = environment();
  variables.erase(kEnvPodIp);
  variables.erase(kEnvJobUid);
  variables[kEnvWorker] = "one";
  variables[kEnvIncarnation] = "0";
  const auto pod = read_pod(variables);
  ASSERT_FALSE(pod);
  EXPECT_EQ(pod.error().kind, ErrorKind::BadInput);
  for (const char* name : {kEnvPodIp, kEnvJobUid, kEnvWorker, kEnvIncarnation}) {
    EXPECT_NE(pod.error().message.find(name), std::string::npos) << pod.error().message;
  }
  EXPECT_EQ(pod.error().message.find(kEnvJobName), std::string::npos);
}

TEST(Pod, ANameThatIsNotThisWorkersIsRefused) {
  auto variables = environment();
  variables[kEnvPodName] = "tune-worker-1-1";
  const auto pod = read_pod(variables);
  ASSERT_FALSE(pod);
  EXPECT_NE(pod.error().message.find("expected \"tune-worker-1-2\""), std::string::npos);
}

// Without the dot a resolver with ndots:5 asks for the name in every domain of its list first, for two
// kinds of address, and no such name is ever there.
TEST(Pod, WorkerZerosNameIsAskedForOnce) {
  const std::string host = "tune-worker-0.tune.team.svc";
  const auto absolute = [&](const std::string& text) { return absolute_host(host, "team", text); };
  EXPECT_EQ(absolute("nameserver 10.96.0.10\n"
                     "search team.svc.cluster.local svc.cluster.local cluster.local example.com\n"
                     "options ndots:5\n"),
            host + ".cluster.local.");
  EXPECT_EQ(absolute("search example.com team.svc.corp.example.\n"), host + ".corp.example.");
  EXPECT_EQ(absolute("search team.svc.a\nsearch example.com\n"), host) << "the last list counts";
  for (const char* unknown : {"", "nameserver 10.96.0.10\n", "search other.svc.cluster.local\n",
                              "#search team.svc.cluster.local\n", "search team.svc.\n"}) {
    EXPECT_EQ(absolute(unknown), host) << unknown;
  }
  EXPECT_EQ(absolute_host("127.0.0.1", "team", "search team.svc.cluster.local\n"), "127.0.0.1");
}

TEST(Pod, ConfigurationOfItsAgent) {
  const auto config = pod_config(*read_pod(environment()), worker_job(), "/run/dsj", "/opt", {});
  ASSERT_TRUE(config);
  EXPECT_EQ(config->rank_command, std::vector<std::string>{"/opt/dsj-train"});
  EXPECT_FALSE(config->user_program);
  EXPECT_TRUE(config->predecessor) << "its second life";
  EXPECT_EQ(config->address, "10.0.0.7");
  EXPECT_EQ(config->run_dir, "/run/dsj");
  EXPECT_EQ(config->budget.limit, 5);
  EXPECT_EQ(config->grace, Time(60'000));
  EXPECT_EQ(config->stall, Time(90'000));
  EXPECT_LT(config->lease, config->silence);
}

TEST(Pod, AProgramOfTheUsersListensItselfAndTellsNoSteps) {
  const std::vector<std::string> command = {"python", "train.py"};
  const auto config =
      pod_config(*read_pod(environment()), worker_job(), "/run/dsj", "/opt", command);
  ASSERT_TRUE(config);
  EXPECT_EQ(config->rank_command, command);
  EXPECT_TRUE(config->user_program);
  EXPECT_GT(config->stall, Time(365LL * 24 * 3600 * 1000));
}

TEST(Pod, AWorkerBeyondTheJobIsRefused) {
  WorkerJob job = worker_job();
  job.replicas = 1;
  EXPECT_FALSE(pod_config(*read_pod(environment()), job, "/run/dsj", "/opt", {}));
}

TEST(Pod, TokensMustBeOfTheJobsOwnAccount) {
  const TokenRules rules = token_rules(*read_pod(environment()), "https://issuer");
  EXPECT_EQ(rules.issuer, "https://issuer");
  EXPECT_EQ(rules.audience, "training.dsj.dev/job/uid-1");
  EXPECT_EQ(rules.subject, "system:serviceaccount:team:tune-worker");
}

}  // namespace
}  // namespace dsj::agent
