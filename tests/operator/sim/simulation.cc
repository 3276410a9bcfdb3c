#include "tests/operator/sim/simulation.h"

#include <algorithm>
#include <memory>

#include "job/contract.h"
#include "tests/operator/sim/sim_operator.h"

namespace dsj::op::sim {
namespace {

constexpr int kChaosTurns = 90;
constexpr int kTurnsMax = 1500;
constexpr int kRestTurns = 40;
constexpr double kNodeLoss = 0.008;
/// Names that begin alike, as the pods of one job and another job may.
constexpr const char* kNames[] = {"j", "j-worker-1", "other"};

class Simulation {
 public:
  Simulation(uint64_t seed, const Bug* bug)
      : chance_(seed), bug_(bug), platform_(prepared(), clock_, chance_) {
    outcome_.scenario = static_cast<Scenario>(seed % kScenarios);
    server_.set_wall([this] { return std::chrono::floor<Seconds>(clock_.at()); });
    two_leaders_ = chance_.happens(0.4);
    elects_ = two_leaders_ && chance_.happens(0.5);
    start_operator(0);
    if (two_leaders_) start_operator(1);
    user_.emplace(server_, clock_);
    const int more = chance_.happens(0.5) ? 0 : 1 + chance_.below(2);
    add_job(outcome_.scenario);
    for (int i = 0; i < more; ++i) add_job(static_cast<Scenario>(chance_.below(kScenarios)));
  }

  Outcome run() {
    int rest = 0;
    for (turn_ = 0; turn_ < kTurnsMax && rest < kRestTurns; ++turn_) {
      clock_.now += Seconds(1);
      const bool chaos = turn_ < kChaosTurns;
      platform_.turn(chaos && loses_nodes() ? kNodeLoss : 0);
      for (const auto& job : jobs_) job->turn(turn_, chaos);
      if (chaos) world_chaos();
      operators(chaos);
      check();
      if (!outcome_.problems.empty()) break;
      rest = !chaos && nothing_is_left() ? rest + 1 : 0;
      if (rest == kRestTurns / 2) status_writes_ = 0;
    }
    outcome_.turns = turn_;
    outcome_.jobs = static_cast<int64_t>(jobs_.size());
    for (const auto& job : jobs_) {
      outcome_.shrunk += job->scenario == Scenario::Elastic && job->has_shrunk();
      outcome_.grown += job->scenario == Scenario::Elastic && job->has_grown_again();
    }
    for (const auto& op : operators_) take_counts(*op);
    if (outcome_.problems.empty()) check_end(rest == kRestTurns);
    return outcome_;
  }

 private:
  kube::testing::FakeApiServer& prepared() {
    server_.serve(jobs_resource(), true);
    server_.serve(pod_groups_resource(), true);
    return server_;
  }

  void add_job(Scenario scenario) {
    jobs_.push_back(std::make_unique<JobRun>(server_, clock_, chance_, platform_,
                                             kNames[jobs_.size()], scenario,
                                             bug_ ? bug_->agents : AgentBugs{}));
  }

  /// What failed under the faults is tried again up to a minute after them: passes and watches.
  /// A pod on a lost node goes when its time is over, and that is told.
  bool nothing_is_left() const {
    return std::ranges::all_of(jobs_, [](const auto& job) { return job->over(); }) &&
           std::ranges::none_of(
               server_.shown(kube::resources::pods()),
               [](const auto& pod) { return (*pod)["metadata"].contains("deletionTimestamp"); }) &&
           std::ranges::none_of(operators_, [&](const auto& op) {
             return op->will_try_again() ||
                    (op->may_write() && !(op->listens() && has_seen_all(*op)));
           });
  }

  bool has_seen_all(const SimOperator& op) const {
    const auto pods = server_.shown(kube::resources::pods());
    return std::ranges::all_of(server_.shown(jobs_resource()), [&](const auto& job) {
      const auto& metadata = job->at("metadata");
      const std::string name = metadata["name"];
      const auto own = std::ranges::count_if(
          pods, [&](const auto& pod) { return label_of(*pod, contract::kLabelJobName) == name; });
      return op.has_seen(metadata["namespace"].template get<std::string>() + "/" + name,
                         metadata["resourceVersion"].template get<std::string>(),
                         static_cast<size_t>(own));
    });
  }

  /// Fatal and Deadline have to come to their end in time, undisturbed.
  bool loses_nodes() const {
    return std::ranges::none_of(jobs_, [](const auto& job) {
      return job->scenario == Scenario::Fatal || job->scenario == Scenario::Deadline;
    });
  }

  void take_counts(const SimOperator& op) {
    outcome_.writes += op.transport.writes;
    outcome_.conflicts += op.transport.conflicts;
  }

  void start_operator(size_t index) {
    if (operators_.size() <= index) operators_.resize(index + 1);
    if (operators_[index]) take_counts(*operators_[index]);
    operators_[index] = std::make_unique<SimOperator>(server_, clock_, chance_, bug_);
    if (elects_) {
      operators_[index]->take_part_in_election("operator-" + std::to_string(++started_));
      started_at_ = turn_;
    }
    operators_[index]->transport.watch_writes = [this](const kube::Request& request) {
      if (request.method == "PATCH") ++status_writes_;
      for (const auto& job : jobs_) job->observe_write(request);
    };
    operators_[index]->watch_events = [this](const JobView& of, const Event& event) {
      for (const auto& job : jobs_) job->observe_event(of, event);
    };
  }

  /// In one scenario so often that a run is cut off several times.
  bool keys_are_cut_off() const {
    return std::ranges::any_of(jobs_,
                               [](const auto& job) { return job->scenario == Scenario::Scale; });
  }

  void operators(bool chaos) {
    for (size_t i = 0; i < operators_.size(); ++i) {
      SimOperator& op = *operators_[i];
      op.transport.faults = chaos ? ApiFaults{.refuse = 0.03,
                                              .lose_request = 0.02,
                                              .lose_answer = 0.02,
                                              .kill_before = 0.01,
                                              .kill_after = 0.02,
                                              .kill_after_key = keys_are_cut_off() ? 0.5 : 0.02}
                                  : ApiFaults{};
      op.scattered = chaos;
      if (chaos) {
        disturb(op);
      } else {
        op.deaf = false;
        op.cut_until = Milliseconds(0);
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

  void disturb(SimOperator& op) {
    if (chance_.happens(0.05)) op.deaf = !op.deaf;
    // Longer than a leader may lead without a renewal.
    if (chance_.happens(0.01)) {
      const int turns = 5 + chance_.below(25);
      op.cut_until = clock_.now + Seconds(turns);
      cut_until_ = std::max(cut_until_, turn_ + turns);
    }
    disturbed_ |= op.deaf || op.cut_until > clock_.now || outcome_.kills > 0;
    if (chance_.happens(0.02)) op.skew = Milliseconds((chance_.below(21) - 10) * 1000);
    if (two_leaders_ && !elects_ && chance_.happens(0.05)) op.leads = !op.leads;
  }

  void world_chaos() {
    if (chance_.happens(0.03)) server_.cut_watches();
    if (chance_.happens(0.02)) server_.compact();
    if (chance_.happens(0.05)) server_.send_bookmarks();
    // Both know the holder by then: who has never seen it makes the Lease at once.
    if (elects_ && turn_ > std::max(started_at_, cut_until_) + 20 && chance_.happens(0.02)) {
      (void)user_->remove(kube::resources::leases(), "system", "dsj-operator");
    }
  }

  void check() {
    const auto leading =
        std::ranges::count_if(operators_, [](const auto& op) { return op->may_write(); });
    if (elects_ && leading > 1) problem("two leaders");
    const bool looked = std::ranges::any_of(operators_, [&](const auto& op) {
      return op->may_write() && !op->deaf && op->cut_until <= clock_.now;
    });
    for (const auto& job : jobs_) {
      job->check(disturbed_, looked);
      take(*job);
    }
  }

  void check_end(bool rested) {
    for (const auto& job : jobs_) {
      job->check_end(rested || job->over());
      take(*job);
    }
    if (rested && status_writes_ > 0) {
      problem(std::to_string(status_writes_) + " status writes at rest");
    }
  }

  void take(JobRun& job) {
    for (std::string& text : std::exchange(job.problems, {})) {
      outcome_.problems.push_back(std::move(text));
    }
  }

  void problem(const std::string& text) {
    outcome_.problems.push_back("turn " + std::to_string(turn_) + ": " + text);
  }

  SimClock clock_;
  Chance chance_;
  const Bug* bug_;
  kube::testing::FakeApiServer server_;
  Platform platform_;
  std::optional<kube::Client> user_;
  std::vector<std::unique_ptr<JobRun>> jobs_;
  std::vector<std::unique_ptr<SimOperator>> operators_;
  Outcome outcome_;
  bool disturbed_ = false, two_leaders_ = false, elects_ = false;
  int turn_ = 0, started_ = 0, started_at_ = 0, cut_until_ = 0;
  int64_t status_writes_ = 0;
};

}  // namespace

Outcome simulate(uint64_t seed, const Bug* bug) {
  return Simulation(seed, bug).run();
}

}  // namespace dsj::op::sim
