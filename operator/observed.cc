#include "operator/observed.h"

#include "common/contract.h"
#include "operator/own_status.h"

namespace dsj::op {
namespace {

const Json kNull;

const Json& child(const Json& object, const char* name) {
  if (!object.is_object()) return kNull;
  const auto found = object.find(name);
  return found == object.end() ? kNull : *found;
}

std::string text(const Json& object, const char* name) {
  const Json& value = child(object, name);
  return value.is_string() ? value.get<std::string>() : "";
}

std::optional<int64_t> whole(const Json& object, const char* name) {
  const Json& value = child(object, name);
  return value.is_number_integer() ? std::optional(value.get<int64_t>()) : std::nullopt;
}

std::optional<int64_t> number_of(const std::string& digits) {
  if (digits.empty() || digits.size() > 18 ||
      digits.find_first_not_of("0123456789") != std::string::npos) {
    return std::nullopt;
  }
  return std::stoll(digits);
}

/// Cuts long texts of a status or an agent: a status must stay small.
std::string shortened(std::string text, size_t most) {
  if (text.size() > most) text = "..." + text.substr(text.size() - most);
  return text;
}

Termination termination_of(const Json& state) {
  Termination end;
  end.exit_code = static_cast<int>(whole(state, "exitCode").value_or(-1));
  end.reason = text(state, "reason");
  const std::string words = text(state, "message");
  const Json message = Json::parse(words, nullptr, false);
  if (!message.is_object()) {
    end.message = shortened(words, 1000);
    return end;
  }
  if (const std::string reason = text(message, "reason"); !reason.empty()) end.reason = reason;
  end.message = shortened(text(message, "message"), 1000);
  end.last_words = shortened(text(message, "lastWords"), 1000);
  end.step = whole(message, "step");
  end.attempt = whole(message, "attempt");
  if (const auto rank = whole(message, "rank")) end.rank = static_cast<int>(*rank);
  if (const auto code = whole(message, "exitCode")) end.rank_exit_code = static_cast<int>(*code);
  if (const auto number = whole(message, "signal")) end.rank_signal = static_cast<int>(*number);
  return end;
}

void read_conditions(const Json& status, PodView& pod) {
  for (const Json& condition : child(status, "conditions")) {
    const std::string type = text(condition, "type");
    const bool yes = text(condition, "status") == "True";
    if (yes) pod.conditions.push_back(type);
    if (type != "PodScheduled") continue;
    pod.scheduled = yes;
    if (!yes && text(condition, "reason") == "Unschedulable") {
      pod.unscheduled = text(condition, "message");
    }
  }
}

void read_container(const Json& container, bool ours, PodView& pod) {
  const Json& state = child(container, "state");
  const Json& waiting = child(state, "waiting");
  const std::string reason = text(waiting, "reason");
  if (!reason.empty() && reason != "ContainerCreating" && reason != "PodInitializing") {
    pod.waiting_reason = reason;
    pod.waiting_message = text(waiting, "message");
  }
  if (!ours) return;
  pod.running = child(state, "running").is_object();
  if (const Json& ended = child(state, "terminated"); ended.is_object()) {
    pod.termination = termination_of(ended);
  }
}

}  // namespace

bool is_done(const PodView& pod) {
  return pod.phase == PodView::Phase::Succeeded && pod.termination &&
         pod.termination->exit_code == contract::kExitDone &&
         pod.termination->reason == contract::kReasonCompleted;
}

bool is_preempted(const PodView& pod) {
  return pod.ended() && pod.termination && pod.termination->exit_code == contract::kExitPreempted;
}

std::string label_of(const Json& object, const char* name) {
  return text(child(child(object, "metadata"), "labels"), name);
}

std::string owner_of(const Json& object) {
  for (const Json& owner : child(child(object, "metadata"), "ownerReferences")) {
    if (child(owner, "controller") == true) return text(owner, "uid");
  }
  return {};
}

JobView job_view(const Json& object) {
  const Json& metadata = child(object, "metadata");
  const Json& status = child(object, "status");
  JobView job{.ns = text(metadata, "namespace"),
              .name = text(metadata, "name"),
              .uid = text(metadata, "uid"),
              .resource_version = text(metadata, "resourceVersion"),
              .generation = whole(metadata, "generation").value_or(0),
              .deleting = metadata.contains("deletionTimestamp"),
              .spec = child(object, "spec"),
              .own_status = own_part(status)};
  for (const Json& finalizer : child(metadata, "finalizers"))
    job.orphaning |= finalizer == "orphan";
  const Json& training = child(status, "training");
  job.agent.attempt = whole(training, "attempt").value_or(0);
  job.agent.stop_step = whole(training, "stopStep");
  job.agent.updated = time_from_text(text(training, "lastUpdatedTime"));
  job.agent.last_failure = child(training, "lastFailure");
  const auto total = whole(training, "totalSteps");
  job.agent.finished =
      total && whole(training, "step") == total && !text(training, "modelPath").empty();
  job.agent.saved_step = whole(child(child(status, "checkpoint"), "lastSaved"), "step");
  return job;
}

std::optional<PodView> pod_view(const Json& object) {
  const Json& metadata = child(object, "metadata");
  const auto worker = number_of(label_of(object, contract::kLabelReplicaIndex));
  const auto incarnation = number_of(label_of(object, contract::kLabelIncarnation));
  if (!worker || *worker > 1'000'000 || !incarnation) return std::nullopt;
  PodView pod{.name = text(metadata, "name"),
              .uid = text(metadata, "uid"),
              .owner_uid = owner_of(object),
              .resource_version = text(metadata, "resourceVersion"),
              .node = text(child(object, "spec"), "nodeName"),
              .revision = label_of(object, contract::kLabelRevision),
              .gang = label_of(object, contract::kLabelGang),
              .worker = static_cast<int>(*worker),
              .incarnation = *incarnation};
  const std::string made_at = text(child(metadata, "annotations"), contract::kAnnotationRestarts);
  pod.restarts = number_of(made_at).value_or(0);
  pod.created = time_from_text(text(metadata, "creationTimestamp"));
  if (const std::string deleting = text(metadata, "deletionTimestamp"); !deleting.empty()) {
    pod.deleting_from = time_from_text(deleting).value_or(Time{});
  }
  const Json& status = child(object, "status");
  const std::string phase = text(status, "phase");
  pod.phase = phase == "Running"     ? PodView::Phase::Running
              : phase == "Succeeded" ? PodView::Phase::Succeeded
              : phase == "Failed"    ? PodView::Phase::Failed
                                     : PodView::Phase::Pending;
  pod.gated = !child(child(object, "spec"), "schedulingGates").empty();
  pod.reason = text(status, "reason");
  pod.message = text(status, "message");
  read_conditions(status, pod);
  for (const Json& container : child(status, "initContainerStatuses")) {
    read_container(container, false, pod);
  }
  for (const Json& container : child(status, "containerStatuses")) {
    read_container(container, text(container, "name") == contract::kContainerName, pod);
  }
  if (!pod.node.empty()) pod.scheduled = true;
  return pod;
}

ChildView child_view(const Json& object) {
  const Json& metadata = child(object, "metadata");
  const Json& data = child(object, "data");
  return {.kind = text(object, "kind"),
          .name = text(metadata, "name"),
          .uid = text(metadata, "uid"),
          .owner_uid = owner_of(object),
          .revision = label_of(object, contract::kLabelRevision),
          .resource_version = text(metadata, "resourceVersion"),
          .spec_text = text(data, kSpecKey),
          .config_text = text(data, kConfigKey)};
}

NodeView node_view(const Json& object) {
  NodeView node;
  for (const Json& condition : child(child(object, "status"), "conditions")) {
    if (text(condition, "type") != "Ready") continue;
    node.ready = text(condition, "status") == "True";
    node.since = time_from_text(text(condition, "lastTransitionTime")).value_or(Time{});
  }
  return node;
}

}  // namespace dsj::op
