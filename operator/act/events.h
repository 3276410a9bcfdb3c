// Kubernetes events of jobs (kubectl describe). The name is derived from the job's version and the
// event, so that a transition is published once. An event that cannot be written is lost.
#pragma once

#include "kube/client.h"
#include "operator/act/apply.h"

namespace dsj::op {

class KubeEvents final : public EventSink {
 public:
  KubeEvents(kube::Client& client, kube::Clock& clock, std::string instance)
      : client_(client), clock_(clock), instance_(std::move(instance)) {}
  void tell(const JobView& job, const Event& event) override;

 private:
  kube::Client& client_;
  kube::Clock& clock_;
  const std::string instance_;
};

/// The object that tell() creates.
Json event_object(const JobView& job, const Event& event, const std::string& instance,
                  std::chrono::system_clock::time_point now);

}  // namespace dsj::op
