// The text of `dsj describe` about a job. Pure except for look_at_job().
#pragma once

#include <string>
#include <vector>

#include "cli/cluster/pods.h"
#include "job/dsconfig/resolve.h"

namespace dsj::cli {

struct Description {
  Json job;
  std::vector<PodRef> pods;
  std::vector<Json> events;  ///< the job's events (events.k8s.io/v1)
  /// Origins of the accepted ds_config; if empty, `config_problem` says why.
  std::vector<dsconfig::Origin> origins;
  std::string config_problem;
  std::string queue;  ///< queue_place.h
};

/// `now`: seconds since 1970.
std::string to_text(const Description& what, int64_t now);
/// {"job", "pods", "events": objects of the API; "configOrigins": [{"path", "value", "origin"}],
/// "configProblem", "queue"}.
Json to_json(const Description& what);

/// Parts of it, for `dsj debug`.
std::string events_text(const std::vector<Json>& events, int64_t now);
std::string topology_text(const Json& job, const std::vector<PodRef>& pods);

/// Reads all this from the API server. A ConfigMap or events that may not be read are not an
/// error; the result mentions them.
kube::ApiResult<Description> look_at_job(Session& session, const std::string& name);

}  // namespace dsj::cli
