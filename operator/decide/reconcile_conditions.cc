// Sets the conditions from what the pass observed.
#include <algorithm>

#include "common/json.h"
#include "operator/decide/fetching.h"
#include "operator/decide/pass.h"
#include "operator/observe/pace.h"

namespace dsj::op {
namespace {

bool cannot_start(const std::string& reason) {
  return reason == "ErrImagePull" || reason == "ImagePullBackOff" || reason == "InvalidImageName" ||
         reason == "ErrImageNeverPull";
}

/// How long a pod may give no information before its events are queried, and how often they are.
constexpr Seconds kSilence{20}, kAskAgain{30};

/// It has a node but no running container, and no reason for that.
bool is_silent(const PodView& pod) {
  return pod.phase == PodView::Phase::Pending && pod.scheduled && !pod.deleting_from &&
         pod.waiting_reason.empty();
}

/// Stores the result of data_ready(), or removes the condition if the job has no initializers.
void note_data(const std::optional<Condition>& found, int64_t generation, Time now,
               Conditions& conditions) {
  if (!found) {
    std::erase_if(conditions, [](const Condition& one) { return one.type == kDataReady; });
    return;
  }
  Condition wanted = *found;
  wanted.observed_generation = generation;
  wanted.since = now;
  set_condition(conditions, std::move(wanted));
}

}  // namespace

/// Requests events of pods that are silent for a while. Returns the first such pod with a known
/// event, and the event's text.
std::pair<const PodView*, std::string> Pass::silent_pod() {
  std::pair<const PodView*, std::string> first{nullptr, ""};
  std::vector<std::string> silent;
  for (const Slot& slot : slots_) {
    const PodView* pod = slot.newest;
    if (!pod || !is_silent(*pod)) continue;
    const Time from = pod->created.value_or(now_) + kSilence;
    if (now_ < from) {
      due(from);
      continue;
    }
    if (silent.size() < kPodsAskedAbout) silent.push_back(pod->uid);
    const auto words = o_.words.of.find(pod->uid);
    if (!first.first && words != o_.words.of.end() && !words->second.empty())
      first = {pod, words->second};
  }
  if (silent.empty()) return first;
  const bool new_one = std::ranges::any_of(
      silent, [&](const std::string& uid) { return !o_.words.of.contains(uid); });
  if (new_one || now_ >= o_.words.read + kAskAgain) plan_.ask = std::move(silent);
  due((plan_.ask.empty() ? o_.words.read : now_) + kAskAgain);
  return first;
}

/// Describes a pod without a node on which no scheduler has reported for a while; empty if there is
/// none.
std::string Pass::unheard() {
  for (const Slot& slot : slots_) {
    const PodView* pod = slot.newest;
    if (!pod || pod->ended() || pod->scheduled || pod->gated || !pod->unscheduled.empty()) continue;
    const Time from = pod->created.value_or(now_) + kSilence;
    if (now_ < from) {
      due(from);
      continue;
    }
    const std::string name = json_text(json_child(spec().worker_template, "spec"), "schedulerName");
    return "no scheduler has reported on " + pod->name +
           (name.empty() ? "" : "; its schedulerName is " + name);
  }
  return "";
}

void Pass::scheduled_condition() {
  if (o_.refusal) return set("Scheduled", false, o_.refusal->reason, o_.refusal->message);
  if (paced_) {
    return set(
        "Scheduled", false, "RateLimited",
        "pods of this job were created and deleted too often; the next ones follow in about a "
        "minute: see status.failureHistory");
  }
  int placed = 0;
  for (const Slot& slot : slots_) {
    if (!slot.newest) continue;
    if (!slot.newest->ended() && !slot.newest->unscheduled.empty() && !slot.newest->scheduled) {
      return set("Scheduled", false, "Unschedulable",
                 slot.newest->name + ": " + slot.newest->unscheduled);
    }
    placed += slot.newest->scheduled;
  }
  if (pods_.empty() && plan_.pods.empty()) {
    return set("Scheduled", false, "NoPods", "the job needs no pods now");
  }
  if (held()) {
    for (const PodView* pod : pods_) {
      if (pod->ended() || pod->foreign_gates.empty()) continue;
      return set(
          "Scheduled", false, "Waiting",
          pod->name + ": waits until somebody removes the scheduling gate " + pod->foreign_gates);
    }
    return set("Scheduled", false, "Waiting", "a queue holds the pods");
  }
  std::string count =
      std::to_string(placed) + " of " + std::to_string(slots_.size()) + " pods have a node";
  if (const std::string who = unheard(); !who.empty()) count += "; " + who;
  const bool all = placed == static_cast<int>(slots_.size());
  set("Scheduled", all, all ? "AllScheduled" : "Waiting", all ? "every pod has a node" : count);
}

void Pass::initialized_condition() {
  if (attempt_open() && all_run()) {
    return set("Initialized", true, "GangComplete", "every worker has joined an attempt");
  }
  if (pods_.empty() && plan_.pods.empty()) {
    return set("Initialized", false, "NoPods", "the job needs no pods now");
  }
  for (const Slot& slot : slots_) {
    if (!slot.newest || slot.newest->ended() || slot.newest->waiting_reason.empty()) continue;
    const PodView& pod = *slot.newest;
    if (pod.waiting_reason == kFetching) continue;
    return set("Initialized", false,
               cannot_start(pod.waiting_reason) ? "ImagePullBackOff" : "ContainerCannotStart",
               pod.name + ": " + pod.waiting_reason + ": " + pod.waiting_message);
  }
  if (const auto [pod, words] = silent_pod(); pod != nullptr)
    return set("Initialized", false, "ContainerCannotStart", pod->name + ": " + words);
  if (is_true(st_.conditions, "Initialized")) return;  // it stays True; Restarting has the details
  const Condition* data = find_condition(st_.conditions, kDataReady);
  if (data && data->reason == kFetching) {
    return set("Initialized", false, "Initializing", data->message);
  }
  set("Initialized", false, all_run() ? "WaitingForGang" : "WaitingForPods",
      all_run() ? "the agents are joining" : "not every pod runs");
}

void Pass::progressing_condition() {
  if (!is_true(st_.conditions, "Running")) {
    return set_unknown("Progressing", "NotRunning", "no attempt is running");
  }
  if (spec().runs_user_program()) {
    return set_unknown("Progressing", "NoSteps", "the user's program reports no steps");
  }
  const Seconds patience(std::max<int64_t>(spec().policies.step_timeout_seconds, 60));
  const auto updated = job().agent.updated;
  const Time since =
      std::max(updated.value_or(Time{}), find_condition(st_.conditions, "Running")->since);
  if (now_ < since + patience) {
    due(since + patience);
    const std::string& slow = job().agent.stragglers;
    if (!slow.empty()) return set("Progressing", true, "Stragglers", slow);
    return set("Progressing", true, "StepsAdvance", "agent 0 reports");
  }
  due(now_ + patience);
  set("Progressing", false, "NoReport", "agent 0 has not reported since " + to_text(since));
}

/// Names an object that others keep changing or deleting. Absent if there is none.
void Pass::contested_condition() {
  const Contest* worst = nullptr;
  ObjectName which;
  for (const auto& [object, contest] : o_.contests) {
    if (!is_contested(contest, now_) || ended()) continue;
    due(contest.last + kRowOver);
    if (worst && contest.repairs <= worst->repairs) continue;
    worst = &contest;
    which = object;
  }
  if (worst) {
    return set(kContested, true, worst->repair.field.empty() ? "Deleted" : "Reverted",
               text_of(which, *worst));
  }
  for (const PodView* pod : live()) {
    if (pod->labelled || pod->deleting_from || ended()) continue;
    return set(kContested, true, "LabelsChanged", lost_labels_text(pod->name));
  }
  std::erase_if(st_.conditions, [](const Condition& one) { return one.type == kContested; });
}

void Pass::conditions() {
  contested_condition();
  const bool over = ended();
  if (!is_true(st_.conditions, "Complete")) {
    set("Complete", false, "NotFinished", "");
  }
  if (!is_true(st_.conditions, "Failed")) set("Failed", false, "NotFinished", "");
  if (over) {
    const Condition* data = find_condition(st_.conditions, kDataReady);
    if (data && data->status == "False") set_unknown(kDataReady, "Waiting", "the job is over");
    const bool done = is_true(st_.conditions, "Complete");
    set("Running", false, "Finished", "the job is over");
    set("Restarting", false, "NotRestarting", "");
    set_unknown("Progressing", "NotRunning", "no attempt is running");
    st_.phase = done ? "Complete" : "Failed";
    return;
  }
  if (!force_) {
    st_.phase = "Refused";
    return;
  }
  if (!suspend_) {
    const bool was = is_true(st_.conditions, "Suspended");
    const Condition* before = find_condition(st_.conditions, "Suspended");
    const bool resumed = was || (before && before->reason == "Resumed");
    set("Suspended", false, resumed ? "Resumed" : "NotSuspended", "");
  }
  const bool running = attempt_open() && all_run();
  const bool stopping = st_.stop_since.has_value() && !pods_.empty();
  const bool gone = suspend_ && pods_.empty();
  const bool rolling = !suspend_ && stopping;
  const bool restarting =
      !suspend_ && !running && (rolling || is_true(st_.conditions, "Restarting"));
  if (!restarting) set("Restarting", false, "NotRestarting", "");
  if (running) {
    set("Running", true, stopping ? "Stopping" : "AttemptRunning",
        "attempt " + std::to_string(job().agent.attempt));
  } else {
    const bool before = st_.restarts.attempt.has_value();
    set("Running", false,
        gone         ? "Stopped"
        : restarting ? "Restarting"
                     : "NotStarted",
        before ? "attempt " + std::to_string(*st_.restarts.attempt) + " has ended" : "");
  }
  scheduled_condition();
  std::vector<const PodView*> newest;
  for (const Slot& slot : slots_) newest.push_back(slot.newest);
  note_data(data_ready(spec(), newest), job().generation, shown_now(), st_.conditions);
  if (gone) {
    set("Initialized", false, "NoPods", "the job needs no pods now");
  } else {
    initialized_condition();
  }
  progressing_condition();
  const bool placed = is_true(st_.conditions, "Scheduled");
  st_.phase = gone                    ? "Suspended"
              : suspend_              ? "Suspending"
              : rolling || restarting ? "Restarting"
              : running               ? "Running"
              : placed                ? "Starting"
                                      : "Pending";
}

}  // namespace dsj::op
