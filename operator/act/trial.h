// Asks the API server whether it would take a job's pods, before anything is made or replaced: worker 0's pod is created by a
// dry run. So whatever this server's version knows may be in a template, and what it does not know is refused.
#pragma once

#include <map>
#include <mutex>
#include <string>

#include "kube/client.h"
#include "operator/observe/acceptance.h"
#include "operator/observe/observed.h"
#include "operator/webhook/review.h"

namespace dsj::op {

/// Remembers for an hour which pods a server would take, by all of them but the job's name: most jobs of a namespace differ in
/// what they train, not in their template. Thread-safe.
class PodTrials {
 public:
  PodAnswer try_pod(kube::Client& client, const JobView& job, const Settings& settings,
                    const Accepted& accepted, Time now);

 private:
  bool taken(size_t pod, Time now);
  void remember(size_t pod, Time now);

  std::mutex mutex_;
  std::map<size_t, Time> taken_;  ///< when
};

}  // namespace dsj::op
