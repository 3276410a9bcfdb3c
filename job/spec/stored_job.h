// The contents of a job's ConfigMap: job.json for its agents, and the texts from which the operator
// reads the accepted spec again. The operator renders it, and the checks measure it. Pure.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "job/spec/job.h"
#include "job/worker_job.h"

namespace dsj::jobspec {

/// Keys, in addition to kWorkerJobFile (contract.h) and kDsConfigKey.
inline constexpr char kStoredSpec[] = "spec.json";
inline constexpr char kStoredTemplate[] = "template.json";

struct StoredTexts {
  std::string spec;    ///< as JSON
  std::string config;  ///< from the ConfigMap of configFrom; empty if the config is in the spec
  std::string worker_template;  ///< worker_template.h's text; empty if none
};

/// The data by key. job.json contains only what the revision hashes. Values that may change while the
/// gang runs are read by agent 0 from the job's status: the budget from status.restarts, the others
/// from status.timeouts.
std::map<std::string, std::string> stored_data(const Job& job, const StoredTexts& texts);

/// Space for the cluster's public keys (jwks.json). The operator leaves out longer ones.
inline constexpr size_t kTokenKeysBytesMax = 32 * 1024;
/// Kubernetes limits the sum of a ConfigMap's values to 1 MiB.
inline constexpr size_t kStoredBytesMax = (1 << 20) - kTokenKeysBytesMax;

/// An error if the data do not fit in a ConfigMap, so that no pod could start.
std::optional<dsconfig::Finding> check_stored_size(const Job& job, const StoredTexts& texts);

}  // namespace dsj::jobspec
