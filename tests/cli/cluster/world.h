// A job with pods and logs on an API server in memory, against which a verb is run.
#pragma once

#include <gmock/gmock.h>

#include "cli/cluster/json_path.h"
#include "cli/cluster/verbs.h"
#include "job/contract.h"
#include "job/spec/yaml.h"
#include "test_paths.h"
#include "tests/kube/fake_api_server.h"
#include "tests/kube/fake_clock.h"

namespace dsj::cli::testing {

using Verb = int (*)(Arguments, const Connect&);

/// Runs a callback while a verb waits.
class WorldClock final : public kube::testing::FakeClock {
 public:
  bool sleep(kube::Milliseconds time, const kube::Cancel& cancel) override {
    if (meanwhile) std::exchange(meanwhile, {})();
    return FakeClock::sleep(time, cancel);
  }
  std::function<void()> meanwhile;  ///< called once
};

class World : public ::testing::Test {
 protected:
  World() {
    const auto crd = jobspec::read_yaml(std::string(DSJ_SOURCE_DIR) + "/crds/deepspeedjobs.yaml");
    EXPECT_TRUE(crd);
    EXPECT_TRUE(client_.create(kube::resources::custom_resource_definitions(), "", crd->value));
  }

  Json add_job(const std::string& name, const std::function<void(Json&)>& change = {}) {
    Json job = Json::parse(R"({
      "apiVersion": "training.dsj.dev/v1alpha1", "kind": "DeepSpeedJob", "metadata": {},
      "spec": {"deepspeed": {"config": {"train_micro_batch_size_per_gpu": "auto",
          "optimizer": {"type": "AdamW", "params": {"lr": "auto"}},
          "zero_optimization": {"stage": 2}}},
        "training": {"modelNameOrPath": "/m", "dataPath": "/d.json", "outputDir": "/o",
          "maxSteps": 50, "learningRate": 1e-6, "perDeviceTrainBatchSize": 4},
        "workers": {"replicas": 2, "slotsPerWorker": 2}}})");
    job["metadata"]["name"] = name;
    if (change) change(job);
    const auto made = client_.create(jobs_resource(), "team", job);
    EXPECT_TRUE(made) << made.error().to_string();
    return *made;
  }
  void set_status(const std::string& name, const Json& status) {
    const auto set =
        client_.merge_patch(jobs_resource(), "team", name, {{"status", status}}, "status");
    EXPECT_TRUE(set) << set.error().to_string();
  }
  void add_pod(const std::string& job, int worker, int incarnation, const std::string& phase,
               std::vector<std::string> log) {
    const std::string name =
        job + "-worker-" + std::to_string(worker) + "-" + std::to_string(incarnation);
    const Json state = phase == "Pending"   ? Json{{"waiting", {{"reason", "ContainerCreating"}}}}
                       : phase == "Running" ? Json{{"running", Json::object()}}
                                            : Json{{"terminated", {{"exitCode", 1}}}};
    ASSERT_TRUE(client_.create(
        kube::resources::pods(), "team",
        {{"apiVersion", "v1"},
         {"kind", "Pod"},
         {"metadata",
          {{"name", name},
           {"labels",
            {{contract::kLabelJobName, job},
             {contract::kLabelReplicaIndex, std::to_string(worker)},
             {contract::kLabelIncarnation, std::to_string(incarnation)}}}}},
         {"spec",
          {{"nodeName", "node-" + std::to_string(worker)},
           {"containers",
            Json::array({{{"name", "worker"},
                          {"env", Json::array({{{"name", "WANDB_KEY"}, {"value", "geheim"}},
                                               {{"name", "DSJ_WORKER"}, {"value", "0"}}})}}})}}}}));
    ASSERT_TRUE(client_.merge_patch(
        kube::resources::pods(), "team", name,
        {{"status",
          {{"phase", phase},
           {"containerStatuses", Json::array({{{"name", "worker"}, {"state", state}}})}}}},
        "status"));
    if (phase != "Pending") server_->set_log("team", name, std::move(log));
  }

  /// The server does not answer the next `requests`.
  void go_away(int requests) {
    away_ = requests;
    server_->set_fault([this](const kube::Request&) {
      using Fault = kube::testing::Fault;
      return away_-- > 0 ? Fault{.kind = Fault::Kind::LoseRequest} : Fault{};
    });
  }

  int run(Verb verb, const std::vector<std::string>& args, const std::string& ns = "team") {
    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    const int code = verb(args, [&](const ClusterFlags& flags) -> Result<std::unique_ptr<Session>> {
      auto session = std::make_unique<Session>(server_, clock_, flags.ns.empty() ? ns : flags.ns,
                                               "https://fake:6443");
      stop_ = session->cancel;
      return session;
    });
    out_ = ::testing::internal::GetCapturedStdout();
    err_ = ::testing::internal::GetCapturedStderr();
    return code;
  }

  std::shared_ptr<kube::testing::FakeApiServer> server_ =
      std::make_shared<kube::testing::FakeApiServer>();
  WorldClock clock_;
  kube::Client client_{*server_, clock_};
  kube::Cancel stop_;  ///< cancels the last session
  std::string out_, err_;

 private:
  int away_ = 0;
};

}  // namespace dsj::cli::testing
