// A job for people: what `dsj describe` prints. Pure.
#pragma once

#include <string>
#include <vector>

#include "cli/cluster/pods.h"
#include "common/dsconfig/resolve.h"

namespace dsj::cli {

struct Description {
  Json job;
  std::vector<PodRef> pods;
  std::vector<Json> events;  ///< events.k8s.io/v1, of the job
  /// Of the accepted ds_config; empty: `config_problem` says why.
  std::vector<dsconfig::Origin> origins;
  std::string config_problem;
};

/// Seconds since 1970 as now.
std::string to_text(const Description& what, int64_t now);

/// The parts, for `dsj debug`.
std::string events_text(const std::vector<Json>& events, int64_t now);
std::string topology_text(const Json& job, const std::vector<PodRef>& pods);

/// From the API server. A ConfigMap or events that may not be read are named, not an error.
kube::ApiResult<Description> look_at_job(Session& session, const std::string& name);

}  // namespace dsj::cli
