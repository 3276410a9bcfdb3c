// What the operator's benches share: a job, and the operator as a process of its own threads.
#pragma once

#include <string>
#include <thread>

#include "common/check.h"
#include "operator/run.h"

namespace dsj::op::bench {

inline Json job_of(const std::string& ns, const std::string& name, int workers) {
  Json object =
      Json::parse(R"({"apiVersion": "training.dsj.dev/v1alpha1", "kind": "DeepSpeedJob", "spec": {
    "deepspeed": {"config": {"train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": 2}}},
    "training": {"modelNameOrPath": "/m", "dataPath": "/d.json", "outputDir": "/tmp/out", "maxSteps": 1000},
    "workers": {"slotsPerWorker": 1,
                "template": {"spec": {"containers": [{"name": "worker", "image": "none:1"}]}}}}})");
  object["metadata"] = {{"name", name}, {"namespace", ns}};
  object["spec"]["workers"]["replicas"] = workers;
  return object;
}

/// The operator from here to the end of this object.
class Running {
 public:
  Running(kube::Transport& transport, const std::string& ns) {
    options_.leader_election = false;
    options_.health_address.clear();
    options_.namespaces = {ns};
    thread_ = std::thread([this, &transport, ns] {
      const Status ended = run_operator(options_, transport, kube::system_clock(), ns, stop_);
      DSJ_CHECK(ended.has_value(), "the operator ended");
    });
  }
  ~Running() {
    stop_.cancel();
    thread_.join();
  }

 private:
  Options options_;
  kube::Cancel stop_;
  std::thread thread_;
};

}  // namespace dsj::op::bench
