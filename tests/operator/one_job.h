// An API server in memory, and one operator with one job on it. The test plays everybody else.
#pragma once

#include <gtest/gtest.h>
#include <spdlog/spdlog.h>

#include "tests/kube/fake_api_server.h"
#include "tests/operator/sim/sim_operator.h"
#include "tests/operator/world.h"

namespace dsj::op::testing {

struct OneJob {
  OneJob() {
    spdlog::set_level(spdlog::level::off);
    server.serve(jobs_resource(), true);
    server.serve(pod_groups_resource(), true);
    server.set_wall([this] { return std::chrono::floor<Seconds>(clock.at()); });
  }
  void submit(const Json& spec = quick_spec()) {
    ASSERT_TRUE(user.create(jobs_resource(), "n",
                            {{"apiVersion", jobspec::kApiVersion},
                             {"kind", jobspec::kKind},
                             {"metadata", {{"name", "j"}, {"namespace", "n"}}},
                             {"spec", spec}}));
    start_operator();
  }
  void start_operator() {
    op.emplace(server, clock, chance, nullptr);
    op->transport.watch_writes = [this](const kube::Request& request) {
      if (request.method == "PUT" || request.method == "POST") ++writes[request.path];
    };
  }
  /// A second each.
  void turns(int count, const std::function<void()>& meanwhile = nullptr) {
    for (int i = 0; i < count; ++i) {
      clock.now += Seconds(1);
      if (meanwhile) meanwhile();
      op->turn();
    }
  }
  OwnStatus status() const {
    return own_status_from_json(own_part(server.objects(jobs_resource())[0]["status"]));
  }
  Condition condition(const char* type) const {
    const OwnStatus now = status();
    const Condition* found = find_condition(now.conditions, type);
    return found ? *found : Condition{};
  }
  /// The kubelets' and agent 0's part: every pod runs, and an attempt.
  void run_pods(int64_t attempt = 1) {
    for (const Json& pod : server.objects(kube::resources::pods()))
      set_pod(pod,
              {{"phase", "Running"},
               {"containerStatuses",
                Json::array({{{"name", "worker"}, {"state", {{"running", Json::object()}}}}})}});
    server.edit(jobs_resource(), "n", "j", [&](Json& job) {
      job["status"]["training"] = {{"attempt", attempt}, {"lastUpdatedTime", to_text(clock.at())}};
    });
  }
  void set_pod(const Json& pod, const Json& status) {
    server.edit(kube::resources::pods(), "n", pod["metadata"]["name"], [&](Json& object) {
      object["spec"]["nodeName"] = "node-" + label_of(pod, contract::kLabelReplicaIndex);
      object["status"] = status;
    });
  }
  /// Creates and updates so far.
  int all_writes() const {
    int all = 0;
    for (const auto& [path, count] : writes) all += count;
    return all;
  }

  /// Of one path.
  int most_writes() const {
    int most = 0;
    for (const auto& [path, count] : writes) most = std::max(most, count);
    return most;
  }

  kube::testing::FakeApiServer server;
  sim::SimClock clock;
  sim::Chance chance{1};
  kube::Client user{server, clock, {.attempts = 1}};
  std::optional<sim::SimOperator> op;
  std::map<std::string, int> writes;  ///< by path
};

}  // namespace dsj::op::testing
