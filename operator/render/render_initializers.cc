#include "operator/render/render_initializers.h"

#include <algorithm>

#include "common/json.h"
#include "job/spec/initializers.h"
#include "job/spec/user_program.h"

namespace dsj::op {
namespace {

std::string doubled(const std::string& value) {  // the kubelet replaces $$ with $
  std::string text;
  for (const char c : value) text += c == '$' ? "$$" : std::string(1, c);
  return text;
}

std::string target_of(const Json& init, const jobspec::Job& job) {
  return jobspec::initializer_target(jobspec::initializer_of(json_text(init, "name")),
                                     job.training);
}

bool is_anothers(const Json& init, const jobspec::Job& job, int worker) {
  if (jobspec::initializer_of(json_text(init, "name")).empty() || worker == 0) return false;
  return !jobspec::fetched_by_every_pod(job.worker_template, target_of(init, job));
}

void take_image(Json& init, const Json& worker) {
  if (init.contains("image")) return;
  for (const char* field : {"image", "imagePullPolicy"})
    if (worker.contains(field)) init[field] = worker[field];
}

/// Adds the worker's own mount at /tmp, whatever the volume.
void add_tmp(Json& init, const Json& worker) {
  for (const Json& mount : json_child(worker, "volumeMounts")) {
    const std::string path = json_text(mount, "mountPath");
    if (path == "/tmp" || path == "/tmp/") init["volumeMounts"].push_back(mount);
  }
}

constexpr char kTokenPath[] = "/var/run/secrets/kubernetes.io/serviceaccount";
constexpr char kNoToken[] = "dsj-no-token";

/// Hides the ServiceAccount's token: the API server mounts it only if nothing else is mounted
/// there. The token is for worker 0's agent, which may write the job's status.
void keep_token_from(const std::vector<Json*>& inits, Json& spec) {
  if (inits.empty()) return;
  for (Json* init : inits)
    (*init)["volumeMounts"].push_back(
        {{"name", kNoToken}, {"mountPath", kTokenPath}, {"readOnly", true}});
  Json& volumes = spec["volumes"];
  if (!volumes.is_array()) volumes = Json::array();
  volumes.push_back({{"name", kNoToken}, {"emptyDir", Json::object()}});
}

}  // namespace

std::vector<Json*> enter_initializers(Json& spec, const jobspec::Job& job, int worker) {
  std::vector<Json*> ours;
  const auto found = spec.find("initContainers");
  if (found == spec.end() || !found->is_array()) return ours;
  Json kept = Json::array();
  for (Json& init : *found) {
    if (!is_anothers(init, job, worker)) kept.push_back(std::move(init));
  }
  *found = std::move(kept);
  if (found->empty()) {
    spec.erase(found);
    return ours;
  }
  for (Json& init : *found) {
    if (jobspec::initializer_of(json_text(init, "name")).empty()) continue;
    const std::string staging = jobspec::staging_path(target_of(init, job), worker);
    Json& env = init["env"];
    env.insert(env.begin(), Json{{"name", "STAGING"}, {"value", doubled(staging)}});
    const Json worker = jobspec::worker_container(Json{{"spec", spec}});
    take_image(init, worker);
    add_tmp(init, worker);
    ours.push_back(&init);
  }
  keep_token_from(ours, spec);
  return ours;
}

}  // namespace dsj::op
