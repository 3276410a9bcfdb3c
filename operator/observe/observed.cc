#include "operator/observe/observed.h"

#include <algorithm>
#include <limits>
#include <set>

#include "common/cut_text.h"
#include "job/contract.h"
#include "job/failure_reasons.h"
#include "job/node_health.h"
#include "job/report/field_value.h"
#include "job/report/termination_message.h"
#include "job/spec/cluster_spec.h"
#include "job/spec/stored_job.h"
#include "operator/observe/fetch_status.h"
#include "operator/observe/kueue.h"
#include "operator/observe/own_status.h"

namespace dsj::op {
namespace {

std::optional<int64_t> number_of(const std::string& digits) {
  if (digits.empty() || digits.size() > 18 ||
      digits.find_first_not_of("0123456789") != std::string::npos) {
    return std::nullopt;
  }
  return std::stoll(digits);
}

/// The parts of a name that worker_pod_name() makes.
struct PodPlace {
  int worker = 0;
  int64_t incarnation = 0;
};

std::optional<PodPlace> worker_pod_place(const std::string& name) {
  const size_t last = name.rfind('-');
  if (last == std::string::npos || last == 0) return std::nullopt;
  const size_t before = name.rfind('-', last - 1);
  if (before == std::string::npos || !name.substr(0, before).ends_with("-worker"))
    return std::nullopt;
  const auto worker = number_of(name.substr(before + 1, last - before - 1));
  const auto incarnation = number_of(name.substr(last + 1));
  if (!worker || *worker > 1'000'000 || !incarnation) return std::nullopt;
  return PodPlace{static_cast<int>(*worker), *incarnation};
}

/// At most this many conditions or finalizers are read.
constexpr size_t kItemsMax = 64;

/// Cuts a long text to `most` bytes, because a status must stay small. Keeps the end, which tells
/// the cause.
std::string shortened(const std::string& text, size_t most) {
  return text.size() > most ? "..." + text::last_bytes(text, most - 3) : text;
}

/// A message of a scheduler or a kubelet, cut. Keeps the beginning, which tells the cause.
std::string sentence_of(const Json& object, const char* name) {
  return text::first_bytes(json_text(object, name), kSentenceBytesMax);
}

std::string name_of(const Json& object, const char* name) {
  return text::first_bytes(json_text(object, name), kNameBytesMax);
}

int small(int64_t number) {
  return static_cast<int>(std::clamp<int64_t>(number, -1, std::numeric_limits<int>::max()));
}

Termination termination_of(const Json& state) {
  Termination end;
  end.exit_code = small(json_whole(state, "exitCode").value_or(-1));
  const std::string kubelets = json_text(state, "reason");
  if (!kubelets.empty()) end.reason = reason_of_agent(kubelets);
  const std::string words = json_text(state, "message");
  const auto told = report::termination_message_from_text(words);
  if (!told) {
    // A kubelet reports Completed for every exit code 0. Only the agent knows.
    if (end.reason == contract::kReasonCompleted) end.reason = "NoLastWords";
    end.message = shortened(words, kSentenceBytesMax);
    return end;
  }
  if (!told->reason.empty()) end.reason = reason_of_agent(told->reason);
  end.message = shortened(told->message, kSentenceBytesMax);
  end.last_words = shortened(told->last_words.value_or(""), kSentenceBytesMax);
  if (told->step) end.step = counted(*told->step);
  if (told->attempt) end.attempt = counted(*told->attempt);
  if (told->rank) end.rank = small(*told->rank);
  if (told->exit_code) end.rank_exit_code = small(*told->exit_code);
  if (told->signal) end.rank_signal = small(*told->signal);
  return end;
}

/// The image of the container that runs or installs the agent.
std::string agents_image(const Json& spec) {
  for (const Json& init : json_child(spec, "initContainers"))
    if (json_text(init, "name") == kAgentContainer) return json_text(init, "image");
  for (const Json& container : json_child(spec, "containers"))
    if (json_text(container, "name") == contract::kContainerName)
      return json_text(container, "image");
  return {};
}

/// A variable of the worker's container. Nobody can change it after the pod was created.
std::string env_of(const Json& spec, const char* name) {
  for (const Json& container : json_child(spec, "containers")) {
    if (json_text(container, "name") != contract::kContainerName) continue;
    for (const Json& entry : json_child(container, "env"))
      if (json_text(entry, "name") == name) return json_text(entry, "value");
  }
  return {};
}

void read_conditions(const Json& status, PodView& pod) {
  for (const Json& condition : json_child(status, "conditions")) {
    const std::string type = name_of(condition, "type");
    const bool yes = json_text(condition, "status") == "True";
    if (yes && pod.conditions.size() < kItemsMax) pod.conditions.push_back(type);
    if (type != "PodScheduled") continue;
    pod.scheduled = yes;
    if (!yes && json_text(condition, "reason") == "Unschedulable") {
      pod.unscheduled = sentence_of(condition, "message");
    }
  }
}

void read_container(const Json& container, bool ours, PodView& pod) {
  const Json& state = json_child(container, "state");
  const Json& waiting = json_child(state, "waiting");
  const std::string reason = name_of(waiting, "reason");
  if (!reason.empty() && reason != "ContainerCreating" && reason != "PodInitializing") {
    pod.waiting_reason = reason;
    pod.waiting_message = sentence_of(waiting, "message");
  }
  if (!ours) return;
  pod.running = json_child(state, "running").is_object();
  if (const Json& ended = json_child(state, "terminated"); ended.is_object()) {
    pod.termination = termination_of(ended);
  }
}

/// True if a container beside the worker has not ended. Restartable init containers do not count:
/// the kubelet ends them after the other containers.
bool another_runs(const Json& status) {
  return std::ranges::any_of(json_child(status, "containerStatuses"), [](const Json& container) {
    return json_text(container, "name") != contract::kContainerName &&
           !json_child(json_child(container, "state"), "terminated").is_object();
  });
}

/// Scheduling gates that belong to no known queue. Their names tell who removes them.
std::string foreign_gates_of(const Json& gates) {
  std::string names;
  for (const Json& gate : gates) {
    const std::string name = name_of(gate, "name");
    if (name.starts_with("kueue.x-k8s.io/") || name.starts_with("scheduling.volcano.sh/")) continue;
    names += (names.empty() ? "" : ", ") + name;
  }
  return names;
}

/// Why a pod failed before its worker ran: the init container with a nonzero exit code. Ignores
/// native sidecars, which the kubelet ends in this case. Empty if there is none.
std::string failed_init(const Json& spec, const Json& statuses) {
  std::set<std::string> sidecars;
  for (const Json& container : json_child(spec, "initContainers"))
    if (json_text(container, "restartPolicy") == "Always")
      sidecars.insert(json_text(container, "name"));
  for (const Json& status : statuses) {
    const Json& ended = json_child(json_child(status, "state"), "terminated");
    const Json& code = json_child(ended, "exitCode");
    if (!code.is_number_integer() || code == 0 || sidecars.contains(json_text(status, "name")))
      continue;
    std::string why =
        "init container " + name_of(status, "name") + " ended with exit code " + code.dump();
    if (const std::string reason = name_of(ended, "reason"); !reason.empty() && reason != "Error")
      why += " (" + reason + ")";
    if (const std::string words = sentence_of(ended, "message"); !words.empty())
      why += ": " + words;
    return why;
  }
  return "";
}

}  // namespace

bool read_only_root(const Settings& settings) {
  return json_flag(settings.container_security, "readOnlyRootFilesystem");
}

bool is_done(const PodView& pod) {
  return pod.phase == PodView::Phase::Succeeded && pod.termination &&
         pod.termination->exit_code == contract::kExitDone &&
         pod.termination->reason == contract::kReasonCompleted;
}

bool is_preempted(const PodView& pod) {
  return pod.ended() && pod.termination && pod.termination->exit_code == contract::kExitPreempted;
}

bool found_unfit(const PodView& pod) {
  return pod.ended() && pod.termination &&
         pod.termination->exit_code == contract::kExitUnhealthyNode &&
         pod.termination->reason == contract::kReasonUnhealthyNode;
}

bool lacked_key(const PodView& pod) {
  return pod.ended() && pod.termination && pod.termination->exit_code == kExitKeyMissing &&
         pod.termination->reason == kReasonKeyMissing;
}

bool is_disruption(const PodView& pod) {
  return pod.reason == "Preempting" || pod.reason == "NodeLost" || pod.reason == "NodeShutdown" ||
         pod.reason == "Terminated" || std::ranges::count(pod.conditions, "DisruptionTarget") > 0 ||
         std::ranges::count(pod.conditions, kKueueTermination) > 0;
}

bool ended_unseen(const PodView& pod) {
  if (pod.phase != PodView::Phase::Failed || !pod.termination || pod.termination->attempt)
    return false;
  const Termination& end = *pod.termination;
  return end.reason == "ContainerStatusUnknown" ||
         (end.reason == "Unknown" && end.exit_code == 255);
}

bool is_rejected(const PodView& pod) {
  static constexpr std::string_view kReasons[] = {"UnexpectedAdmissionError",
                                                  "NodeAffinity",
                                                  "TopologyAffinityError",
                                                  "NodePorts",
                                                  "AppArmor",
                                                  "InvalidNodeInfo",
                                                  "SysctlForbidden",
                                                  "PodOSNotSupported"};
  if (pod.phase != PodView::Phase::Failed || pod.termination) return false;
  return pod.reason.starts_with("OutOf") || std::ranges::count(kReasons, pod.reason) > 0 ||
         pod.message.starts_with("Pod was rejected");
}

std::string label_of(const Json& object, const char* name) {
  return json_text(json_child(json_child(object, "metadata"), "labels"), name);
}

namespace {

/// The controlling owner's reference; null if there is none.
const Json* controller_of(const Json& object) {
  for (const Json& owner : json_child(json_child(object, "metadata"), "ownerReferences")) {
    if (json_child(owner, "controller") == true) return &owner;
  }
  return nullptr;
}

const Json* job_that_controls(const Json& object) {
  const Json* owner = controller_of(object);
  if (!owner || json_text(*owner, "kind") != jobspec::kKind) return nullptr;
  const std::string group = std::string(contract::kGroup) + "/";
  return json_text(*owner, "apiVersion").starts_with(group) ? owner : nullptr;
}

/// Whether it has its job's name and the operator's as labels.
bool is_labelled(const Json& object) {
  return label_of(object, contract::kLabelJobName) == job_of(object) &&
         label_of(object, contract::kLabelManagedBy) == contract::kOperatorManager;
}

}  // namespace

std::string job_of(const Json& object) {
  const Json* owner = job_that_controls(object);
  return owner ? json_text(*owner, "name") : label_of(object, contract::kLabelJobName);
}

std::string owner_of(const Json& object) {
  const Json* owner = job_that_controls(object);
  return owner ? json_text(*owner, "uid") : "";
}

bool has_controller(const Json& object) {
  return controller_of(object) != nullptr;
}

std::vector<report::FailureRecord> agents_failures(const Json& training) {
  std::vector<report::FailureRecord> failures;
  const auto read = [&](const Json& told) {
    auto record = failure_record(told);
    if (!record) return;
    record->reason = reason_of_agent(record->reason);
    failures.push_back(std::move(*record));
  };
  using report::Training;
  const Json& earlier = json_child(training, report::status_name<&Training::earlier_failures>());
  const size_t size = earlier.is_array() ? earlier.size() : 0;
  for (size_t i = size - std::min(size, report::kEarlierFailuresMax); i < size; ++i)
    read(earlier[i]);
  read(json_child(training, report::status_name<&Training::last_failure>()));
  return failures;
}

JobView job_view(const Json& object) {
  const Json& metadata = json_child(object, "metadata");
  const Json& status = json_child(object, "status");
  JobView job{.ns = json_text(metadata, "namespace"),
              .name = json_text(metadata, "name"),
              .uid = json_text(metadata, "uid"),
              .resource_version = json_text(metadata, "resourceVersion"),
              .generation = counted(json_whole(metadata, "generation").value_or(0)),
              .deleting = metadata.contains("deletionTimestamp"),
              .queue_label = label_of(object, jobspec::kQueueLabel),
              .own_status = own_part(status)};
  job.spec = jobspec::with_queue(json_child(object, "spec"), job.queue_label);
  for (const Json& finalizer : json_child(metadata, "finalizers"))
    job.orphaning |= finalizer == "orphan";
  const Json& training = json_child(status, report::kTraining);
  const auto bounded = [](const std::optional<int64_t>& number) {
    return number ? std::optional(counted(*number)) : std::nullopt;
  };
  job.agent.attempt = std::max<int64_t>(
      0, counted(report::field_value<&report::Attempt::attempt>(training).value_or(0)));
  job.agent.stop_step = bounded(report::field_value<&report::Training::stop_step>(training));
  job.agent.updated =
      time_from_text(report::field_value<&report::Training::updated>(training).value_or(""));
  job.agent.failures = agents_failures(training);
  const auto total = report::field_value<&report::Resolved::total_steps>(training);
  job.agent.finished = total && report::field_value<&report::Training::step>(training) == total &&
                       !report::field_value<&report::Exported::path>(training).value_or("").empty();
  job.agent.stragglers = shortened(
      report::field_value<&report::Stragglers::who>(training).value_or(""), kSentenceBytesMax);
  const Json& checkpoint = json_child(status, report::kCheckpoint);
  job.agent.saved_step = bounded(
      report::field_value<&report::Checkpoint::step>(json_child(checkpoint, report::kLastSaved)));
  const Json& damaged = json_child(checkpoint, report::kLastDamaged);
  job.agent.damaged_attempt =
      counted(report::field_value<&report::Damaged::attempt>(damaged).value_or(0));
  job.agent.damaged = text::first_bytes(
      report::field_value<&report::Damage::message>(damaged).value_or(""), report::kDamageBytesMax);
  return job;
}

std::optional<PodView> pod_view(const Json& object) {
  const Json& metadata = json_child(object, "metadata");
  const std::string name = json_text(metadata, "name");
  // Anyone who may patch a pod may change its labels, but not its name. The next pod's name must
  // differ from it.
  const auto place = worker_pod_place(name);
  if (!place) return std::nullopt;
  PodView pod{
      .name = name,
      .uid = json_text(metadata, "uid"),
      .owner_uid = owner_of(object),
      .resource_version = json_text(metadata, "resourceVersion"),
      .node = json_text(json_child(object, "spec"), "nodeName"),
      .revision = label_of(object, contract::kLabelRevision),
      .gang = label_of(object, contract::kLabelGang),
      .image = agents_image(json_child(object, "spec")),
      .run = number_of(env_of(json_child(object, "spec"), contract::kEnvJoinRun)).value_or(0),
      .authority = env_of(json_child(object, "spec"), contract::kEnvJoinAuthority),
      .worker = place->worker,
      .incarnation = place->incarnation};
  const std::string made_at =
      json_text(json_child(metadata, "annotations"), contract::kAnnotationRestarts);
  pod.restarts = number_of(made_at).value_or(0);
  pod.avoids = json_text(json_child(metadata, "annotations"), contract::kAnnotationAvoids);
  pod.account = json_text(json_child(metadata, "annotations"), kAnnotationAccount);
  for (const Json& finalizer : json_child(metadata, "finalizers"))
    if (finalizer.is_string() && pod.finalizers.size() < kItemsMax)
      pod.finalizers.push_back(finalizer.get<std::string>());
  pod.group_over = json_text(json_child(metadata, "annotations"), kKueueRetriable) == "false";
  pod.created = time_from_text(json_text(metadata, "creationTimestamp"));
  if (const std::string deleting = json_text(metadata, "deletionTimestamp"); !deleting.empty()) {
    pod.deleting_from = time_from_text(deleting).value_or(Time{});
  }
  const Json& status = json_child(object, "status");
  const std::string phase = json_text(status, "phase");
  pod.phase = phase == "Running"     ? PodView::Phase::Running
              : phase == "Succeeded" ? PodView::Phase::Succeeded
              : phase == "Failed"    ? PodView::Phase::Failed
                                     : PodView::Phase::Pending;
  const Json& gates = json_child(json_child(object, "spec"), "schedulingGates");
  pod.gated = !gates.empty();
  pod.foreign_gates = foreign_gates_of(gates);
  pod.reason = name_of(status, "reason");
  pod.message = sentence_of(status, "message");
  read_conditions(status, pod);
  for (const Json& container : json_child(status, "initContainerStatuses")) {
    read_container(container, false, pod);
  }
  for (const Json& container : json_child(status, "containerStatuses")) {
    read_container(container, json_text(container, "name") == contract::kContainerName, pod);
  }
  if (pod.termination) {
    pod.lingers = !pod.ended() && another_runs(status);
    pod.phase = pod.termination->exit_code == contract::kExitDone ? PodView::Phase::Succeeded
                                                                  : PodView::Phase::Failed;
  }
  const Json& inits = json_child(status, "initContainerStatuses");
  if (const auto failed = failed_fetch(inits); failed && pod.ended()) {
    pod.termination = Termination{.exit_code = failed->exit_code,
                                  .reason = kInitializerFailed,
                                  .message = failed->message,
                                  .last_words = failed->last_words};
  } else if (const std::string text = fetching_text(inits);
             !text.empty() && !pod.ended() && pod.waiting_reason.empty()) {
    pod.waiting_reason = kFetching;
    pod.waiting_message = text;
  }
  if (pod.ended() && !pod.termination && pod.message.empty())
    pod.message = failed_init(json_child(object, "spec"), inits);
  if (!pod.node.empty()) pod.scheduled = true;
  pod.labelled = is_labelled(object) &&
                 label_of(object, contract::kLabelReplicaIndex) == std::to_string(pod.worker);
  return pod;
}

std::string words_of(const std::vector<Json>& warnings, Time now) {
  std::string words;
  Time newest = now - kWordsAge;
  for (const Json& warning : warnings) {
    const std::string reason = name_of(warning, "reason");
    if (reason == "FailedScheduling") continue;
    Time told{};
    for (const std::string& text :
         {json_text(json_child(warning, "series"), "lastObservedTime"),
          json_text(warning, "eventTime"), json_text(warning, "deprecatedLastTimestamp"),
          json_text(json_child(warning, "metadata"), "creationTimestamp")})
      told = std::max(told, time_from_text(text).value_or(Time{}));
    if (told <= newest) continue;
    newest = told;
    words = reason + ": " + sentence_of(warning, "note");
  }
  return words;
}

ChildView child_view(const Json& object) {
  const Json& metadata = json_child(object, "metadata");
  const Json& data = json_child(object, "data");
  return {.kind = json_text(object, "kind"),
          .name = json_text(metadata, "name"),
          .uid = json_text(metadata, "uid"),
          .owner_uid = owner_of(object),
          .revision = label_of(object, contract::kLabelRevision),
          .resource_version = json_text(metadata, "resourceVersion"),
          .spec_text = json_text(data, jobspec::kStoredSpec),
          .config_text = json_text(data, kDsConfigKey),
          .template_text = json_text(data, jobspec::kStoredTemplate),
          .labelled = is_labelled(object),
          .key_set = label_of(object, contract::kLabelKeys),
          .created = time_from_text(json_text(metadata, "creationTimestamp"))};
}

NodeView node_view(const Json& object) {
  NodeView node;
  for (const Json& condition : json_child(json_child(object, "status"), "conditions")) {
    if (json_text(condition, "type") != "Ready") continue;
    node.ready = json_text(condition, "status") == "True";
    node.since = time_from_text(json_text(condition, "lastTransitionTime")).value_or(Time{});
  }
  return node;
}

}  // namespace dsj::op
