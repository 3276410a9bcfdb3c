#include "operator/render/render_config.h"

#include "job/contract.h"
#include "job/spec/stored_job.h"
#include "operator/observe/own_status.h"

namespace dsj::op {
namespace {

Json object_of(const char* version, const char* kind, Json metadata) {
  return {{"apiVersion", version}, {"kind", kind}, {"metadata", std::move(metadata)}};
}

Json config_map(const JobView& job, const Accepted& accepted, const std::string& token_keys) {
  Json object =
      object_of("v1", "ConfigMap", metadata_of(job, config_map_name(job.name, accepted.revision)));
  object["metadata"]["labels"][contract::kLabelRevision] = accepted.revision;
  object["immutable"] = true;
  object["data"] = jobspec::stored_data(accepted.job, stored_texts(accepted));
  if (!token_keys.empty() && token_keys.size() <= jobspec::kTokenKeysBytesMax)
    object["data"][contract::kTokenKeysFile] = token_keys;
  return object;
}

/// Gives worker 0 a DNS name. Our agents look up no other worker, and the control plane rewrites
/// the endpoints of all selected pods whenever one of them changes. A user's program may look up
/// every worker.
Json service(const JobView& job, bool all_workers) {
  Json object = object_of("v1", "Service", metadata_of(job, shared_name(job.name)));
  Json selector = {{contract::kLabelJobName, job.name}};
  if (!all_workers) selector[contract::kLabelReplicaIndex] = "0";
  object["spec"] = {
      {"clusterIP", "None"},
      // Worker 0's address may belong to the cluster's secondary IP family.
      {"ipFamilyPolicy", "PreferDualStack"},
      {"publishNotReadyAddresses", true},
      {"selector", std::move(selector)},
      {"ports", Json::array({{{"name", "join"}, {"port", contract::kJoinPort}},
                             {{"name", "metrics"}, {"port", contract::kMetricsPort}}})}};
  return object;
}

/// Lets the pods read their own job and patch its status. The operator has the same rights, so it
/// needs neither `escalate` nor `bind`.
Json role(const JobView& job) {
  Json object =
      object_of("rbac.authorization.k8s.io/v1", "Role", metadata_of(job, shared_name(job.name)));
  const Json names = Json::array({job.name});
  object["rules"] =
      Json::array({{{"apiGroups", Json::array({contract::kGroup})},
                    {"resources", Json::array({contract::kPlural})},
                    {"resourceNames", names},
                    {"verbs", {"get", "list", "watch"}}},
                   {{"apiGroups", Json::array({contract::kGroup})},
                    {"resources", Json::array({std::string(contract::kPlural) + "/status"})},
                    {"resourceNames", names},
                    {"verbs", {"get", "patch"}}}});
  return object;
}

Json role_binding(const JobView& job, const std::string& account) {
  Json object = object_of("rbac.authorization.k8s.io/v1", "RoleBinding",
                          metadata_of(job, shared_name(job.name)));
  object["roleRef"] = {
      {"apiGroup", "rbac.authorization.k8s.io"}, {"kind", "Role"}, {"name", shared_name(job.name)}};
  object["subjects"] =
      Json::array({{{"kind", "ServiceAccount"}, {"name", account}, {"namespace", job.ns}}});
  return object;
}

/// Pods of the job may connect to each other on every port; anyone may connect to the metrics port.
/// Optionally limits what the pods may reach.
Json network_policy(const JobView& job, const std::optional<Json>& egress) {
  Json object =
      object_of("networking.k8s.io/v1", "NetworkPolicy", metadata_of(job, shared_name(job.name)));
  const Json own = {{"matchLabels", {{contract::kLabelJobName, job.name}}}};
  const Json metrics = {{"protocol", "TCP"}, {"port", contract::kMetricsPort}};
  object["spec"] = {{"podSelector", own},
                    {"policyTypes", Json::array({"Ingress"})},
                    {"ingress", Json::array({{{"from", Json::array({{{"podSelector", own}}})}},
                                             {{"ports", Json::array({metrics})}}})}};
  if (!egress) return object;
  object["spec"]["policyTypes"].push_back("Egress");
  // Policies apply after the DNS Service's address is translated, and its pods may listen on 5353
  // (OpenShift).
  Json dns = Json::array();
  for (const int port : {53, 5353})
    for (const char* protocol : {"UDP", "TCP"})
      dns.push_back({{"protocol", protocol}, {"port", port}});
  Json& rules = object["spec"]["egress"];
  rules =
      Json::array({{{"to", Json::array({{{"podSelector", own}}})}}, {{"ports", std::move(dns)}}});
  for (const Json& rule : *egress) rules.push_back(rule);
  return object;
}

}  // namespace

std::string shared_name(const std::string& job) {
  return job + "-worker";
}

std::string worker_zero_host(const JobView& job) {
  return job.name + "-worker-0." + shared_name(job.name) + "." + job.ns + ".svc";
}

std::string config_map_name(const std::string& job, const std::string& revision) {
  return job + "-config-" + revision;
}

std::string service_account_of(const jobspec::Job& job, const std::string& name) {
  const auto at = Json::json_pointer("/spec/serviceAccountName");
  const Json& pod = job.worker_template;
  if (pod.is_object() && pod.contains(at) && pod[at].is_string() &&
      !pod[at].get<std::string>().empty()) {
    return pod[at];
  }
  return shared_name(name);
}

Json metadata_of(const JobView& job, const std::string& name) {
  return {{"name", name},
          {"namespace", job.ns},
          {"labels",
           {{contract::kLabelJobName, job.name},
            {contract::kLabelManagedBy, contract::kOperatorManager}}},
          {"ownerReferences", Json::array({{{"apiVersion", jobspec::kApiVersion},
                                            {"kind", jobspec::kKind},
                                            {"name", job.name},
                                            {"uid", job.uid},
                                            {"controller", true},
                                            {"blockOwnerDeletion", true}}})}};
}

std::vector<Create> render_config(const Observed& o, const Accepted& accepted) {
  const JobView& job = *o.job;
  const std::string account = service_account_of(accepted.job, job.name);
  std::vector<Json> objects = {config_map(job, accepted, o.token_keys),
                               service(job, accepted.job.runs_user_program())};
  if (account == shared_name(job.name)) {
    Json own = object_of("v1", "ServiceAccount", metadata_of(job, account));
    own["automountServiceAccountToken"] = false;
    objects.push_back(std::move(own));
  }
  objects.push_back(role(job));
  objects.push_back(role_binding(job, account));
  if (o.settings.network_policy) objects.push_back(network_policy(job, o.settings.egress));
  std::vector<Create> creates;
  for (Json& object : objects) {
    const bool refers = object.contains("roleRef");  // the Role must exist before it can be bound
    creates.push_back({object["kind"], object["metadata"]["name"], std::move(object), refers});
  }
  return creates;
}

}  // namespace dsj::op
