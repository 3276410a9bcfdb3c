// Whole pods without a cluster: real `dsj-agent --pod` processes with fake ranks, tokens signed as
// a cluster signs them, and an API server in memory behind HTTP. Each pod has an address of the
// loopback network and a root of its own.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>

#include "agent/ranks/spawn.h"
#include "agent/status/status_publisher.h"
#include "agent/wire/http_transport.h"
#include "common/http/http_listener.h"
#include "common/net_address.h"
#include "job/contract.h"
#include "job/join_keys.h"
#include "job/node_health.h"
#include "job/spec/pod_policies.h"
#include "job/worker_job.h"
#include "operator/webhook/certificate.h"
#include "test_paths.h"
#include "tests/agent/join/test_tokens.h"
#include "tests/common/http/raw_http.h"
#include "tests/kube/fake_api_server.h"
#include "tests/run/run_support.h"
#include "tests/support/ipv6_only.h"
#include "tests/support/soon.h"

namespace dsj::run_test {
namespace {

using namespace dsj::contract;
using agent::ChildExit;
using testing::HasSubstr;

std::string node_health(const std::string& action, int link_percent) {
  return R"({"failurePolicy": {"nodeHealth": {"action": ")" + action +
         R"(", "minPeerBandwidthPercent": )" + std::to_string(link_percent) + "}}}";
}

/// FakeApiServer behind HTTP, and the cluster's token keys. A watch ends as Gone: the client lists
/// again.
struct ApiFront final : HttpHandler {
  std::optional<HttpAnswer> refuse(const HttpHead&) override {
    if (away) return HttpAnswer{503, "away"};
    return std::nullopt;
  }
  HttpAnswer answer(const HttpHead& head, const std::string& body) override {
    if (head.path == "/openid/v1/jwks") return {200, jwks, "application/json"};
    if (head.path.find("watch=") != std::string::npos) {
      return {410, R"({"kind":"Status","reason":"Expired","code":410})", "application/json"};
    }
    kube::Request request{.method = head.method, .path = head.path, .body = body};
    if (head.method == "PATCH") request.content_type = "application/apply-patch+yaml";
    const auto answer = server.call(request, kube::Cancel());
    return {answer->status, answer->body, "application/json"};
  }
  kube::testing::FakeApiServer server;
  std::string jwks;
  std::atomic<bool> away = false;
};

struct PodRun : testing::Test {
  struct Worker {
    pid_t pid = -1;
    fs::path root;
    std::optional<ChildExit> exit;
  };
  fs::path here = fs::path(testing::TempDir()) / ("pods-" + std::to_string(getpid()));
  // An own part of 127/8, so that runs beside this one do not meet it.
  std::string net = "127." + std::to_string(1 + getpid() / 250 % 250) + "." +
                    std::to_string(1 + getpid() % 250) + ".";
  agent::TestKey key = agent::TestKey::p256("k1");
  std::string api_address = "127.0.0.1";
  std::shared_ptr<ApiFront> api = std::make_shared<ApiFront>();
  std::unique_ptr<HttpListener> listener;
  std::string uid;
  WorkerJob job;
  std::map<std::string, std::string> variables;
  std::vector<Worker> pods;
  std::vector<std::string> command;  ///< launcher: Command: by an agent that was installed
  op::ServerCertificate run_key;     ///< of worker 0, for all pods
  bool key_is_gone = false;          ///< somebody deleted its Secret

  void SetUp() override {
    fs::remove_all(here);
    fs::create_directories(here / "out");
    api->jwks = agent::jwks_of({key});
    api->server.serve(agent::job_resource(), true);
    auto opened = HttpListener::open(api_address, 0, {.body_bytes = 1 << 20}, api);
    ASSERT_TRUE(opened) << opened.error().to_string();
    listener = std::move(*opened);
    std::ofstream(here / "kubeconfig") << "apiVersion: v1\nkind: Config\ncurrent-context: c\n"
                                          "contexts: [{name: c, context: {cluster: c, user: u}}]\n"
                                          "users: [{name: u, user: {token: x}}]\n"
                                          "clusters: [{name: c, cluster: {server: 'http://"
                                       << host_port_text(api_address, listener->port()) << "'}}]\n";
    kube::Client client(api->server, kube::system_clock());
    const auto made = client.create(agent::job_resource(), "team",
                                    {{"apiVersion", "training.dsj.dev/v1alpha1"},
                                     {"kind", kKind},
                                     {"metadata", {{"name", "tune"}, {"namespace", "team"}}},
                                     {"spec", {{"suspend", false}}}});
    ASSERT_TRUE(made) << made.error().to_string();
    uid = (*made)["metadata"]["uid"];
    issue_key();
    job.job.name = "tune";
    job.job.world_size = 2;
    job.job.output_dir = here / "out";
    job.job.training.max_steps = 30;
    job.job.training.save_steps = 10;
    job.job.ds_config = json::object();
    job.job.ds_config_source = "spec.deepspeed.config";
    job.replicas = 2;
  }
  void TearDown() override {
    for (auto& pod : pods) {
      if (pod.exit || pod.pid < 0) continue;
      kill(pod.pid, SIGKILL);
      while (!agent::reap(pod.pid)) usleep(10'000);
    }
    if (!HasFailure()) fs::remove_all(here);
  }

  /// `ahead`: seconds by which the API server's clock is before this machine's.
  std::string token(const std::string& pod, int64_t ahead = 0) {
    json claims = agent::pod_claims(pod, std::time(nullptr));
    claims["iat"] = claims["iat"].get<int64_t>() + ahead;
    claims["aud"] = {kAudiencePrefix + uid};
    return key.sign(claims);
  }
  void issue_key() {
    auto issued = op::issue_certificate({net + "10"}, "team/tune", std::chrono::system_clock::now(),
                                        kKeyLifetime, op::kJobOrganization);
    ASSERT_TRUE(issued) << issued.error().to_string();
    run_key = *issued;
  }
  /// Starts worker `index`; `as`: the pod that its token is of.
  void start(int index, int64_t incarnation = 1, std::string as = {}) {
    const std::string name = worker_pod_name("tune", index, incarnation);
    Worker pod{.root = here / name};
    for (const char* folder : {kConfigMountPath, kTokenMountPath, kScratchMountPath, "/dev"}) {
      fs::create_directories(pod.root.string() + folder);
    }
    // dsj-train is what lies beside the agent: here a fake one.
    fs::create_directories(pod.root / "bin");
    fs::copy_file(std::string(DSJ_BIN_DIR) + "/dsj-agent", pod.root / "bin/dsj-agent");
    fs::create_symlink(std::string(DSJ_BIN_DIR) + "/fake_rank", pod.root / "bin/dsj-train");
    std::ofstream(pod.root.string() + kConfigMountPath + "/" + kWorkerJobFile) << to_text(job);
    std::ofstream(pod.root.string() + kTokenMountPath + "/" + kTokenFile)
        << token(as.empty() ? name : as);
    if (index == 0 && !key_is_gone) {
      const std::string folder = pod.root.string() + kJoinKeyMountPath;
      fs::create_directories(folder);
      std::ofstream(folder + "/" + kJoinChainFile) << run_key.chain_pem;
      std::ofstream(folder + "/" + kJoinKeyFile) << run_key.key_pem;
    }
    std::map<std::string, std::string> all = {{"PATH", "/usr/bin:/bin"},
                                              {"KUBECONFIG", here / "kubeconfig"},
                                              {"FAKE_STEP_MS", "20"},
                                              {kEnvJobName, "tune"},
                                              {kEnvNamespace, "team"},
                                              {kEnvJobUid, uid},
                                              {kEnvWorker, std::to_string(index)},
                                              {kEnvIncarnation, std::to_string(incarnation)},
                                              {kEnvRevision, "r1"},
                                              {kEnvWorkerZeroHost, net + "10"},
                                              {kEnvPodName, name},
                                              {kEnvPodIp, net + std::to_string(10 + index)},
                                              {kEnvJoinAuthority, run_key.authority_pem},
                                              {kEnvServiceAccount, "tune-worker"}};
    for (const auto& [variable, value] : variables) all[variable] = value;
    agent::SpawnSpec spec{.command = {pod.root / "bin/dsj-agent"}, .log_file = pod.root / "output"};
    if (!command.empty()) spec.command = install(pod.root);
    spec.command.insert(spec.command.end(), {"--pod", "--root", pod.root});
    if (!command.empty()) spec.command.push_back("--");
    spec.command.insert(spec.command.end(), command.begin(), command.end());
    for (const auto& [variable, value] : all) spec.environment.push_back(variable + "=" + value);
    const auto pid = agent::spawn(spec);
    ASSERT_TRUE(pid) << pid.error().to_string();
    pod.pid = *pid;
    pods.push_back(pod);
  }
  /// As the init container of a Command job does.
  std::vector<std::string> install(const fs::path& root) {
    const std::string place = root.string() + kAgentMountPath;
    const auto pid =
        agent::spawn({.command = {std::string(DSJ_BIN_DIR) + "/dsj-agent", "--install", place},
                      .environment = {"PATH=/usr/bin:/bin"},
                      .log_file = root / "install"});
    std::optional<ChildExit> exit;
    while (pid && !(exit = agent::reap(*pid))) usleep(10'000);
    EXPECT_TRUE(exit && exit->exit_code == 0 && exit->signal == 0) << read_text(root / "install");
    return installed_agent_command(place);
  }
  /// As dsj::soon; ends of pods are seen meanwhile.
  bool soon(const std::function<bool()>& holds) {
    return dsj::soon([&] {
      for (auto& pod : pods) {
        if (!pod.exit) pod.exit = agent::reap(pod.pid);
      }
      return holds();
    });
  }
  bool all_end() {
    return soon(
        [&] { return std::ranges::all_of(pods, [](auto& pod) { return pod.exit.has_value(); }); });
  }
  json status() {
    const auto all = api->server.objects(agent::job_resource());
    return all[0].value("status", json::object());
  }
  json message(size_t pod) {
    return json::parse(read_text(pods[pod].root.string() + kTerminationLog), nullptr, false);
  }
  std::string output(size_t pod) { return read_text(pods[pod].root / "output"); }
  std::vector<int64_t> metric_steps() {
    std::ifstream file(here / "out" / kMetricsFile);
    std::vector<int64_t> steps;
    for (std::string line;
         std::getline(file, line) && !file.eof();)  // what has no end is being written
      steps.push_back(json::parse(line)["step"]);
    return steps;
  }
  bool steps_are_one_to(int64_t last) {
    const auto steps = metric_steps();
    if (static_cast<int64_t>(steps.size()) != last) return false;
    for (int64_t i = 0; i < last; ++i) {
      if (steps[i] != i + 1) return false;
    }
    return true;
  }
};

TEST_F(PodRun, TwoWorkersToTheEnd) {
  variables["FAKE_HOLD"] = here / "go";
  start(0);
  start(1);
  ASSERT_TRUE(soon([&] { return !metric_steps().empty(); })) << output(0) << output(1);
  const std::string metrics = raw_http(
      net + "10", kMetricsPort, "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(metrics, HasSubstr("deepspeedjob_ranks_running 1\n"));
  EXPECT_THAT(metrics, HasSubstr("deepspeedjob_attempt 1\n"));
  std::ofstream(here / "go") << "on";
  ASSERT_TRUE(all_end()) << output(0) << output(1);
  for (size_t pod : {0, 1}) {
    EXPECT_EQ(pods[pod].exit->exit_code, kExitDone) << output(pod);
    EXPECT_EQ(message(pod)["reason"], kReasonCompleted);
    EXPECT_EQ(message(pod)["step"], 30);
    EXPECT_EQ(message(pod)["attempt"], 1);
    EXPECT_THAT(output(pod), HasSubstr("[rank " + std::to_string(pod) + "] fake rank " +
                                       std::to_string(pod) + " of 2"));
    EXPECT_THAT(read_text(here / "out/logs" / ("rank-" + std::to_string(pod) + ".log")),
                HasSubstr("fake rank"));
  }
  EXPECT_TRUE(steps_are_one_to(30));
  EXPECT_EQ(status()["training"]["attempt"], 1);
  EXPECT_EQ(status()["training"]["worldSize"], 2);
  EXPECT_EQ(status()["training"]["step"], 30);
  EXPECT_EQ(status()["checkpoint"]["lastSaved"]["step"], 30);
}

/// Pods of a cluster that has IPv6 alone: status.podIP is such an address, and so is worker 0's name.
struct Ipv6PodRun : PodRun {
  Ipv6Only network{{"fd00::10", "fd00::11"}};
  void SetUp() override {
    if (!network.made()) GTEST_SKIP() << "no network with IPv6 alone can be made here: NOT RUN";
    net = "fd00::";
    api_address = "::1";
    PodRun::SetUp();
  }
};

TEST_F(Ipv6PodRun, TwoWorkersToTheEndOverADeadRank) {
  variables["FAKE_FAULT"] = "attempt=1,rank=1,step=15,do=segv";
  variables["FAKE_HOLD"] = here / "go";
  start(0);
  start(1);
  ASSERT_TRUE(soon([&] { return !metric_steps().empty(); })) << output(0) << output(1);
  EXPECT_THAT(raw_http(net + "10", kMetricsPort,
                       "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"),
              HasSubstr("deepspeedjob_ranks_running 1\n"));
  std::ofstream(here / "go") << "on";
  ASSERT_TRUE(all_end()) << output(0) << output(1);
  for (size_t pod : {0, 1}) {
    EXPECT_EQ(pods[pod].exit->exit_code, kExitDone) << output(pod);
    EXPECT_EQ(message(pod)["attempt"], 2);
  }
  EXPECT_TRUE(steps_are_one_to(30));
  EXPECT_EQ(status()["training"]["step"], 30);
}

TEST_F(PodRun, ARankThatDiesIsAnAttemptAndNotAPod) {
  variables["FAKE_FAULT"] = "attempt=1,rank=1,step=15,do=segv";
  start(0);
  start(1);
  ASSERT_TRUE(all_end()) << output(0) << output(1);
  EXPECT_EQ(pods[0].exit->exit_code, kExitDone) << output(0);
  EXPECT_EQ(pods[1].exit->exit_code, kExitDone) << output(1);
  EXPECT_EQ(message(1)["attempt"], 2);
  EXPECT_TRUE(steps_are_one_to(30));
  const json failure = status()["training"]["lastFailure"];
  EXPECT_EQ(failure["attempt"], 1);
  EXPECT_EQ(failure["worker"], 1);
  EXPECT_EQ(failure["rank"], 1);
  EXPECT_EQ(failure["signal"], SIGSEGV);
  EXPECT_THAT(failure["lastWords"].get<std::string>(), HasSubstr("about to segv"));
  EXPECT_EQ(status()["training"]["attempt"], 2);
}

/// A node without the memory that the scheduler set aside: no rank starts there, and the worker that
/// waits for it is not disturbed.
TEST_F(PodRun, ANodeThatIsNotFitIsLeftBeforeARankStarts) {
  variables[jobspec::kEnvPolicies] = node_health("Move", 0);
  start(0);
  variables[kEnvMemoryRequest] = std::to_string(int64_t(1) << 60);
  start(1);
  ASSERT_TRUE(soon([&] { return pods[1].exit.has_value(); })) << output(1);
  EXPECT_EQ(pods[1].exit->exit_code, kExitUnhealthyNode) << output(1);
  EXPECT_EQ(message(1)["reason"], kReasonUnhealthyNode);
  EXPECT_THAT(message(1)["message"].get<std::string>(),
              HasSubstr("the container requests 1073741824.0 GiB"));
  EXPECT_TRUE(metric_steps().empty());
  variables[kEnvMemoryRequest] = "4096";
  start(1, 2);
  ASSERT_TRUE(soon([&] { return pods[0].exit && pods[2].exit; })) << output(0) << output(2);
  EXPECT_EQ(pods[0].exit->exit_code, kExitDone) << output(0);
  EXPECT_EQ(pods[2].exit->exit_code, kExitDone) << output(2);
  EXPECT_EQ(status()["training"]["attempt"], 1);
}

/// Its clock is set back while it trains, and its rank dies: the next attempt is elsewhere.
TEST_F(PodRun, ANodeThatBecomesUnfitIsLeftAfterItsRankFailed) {
  variables[jobspec::kEnvPolicies] = node_health("Move", 0);
  variables["FAKE_FAULT"] = "attempt=1,rank=1,step=15,do=exit1";
  variables["FAKE_HOLD"] = here / "go";
  start(0);
  start(1);
  ASSERT_TRUE(soon([&] { return !metric_steps().empty(); })) << output(0) << output(1);
  std::ofstream(pods[1].root.string() + kTokenMountPath + "/" + kTokenFile)
      << token(worker_pod_name("tune", 1, 1), 3600);
  std::ofstream(here / "go") << "on";
  ASSERT_TRUE(soon([&] { return pods[1].exit.has_value(); })) << output(0) << output(1);
  EXPECT_EQ(pods[1].exit->exit_code, kExitUnhealthyNode) << output(1);
  EXPECT_EQ(message(1)["reason"], kReasonUnhealthyNode);
  EXPECT_THAT(message(1)["message"].get<std::string>(), HasSubstr("s behind the API server's"));
  start(1, 2);
  ASSERT_TRUE(soon([&] { return pods[0].exit && pods[2].exit; })) << output(0) << output(2);
  EXPECT_EQ(pods[0].exit->exit_code, kExitDone) << output(0);
  EXPECT_EQ(pods[2].exit->exit_code, kExitDone) << output(2);
  EXPECT_EQ(status()["training"]["attempt"], 2);
  EXPECT_TRUE(steps_are_one_to(30));
}

TEST_F(PodRun, WhatIsOnlyReportedStopsNothing) {
  variables[jobspec::kEnvPolicies] = node_health("Report", 0);
  variables[kEnvMemoryRequest] = std::to_string(int64_t(1) << 60);
  start(0);
  start(1);
  ASSERT_TRUE(all_end()) << output(0) << output(1);
  EXPECT_EQ(pods[1].exit->exit_code, kExitDone) << output(1);
  EXPECT_THAT(output(1), HasSubstr("this worker's node: the node has "));
}

/// Two nodes, and transfers that are what a transfer is.
TEST_F(PodRun, LinksBetweenNodesAreMeasuredBeforeRanksStart) {
  variables[jobspec::kEnvPolicies] = node_health("Move", 1);
  variables[kEnvNode] = "node-a";
  start(0);
  variables[kEnvNode] = "node-b";
  start(1);
  ASSERT_TRUE(all_end()) << output(0) << output(1);
  for (size_t pod : {0, 1}) EXPECT_EQ(pods[pod].exit->exit_code, kExitDone) << output(pod);
  EXPECT_THAT(output(0), HasSubstr("the links of 2 nodes were measured in "));
  EXPECT_THAT(output(0), HasSubstr(": the median is "));
}

/// A worker that the test plays: it has a token, and answers whoever sends to it with a rate that the
/// test chooses. Of itself it says that what it sends is fast.
struct PlayedWorker {
  static constexpr const char* kFast = "000000003b9aca00";  // 1e9 bytes/s
  static constexpr const char* kSlow = "00000000000f4240";  // 1e6 bytes/s

  PlayedWorker(int worker, const std::string& net, const std::string& token,
               const std::string& authority, std::vector<const char*> answers)
      : client(
            [net] {
              return agent::Endpoint{net + "10", kJoinPort};
            },
            {[token] { return token; }, {}, authority}, agent::Time(5000)),
        answers(std::move(answers)),
        listener(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)) {
    const std::string own = net + std::to_string(10 + worker);
    sockaddr_in at{.sin_family = AF_INET};
    inet_pton(AF_INET, own.c_str(), &at.sin_addr);
    socklen_t size = sizeof at;
    EXPECT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&at), size), 0);
    EXPECT_EQ(listen(listener, 8), 0);
    getsockname(listener, reinterpret_cast<sockaddr*>(&at), &size);
    report.worker = worker;
    report.link = {"node-" + std::to_string(worker), own, ntohs(at.sin_port), std::string(32, 'k')};
  }
  ~PlayedWorker() {
    for (const int peer : peers) close(peer);
    close(listener);
  }
  void turn() {
    if (const int peer = accept(listener, nullptr, nullptr); peer >= 0) {
      const char* answer = answers[std::min(peers.size(), answers.size() - 1)];
      EXPECT_EQ(send(peer, answer, 16, MSG_NOSIGNAL), 16);
      peers.push_back(peer);
    }
    if (const auto answer = client.receive()) {
      waits = false;
      if (*answer && (*answer)->link.round > 0) {
        report.link_rate = {(*answer)->link.round, 1'000'000'000, ""};
      }
    }
    if (std::exchange(waits, true)) return;
    ++report.sequence;
    client.send(report);
  }

  agent::HttpClient client;
  agent::WorkerReport report;
  std::vector<const char*> answers;  ///< to the first who sends, the second ...
  const int listener;
  std::vector<int> peers;
  bool waits = false;
};

/// Workers 2 and 3 hear worker 1 slowly, and the others fast: its node's link is too slow.
TEST_F(PodRun, APodWhoseLinkIsSlowMovesBeforeARankStarts) {
  job.replicas = 4;
  variables[jobspec::kEnvPolicies] = node_health("Move", 2);
  for (const int worker : {0, 1}) {
    variables[kEnvNode] = "node-" + std::to_string(worker);
    start(worker);
  }
  // Round 1: 1 sends to 2, and 3 to 0. Round 2: 0 sends to 2, and 1 to 3.
  PlayedWorker two(2, net, token(worker_pod_name("tune", 2, 1)), run_key.authority_pem,
                   {PlayedWorker::kSlow, PlayedWorker::kFast});
  PlayedWorker three(3, net, token(worker_pod_name("tune", 3, 1)), run_key.authority_pem,
                     {PlayedWorker::kSlow});
  ASSERT_TRUE(soon([&] {
    two.turn();
    three.turn();
    return pods[1].exit.has_value();
  })) << output(0)
      << output(1);
  EXPECT_EQ(pods[1].exit->exit_code, kExitUnhealthyNode) << output(1);
  EXPECT_EQ(message(1)["reason"], kReasonUnhealthyNode);
  EXPECT_THAT(message(1)["message"].get<std::string>(),
              HasSubstr("its link to other nodes carries 1.00 MB/s to node node-2 (worker 2)"));
  EXPECT_THAT(output(0), HasSubstr("the links of 4 nodes were measured in 2 rounds"));
  EXPECT_FALSE(pods[0].exit) << "the others wait for its successor";
  EXPECT_TRUE(metric_steps().empty());
}

TEST_F(PodRun, TheBudgetSpentEndsEveryPod) {
  variables["FAKE_FAULT"] = "attempt=0,rank=1,step=5,do=exit1";
  job.restart_limit = 1;
  start(0);
  start(1);
  ASSERT_TRUE(all_end()) << output(0) << output(1);
  EXPECT_EQ(pods[0].exit->exit_code, kExitFailed);
  EXPECT_EQ(pods[1].exit->exit_code, kExitFailed);
  EXPECT_EQ(message(0)["reason"], kReasonBackoffLimitExceeded);
  EXPECT_EQ(message(0)["rank"], 1);
  EXPECT_EQ(message(0)["exitCode"], kExitFailed);
  EXPECT_THAT(message(0)["lastWords"].get<std::string>(), HasSubstr("told to fail"));
  EXPECT_EQ(message(1)["rank"], 1);
}

/// A drain, an eviction, a deleted pod: all ranks save one step, one pod moves, the other stays.
struct DrainedPod : PodRun, testing::WithParamInterface<int> {};

TEST_P(DrainedPod, MovesAndTheOtherStays) {
  const int drained = GetParam(), other = 1 - drained;
  job.job.training.max_steps = 400;
  job.restart_limit = 0;  // it is not charged
  start(0);
  start(1);
  ASSERT_TRUE(soon([&] { return metric_steps().size() > 3; })) << output(0) << output(1);
  kill(pods[drained].pid, SIGTERM);
  ASSERT_TRUE(soon([&] { return pods[drained].exit.has_value(); })) << output(0) << output(1);
  EXPECT_EQ(pods[drained].exit->exit_code, kExitPreempted) << output(drained);
  EXPECT_EQ(message(drained)["reason"], kReasonPreempted);
  EXPECT_EQ(message(drained)["attempt"], 1);
  const int64_t saved = message(drained)["step"];
  EXPECT_GT(saved, 3);
  EXPECT_LT(saved, 400);
  start(drained, 2);
  ASSERT_TRUE(soon([&] { return pods[other].exit && pods[2].exit; })) << output(other) << output(2);
  EXPECT_EQ(pods[other].exit->exit_code, kExitDone) << output(other);
  EXPECT_EQ(pods[2].exit->exit_code, kExitDone) << output(2);
  EXPECT_EQ(message(other)["attempt"], 2);
  EXPECT_EQ(status()["training"]["attempt"], 2) << "one attempt more, not two";
  EXPECT_EQ(status()["checkpoint"]["lastRestored"]["step"], saved);
  EXPECT_FALSE(status()["training"].contains("lastFailure")) << status()["training"];
  EXPECT_TRUE(steps_are_one_to(400));
}

INSTANTIATE_TEST_SUITE_P(EachWorker, DrainedPod, testing::Values(0, 1));

TEST_F(PodRun, SigtermOfAllSavesOneStepAndTheNextLivesGoOn) {
  job.job.training.max_steps = 1000;
  start(0);
  start(1);
  ASSERT_TRUE(soon([&] { return metric_steps().size() > 3; })) << output(0) << output(1);
  kill(pods[1].pid, SIGTERM);
  kill(pods[0].pid, SIGTERM);
  ASSERT_TRUE(all_end()) << output(0) << output(1);
  for (size_t pod : {0, 1}) {
    EXPECT_EQ(pods[pod].exit->exit_code, kExitPreempted) << output(pod);
    EXPECT_EQ(message(pod)["reason"], kReasonPreempted);
  }
  const int64_t saved = status()["checkpoint"]["lastSaved"]["step"];
  EXPECT_GT(saved, 3);
  EXPECT_LT(saved, 1000);
  EXPECT_EQ(status()["training"]["step"], saved);
  variables["FAKE_STEP_MS"] = "0";
  start(0, 2);
  start(1, 2);
  ASSERT_TRUE(soon([&] { return pods[2].exit && pods[3].exit; })) << output(2) << output(3);
  EXPECT_EQ(pods[2].exit->exit_code, kExitDone) << output(2);
  EXPECT_EQ(pods[3].exit->exit_code, kExitDone) << output(3);
  EXPECT_EQ(status()["training"]["attempt"], 2);
  EXPECT_EQ(status()["checkpoint"]["lastRestored"]["step"], saved);
  EXPECT_TRUE(steps_are_one_to(1000));
}

/// Somebody deleted the Secret before worker 0's kubelet mounted it. Worker 0 ends with a code of its own, without an
/// attempt; the others wait until the operator replaces them. The new run has another key.
TEST_F(PodRun, WithoutItsKeyWorkerZeroEndsAndANewRunWithTheNextIsJoined) {
  job.restart_limit = 0;  // it is not charged
  key_is_gone = true;
  start(0);
  start(1);
  ASSERT_TRUE(soon([&] { return pods[0].exit || pods[1].exit; })) << output(0) << output(1);
  ASSERT_TRUE(pods[0].exit) << output(1);
  EXPECT_EQ(pods[0].exit->exit_code, kExitKeyMissing) << output(0);
  EXPECT_EQ(message(0)["reason"], kReasonKeyMissing);
  EXPECT_THAT(message(0)["message"].get<std::string>(),
              HasSubstr("is gone; the operator starts a new run"));
  EXPECT_FALSE(pods[1].exit) << "it waits for the operator: " << output(1);
  EXPECT_TRUE(metric_steps().empty()) << "nobody joined";
  kill(pods[1].pid, SIGTERM);
  ASSERT_TRUE(soon([&] { return pods[1].exit.has_value(); })) << output(1);
  key_is_gone = false;
  issue_key();
  start(0, 2);
  start(1, 2);
  ASSERT_TRUE(soon([&] { return pods[2].exit && pods[3].exit; })) << output(2) << output(3);
  EXPECT_EQ(pods[2].exit->exit_code, kExitDone) << output(2);
  EXPECT_EQ(pods[3].exit->exit_code, kExitDone) << output(3);
  EXPECT_EQ(status()["training"]["attempt"], 1);
  EXPECT_FALSE(status()["training"].contains("lastFailure")) << status()["training"];
}

TEST_F(PodRun, SuspensionStopsTheJobAtOneStep) {
  job.job.training.max_steps = 100'000;
  start(0);
  start(1);
  ASSERT_TRUE(soon([&] { return metric_steps().size() > 3; })) << output(0) << output(1);
  api->server.edit(agent::job_resource(), "team", "tune",
                   [](json& object) { object["spec"]["suspend"] = true; });
  ASSERT_TRUE(soon([&] { return pods[0].exit && pods[1].exit; })) << output(0);
  EXPECT_EQ(pods[0].exit->exit_code, kExitPreempted) << output(0);
  EXPECT_EQ(pods[1].exit->exit_code, kExitPreempted) << output(1);
  EXPECT_EQ(status()["training"]["stopStep"], status()["checkpoint"]["lastSaved"]["step"]);
}

TEST_F(PodRun, APodThatDiesIsTheOperatorsToCharge) {
  job.job.training.max_steps = 300;
  job.restart_limit = 0;
  start(0);
  start(1);
  ASSERT_TRUE(soon([&] { return metric_steps().size() > 3; })) << output(0) << output(1);
  kill(pods[1].pid, SIGKILL);
  ASSERT_TRUE(soon([&] { return pods[1].exit.has_value(); }));
  start(1, 2);
  ASSERT_TRUE(soon([&] { return pods[0].exit && pods[2].exit; })) << output(0) << output(2);
  EXPECT_EQ(pods[0].exit->exit_code, kExitDone) << output(0);
  EXPECT_EQ(pods[2].exit->exit_code, kExitDone) << output(2);
  EXPECT_EQ(status()["training"]["lastFailure"]["reason"], "WorkerLost");
}

TEST_F(PodRun, AJobThatTheOperatorGaveUpStops) {
  job.job.training.max_steps = 100'000;
  start(0);
  start(1);
  ASSERT_TRUE(soon([&] { return metric_steps().size() > 3; })) << output(0) << output(1);
  api->server.edit(agent::job_resource(), "team", "tune", [](json& object) {
    object["status"]["conditions"] = json::array(
        {{{"type", "Failed"}, {"status", "True"}, {"reason", kReasonBackoffLimitExceeded}}});
  });
  ASSERT_TRUE(all_end()) << output(0) << output(1);
  EXPECT_EQ(pods[0].exit->exit_code, kExitPreempted);
  EXPECT_EQ(pods[1].exit->exit_code, kExitPreempted);
  EXPECT_THAT(output(0), HasSubstr("the job has failed: BackoffLimitExceeded"));
}

TEST_F(PodRun, ADeletedJobsAgentsDoNotWaitForItsStatus) {
  job.job.training.max_steps = 100'000;
  start(0);
  start(1);
  ASSERT_TRUE(soon([&] { return metric_steps().size() > 3; })) << output(0) << output(1);
  // With the job go its Role and its account: what was allowed is refused.
  api->server.set_fault([](const kube::Request& request) {
    return kube::testing::Fault{
        .kind = request.path.ends_with("/tune") || request.path.ends_with("/status")
                    ? kube::testing::Fault::Kind::Refuse
                    : kube::testing::Fault::Kind::None,
        .status = 403};
  });
  api->server.edit(agent::job_resource(), "team", "tune", [](json& object) {
    object["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z";
  });
  ASSERT_TRUE(all_end()) << output(0) << output(1);
  EXPECT_EQ(pods[0].exit->exit_code, kExitPreempted);
  EXPECT_EQ(pods[1].exit->exit_code, kExitPreempted);
}

TEST_F(PodRun, APodThatIsTakenAwayWaitsShortlyWhereItIsRefused) {
  job.job.training.max_steps = 100'000;
  start(0);
  start(1);
  ASSERT_TRUE(soon([&] { return metric_steps().size() > 3; })) << output(0) << output(1);
  // The job and its Role are gone, and no watch was open to see it.
  api->server.set_fault([](const kube::Request&) {
    return kube::testing::Fault{.kind = kube::testing::Fault::Kind::Refuse, .status = 403};
  });
  api->server.cut_watches();
  kill(pods[1].pid, SIGTERM);
  kill(pods[0].pid, SIGTERM);
  ASSERT_TRUE(all_end()) << output(0) << output(1);
  EXPECT_EQ(pods[0].exit->exit_code, kExitPreempted);
  EXPECT_EQ(message(0)["reason"], kReasonPreempted) << "told to the kubelet";
  EXPECT_THAT(output(0), HasSubstr("has refused the status of this job for 5 s"));
}

TEST_F(PodRun, ASignalShortensTheWaitOfAnEndThatIsRefused) {
  job.job.training.max_steps = 10;
  api->server.set_fault([](const kube::Request& request) {
    return kube::testing::Fault{.kind = request.path.contains("/status")
                                            ? kube::testing::Fault::Kind::Refuse
                                            : kube::testing::Fault::Kind::None,
                                .status = 403};
  });
  start(0);
  start(1);
  ASSERT_TRUE(soon([&] { return message(0).is_object(); })) << output(0);
  kill(pods[0].pid, SIGTERM);
  ASSERT_TRUE(all_end()) << output(0) << output(1);
  EXPECT_EQ(pods[0].exit->exit_code, kExitDone);
  EXPECT_THAT(output(0), HasSubstr("has refused the status of this job for 5 s"));
}

TEST_F(PodRun, TheApiServerMayBeAwayFromBeginningToEnd) {
  // Keys by the mounted ConfigMap: the gang forms without the API server.
  job.job.training.max_steps = 10;
  api->away = true;
  start(0);
  std::ofstream(pods[0].root.string() + kConfigMountPath + "/" + kTokenKeysFile) << api->jwks;
  start(1);
  ASSERT_TRUE(soon([&] { return metric_steps().size() == 10; })) << output(0) << output(1);
  ASSERT_TRUE(soon([&] { return pods[1].exit.has_value(); })) << output(1);
  EXPECT_EQ(pods[1].exit->exit_code, kExitDone);
  ASSERT_TRUE(soon([&] { return message(0).is_object(); })) << output(0);
  usleep(500'000);
  EXPECT_FALSE(agent::reap(pods[0].pid)) << "the end is not stored yet";
  EXPECT_EQ(message(0)["reason"], kReasonCompleted) << "but told to the kubelet already";
  api->away = false;
  ASSERT_TRUE(all_end()) << output(0);
  EXPECT_EQ(pods[0].exit->exit_code, kExitDone);
  EXPECT_EQ(status()["checkpoint"]["lastSaved"]["step"], 10);
}

TEST_F(PodRun, AForeignPodDoesNotJoin) {
  start(0);
  start(1, 1, "intruder");
  ASSERT_TRUE(soon([&] { return output(1).find("403") != std::string::npos; })) << output(1);
  EXPECT_THAT(output(1), HasSubstr("the token belongs to pod \"intruder\""));
  EXPECT_TRUE(metric_steps().empty());
  EXPECT_FALSE(fs::exists(here / "out/checkpoints/attempt"));
}

TEST_F(PodRun, ANewerAttemptInTheStatusEndsTheRanksOfTheOlder) {
  job.job.training.max_steps = 100'000;
  job.job.training.save_steps = 5;
  start(0);
  start(1);
  ASSERT_TRUE(soon([&] { return status().contains("training"); })) << output(0);
  api->server.edit(agent::job_resource(), "team", "tune",
                   [](json& object) { object["status"]["training"]["attempt"] = 7; });
  ASSERT_TRUE(soon([&] { return pods[0].exit.has_value(); })) << output(0);
  EXPECT_EQ(pods[0].exit->exit_code, kExitPeerLost);
  EXPECT_EQ(message(0)["reason"], "Superseded");
  EXPECT_EQ(status()["training"]["attempt"], 7);
}

TEST_F(PodRun, OrphansOfARankAreCollected) {
  job.replicas = 1;
  job.job.world_size = 1;
  job.job.training.max_steps = 100'000;
  variables["FAKE_FAULT"] = "attempt=1,rank=0,step=3,do=child;attempt=1,rank=0,step=6,do=exit1";
  start(0);
  ASSERT_TRUE(soon([&] {
    return status().contains("training") && status()["training"].value("attempt", 0) == 2;
  })) << output(0);
  // The grandchild of attempt 1 left its group and lives on as the agent's child; when it dies it
  // must not stay a zombie.
  const std::string own = std::to_string(pods[0].pid);
  const auto children = [&] {
    std::ifstream file("/proc/" + own + "/task/" + own + "/children");
    std::vector<pid_t> pids;
    for (pid_t pid; file >> pid;) pids.push_back(pid);
    return pids;
  };
  ASSERT_TRUE(soon([&] { return children().size() == 2; })) << children().size();
  for (const pid_t child : children()) kill(child, SIGKILL);
  EXPECT_TRUE(soon([&] { return children().size() <= 1; })) << "rank of attempt 3 at most";
}

TEST_F(PodRun, AUsersOwnProgramIsStartedByAnInstalledAgent) {
  command = {
      "/bin/sh", "-c",
      "echo rank $RANK of $WORLD_SIZE, libraries ${LD_LIBRARY_PATH-unset}; cat \"$DSJ_DS_CONFIG\"; "
      "cat /proc/$PPID/maps"};
  job.job.ds_config = {{"train_batch_size", 2}};
  start(0);
  start(1);
  ASSERT_TRUE(all_end()) << output(0) << output(1);
  for (size_t pod : {0, 1}) {
    EXPECT_EQ(pods[pod].exit->exit_code, kExitDone) << output(pod);
    EXPECT_EQ(message(pod)["reason"], kReasonCompleted);
    const std::string log = read_text(here / "out/logs" / ("rank-" + std::to_string(pod) + ".log"));
    EXPECT_THAT(log, HasSubstr("rank " + std::to_string(pod) + " of 2, libraries unset\n"));
    EXPECT_THAT(log, HasSubstr("\"train_batch_size\": 2"));
    // The agent's libraries are its own, every one.
    const std::string own = pods[pod].root.string() + kAgentMountPath;
    std::istringstream lines(log);
    int libraries = 0;
    for (std::string line; std::getline(lines, line);) {
      if (line.find(".so") == std::string::npos || line.find(" r-xp ") == std::string::npos)
        continue;
      ++libraries;
      EXPECT_THAT(line, HasSubstr(own));
    }
    EXPECT_GT(libraries, 3);
  }
  EXPECT_EQ(status()["training"]["attempt"], 1);
}

TEST_F(PodRun, AUsersOwnProgramFindsItsPeersAndMayTellItsSteps) {
  command = {std::string(DSJ_BIN_DIR) + "/fake_rank"};
  start(0);
  start(1);
  ASSERT_TRUE(all_end()) << output(0) << output(1);
  EXPECT_EQ(pods[0].exit->exit_code, kExitDone) << output(0);
  EXPECT_EQ(pods[1].exit->exit_code, kExitDone) << output(1);
  EXPECT_TRUE(steps_are_one_to(30));
}

TEST_F(PodRun, SuspendedAUsersOwnProgramGetsSigtermAndItsTimeAndIsNotComplete) {
  command = {"/bin/sh", "-c",
             "trap 'echo asked; sleep 1; echo left; exit 0' TERM; echo ready; "
             "while :; do sleep 0.1; done"};
  start(0);
  start(1);
  for (size_t pod : {0, 1}) {
    ASSERT_TRUE(soon([&] { return output(pod).find("ready") != std::string::npos; }))
        << output(pod);
  }
  ASSERT_TRUE(soon([&] { return status().contains("training"); })) << output(0);
  api->server.edit(agent::job_resource(), "team", "tune",
                   [](json& object) { object["spec"]["suspend"] = true; });
  ASSERT_TRUE(all_end()) << output(0) << output(1);
  for (size_t pod : {0, 1}) {
    EXPECT_EQ(pods[pod].exit->exit_code, kExitPreempted) << output(pod);
    EXPECT_THAT(output(pod), HasSubstr("left")) << "it was not killed";
  }
  EXPECT_EQ(message(0)["reason"], "StoppedWithoutCheckpoint");
}

/// Its node was cut off, and a successor runs on another one. The volume is all that both see.
TEST_F(PodRun, ANewerAttemptOnTheVolumeEndsAUsersOwnProgram) {
  command = {"/bin/sh", "-c", "echo ready; while :; do sleep 0.1; done"};
  job.replicas = 1;
  job.job.world_size = 1;
  start(0);
  ASSERT_TRUE(soon([&] { return output(0).find("ready") != std::string::npos; })) << output(0);
  usleep(4'000'000);  // it looks every 3 s
  ASSERT_FALSE(agent::reap(pods[0].pid)) << "its own attempt ends nothing";
  std::ofstream(here / "out/checkpoints" / kAttemptFile) << "2\n";
  ASSERT_TRUE(all_end()) << output(0);
  EXPECT_EQ(pods[0].exit->exit_code, kExitPeerLost) << output(0);
  EXPECT_EQ(message(0)["reason"], "Superseded");
}

/// An edited spec.checkpoint.onSuspend.timeoutSeconds, as the operator passes it on.
TEST_F(PodRun, ATimeoutThatIsEditedWhileItRunsHolds) {
  command = {"/bin/sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.1; done"};
  job.replicas = 1;
  job.job.world_size = 1;
  job.save_timeout = std::chrono::hours(10);
  start(0);
  ASSERT_TRUE(soon([&] { return output(0).find("ready") != std::string::npos; })) << output(0);
  ASSERT_TRUE(soon([&] { return status().contains("training"); })) << output(0);
  api->server.edit(agent::job_resource(), "team", "tune", [](json& object) {
    object["status"]["timeouts"] = {{"saveSeconds", 1}, {"stepSeconds", 1800}};
    object["spec"]["suspend"] = true;
  });
  ASSERT_TRUE(all_end()) << output(0) << "it would have had ten hours";
}

TEST_F(PodRun, AUsersOwnProgramFailsByItsCodeUntilTheBudgetIsSpent) {
  command = {"/bin/sh", "-c", "echo no such flag >&2; exit $((2 * RANK))"};
  job.restart_limit = 1;
  start(0);
  start(1);
  ASSERT_TRUE(all_end()) << output(0) << output(1);
  EXPECT_EQ(pods[0].exit->exit_code, kExitFailed) << output(0);
  EXPECT_EQ(message(0)["reason"], kReasonBackoffLimitExceeded);
  EXPECT_EQ(message(0)["rank"], 1);
  EXPECT_EQ(message(0)["exitCode"], 2) << "a code of its own, not of ours";
  EXPECT_THAT(message(0)["lastWords"].get<std::string>(), HasSubstr("no such flag"));
  EXPECT_EQ(status()["training"]["attempt"], 2);
}

TEST_F(PodRun, AnInstalledAgentRunsInAnEmptyRoot) {
  if (geteuid() != 0) GTEST_SKIP() << "chroot needs root";
  const fs::path root = here / "empty";
  fs::create_directories(root);
  install(root);
  agent::SpawnSpec spec{.command = {"chroot", root},
                        .environment = {"PATH=/usr/sbin:/usr/bin:/bin:/sbin"},
                        .log_file = here / "chroot"};
  for (const auto& word : installed_agent_command(kAgentMountPath)) spec.command.push_back(word);
  spec.command.push_back("--help");
  const auto pid = agent::spawn(spec);
  ASSERT_TRUE(pid) << pid.error().to_string();
  std::optional<ChildExit> exit;
  while (!(exit = agent::reap(*pid))) usleep(10'000);
  EXPECT_EQ(exit->exit_code, 0) << read_text(here / "chroot");
  EXPECT_THAT(read_text(here / "chroot"), HasSubstr("DeepSpeedJob"));
  for (const auto& entry : fs::recursive_directory_iterator(root.string() + kAgentMountPath)) {
    EXPECT_EQ(entry.status().permissions() & fs::perms(0755), fs::perms(0755)) << entry.path();
    EXPECT_THAT(entry.path().string(), testing::Not(HasSubstr("torch")));
  }
}

TEST_F(PodRun, WhatIsMissingIsSaidInTheTerminationMessage) {
  variables[kEnvJobUid] = "";
  start(0);
  ASSERT_TRUE(all_end());
  EXPECT_EQ(pods[0].exit->exit_code, kExitBadInput);
  EXPECT_EQ(message(0)["reason"], "BadInput");
  EXPECT_THAT(message(0)["message"].get<std::string>(), HasSubstr(kEnvJobUid));
}

}  // namespace
}  // namespace dsj::run_test
