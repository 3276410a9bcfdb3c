#include "operator/render/render_pod.h"

#include <algorithm>
#include <set>

#include "common/json.h"
#include "job/contract.h"
#include "job/join_keys.h"
#include "job/node_health.h"
#include "job/spec/pod_policies.h"
#include "job/spec/user_program.h"
#include "job/worker_job.h"
#include "operator/observe/lost_nodes.h"
#include "operator/render/render_config.h"
#include "operator/render/render_gang.h"
#include "operator/render/render_initializers.h"
#include "operator/render/topology.h"

namespace dsj::op {
namespace {

/// Time beyond the save timeout for reports and termination messages, before the kubelet kills the
/// pod.
constexpr int64_t kGraceExtra = 30;
constexpr int64_t kTokenSeconds = 3600;

Json& child(Json& object, const char* name, Json empty) {
  Json& value = object[name];
  if (value.is_null()) value = std::move(empty);
  return value;
}

/// Sets the defaults for fields that the object lacks.
void fill(Json& object, const Json& defaults) {
  for (const auto& [name, value] : defaults.items()) {
    if (!object.contains(name)) object[name] = value;
  }
}

/// A template's labels or annotations without the operator's own keys, which are refused today but
/// may be in older jobs.
Json without_ours(const Json& keys) {
  Json kept = Json::object();
  for (const auto& [key, value] : keys.items())
    if (!key.starts_with(std::string(contract::kGroup) + "/")) kept[key] = value;
  return kept;
}

Json& worker_container(Json& spec) {
  Json& containers = child(spec, "containers", Json::array());
  for (size_t i = 0; i < containers.size(); ++i) {
    if (containers[i].value("name", "") != contract::kContainerName) continue;
    if (i != 0) std::swap(containers[0], containers[i]);
    return containers[0];
  }
  containers.insert(containers.begin(), Json{{"name", contract::kContainerName}});
  return containers[0];
}

Json value_of(const char* name, const std::string& value) {
  return {{"name", name}, {"value", value}};
}

Json field_of(const char* name, const char* path) {
  return {{"name", name}, {"valueFrom", {{"fieldRef", {{"fieldPath", path}}}}}};
}

void add_environment(Json& container, const JobView& job, const std::string& revision, int worker,
                     int64_t incarnation) {
  Json& env = child(container, "env", Json::array());
  for (Json& entry : std::vector<Json>{
           value_of(contract::kEnvJobName, job.name), value_of(contract::kEnvNamespace, job.ns),
           value_of(contract::kEnvJobUid, job.uid),
           value_of(contract::kEnvWorker, std::to_string(worker)),
           value_of(contract::kEnvIncarnation, std::to_string(incarnation)),
           value_of(contract::kEnvRevision, revision),
           value_of(contract::kEnvWorkerZeroHost, worker_zero_host(job)),
           field_of(contract::kEnvPodName, "metadata.name"),
           field_of(contract::kEnvPodIp, "status.podIP"),
           field_of(contract::kEnvServiceAccount, "spec.serviceAccountName")}) {
    env.push_back(std::move(entry));
  }
}

/// The policies that the agent follows, and the values with which it checks its node.
void add_policies(Json& container, const jobspec::Policies& policies, int64_t gpus) {
  const jobspec::NodeHealth& health = policies.failure.node_health;
  Json& env = child(container, "env", Json::array());
  env.push_back(value_of(jobspec::kEnvPolicies, jobspec::pod_policies_text(policies)));
  if (health.action == jobspec::NodeHealthAction::Off) return;
  env.push_back(
      {{"name", contract::kEnvMemoryRequest},
       {"valueFrom",
        {{"resourceFieldRef",
          {{"containerName", contract::kContainerName}, {"resource", "requests.memory"}}}}}});
  if (gpus > 0) env.push_back(value_of(contract::kEnvGpus, std::to_string(gpus)));
  if (health.min_peer_bandwidth_percent > 0)
    env.push_back(field_of(contract::kEnvNode, "spec.nodeName"));
}

/// "/tmp/" becomes "/tmp".
std::string without_slash(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

/// Adds one of our volumes, unless the user mounts something at that path.
void add_volume(Json& spec, Json& container, const char* name, const char* path, Json volume,
                bool read_only) {
  Json& mounts = child(container, "volumeMounts", Json::array());
  const bool taken = std::ranges::any_of(mounts, [&](const Json& mount) {
    return without_slash(mount.value("mountPath", "")) == path;
  });
  if (taken) return;
  Json mount = {{"name", name}, {"mountPath", path}};
  if (read_only) mount["readOnly"] = true;
  mounts.push_back(std::move(mount));
  volume["name"] = name;
  child(spec, "volumes", Json::array()).push_back(std::move(volume));
}

// Ten times what the agent writes there: the configuration, the ranks' environment, its socket.
constexpr char kScratchSize[] = "256Mi";
constexpr char kInstalledAgentSize[] = "256Mi";  // the agent and its libraries: 20 MB

void add_volumes(Json& spec, Json& container, const JobView& job, const std::string& revision,
                 const Settings& settings) {
  add_volume(spec, container, "dsj-config", contract::kConfigMountPath,
             {{"configMap", {{"name", config_map_name(job.name, revision)}}}}, true);
  const Json token = {{"serviceAccountToken",
                       {{"path", contract::kTokenFile},
                        {"audience", contract::kAudiencePrefix + job.uid},
                        {"expirationSeconds", kTokenSeconds}}}};
  add_volume(spec, container, "dsj-token", contract::kTokenMountPath,
             {{"projected", {{"sources", Json::array({token})}}}}, true);
  add_volume(spec, container, "dsj-scratch", contract::kScratchMountPath,
             {{"emptyDir", {{"sizeLimit", kScratchSize}}}}, false);
  Json tmp = Json::object();
  if (settings.tmp_size_limit != "0") tmp["sizeLimit"] = settings.tmp_size_limit;
  add_volume(spec, container, "dsj-tmp", "/tmp", {{"emptyDir", std::move(tmp)}}, false);
  // Without a sizeLimit the kubelet uses the container's memory limit, which includes this volume's
  // data.
  add_volume(spec, container, "dsj-shm", "/dev/shm", {{"emptyDir", {{"medium", "Memory"}}}}, false);
}

bool adds_capability(const Json& context, const char* name) {
  const Json& added = json_child(json_child(context, "capabilities"), "add");
  return std::ranges::any_of(
      added, [&](const Json& one) { return one == name || one == std::string("CAP_") + name; });
}

/// Sets the default security context, as far as the template allows: a privileged container or one
/// with CAP_SYS_ADMIN can always escalate, and an API server rejects a field that denies it.
void restrict(Json& container, const Settings& settings) {
  Json& context = child(container, "securityContext", Json::object());
  Json defaults = settings.container_security;
  const bool privileged = json_flag(context, "privileged");
  if (privileged || adds_capability(context, "SYS_ADMIN") || adds_capability(context, "ALL"))
    defaults.erase("allowPrivilegeEscalation");
  if (privileged) defaults.erase("capabilities");
  fill(context, defaults);
}

/// Requires users other than root, unless the template names root for the pod or for a container.
void keep_from_root(Json& spec, const Settings& settings) {
  Json& context = child(spec, "securityContext", Json::object());
  Json defaults = settings.pod_security;
  if (context.contains("runAsNonRoot") || json_whole(context, "runAsUser") == 0)
    defaults.erase("runAsNonRoot");
  fill(context, defaults);
  if (!json_flag(defaults, "runAsNonRoot")) return;
  for (const char* list : {"containers", "initContainers"}) {
    const auto found = spec.find(list);
    if (found == spec.end()) continue;
    for (Json& container : *found) {
      if (json_whole(json_child(container, "securityContext"), "runAsUser") == 0)
        fill(container["securityContext"], {{"runAsNonRoot", false}});
    }
  }
}

void set_worker_image(Json& container, const Settings& settings) {
  container["image"] = settings.worker_image;
  if (!settings.image_pull_policy.empty()) {
    fill(container, {{"imagePullPolicy", settings.image_pull_policy}});
  }
}

/// launcher: Command: an init container with the worker image copies the agent into the user's
/// image. The user's command becomes the agent's arguments, so that the kubelet expands $(NAME) in
/// it.
void enter_foreign_image(Json& spec, Json& container, const jobspec::Job& job,
                         const Settings& settings) {
  Json command = installed_agent_command(contract::kAgentMountPath);
  command.insert(command.end(), {"--pod", "--"});
  container["command"] = std::move(command);
  container["args"] = jobspec::user_command(job.worker_template);
  if (job.has_ds_config()) {
    child(container, "env", Json::array())
        .push_back(value_of(contract::kEnvDsConfig, std::string(contract::kScratchMountPath) + "/" +
                                                        contract::kDsConfigFile));
  }
  const Json mount = {{"name", kAgentContainer}, {"mountPath", contract::kAgentMountPath}};
  Json init = {{"name", kAgentContainer},
               {"command", {"dsj-agent", "--install", contract::kAgentMountPath}},
               {"volumeMounts", Json::array({mount})}};
  if (Json same = jobspec::worker_resources(job.worker_template); !same.empty())
    init["resources"] = std::move(same);
  set_worker_image(init, settings);
  restrict(init, settings);
  Json& inits = child(spec, "initContainers", Json::array());
  inits.insert(inits.begin(), std::move(init));
  add_volume(spec, container, kAgentContainer, contract::kAgentMountPath,
             {{"emptyDir", {{"sizeLimit", kInstalledAgentSize}}}}, true);
}

/// Process 1 loses a SIGTERM that arrives before it is ready (agent/signals_ready.h). Skipped if
/// the agent is not process 1, or if the template has its own hook.
void add_stop_hook(const Json& spec, Json& container) {
  if (spec.value("shareProcessNamespace", false) || spec.value("hostPID", false)) return;
  Json hook = container["command"];
  while (hook.back() != "--pod") hook.erase(hook.size() - 1);
  hook.back() = "--await-signals";
  fill(child(container, "lifecycle", Json::object()),
       {{"preStop", {{"exec", {{"command", std::move(hook)}}}}}});
}

/// Node selector terms are alternatives, so each gets the condition. Matches node names, because
/// the label kubernetes.io/hostname may differ. Each field takes one value.
void avoid_nodes(Json& spec, const std::set<std::string>& names) {
  if (names.empty()) return;
  Json& required =
      child(child(child(spec, "affinity", Json::object()), "nodeAffinity", Json::object()),
            "requiredDuringSchedulingIgnoredDuringExecution", Json::object());
  Json& terms = child(required, "nodeSelectorTerms", Json::array());
  if (terms.empty()) terms.push_back(Json::object());
  for (Json& term : terms) {
    Json& fields = child(term, "matchFields", Json::array());
    for (const std::string& name : names)
      fields.push_back(
          {{"key", "metadata.name"}, {"operator", "NotIn"}, {"values", Json::array({name})}});
  }
}

constexpr char kArchitectureLabel[] = "kubernetes.io/arch";
constexpr char kSystemLabel[] = "kubernetes.io/os";

/// Whether a required node affinity uses the label.
bool asks_for(const Json& spec, const char* label) {
  const auto at = Json::json_pointer(
      "/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms");
  if (!spec.contains(at) || !spec[at].is_array()) return false;
  return std::ranges::any_of(spec[at], [&](const Json& term) {
    const Json& expressions = json_child(term, "matchExpressions");
    return std::ranges::any_of(expressions,
                               [&](const Json& one) { return json_child(one, "key") == label; });
  });
}

/// Our programs are for Linux on x86-64; other nodes would pull the image and fail to start it. A
/// user who built them for another architecture sets it in the template. Windows nodes are amd64
/// too.
void choose_platform(Json& spec) {
  Json wanted = Json::object();
  if (!asks_for(spec, kArchitectureLabel)) wanted[kArchitectureLabel] = "amd64";
  if (!asks_for(spec, kSystemLabel)) wanted[kSystemLabel] = "linux";
  if (!wanted.empty()) fill(child(spec, "nodeSelector", Json::object()), wanted);
}

}  // namespace

Create render_pod(const Observed& o, const Accepted& accepted, const OwnStatus& status, int worker,
                  int64_t incarnation, const std::string& gang, const RunKey& key) {
  const JobView& job = *o.job;
  Settings settings = o.settings;
  if (!key.image.empty()) settings.worker_image = key.image;
  const Json& pod_template = accepted.job.worker_template;
  const std::string name = worker_pod_name(job.name, worker, incarnation);
  Json metadata = metadata_of(job, name);
  if (pod_template.is_object() && pod_template.contains("metadata")) {
    const Json& theirs = pod_template["metadata"];
    if (theirs.contains("labels")) fill(metadata["labels"], without_ours(theirs["labels"]));
    if (theirs.contains("annotations"))
      metadata["annotations"] = without_ours(theirs["annotations"]);
  }
  metadata["labels"][contract::kLabelReplicaType] = "worker";
  metadata["labels"][contract::kLabelReplicaIndex] = std::to_string(worker);
  metadata["labels"][contract::kLabelIncarnation] = std::to_string(incarnation);
  metadata["labels"][contract::kLabelRevision] = accepted.revision;
  metadata["annotations"][contract::kAnnotationRestarts] = std::to_string(status.restarts.total);
  metadata["annotations"]["kubectl.kubernetes.io/default-container"] = contract::kContainerName;

  Json spec =
      pod_template.is_object() ? pod_template.value("spec", Json::object()) : Json::object();
  const int64_t grace = accepted.job.policies.save_timeout_seconds + kGraceExtra;
  const Json asked = spec.value("terminationGracePeriodSeconds", Json());
  spec["terminationGracePeriodSeconds"] =
      asked.is_number_integer() ? std::max(asked.get<int64_t>(), grace) : grace;
  spec["restartPolicy"] = "Never";
  spec["hostname"] = job.name + "-worker-" + std::to_string(worker);
  spec["subdomain"] = shared_name(job.name);
  spec["serviceAccountName"] = service_account_of(accepted.job, job.name);
  // Only agent 0 uses the API server. A template that mounts the token gets it in every pod; for
  // worker 0 a template cannot prevent it.
  if (worker == 0 || !spec.contains("automountServiceAccountToken")) {
    spec["automountServiceAccountToken"] = worker == 0;
  }
  fill(spec, {{"enableServiceLinks", false}});
  // Otherwise such a pod uses the node's DNS, which does not know worker 0.
  if (spec.value("hostNetwork", false)) fill(spec, {{"dnsPolicy", "ClusterFirstWithHostNet"}});
  Json& container = worker_container(spec);
  if (accepted.job.runs_user_program()) {
    enter_foreign_image(spec, container, accepted.job, settings);
  } else {
    if (!container.contains("image")) set_worker_image(container, settings);
    container["command"] = {"dsj-agent", "--pod"};
    container.erase("args");
  }
  add_stop_hook(spec, container);
  container["terminationMessagePath"] = contract::kTerminationLog;
  fill(
      container,
      {{"terminationMessagePolicy", "File"},
       {"ports", Json::array({{{"name", "join"}, {"containerPort", contract::kJoinPort}},
                              {{"name", "metrics"}, {"containerPort", contract::kMetricsPort}}})}});
  add_environment(container, job, accepted.revision, worker, incarnation);
  add_policies(container, accepted.job.policies, jobspec::worker_gpus(pod_template).whole);
  add_volumes(spec, container, job, accepted.revision, settings);
  if (key.run > 0) {
    Json& env = child(container, "env", Json::array());
    env.push_back(value_of(contract::kEnvJoinRun, std::to_string(key.run)));
    env.push_back(value_of(contract::kEnvJoinAuthority, key.authority));
    if (worker == 0) {
      add_volume(spec, container, kJoinKeyVolume, kJoinKeyMountPath, key_volume(job.name, key.run),
                 true);
    }
  }
  keep_from_root(spec, settings);
  restrict(container, settings);
  for (Json* init : enter_initializers(spec, accepted.job, worker)) restrict(*init, settings);
  enter_gang(accepted.job, gang, metadata, spec);
  enter_topology(accepted.job, job.name, worker, gang, metadata, spec);
  choose_platform(spec);
  const auto avoided = nodes_to_avoid(o, accepted, status);
  if (!avoided.empty()) metadata["annotations"][contract::kAnnotationAvoids] = avoids_text(avoided);
  avoid_nodes(spec, avoided);
  return {.kind = "Pod",
          .name = name,
          .object = {{"apiVersion", "v1"},
                     {"kind", "Pod"},
                     {"metadata", std::move(metadata)},
                     {"spec", std::move(spec)}}};
}

}  // namespace dsj::op
