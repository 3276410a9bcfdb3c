#include "job/spec/cluster_spec.h"

#include "common/json.h"
#include "job/spec/elastic.h"

namespace dsj::jobspec {

using dsconfig::Finding;
using nlohmann::json;

json with_queue(json spec, const std::string& queue) {
  if (queue.empty() || !spec.is_object()) return spec;
  json& policy = spec["runPolicy"];
  if (policy.is_null()) policy = json::object();
  if (policy.is_object() &&
      (!policy.contains("schedulingPolicy") || policy["schedulingPolicy"].is_null()))
    policy["schedulingPolicy"] = {{"scheduler", "kueue"}, {"queue", queue}};
  return spec;
}

std::optional<Finding> queue_contradiction(const Scheduling& policy, const std::string& queue) {
  if (queue.empty() || (policy.scheduler == GangScheduler::Kueue && policy.queue == queue))
    return std::nullopt;
  const std::string found = policy.scheduler == GangScheduler::Kueue
                                ? "the queue is \"" + policy.queue + "\""
                                : "the scheduler is not kueue";
  return Finding{Finding::Severity::Error, "spec.runPolicy.schedulingPolicy",
                 found + ", and the label " + kQueueLabel + " says \"" + queue + "\"",
                 "remove one of the two"};
}

std::string other_controller(const json& spec) {
  const std::string name = json_text(spec, "managedBy");
  return name == kOwnController ? std::string() : name;
}

bool is_controller_name(const std::string& text) {
  const size_t slash = text.find('/');
  if (slash == std::string::npos || slash == 0 || slash + 1 == text.size()) return false;
  static constexpr char kDomain[] = "abcdefghijklmnopqrstuvwxyz0123456789-.";
  static constexpr char kPath[] =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789/-._~%!$&'()*+,;=:";
  const std::string domain = text.substr(0, slash);
  for (const char* broken : {"..", ".-", "-."})
    if (domain.contains(broken)) return false;
  return domain.find_first_not_of(kDomain) == std::string::npos &&
         std::string("-.").find(domain.front()) == std::string::npos &&
         std::string("-.").find(domain.back()) == std::string::npos &&
         text.find_first_not_of(kPath, slash) == std::string::npos;
}

ClusterSpec check_cluster_spec(const std::string& name, const json& spec,
                               const std::optional<std::string>& config_text,
                               std::optional<bool> read_only_root) {
  ClusterSpec checked;
  auto job = read_cluster_manifest({{"apiVersion", kApiVersion},
                                    {"kind", kKind},
                                    {"metadata", {{"name", name}}},
                                    {"spec", spec}},
                                   read_only_root);
  if (!job) {
    checked.resolution.findings.push_back(
        {Finding::Severity::Error, "", job.error().to_string(), ""});
    return checked;
  }
  checked.job = std::move(*job);
  if (checked.job.ds_config_map) {
    const std::string source = "configmap " + checked.job.ds_config_map->name;
    checked.config_known = config_text.has_value();
    if (config_text) {
      if (auto status = set_ds_config(checked.job, *config_text, source); !status) {
        checked.job.findings.push_back({Finding::Severity::Error, "spec.deepspeed.configFrom",
                                        status.error().to_string(), ""});
        checked.config_known = false;
      }
    }
  }
  if (checked.config_known) {
    checked.resolution = resolve(checked.job, {});
    if (const Job& job = checked.job; job.policies.elastic) {
      checked.sizes = elastic_sizes({*job.policies.elastic, job.replicas, job.slots_per_worker,
                                     job.ds_config, job.training})
                          .workers;
    }
  } else {
    checked.resolution.findings = checked.job.findings;
  }
  return checked;
}

std::string to_sentence(const Finding& finding) {
  std::string text = finding.path.empty() ? "" : finding.path + ": ";
  text += finding.message;
  if (!finding.hint.empty()) text += " (" + finding.hint + ")";
  return text;
}

}  // namespace dsj::jobspec
