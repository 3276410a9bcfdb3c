#include "tests/operator/sim/simulation.h"

#include <algorithm>

#include "job/contract.h"
#include "operator/own_status.h"

namespace dsj::op::sim {
namespace {

using kube::resources::pods;

constexpr char kNs[] = "n";
constexpr char kJob[] = "j";
constexpr int kChaosTurns = 90;
constexpr int kTurnsMax = 1500;
constexpr int kRestTurns = 40;

Json spec_of(Scenario scenario, Chance& chance) {
  Json spec = Json::parse(R"({
    "deepspeed": {"config": {"train_micro_batch_size_per_gpu": 1}},
    "training": {"modelNameOrPath": "/m", "dataPath": "/d", "outputDir": "/o", "maxSteps": 12},
    "workers": {"slotsPerWorker": 1}, "backoffLimit": 1000,
    "checkpoint": {"onSuspend": {"timeoutSeconds": 60}},
    "failurePolicy": {"nodeFailure": {"graceSeconds": 5, "forceDeleteAfterSeconds": 20}}})");
  spec["workers"]["replicas"] = 1 + chance.below(3);
  if (scenario == Scenario::CrashLoop || scenario == Scenario::PodLoop) spec["backoffLimit"] = 3;
  if (scenario == Scenario::Deadline) spec["runPolicy"]["activeDeadlineSeconds"] = 8;
  if (scenario == Scenario::TimeToLive) spec["runPolicy"]["ttlSecondsAfterFinished"] = 5;
  if (chance.happens(0.2)) spec["runPolicy"]["recoveryDeadlineSeconds"] = 15;
  if (chance.happens(0.3)) spec["runPolicy"]["schedulingPolicy"] = {{"scheduler", "volcano"}};
  if (scenario == Scenario::Refused) spec["training"]["learningRat"] = 1;
  return spec;
}

class Simulation {
 public:
  Simulation(uint64_t seed, const Bug* bug)
      : chance_(seed),
        bug_(bug),
        world_(prepared(), clock_, chance_, bug ? bug->agents : AgentBugs{}) {
    outcome_.scenario = static_cast<Scenario>(seed % kScenarios);
    server_.set_wall([this] { return std::chrono::floor<Seconds>(clock_.at()); });
    two_leaders_ = chance_.happens(0.4);
    elects_ = two_leaders_ && chance_.happens(0.5);
    start_operator(0);
    if (two_leaders_) start_operator(1);
  }

  Outcome run() {
    user_.emplace(server_, clock_);
    Json job = {{"apiVersion", jobspec::kApiVersion},
                {"kind", jobspec::kKind},
                {"metadata", {{"name", kJob}, {"namespace", kNs}}},
                {"spec", spec_of(outcome_.scenario, chance_)}};
    replicas_ = job["spec"]["workers"]["replicas"];
    (void)user_->create(jobs_resource(), kNs, job);
    world_.pods_crash = outcome_.scenario == Scenario::PodLoop;
    world_.may_crash_always = outcome_.scenario == Scenario::CrashLoop;
    const int meddle_at = 8 + chance_.below(20);
    int mend_at = meddle_at + 15 + chance_.below(30);
    int rest = 0;
    for (turn_ = 0; turn_ < kTurnsMax && rest < kRestTurns; ++turn_) {
      clock_.now += Seconds(1);
      const bool chaos = turn_ < kChaosTurns;
      if (turn_ == meddle_at) meddle();
      if (turn_ == mend_at && waits_for_suspension()) ++mend_at;
      if (turn_ == mend_at) mend();
      world_.turn(chaos ? faults() : Faults{});
      if (chaos) world_chaos();
      operators(chaos);
      check();
      if (!outcome_.problems.empty()) break;
      rest = turn_ > mend_at && !chaos && over() ? rest + 1 : 0;
      if (rest == kRestTurns / 2) status_writes_ = 0;
    }
    outcome_.turns = turn_;
    for (const auto& op : operators_) {
      if (op) outcome_.writes += op->transport.writes;
    }
    if (outcome_.problems.empty()) check_end(rest);
    return outcome_;
  }

 private:
  kube::testing::FakeApiServer& prepared() {
    server_.serve(jobs_resource(), true);
    server_.serve(pod_groups_resource(), true);
    return server_;
  }

  Faults faults() const {
    switch (outcome_.scenario) {
      case Scenario::CrashLoop:
      case Scenario::PodLoop:
      case Scenario::Fatal:
      case Scenario::Deadline:
        return {};
      default:
        return {.rank_crash = 0.01,
                .agent_kill = 0.004,
                .evict = 0.003,
                .pod_delete = 0.003,
                .node_loss = 0.008,
                .collect = 0.2};
    }
  }

  void start_operator(size_t index) {
    if (operators_.size() <= index) operators_.resize(index + 1);
    if (operators_[index]) outcome_.writes += operators_[index]->transport.writes;
    operators_[index] = std::make_unique<SimOperator>(server_, clock_, chance_, bug_);
    if (elects_) {
      operators_[index]->take_part_in_election("operator-" + std::to_string(++started_));
      started_at_ = turn_;
    }
    operators_[index]->transport.watch_writes = [this](const kube::Request& request) {
      observe_write(request);
    };
  }

  void operators(bool chaos) {
    for (size_t i = 0; i < operators_.size(); ++i) {
      SimOperator& op = *operators_[i];
      op.transport.faults = chaos ? ApiFaults{.refuse = 0.03,
                                              .lose_request = 0.02,
                                              .lose_answer = 0.02,
                                              .kill_before = 0.01,
                                              .kill_after = 0.02}
                                  : ApiFaults{};
      if (chaos) {
        if (chance_.happens(0.05)) op.deaf = !op.deaf;
        disturbed_ |= op.deaf || outcome_.kills > 0;
        if (chance_.happens(0.02)) op.skew = Milliseconds((chance_.below(21) - 10) * 1000);
        if (two_leaders_ && !elects_ && chance_.happens(0.05)) op.leads = !op.leads;
      } else {
        op.deaf = false;
        op.skew = Milliseconds(0);
        op.leads = i == 0 || elects_;
      }
      try {
        op.turn();
      } catch (const Killed&) {
        ++outcome_.kills;
        start_operator(i);
      }
    }
  }

  void world_chaos() {
    if (chance_.happens(0.03)) server_.cut_watches();
    if (chance_.happens(0.02)) server_.compact();
    if (chance_.happens(0.05)) server_.send_bookmarks();
    // Both know the holder by then: who has never seen it makes the Lease at once.
    if (elects_ && turn_ > started_at_ + 20 && chance_.happens(0.02)) {
      (void)user_->remove(kube::resources::leases(), "system", "dsj-operator");
    }
  }

  // ---- the user

  void edit(const std::function<void(Json&)>& change) {
    if (job())
      server_.edit(jobs_resource(), kNs, kJob, [&](Json& object) { change(object["spec"]); });
  }

  void meddle() {
    switch (outcome_.scenario) {
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
      case Scenario::Delete:
        (void)user_->remove(jobs_resource(), kNs, kJob);
        break;
      default:
        break;
    }
  }

  /// Resumed is what was suspended.
  bool waits_for_suspension() {
    if (!suspended_ || over() || status_.phase == "Suspended") return false;
    if (turn_ == 800) problem("not suspended: " + to_json(status_).dump());
    return true;
  }

  void mend() {
    switch (outcome_.scenario) {
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
      default:
        break;
    }
  }

  // ---- the oracle

  void problem(const std::string& text) {
    outcome_.problems.push_back("turn " + std::to_string(turn_) + ": " + text);
  }

  std::optional<Json> job() {
    auto all = server_.objects(jobs_resource());
    if (all.empty()) return std::nullopt;
    return std::move(all[0]);
  }

  static OwnStatus status_of(const std::optional<Json>& object) {
    return own_status_from_json(object ? own_part(object->value("status", Json())) : Json());
  }

  static bool finished(const OwnStatus& st) {
    return is_true(st.conditions, "Complete") || is_true(st.conditions, "Failed");
  }

  /// The truth of this turn.
  void look() {
    job_ = job();
    status_ = status_of(job_);
    pods_ = server_.objects(pods());
  }

  bool over() const { return job_ ? finished(status_) : pods_.empty(); }

  void observe_write(const kube::Request& request) {
    if (request.method == "PATCH") ++status_writes_;
    if (request.method == "POST" && request.path.ends_with("/pods")) {
      const Json pod = Json::parse(request.body);
      const Json& owners = pod["metadata"].value("ownerReferences", Json::array());
      if (owners.empty()) problem("a pod without an owner");
    }
    if (request.method != "DELETE" || request.path.find("/pods/") == std::string::npos) return;
    const std::string name = request.path.substr(request.path.rfind('/') + 1);
    check_deletion(name);
  }

  /// Why may the operator delete a pod that has not ended?
  void check_deletion(const std::string& name) {
    const auto object = job();
    if (!object || (*object)["metadata"].contains("deletionTimestamp")) return;
    for (const Json& pod : server_.objects(pods())) {
      if (pod["metadata"]["name"] != name) continue;
      const std::string phase = pod.value("status", Json::object()).value("phase", "");
      if (phase == "Succeeded" || phase == "Failed") return;
      const auto st = status_of(object);
      if (finished(st) || pod["metadata"].contains("deletionTimestamp")) return;
      const std::string node = pod["spec"].value("nodeName", "");
      if (world_.node_away(node) || lost_once_.contains(node)) return;
      const std::string revision = pod["metadata"]["labels"].value(contract::kLabelRevision, "");
      const Condition* restarting = find_condition(st.conditions, "Restarting");
      const bool trains = world_.attempt_running() && told_attempt(*object);
      if (restarting && restarting->reason == "GangReleased" && !trains) return;
      const bool stopping = suspended_ || revision != st.revision || st.stop_since;
      if (!stopping) return problem("a running pod was deleted for nothing: " + name);
      const bool patient = st.stop_since && clock_.at() >= *st.stop_since + Seconds(48);
      const auto saved = object->value("status", Json::object())
                             .value("checkpoint", Json::object())
                             .value("lastSaved", Json::object())
                             .value("step", int64_t{0});
      if (world_.attempt_running() && world_.stop_step() && !patient &&
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
  bool told_attempt(const Json& object) {
    const auto training = object.value("status", Json::object()).value("training", Json::object());
    const int64_t told = training.value("attempt", int64_t{0});
    if (told != told_attempt_) {
      told_attempt_ = told;
      told_since_ = turn_;
    }
    return told == world_.attempt && turn_ > told_since_ + 30;
  }

  void check() {
    look();
    for (const auto& text : world_.violations) problem(text);
    for (const std::string node : {"n0", "n1", "n2", "n3"}) {
      if (world_.node_away(node)) lost_once_.insert(node);
    }
    for (int worker = 0; worker < 8; ++worker) {
      if (world_.living(worker) > 1) problem("two pods run worker " + std::to_string(worker));
    }
    for (const Json& pod : pods_) {
      Life& life = lives_[pod["metadata"]["name"]];
      const std::string uid = pod["metadata"]["uid"];
      // A pod may come and go while no operator looks, and its name come again; not one that stays.
      if (!life.uid.empty() && life.uid != uid && life.turns >= 45) {
        problem("the name " + pod["metadata"]["name"].get<std::string>() + " was used twice");
      }
      if (life.uid != uid) life = {.uid = uid};
      ++life.turns;
    }
    check_groups();
    const auto leading =
        std::ranges::count_if(operators_, [](const auto& op) { return op && op->may_write(); });
    if (elects_ && leading > 1) problem("two leaders");
    if (!job_) return;
    const OwnStatus& st = status_;
    if (st.restarts.total < restarts_) problem("restarts fell");
    restarts_ = st.restarts.total;
    if (was_over_ && !over()) problem("a finished job went on");
    was_over_ |= over();
    if (is_true(st.conditions, "Complete")) {
      if (suspended_ && can_stop_) problem("a suspended job went on to its end");
      const auto workers = static_cast<size_t>(st.world_size);
      const bool all = std::ranges::any_of(
          world_.done, [&](const auto& entry) { return entry.second.size() >= workers; });
      if (!all || !world_.last_step_saved) problem("Complete without the last step");
    }
    if (st.phase == "Refused" && !st.revision.empty()) {
      problem("an accepted spec was taken out of force");
    }
    const Condition* suspended = find_condition(st.conditions, "Suspended");
    const bool could_save = lost_once_.empty() && met_attempt_;
    if (suspended && suspended->reason == "SuspendedWithoutCheckpoint" && could_save) {
      problem("suspended without a checkpoint");
    }
    if (st.phase == "Suspended" && suspended_) {
      for (const Json& pod : pods_) {
        const std::string phase = pod.value("status", Json::object()).value("phase", "");
        if (phase != "Succeeded" && phase != "Failed") problem("a pod of a suspended job");
      }
    }
    const bool refused = (*job_)["spec"]["training"].contains("learningRat");
    if (refused && !pods_.empty()) {
      problem("a pod of a refused job");
    }
  }

  /// The pods of one run are in one scheduling group.
  void check_groups() {
    std::map<std::string, std::set<std::string>> groups;  // by revision
    for (const Json& pod : pods_) {
      const std::string phase = pod.value("status", Json::object()).value("phase", "");
      const bool leaves = pod["metadata"].contains("deletionTimestamp");
      if (phase == "Succeeded" || phase == "Failed" || leaves) continue;
      groups[label_of(pod, contract::kLabelRevision)].insert(label_of(pod, contract::kLabelGang));
    }
    for (const auto& [revision, names] : groups) {
      if (names.size() > 1)
        problem("a run in two groups: " + *names.begin() + ", " + *names.rbegin());
    }
  }

  /// Pods of an older spec may be left; the newest of a worker has this one.
  void check_completed(const std::string& revision) {
    std::map<int, PodView> newest;
    for (const Json& object : pods_) {
      const auto pod = pod_view(object);
      if (!pod || pod->worker >= replicas_) continue;
      const auto slot = newest.try_emplace(pod->worker, *pod).first;
      if (pod->incarnation > slot->second.incarnation) slot->second = *pod;
    }
    for (const auto& [worker, pod] : newest) {
      if (pod.phase == PodView::Phase::Succeeded && pod.revision != revision) {
        problem("completed by a pod of another spec: " + pod.name);
      }
    }
  }

  void check_end(int rest) {
    const auto& object = job_;
    const OwnStatus& st = status_;
    const Scenario scenario = outcome_.scenario;
    if (rest < kRestTurns) {
      std::string text = "no end after " + std::to_string(turn_) + " turns:";
      for (const Json& pod : pods_) {
        text += " " + pod["metadata"]["name"].get<std::string>() + " " +
                pod["spec"].value("nodeName", "unbound") + " " +
                pod.value("status", Json::object()).value("phase", "") +
                (pod["metadata"].contains("deletionTimestamp") ? " deleting," : ",");
      }
      return problem(text + " " + (object ? to_json(st).dump() : "no job"));
    }
    if (status_writes_ > 0) problem(std::to_string(status_writes_) + " status writes at rest");
    int running = 0;
    for (const Json& pod : pods_) {
      const std::string phase = pod.value("status", Json::object()).value("phase", "");
      running += phase != "Succeeded" && phase != "Failed";
    }
    if (running > 0) problem(std::to_string(running) + " pods run after the end");
    if (st.phase == "Complete") check_completed(st.revision);
    if (scenario == Scenario::Delete || scenario == Scenario::TimeToLive) {
      if (object) return problem("the job is still there: " + st.phase);
      for (const char* kind : {"Pod", "ConfigMap", "Service", "ServiceAccount", "Role",
                               "RoleBinding", "NetworkPolicy", "PodGroup"}) {
        const auto left = server_.objects(resource_of(kind));
        if (!left.empty()) problem(std::string("left behind: ") + kind);
      }
      return;
    }
    if (!server_.objects(pod_groups_resource()).empty()) problem("a PodGroup of a finished job");
    if (st.phase == "Complete" && server_.objects(resource_of("NetworkPolicy")).empty()) {
      problem("no NetworkPolicy");
    }
    const char* wanted = scenario == Scenario::CrashLoop || scenario == Scenario::PodLoop
                             ? "BackoffLimitExceeded"
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
    } else if (!failed || failed->status != "True" || failed->reason != wanted) {
      problem(std::string("expected Failed ") + wanted + ": " + to_json(st).dump());
    }
    if (scenario == Scenario::CrashLoop && st.restarts.total > 3) {
      problem("expected at most 3 restarts, found " + std::to_string(st.restarts.total));
    }
  }

  SimClock clock_;
  Chance chance_;
  const Bug* bug_;
  kube::testing::FakeApiServer server_;
  Agents world_;
  std::optional<kube::Client> user_;
  std::vector<std::unique_ptr<SimOperator>> operators_;
  Outcome outcome_;
  std::optional<Json> job_;
  OwnStatus status_;
  std::vector<Json> pods_;
  bool can_stop_ = false;  ///< when it was suspended, its ranks had steps enough to stop in between
  bool disturbed_ = false, two_leaders_ = false, elects_ = false, suspended_ = false,
       met_attempt_ = false, was_over_ = false;
  int replicas_ = 1, turn_ = 0, told_since_ = 0, started_ = 0, started_at_ = 0;
  int64_t restarts_ = 0, status_writes_ = 0, told_attempt_ = 0;
  struct Life {
    std::string uid;
    int turns = 0;
  };
  std::map<std::string, Life> lives_;  ///< of pods, by name
  std::set<std::string> lost_once_;
};

}  // namespace

Outcome simulate(uint64_t seed, const Bug* bug) {
  return Simulation(seed, bug).run();
}

}  // namespace dsj::op::sim
