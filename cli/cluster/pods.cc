#include "cli/cluster/pods.h"

#include <algorithm>

#include "common/text.h"
#include "job/contract.h"

namespace dsj::cli {
namespace {

constexpr std::chrono::seconds kLogQuiet{60};

int64_t label_number(const Json& pod, const char* name) {
  const Json* labels = find(pod, "metadata.labels");
  const auto found = labels ? labels->find(name) : Json::const_iterator();
  if (!labels || found == labels->end() || !found->is_string()) return -1;
  return text::parse_int(found->get<std::string>()).value_or(-1);
}

/// Whether the container "worker" has this state.
bool container_is(const PodRef& pod, const char* state) {
  for (const Json& status : items(pod.object, "status.containerStatuses")) {
    if (word(status, "name") == contract::kContainerName) return find(status, state) != nullptr;
  }
  return false;
}

}  // namespace

kube::ApiResult<std::vector<PodRef>> pods_of(Session& session, const std::string& job) {
  std::vector<PodRef> pods;
  const kube::ListOptions select{.label_selector =
                                     std::string(contract::kLabelJobName) + "=" + job};
  const auto listed =
      session.client.list(kube::resources::pods(), session.ns, select, [&](const Json& pod) {
        pods.push_back({.name = word(pod, "metadata.name"),
                        .worker = label_number(pod, contract::kLabelReplicaIndex),
                        .incarnation = label_number(pod, contract::kLabelIncarnation),
                        .object = pod});
      });
  if (!listed) return std::unexpected(listed.error());
  std::ranges::sort(pods, [](const PodRef& a, const PodRef& b) {
    return std::pair(a.worker, a.incarnation) < std::pair(b.worker, b.incarnation);
  });
  return pods;
}

bool has_log(const PodRef& pod) {
  return container_is(pod, "state.running") || container_is(pod, "state.terminated");
}

bool is_running(const PodRef& pod) {
  return container_is(pod, "state.running");
}

kube::ApiResult<void> read_log(Session& session, const std::string& pod, kube::LogOptions options,
                               const std::function<bool(const std::string&)>& line) {
  options.container = contract::kContainerName;
  auto lines = session.client.pod_log(session.ns, pod, options, session.cancel);
  if (!lines) return std::unexpected(lines.error());
  while (true) {
    const auto next = (*lines)->next(kLogQuiet);
    if (!next && next.error().kind == kube::NetError::Kind::Timeout) continue;
    if (!next) return std::unexpected(kube::from_net(next.error()));
    if (!*next || !line(**next)) return {};
  }
}

std::string rank_prefix(int64_t rank) {
  return "[rank " + std::to_string(rank) + "] ";
}

const char* line_of_rank(const std::string& line, const std::string& prefix) {
  return line.starts_with(prefix) ? line.c_str() + prefix.size() : nullptr;
}

}  // namespace dsj::cli
