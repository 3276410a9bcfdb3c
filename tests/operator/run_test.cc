// The operator as a process: threads, lease, health and metrics, against an API server in memory.
#include "operator/run.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "kube/api_transport.h"
#include "operator/act/apply.h"
#include "operator/act/events.h"
#include "tests/kube/fake_api_server.h"
#include "tests/operator/world.h"
#include "tests/support/soon.h"

namespace dsj::op::testing {
namespace {

using ::testing::HasSubstr;

/// A port of an own part of 127/8, where no program beside this one takes it meanwhile.
std::string free_address() {
  const std::string host = "127." + std::to_string(1 + getpid() / 250 % 250) + "." +
                           std::to_string(1 + getpid() % 250) + ".1";
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in name{.sin_family = AF_INET};
  EXPECT_EQ(inet_pton(AF_INET, host.c_str(), &name.sin_addr), 1);
  socklen_t size = sizeof name;
  EXPECT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&name), size), 0);
  EXPECT_EQ(getsockname(fd, reinterpret_cast<sockaddr*>(&name), &size), 0);
  close(fd);
  return host + ":" + std::to_string(ntohs(name.sin_port));
}

TEST(RunOperator, LeadsWorksAnswersAndStopsCleanly) {
  kube::testing::FakeApiServer server;
  server.serve(jobs_resource(), true);
  kube::Client user(server, kube::system_clock());
  Options options;
  const std::string address = free_address();
  options.health_address = address;
  options.identity = "one";
  // What is in memory at a time: nodes may have 50 KB each.
  std::atomic<int> lists = 0, long_pages = 0;
  server.set_fault([&](const kube::Request& request) {
    const size_t limit = request.path.find("limit=");
    if (limit != std::string::npos) {
      ++lists;
      long_pages += std::stoi(request.path.substr(limit + 6)) > 100 &&
                    request.path.find("job-name") == std::string::npos;
    }
    return kube::testing::Fault{};
  });
  kube::Cancel stop;
  Status ended;
  std::thread process(
      [&] { ended = run_operator(options, server, kube::system_clock(), "system", stop); });
  ASSERT_TRUE(user.create(jobs_resource(), "n",
                          {{"apiVersion", jobspec::kApiVersion},
                           {"kind", jobspec::kKind},
                           {"metadata", {{"name", "j"}, {"namespace", "n"}}},
                           {"spec", quick_spec(3)}}));
  EXPECT_TRUE(soon([&] { return server.objects(kube::resources::pods()).size() == 3; }));
  EXPECT_TRUE(soon([&] { return !server.objects(kube::resources::events()).empty(); }));
  EXPECT_GT(lists, 6);
  EXPECT_EQ(long_pages, 0);
  auto http = kube::make_api_transport({.server = "http://" + address});
  ASSERT_TRUE(http) << http.error().to_string();
  for (const char* path : {"/healthz", "/readyz"}) {
    const auto answer = (*http)->call({.path = path}, {});
    ASSERT_TRUE(answer) << answer.error().message;
    EXPECT_EQ(answer->status, 200) << path;
  }
  const auto metrics = (*http)->call({.path = "/metrics"}, {});
  ASSERT_TRUE(metrics);
  EXPECT_THAT(metrics->body, HasSubstr("deepspeedjob_leader 1"));
  EXPECT_THAT(metrics->body, HasSubstr("deepspeedjob_jobs{phase=\"Pending\"} 1"));
  EXPECT_THAT(metrics->body, HasSubstr("deepspeedjob_reconcile_duration_seconds_count"));
  EXPECT_THAT(metrics->body, HasSubstr("deepspeedjob_created_total 1"));
  EXPECT_THAT(metrics->body,
              HasSubstr("deepspeedjob_api_requests_total{code=\"201\",verb=\"POST\"}"));
  EXPECT_THAT(metrics->body,
              HasSubstr("deepspeedjob_api_requests_total{code=\"200\",verb=\"WATCH\"}"));
  stop.cancel();
  process.join();
  EXPECT_TRUE(ended);
  const auto leases = server.objects(kube::resources::leases());
  ASSERT_EQ(leases.size(), 1u);
  EXPECT_EQ(leases[0]["spec"].value("holderIdentity", ""), "") << "a standby need not wait";
}

/// The server as the operator sees it; counts the pods that are asked for.
class Counting final : public kube::Transport {
 public:
  Counting(kube::Transport& inner, std::function<void(int)> asked)
      : inner_(inner), asked_(std::move(asked)) {}
  std::expected<kube::Response, kube::NetError> call(const kube::Request& request,
                                                     const kube::Cancel& cancel) override {
    if (request.method == "POST" && request.path.ends_with("/pods")) asked_(++pods);
    return inner_.call(request, cancel);
  }
  std::expected<kube::StreamResponse, kube::NetError> open(const kube::Request& request,
                                                           const kube::Cancel& cancel) override {
    return inner_.open(request, cancel);
  }
  std::atomic<int> pods = 0;

 private:
  kube::Transport& inner_;
  const std::function<void(int)> asked_;
};

TEST(RunOperator, StopsInTheMiddleOfAPass) {
  kube::testing::FakeApiServer server;
  server.serve(jobs_resource(), true);
  kube::Client user(server, kube::system_clock());
  ASSERT_TRUE(user.create(jobs_resource(), "n",
                          {{"apiVersion", jobspec::kApiVersion},
                           {"kind", jobspec::kKind},
                           {"metadata", {{"name", "j"}, {"namespace", "n"}}},
                           {"spec", quick_spec(500)}}));
  kube::Cancel stop;
  Counting network(server, [&](int asked) {
    if (asked == 20) stop.cancel();  // SIGTERM
  });
  EXPECT_TRUE(run_operator({}, network, kube::system_clock(), "system", stop));
  EXPECT_LE(network.pods, 20 + 16) << "those that were under way";
  EXPECT_EQ(server.objects(kube::resources::leases())[0]["spec"].value("holderIdentity", ""), "");
}

TEST(RunOperator, AStatusOfAWrongShapeHindersNoJob) {
  kube::testing::FakeApiServer server;
  server.serve(jobs_resource(), true);
  kube::Client user(server, kube::system_clock());
  auto submit = [&](const std::string& name) {
    ASSERT_TRUE(user.create(jobs_resource(), "n",
                            {{"apiVersion", jobspec::kApiVersion},
                             {"kind", jobspec::kKind},
                             {"metadata", {{"name", name}, {"namespace", "n"}}},
                             {"spec", quick_spec(2)}}));
  };
  submit("odd");
  server.edit(jobs_resource(), "n", "odd", [](Json& job) {
    job["status"]["failureHistory"] = Json::array({{{"reason", 5}}});
  });
  Options options;
  options.health_address = "127.0.0.1:0";
  kube::Cancel stop;
  std::thread process(
      [&] { (void)run_operator(options, server, kube::system_clock(), "system", stop); });
  EXPECT_TRUE(soon([&] { return server.objects(jobs_resource()).at(0).contains("status"); }));
  submit("good");
  const auto pods_of = [&](const std::string& name) {
    return std::ranges::count_if(server.objects(kube::resources::pods()), [&](const Json& pod) {
      return pod["metadata"]["labels"][contract::kLabelJobName] == name;
    });
  };
  EXPECT_TRUE(soon([&] { return pods_of("good") == 2 && pods_of("odd") == 2; }));
  stop.cancel();
  process.join();
}

TEST(RunOperator, ATakenPortEndsIt) {
  kube::testing::FakeApiServer server;
  server.serve(jobs_resource(), true);
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in name{.sin_family = AF_INET};
  name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof name;
  ASSERT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&name), size), 0);
  ASSERT_EQ(listen(fd, 1), 0);
  ASSERT_EQ(getsockname(fd, reinterpret_cast<sockaddr*>(&name), &size), 0);
  Options options;
  options.health_address = "127.0.0.1:" + std::to_string(ntohs(name.sin_port));
  const auto ended = run_operator(options, server, kube::system_clock(), "system", {});
  close(fd);
  ASSERT_FALSE(ended);
  EXPECT_EQ(ended.error().kind, ErrorKind::Environment);
}

TEST(Options, AreReadAndChecked) {
  auto parse = [](std::vector<std::string> words, int& code) {
    std::vector<char*> argv;
    words.insert(words.begin(), "dsj-operator");
    for (std::string& word : words) argv.push_back(word.data());
    return parse_options(static_cast<int>(argv.size()), argv.data(), code);
  };
  int code = 0;
  const auto options = parse(
      {"--namespace", "a,b", "--read-nodes=false", "--workers=2", "--worker-image=w:1",
       "--no-leader-election", "--network-policy=false", "--volcano=true", "--tmp-size-limit=1Gi"},
      code);
  ASSERT_TRUE(options);
  EXPECT_EQ(options->namespaces, (std::vector<std::string>{"a", "b"}));
  EXPECT_FALSE(options->watch_nodes);
  EXPECT_FALSE(options->leader_election);
  EXPECT_EQ(options->workers, 2);
  EXPECT_EQ(options->settings.worker_image, "w:1");
  EXPECT_EQ(options->settings.tmp_size_limit, "1Gi");
  EXPECT_EQ(options->settings.node_marks, NodeMarks::None);
  const auto marking = parse({"--mark-nodes=annotate"}, code);
  ASSERT_TRUE(marking);
  EXPECT_EQ(marking->settings.node_marks, NodeMarks::Annotate);
  setenv(kEnvMarkNodes, "taint", 1);
  EXPECT_EQ(parse({}, code)->settings.node_marks, NodeMarks::Taint);
  setenv(kEnvMarkNodes, "Taint", 1);
  EXPECT_FALSE(parse({}, code));
  unsetenv(kEnvMarkNodes);
  EXPECT_EQ(options->settings.pod_security["runAsNonRoot"], true);
  const auto open =
      parse({"--pod-security-context={\"runAsUser\": 7}", "--security-context={}"}, code);
  ASSERT_TRUE(open);
  EXPECT_EQ(open->settings.pod_security, (Json{{"runAsUser", 7}}));
  EXPECT_EQ(open->settings.container_security, Json::object());
  for (const char* bad : {"--security-context=", "--security-context=[]", "--tmp-size-limit=much",
                          "--tmp-size-limit=-1", "--tmp-size-limit=01Gi", "--tmp-size-limit=1gb"}) {
    EXPECT_FALSE(parse({bad}, code)) << bad;
  }
  EXPECT_FALSE(options->settings.network_policy);
  EXPECT_TRUE(options->settings.volcano);
  setenv(contract::kEnvWorkerImage, "by-the-chart:2", 1);
  setenv(contract::kEnvReadNodes, "false", 1);
  setenv(contract::kEnvWatchNamespaces, "", 1);
  setenv(contract::kEnvPodName, "dsj-operator-x", 1);
  const auto chart = parse({}, code);
  ASSERT_TRUE(chart);
  EXPECT_EQ(chart->settings.worker_image, "by-the-chart:2");
  EXPECT_FALSE(chart->watch_nodes);
  EXPECT_EQ(chart->settings.tmp_size_limit, "10Gi");
  EXPECT_TRUE(chart->settings.network_policy);
  EXPECT_FALSE(chart->settings.volcano);
  EXPECT_TRUE(chart->namespaces.empty());
  EXPECT_EQ(chart->identity, "dsj-operator-x");
  EXPECT_EQ(chart->health_address, ":29402");
  EXPECT_EQ(chart->metrics_address, "");
  setenv(kEnvMetricsAddress, ":29404", 1);
  EXPECT_EQ(parse({}, code)->metrics_address, ":29404");
  EXPECT_FALSE(parse({"--workers=0"}, code));
  EXPECT_EQ(code, contract::kExitBadInput);
}

TEST(Events, OneTransitionHasOneName) {
  JobView job{.ns = "n", .name = "j", .uid = "u", .resource_version = "7"};
  const auto at = std::chrono::system_clock::time_point{};
  const Json one = event_object(job, {"Warning", "NodeLost", "bye"}, "me", at);
  EXPECT_EQ(one, event_object(job, {"Warning", "NodeLost", "bye"}, "me", at));
  EXPECT_EQ(one["regarding"]["uid"], "u");
  std::string accents = "x";
  for (int i = 0; i < 600; ++i) accents += "\xc3\xa9";
  EXPECT_NO_THROW((void)event_object(job, {"Warning", "R", accents}, "me", at).dump());
  EXPECT_NO_THROW((void)event_object(job, {"Warning", "R", "x" + accents}, "me", at).dump());
  job.resource_version = "8";
  EXPECT_NE(one["metadata"]["name"],
            event_object(job, {"Warning", "NodeLost", "bye"}, "me", at)["metadata"]["name"]);
}

}  // namespace
}  // namespace dsj::op::testing
