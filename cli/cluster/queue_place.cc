#include "cli/cluster/queue_place.h"

#include <algorithm>

#include "job/contract.h"

namespace dsj::cli {
namespace {

/// The pod group of the newest pods; empty if none has one.
std::string group_of(const std::vector<PodRef>& pods) {
  std::string group;
  for (const PodRef& pod : pods) {
    const Json* labels = find(pod.object, "metadata.labels");
    if (labels && labels->contains(contract::kLabelGang) &&
        (*labels)[contract::kLabelGang].is_string())
      group = (*labels)[contract::kLabelGang].get<std::string>();
  }
  return group;
}

bool all_have_nodes(const std::vector<PodRef>& pods) {
  return !pods.empty() && std::ranges::all_of(pods, [](const PodRef& pod) {
    return !word(pod.object, "spec.nodeName").empty();
  });
}

/// The message of the condition `type` with `status`; empty if there is none.
std::string complaint(const Json& object, const std::string& type, const char* status) {
  for (const Json& one : items(object, "status.conditions"))
    if (word(one, "type") == type && word(one, "status") == status) return word(one, "message");
  return {};
}

/// The API versions of Kueue's resources, newest first.
constexpr const char* kKueueVersions[] = {"v1beta2", "v1beta1"};

/// The pending workloads of a LocalQueue in order, a subresource of the queue.
kube::Resource pending_in(const std::string& queue, const char* version) {
  return {"visibility.kueue.x-k8s.io", version,
          "localqueues/" + kube::escape(queue) + "/pendingworkloads", "PendingWorkload"};
}

std::string before(int64_t count) {
  return count == 1 ? "1 job" : std::to_string(count) + " jobs";
}

/// Kueue gives the Workload of a pod group the group's name.
std::string place_in_kueue(Session& session, const std::string& queue, const std::string& group) {
  std::string place;
  kube::ApiResult<std::string> listed;
  for (const char* version : kKueueVersions) {
    listed = session.client.list(pending_in(queue, version), session.ns, {}, [&](const Json& one) {
      if (word(one, "metadata.name") != group) return;
      place = before(whole(one, "positionInLocalQueue")) + " before it, " +
              before(whole(one, "positionInClusterQueue")) + " in the ClusterQueue";
    });
    if (listed || listed.error().kind != kube::ApiError::Kind::NotFound) break;
  }
  if (!listed)
    return "the place in it cannot be read (VisibilityOnDemand): " + listed.error().to_string();
  return place.empty() ? "not among the pending workloads" : place;
}

std::string in_kueue(Session& session, const std::string& queue, const std::string& group) {
  std::string text = "LocalQueue " + queue + ": " + place_in_kueue(session, queue, group);
  for (const char* version : kKueueVersions) {
    const auto workload =
        session.client.get({"kueue.x-k8s.io", version, "workloads", "Workload"}, session.ns, group);
    if (!workload) continue;
    const std::string why = complaint(*workload, "QuotaReserved", "False");
    return why.empty() ? text : text + "; " + why;
  }
  return text;
}

/// Volcano publishes no order; its queue has only counts.
std::string in_volcano(Session& session, const std::string& group) {
  static constexpr char kGroup[] = "scheduling.volcano.sh";
  const auto found =
      session.client.get({kGroup, "v1beta1", "podgroups", "PodGroup"}, session.ns, group);
  if (!found) return "PodGroup " + group + ": " + found.error().to_string();
  const std::string asked = word(*found, "spec.queue");
  const std::string queue = asked.empty() ? "default" : asked;
  std::string text = "Volcano's " + queue + ": the group is " + word(*found, "status.phase");
  const auto numbers = session.client.get({kGroup, "v1beta1", "queues", "Queue", false}, "", queue);
  if (numbers)
    text += ", with " + std::to_string(whole(*numbers, "status.pending")) + " Pending and " +
            std::to_string(whole(*numbers, "status.inqueue")) + " Inqueue in the queue";
  const std::string why = complaint(*found, "Unschedulable", "True");
  return why.empty() ? text : text + "; " + why;
}

}  // namespace

std::string queue_place(Session& session, const Json& job, const std::vector<PodRef>& pods) {
  const std::string scheduler = word(job, "spec.runPolicy.schedulingPolicy.scheduler");
  const std::string group = group_of(pods);
  if (scheduler.empty() || group.empty() || all_have_nodes(pods)) return {};
  if (scheduler == "volcano") return in_volcano(session, group);
  return in_kueue(session, word(job, "spec.runPolicy.schedulingPolicy.queue"), group);
}

}  // namespace dsj::cli
