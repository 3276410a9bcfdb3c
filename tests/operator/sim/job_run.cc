#include "tests/operator/sim/job_run.h"

#include <algorithm>

#include "common/json.h"
#include "job/contract.h"

namespace dsj::op::sim {
namespace {

using kube::resources::pods;

/// Restarts that the loops may have.
constexpr int kBudget = 3;
/// Turns with an operator that looks, after which one knows of a pod.
constexpr int kSeenAfter = 20;

Json spec_of(Scenario scenario, Chance& chance) {
  Json spec = Json::parse(R"({
    "deepspeed": {"config": {"train_micro_batch_size_per_gpu": 1}},
    "training": {"modelNameOrPath": "/m", "dataPath": "/d", "outputDir": "/tmp/o", "maxSteps": 12},
    "workers": {"slotsPerWorker": 1}, "backoffLimit": 1000,
    "checkpoint": {"onSuspend": {"timeoutSeconds": 60}},
    "failurePolicy": {"nodeFailure": {"graceSeconds": 5, "forceDeleteAfterSeconds": 20}}})");
  spec["workers"]["replicas"] = 1 + chance.below(3);
  if (scenario == Scenario::CrashLoop || scenario == Scenario::PodLoop)
    spec["backoffLimit"] = kBudget;
  if (scenario == Scenario::Deadline) spec["runPolicy"]["activeDeadlineSeconds"] = 8;
  if (scenario == Scenario::TimeToLive) spec["runPolicy"]["ttlSecondsAfterFinished"] = 5;
  if (chance.happens(0.2)) spec["runPolicy"]["recoveryDeadlineSeconds"] = 15;
  if (chance.happens(0.3)) spec["runPolicy"]["schedulingPolicy"] = {{"scheduler", "volcano"}};
  if (scenario == Scenario::Refused) spec["training"]["learningRat"] = 1;
  if (scenario == Scenario::Elastic) {
    spec["workers"]["replicas"] = 4;
    spec["deepspeed"]["config"]["train_batch_size"] = 4;
    if (spec.contains("runPolicy")) spec["runPolicy"].erase("schedulingPolicy");
    spec["elastic"] = {{"minReplicas", 1},
                       {"maxReplicas", 4},
                       {"shrinkAfterSeconds", 5 + chance.below(10)},
                       {"growAfterSeconds", 1 + chance.below(60)}};
  }
  return spec;
}

OwnStatus status_of(const std::shared_ptr<const Json>& object) {
  return own_status_from_json(object ? own_part(object->value("status", Json())) : Json());
}

std::string phase_of(const Json& pod) {
  return json_text(json_child(pod, "status"), "phase");
}

bool has_ended(const Json& pod) {
  return phase_of(pod) == "Succeeded" || phase_of(pod) == "Failed";
}

/// Its worker has, whatever a sidecar does.
bool worker_has_ended(const Json& pod) {
  const auto view = pod_view(pod);
  return view && view->ended();
}

bool pod_has_ended(const std::shared_ptr<const Json>& pod) {
  return has_ended(*pod);
}

}  // namespace

JobRun::JobRun(kube::testing::FakeApiServer& server, SimClock& clock, Chance& chance,
               Platform& platform, std::string name_, Scenario scenario_, AgentBugs bugs)
    : name(std::move(name_)),
      scenario(scenario_),
      server_(server),
      clock_(clock),
      chance_(chance),
      platform_(platform),
      world_(server, clock, chance, platform, name, bugs),
      user_(server, clock) {
  world_.sidecars = name == "other";
  Json object = {{"apiVersion", jobspec::kApiVersion},
                 {"kind", jobspec::kKind},
                 {"metadata", {{"name", name}, {"namespace", kNamespace}}},
                 {"spec", spec_of(scenario, chance_)}};
  replicas_ = object["spec"]["workers"]["replicas"];
  (void)user_.create(jobs_resource(), kNamespace, object);
  world_.pods_crash = scenario == Scenario::PodLoop;
  world_.may_crash_always = scenario == Scenario::CrashLoop;
  if (scenario == Scenario::Elastic) world_.total_steps = 150;
  meddle_at_ = 8 + chance_.below(20);
  mend_at_ = meddle_at_ + 15 + chance_.below(30);
}

/// Of the loops the platform's faults only: their own failures are what is counted.
Faults JobRun::faults() const {
  switch (scenario) {
    case Scenario::CrashLoop:
    case Scenario::PodLoop:
      return {.evict = 0.02, .pod_delete = 0.02};
    case Scenario::Fatal:
    case Scenario::Deadline:
      return {};
    default:
      return {.rank_crash = 0.01,
              .agent_kill = 0.004,
              .evict = 0.003,
              .pod_delete = 0.003,
              .collect = 0.2};
  }
}

void JobRun::turn(int turn, bool chaos) {
  turn_ = turn;
  if (turn_ == meddle_at_) meddle();
  if (turn_ == mend_at_ && waits_for_suspension()) ++mend_at_;
  if (turn_ == mend_at_) mend();
  world_.turn(chaos ? faults() : Faults{});
}

bool JobRun::over() const {
  return turn_ > mend_at_ && finished();
}

void JobRun::edit(const std::function<void(Json&)>& change) {
  if (job())
    server_.edit(jobs_resource(), kNamespace, name, [&](Json& object) { change(object["spec"]); });
}

void JobRun::meddle() {
  switch (scenario) {
    case Scenario::Suspend:
      edit([](Json& spec) { spec["suspend"] = true; });
      suspended_ = true;
      met_attempt_ = world_.attempt_running();
      can_stop_ = met_attempt_ && world_.step() + 4 <= kTotalSteps;
      break;
    case Scenario::Scale:
      replicas_ = replicas_ % 3 + 1;
      edit([&](Json& spec) { spec["workers"]["replicas"] = replicas_; });
      break;
    case Scenario::BadEdit:
      edit([](Json& spec) {
        spec["deepspeed"]["config"]["zero_optimization"]["stage"] = 9;
        spec["workers"]["replicas"] = 7;
      });
      break;
    case Scenario::Fatal:
      world_.fatal = true;
      break;
    case Scenario::Elastic:
      world_.leave_places(2 + chance_.below(2));
      break;
    case Scenario::Delete:
      (void)user_.remove(jobs_resource(), kNamespace, name);
      break;
    default:
      break;
  }
}

/// Resumed is what was suspended.
bool JobRun::waits_for_suspension() {
  if (!suspended_ || finished() || status_.phase == "Suspended") return false;
  if (turn_ == 800) problem("not suspended: " + to_json(status_).dump());
  return true;
}

void JobRun::mend() {
  switch (scenario) {
    case Scenario::Suspend:
      edit([](Json& spec) { spec["suspend"] = false; });
      suspended_ = false;
      break;
    case Scenario::BadEdit:
      edit([&](Json& spec) {
        spec["deepspeed"]["config"].erase("zero_optimization");
        spec["workers"]["replicas"] = replicas_;
      });
      break;
    case Scenario::Refused:
      edit([](Json& spec) { spec["training"].erase("learningRat"); });
      break;
    case Scenario::Elastic:
      world_.places = 1000;
      break;
    default:
      break;
  }
}

// ---- the oracle

void JobRun::problem(const std::string& text) {
  problems.push_back("turn " + std::to_string(turn_) + ", job " + name + ": " + text);
}

std::shared_ptr<const Json> JobRun::job() const {
  return server_.shown(jobs_resource(), kNamespace, name);
}

std::vector<std::shared_ptr<const Json>> JobRun::ours(const std::string& kind) const {
  auto all = server_.shown(resource_of(kind));
  std::erase_if(
      all, [&](const auto& object) { return label_of(*object, contract::kLabelJobName) != name; });
  return all;
}

void JobRun::observe_write(const kube::Request& request) {
  if (request.method == "POST" && request.path.ends_with("/pods")) {
    const Json pod = Json::parse(request.body);
    if (label_of(pod, contract::kLabelJobName) != name) return;
    const Json& owners = pod["metadata"].value("ownerReferences", Json::array());
    if (owners.empty()) problem("a pod without an owner");
  }
  check_precondition(request);
  if (request.method != "DELETE" || request.path.find("/pods/") == std::string::npos) return;
  check_deletion(request.path.substr(request.path.rfind('/') + 1));
}

/// What the operator changes or deletes belongs to a job, and the request names its uid.
void JobRun::check_precondition(const kube::Request& request) {
  const std::string path = request.path.substr(0, request.path.find('?'));
  const bool deletes = request.method == "DELETE";
  if (!deletes && request.method != "PUT" && request.method != "PATCH") return;
  for (const char* kind : {"Secret", "ConfigMap", "Service", "ServiceAccount", "Role",
                           "RoleBinding", "NetworkPolicy", "PodGroup", "Pod", jobspec::kKind}) {
    const std::string object = path.substr(path.rfind('/') + 1);
    const kube::Resource resource = resource_of(kind);
    if (path != resource.object(kNamespace, object)) continue;
    const Json body = Json::parse(request.body);
    const std::string uid =
        json_text(json_child(body, deletes ? "preconditions" : "metadata"), "uid");
    if (uid.empty()) problem(request.method + " " + path + " without a uid");
    const auto found = server_.shown(resource, kNamespace, object);
    if (!found || json_text((*found)["metadata"], "uid") != uid) continue;  // nothing is done
    if (kind != std::string(jobspec::kKind) && owner_of(*found).empty())
      problem(request.method + " " + path + " of an object that belongs to no job");
  }
}

/// Whatever operators come and go, a set-aside is told at most once.
void JobRun::observe_event(const JobView& of, const Event& event) {
  if (of.name != name || event.reason != "CheckpointDamaged") return;
  if (!damage_told_.insert(event.message).second) problem("told again: damage " + event.message);
}

/// Somebody deleted the ServiceAccount of a pod, and another has its name.
bool JobRun::account_is_another(const Json& pod) const {
  const auto view = pod_view(pod);
  return std::ranges::any_of(ours("ServiceAccount"), [&](const auto& account) {
    return view && json_text((*account)["metadata"], "uid") != view->account;
  });
}

/// Why may the operator delete a pod that has not ended?
void JobRun::check_deletion(const std::string& pod_name) {
  const auto object = job();
  if (!object || (*object)["metadata"].contains("deletionTimestamp")) return;
  for (const auto& shown : ours("Pod")) {
    const Json& pod = *shown;
    if (pod["metadata"]["name"] != pod_name) continue;
    if (worker_has_ended(pod)) return;
    const auto st = status_of(object);
    if (ended(st) || pod["metadata"].contains("deletionTimestamp")) return;
    const std::string node = pod["spec"].value("nodeName", "");
    if (platform_.was_ever_away(node)) return;
    const auto gang = world_.sizes.find(world_.attempt);
    const auto view = pod_view(pod);
    if (gang != world_.sizes.end() && view && view->worker >= gang->second) return;  // no member
    if (view && view->worker == 0 && account_is_another(pod)) return;
    const std::string revision = pod["metadata"]["labels"].value(contract::kLabelRevision, "");
    const Condition* restarting = find_condition(st.conditions, "Restarting");
    const bool trains = world_.attempt_running() && told_attempt(*object);
    if (restarting && restarting->reason == "GangReleased" && !trains) return;
    const bool stopping = suspended_ || revision != st.revision || st.stop_since;
    if (!stopping) return problem("a running pod was deleted for nothing: " + pod_name);
    const bool patient = st.stop_since && clock_.at() >= *st.stop_since + Seconds(48);
    const auto saved = object->value("status", Json::object())
                           .value("checkpoint", Json::object())
                           .value("lastSaved", Json::object())
                           .value("step", int64_t{0});
    // Of an attempt that it has not heard of it cannot know; SIGTERM makes those ranks save.
    const bool known =
        json_child(json_child(*object, "status"), "training").value("attempt", int64_t{0}) ==
        world_.attempt;
    if (world_.attempt_running() && world_.stop_step() && !patient && known &&
        (saved < *world_.stop_step() || world_.saved < *world_.stop_step())) {
      problem("a pod was deleted before step " + std::to_string(*world_.stop_step()) +
              " was saved");
    }
    if (world_.attempt_running() && !world_.stop_step() && !patient && told_attempt(*object)) {
      problem("a pod was deleted while the ranks were not even stopping");
    }
  }
}

/// The operator could know of the attempt for some turns.
bool JobRun::told_attempt(const Json& object) {
  const auto training = object.value("status", Json::object()).value("training", Json::object());
  const int64_t told = training.value("attempt", int64_t{0});
  if (told != told_attempt_) {
    told_attempt_ = told;
    told_since_ = turn_;
  }
  return told == world_.attempt && turn_ > told_since_ + 30;
}

void JobRun::check(bool disturbed, bool looked) {
  disturbed_ |= disturbed;
  if (const auto now = job(); now != job_ || !now) {
    job_ = now;
    status_ = status_of(job_);
  }
  pods_ = ours("Pod");
  for (const auto& text : world_.violations) problem(text);
  check_pods(looked);
  check_groups();
  if (!job_) return;
  if (status_.restarts.total < restarts_) problem("restarts fell");
  restarts_ = status_.restarts.total;
  if (was_over_ && !finished()) problem("a finished job went on");
  if (!was_over_) check_heard();
  was_over_ |= finished();
  check_sizes();
  check_complete();
  check_status();
}

/// An elastic job trains with sizes that fit its batch of 4, and with a ConfigMap that says so.
void JobRun::check_sizes() {
  if (scenario != Scenario::Elastic) return;
  for (const auto& [attempt, size] : world_.sizes) {
    if (size != 1 && size != 2 && size != 4) {
      problem("attempt " + std::to_string(attempt) + " has " + std::to_string(size) + " workers");
    }
  }
}

bool JobRun::has_shrunk() const {
  return std::ranges::adjacent_find(world_.sizes, [](const auto& before, const auto& after) {
           return after.second < before.second;
         }) != world_.sizes.end();
}

bool JobRun::has_grown_again() const {
  return std::ranges::adjacent_find(world_.sizes, [](const auto& before, const auto& after) {
           return after.second > before.second;
         }) != world_.sizes.end();
}

void JobRun::check_pods(bool looked) {
  for (int worker = 0; worker < 8; ++worker) {
    if (world_.living(worker) > 1) problem("two pods run worker " + std::to_string(worker));
  }
  for (const auto& shown : pods_) {
    const Json& pod = *shown;
    const std::string pod_name = pod["metadata"]["name"], uid = pod["metadata"]["uid"];
    Life& life = lives_[pod_name];
    // A pod may come and go while no operator looks, and its name come again; not one that operators saw.
    if (!life.uid.empty() && life.uid != uid && life.turns >= 45) {
      problem("the name " + pod_name + " was used twice");
    }
    if (life.uid != uid) life = {.uid = uid};
    life.turns += looked ? 1 : 0;
  }
}

/// The pods of one run are in one scheduling group.
void JobRun::check_groups() {
  std::map<std::string, std::set<std::string>> groups;  // by revision
  for (const auto& shown : pods_) {
    const Json& pod = *shown;
    if (worker_has_ended(pod) || pod["metadata"].contains("deletionTimestamp")) continue;
    groups[label_of(pod, contract::kLabelRevision)].insert(label_of(pod, contract::kLabelGang));
  }
  for (const auto& [revision, names] : groups) {
    if (names.size() > 1) {
      problem("a run in two groups: " + *names.begin() + ", " + *names.rbegin());
    }
  }
}

/// Every worker of one attempt did the last step, and it is saved.
void JobRun::check_complete() {
  if (!is_true(status_.conditions, "Complete")) return;
  if (suspended_ && can_stop_) problem("a suspended job went on to its end");
  const bool all = std::ranges::any_of(world_.done, [&](const auto& entry) {
    const auto& [attempt, workers] = entry;
    const auto gang = world_.sizes.find(attempt);
    return gang != world_.sizes.end() && static_cast<int>(workers.size()) == gang->second &&
           *workers.rbegin() == gang->second - 1 && gang->second == status_.world_size;
  });
  if (!all || !world_.last_step_saved) problem("Complete without the last step of every worker");
}

/// Where others speak for a worker whose pod still runs, it had its time to end: how it ends is heard.
void JobRun::check_heard() {
  constexpr Seconds kTimeToEnd{95};  // of 120 s: two clocks may differ by 20 s
  if (!is_true(status_.conditions, "Complete") || !world_.first_completed) return;
  if (clock_.at() >= *world_.first_completed + kTimeToEnd) return;
  for (const auto& shown : pods_) {
    const auto pod = pod_view(*shown);
    if (!pod || pod->ended() || pod->revision != status_.revision) continue;
    if (pod->worker >= status_.world_size || platform_.was_ever_away(pod->node)) continue;
    if (lives_[pod->name].turns < kSeenAfter) continue;  // an operator may not know of it
    problem("Complete without a word of " + pod->name + ", which still runs");
  }
}

void JobRun::check_status() {
  const OwnStatus& st = status_;
  if (st.phase == "Refused" && !st.revision.empty()) {
    problem("an accepted spec was taken out of force");
  }
  const Condition* suspended = find_condition(st.conditions, "Suspended");
  const bool could_save = !platform_.any_was_away() && met_attempt_ && !world_.died_unheard;
  if (suspended && suspended->reason == "SuspendedWithoutCheckpoint" && could_save) {
    problem("suspended without a checkpoint");
  }
  if (st.phase == "Suspended" && suspended_ && !std::ranges::all_of(pods_, pod_has_ended)) {
    problem("a pod of a suspended job");
  }
  const bool refused = (*job_)["spec"]["training"].contains("learningRat");
  if (refused && !pods_.empty()) problem("a pod of a refused job");
}

/// Pods of an older spec may be left; the newest of a worker has this one.
void JobRun::check_completed() {
  std::map<int, PodView> newest;
  for (const auto& object : pods_) {
    const auto pod = pod_view(*object);
    if (!pod || pod->worker >= replicas_) continue;
    const auto slot = newest.try_emplace(pod->worker, *pod).first;
    if (pod->incarnation > slot->second.incarnation) slot->second = *pod;
  }
  for (const auto& [worker, pod] : newest) {
    if (pod.phase == PodView::Phase::Succeeded && pod.revision != status_.revision) {
      problem("completed by a pod of another spec: " + pod.name);
    }
  }
}

/// What the job's status says of damage was told, or was lost with the operator that had to tell it.
void JobRun::check_damage() {
  const Json& checkpoint = json_child(json_child(*job_, "status"), "checkpoint");
  const auto found = json_whole(json_child(checkpoint, "lastDamaged"), "attempt").value_or(0);
  if (found != status_.damage_told) {
    problem("not told: the damage that attempt " + std::to_string(found) + " found");
  }
}

std::string JobRun::unended() const {
  std::string text;
  for (const auto& shown : pods_) {
    const Json& pod = *shown;
    text += " " + pod["metadata"]["name"].get<std::string>() + " " +
            pod["spec"].value("nodeName", "unbound") + " " + phase_of(pod) +
            (pod["metadata"].contains("deletionTimestamp") ? " deleting," : ",");
  }
  return text + " " + (job_ ? to_json(status_).dump() : "no job");
}

void JobRun::check_gone() {
  if (job_) return problem("the job is still there: " + status_.phase);
  for (const char* kind : {"Pod", "ConfigMap", "Service", "ServiceAccount", "Role", "RoleBinding",
                           "NetworkPolicy", "PodGroup"}) {
    if (!ours(kind).empty()) problem(std::string("left behind: ") + kind);
  }
}

void JobRun::check_end(bool rested) {
  if (!rested) return problem("no end:" + unended());
  const auto running = std::ranges::count_if(pods_, std::not_fn(pod_has_ended));
  if (running > 0) problem(std::to_string(running) + " pods run after the end");
  if (scenario == Scenario::Delete || scenario == Scenario::TimeToLive) return check_gone();
  if (status_.phase == "Complete") check_completed();
  check_damage();
  if (!ours("PodGroup").empty()) problem("a PodGroup of a finished job");
  // Where somebody deletes things, it may be gone after the last pod.
  if (status_.phase == "Complete" && !world_.strict && ours("NetworkPolicy").empty())
    problem("no NetworkPolicy");
  check_reason();
}

/// The job ended for the reason that its scenario has, and not before it had to.
void JobRun::check_reason() {
  const OwnStatus& st = status_;
  const bool loops = scenario == Scenario::CrashLoop || scenario == Scenario::PodLoop;
  const char* wanted = loops                            ? "BackoffLimitExceeded"
                       : scenario == Scenario::Fatal    ? "NoSpace"
                       : scenario == Scenario::Deadline ? "DeadlineExceeded"
                                                        : nullptr;
  const Condition* failed = find_condition(st.conditions, "Failed");
  // The fatal end may come right behind the last step.
  if (scenario == Scenario::Fatal && world_.last_step_saved && st.phase == "Complete") return;
  // An operator that was away finds a job that is done before it could say when it began.
  if (scenario == Scenario::Deadline && disturbed_ && st.phase == "Complete") return;
  if (!wanted) {
    if (st.phase != "Complete") problem("expected Complete: " + to_json(st).dump());
    return;
  }
  if (!failed || failed->status != "True" || failed->reason != wanted) {
    return problem(std::string("expected Failed ") + wanted + ": " + to_json(st).dump());
  }
  if (!loops) return;
  if (st.restarts.counted > kBudget) {
    problem("charged " + std::to_string(st.restarts.counted) + " of " + std::to_string(kBudget));
  }
  // Every restart that the budget allows, and the failure that it does not allow.
  if (world_.crashes <= kBudget) {
    problem("given up after " + std::to_string(world_.crashes) + " failures");
  }
}

}  // namespace dsj::op::sim
