// Asks the API server whether it would accept a job's pods before anything is created or replaced:
// a dry run creates worker 0's pod. So a template may contain whatever this server's version
// supports; other fields are refused.
#pragma once

#include <map>
#include <mutex>
#include <string>

#include "kube/client.h"
#include "operator/observe/acceptance.h"
#include "operator/observe/observed.h"
#include "operator/webhook/review.h"

namespace dsj::op {

/// Remembers for an hour which pods the server accepted, by a hash of all fields except the job's
/// name: most jobs of a namespace share their template. Thread-safe.
class PodTrials {
 public:
  PodAnswer try_pod(kube::Client& client, const JobView& job, const Settings& settings,
                    const Accepted& accepted, Time now);

 private:
  bool taken(size_t pod, Time now);
  void remember(size_t pod, Time now);

  std::mutex mutex_;
  std::map<size_t, Time> taken_;  ///< time of the answer
};

}  // namespace dsj::op
