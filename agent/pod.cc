#include "agent/pod.h"

#include <charconv>
#include <sstream>

#include "common/files/files.h"
#include "job/contract.h"
#include "job/node_health.h"
#include "job/spec/pod_policies.h"

namespace dsj::agent {
namespace {

using namespace dsj::contract;

/// An integer of at least `least`, else nullopt.
std::optional<int64_t> number_from(const std::string& text, int64_t least) {
  int64_t number = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (problem != std::errc{} || end != text.data() + text.size() || number < least) {
    return std::nullopt;
  }
  return number;
}

}  // namespace

Result<Pod> pod_from_environment(const std::function<std::string(const char*)>& get) {
  Pod pod;
  std::string problems;
  const auto wrong = [&](const std::string& what) {
    problems += (problems.empty() ? "" : "; ") + what;
  };
  const auto text = [&](const char* name, std::string& value) {
    value = get(name);
    if (value.empty()) wrong(std::string(name) + " is not set");
  };
  const auto number = [&](const char* name, int64_t least) -> int64_t {
    const auto value = number_from(get(name), least);
    if (!value) {
      wrong(std::string(name) + " is \"" + get(name) + "\", expected a whole number of at least " +
            std::to_string(least));
    }
    return value.value_or(least);
  };
  text(kEnvJobName, pod.job);
  text(kEnvNamespace, pod.ns);
  text(kEnvJobUid, pod.job_uid);
  text(kEnvWorkerZeroHost, pod.worker_zero_host);
  text(kEnvPodName, pod.name);
  text(kEnvPodIp, pod.ip);
  text(kEnvServiceAccount, pod.service_account);
  pod.worker = static_cast<int>(number(kEnvWorker, 0));
  pod.incarnation = number(kEnvIncarnation, 1);
  pod.revision = get(kEnvRevision);
  pod.authority = get(kEnvJoinAuthority);
  pod.node_health.action = jobspec::NodeHealthAction::Off;
  if (const std::string text = get(jobspec::kEnvPolicies); !text.empty()) {
    if (const auto policies = jobspec::policies_from_pod(text); policies)
      pod.node_health = policies->failure.node_health;
    else
      wrong(policies.error().to_string());
  }
  if (!get(kEnvMemoryRequest).empty()) pod.memory_request = number(kEnvMemoryRequest, 0);
  if (!get(kEnvGpus).empty()) pod.gpus = static_cast<int>(number(kEnvGpus, 0));
  pod.node = get(kEnvNode);
  if (problems.empty() && pod.name != worker_pod_name(pod.job, pod.worker, pod.incarnation)) {
    wrong("the pod's name is \"" + pod.name + "\", expected \"" +
          worker_pod_name(pod.job, pod.worker, pod.incarnation) + "\"");
  }
  if (!problems.empty()) {
    return bad_input(problems, "the pod's environment", "the operator sets it");
  }
  return pod;
}

std::string absolute_host(const std::string& host, const std::string& ns,
                          const std::string& resolv_conf) {
  const std::string services = ns + ".svc";
  if (!host.ends_with("." + services)) return host;
  std::istringstream lines(resolv_conf);
  std::string domain;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string word;
    if (!(words >> word) || word != "search") continue;
    domain.clear();  // the last search line counts
    while (words >> word) {
      while (word.ends_with('.')) word.pop_back();
      if (word.starts_with(services + ".")) domain = word.substr(services.size());
    }
  }
  return domain.empty() ? host : host + domain + ".";
}

Result<AgentConfig> pod_config(const Pod& pod, const WorkerJob& job, const std::string& scratch,
                               const std::string& programs,
                               const std::vector<std::string>& command) {
  if (pod.worker >= job.replicas) {
    return bad_input(
        "worker " + std::to_string(pod.worker) + " of " + std::to_string(job.replicas) + " workers",
        kEnvWorker);
  }
  AgentConfig config;
  config.job = job.job;
  config.job.run = pod.job_uid;
  config.replicas = job.replicas;
  config.slots = job.slots;
  config.run_dir = scratch;
  config.address = pod.ip;
  config.user_program = !command.empty();
  config.rank_command = command;
  if (command.empty()) config.rank_command = {path_join(programs, "dsj-train")};
  config.ranks_on_host = job.slots;
  config.predecessor = pod.incarnation > 1;
  config.budget.limit = job.restart_limit;
  config.operated = true;
  if (pod.node_health.action != jobspec::NodeHealthAction::Off)
    config.link_percent = static_cast<int>(pod.node_health.min_peer_bandwidth_percent);
  config.silence = Time(15'000);
  config.lease = Time(10'000);
  config.grace = job.save_timeout;
  // A user's program reports no steps, so a hang cannot be detected.
  config.stall = config.user_program ? Time(INT64_MAX / 4) : job.step_timeout;
  config.join_timeout = Time(1'800'000);  // a new node may first have to pull worker 0's image
  return config;
}

TokenRules token_rules(const Pod& pod, const std::string& issuer) {
  return {.issuer = issuer,
          .audience = kAudiencePrefix + pod.job_uid,
          .subject = "system:serviceaccount:" + pod.ns + ":" + pod.service_account};
}

}  // namespace dsj::agent
