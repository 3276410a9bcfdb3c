// What the operator keeps of a job in one ConfigMap: job.json for its agents, and the texts that the spec was made of. What is
// rendered and what is refused as too large are one function. Pure.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "job/spec/job.h"
#include "job/worker_job.h"

namespace dsj::jobspec {

/// The keys beside kWorkerJobFile (contract.h).
inline constexpr char kStoredSpec[] = "spec.json";
inline constexpr char kStoredTemplate[] = "template.json";

struct StoredTexts {
  std::string spec;    ///< as JSON
  std::string config;  ///< of the ConfigMap that configFrom names; empty: the config is in the spec
  std::string worker_template;  ///< worker_template.h's text; empty: none
};

/// By key. job.json has only what a revision is a hash of. What may change while the gang runs agent 0 reads in the job's
/// status: the budget in status.restarts, the others in status.timeouts.
std::map<std::string, std::string> stored_data(const Job& job, const StoredTexts& texts);

/// A cluster's keys beside them (jwks.json): longer ones are left out.
inline constexpr size_t kTokenKeysBytesMax = 32 * 1024;
/// Kubernetes counts the values of a ConfigMap, up to 1 MiB.
inline constexpr size_t kStoredBytesMax = (1 << 20) - kTokenKeysBytesMax;

/// An error if no ConfigMap holds the job: its pods could never be made.
std::optional<dsconfig::Finding> check_stored_size(const Job& job, const StoredTexts& texts);

}  // namespace dsj::jobspec
