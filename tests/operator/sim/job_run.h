// One job of a simulation: its scenario, what its user does, its agents, and the oracle that judges
// it every turn and at its end.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "operator/observe/own_status.h"
#include "tests/operator/sim/agents.h"
#include "tests/operator/sim/scenario.h"

namespace dsj::op::sim {

inline constexpr char kNamespace[] = "n";

class JobRun {
 public:
  JobRun(kube::testing::FakeApiServer& server, SimClock& clock, Chance& chance, Platform& platform,
         std::string name, Scenario scenario, AgentBugs bugs);

  /// From now on its pods and agents need every object that the operator makes for them.
  void be_strict() { world_.strict = true; }
  /// What the user, the nodes and the agents do in this turn.
  void turn(int turn, bool chaos);
  void observe_write(const kube::Request& request);
  void observe_event(const JobView& of, const Event& event);
  /// `disturbed`: an operator was away or died. `looked`: in this turn one sees the server and may write.
  void check(bool disturbed, bool looked);
  /// `rested`: the job came to its end.
  void check_end(bool rested);
  /// How often worker 0 ended for want of its key.
  int64_t keyless() const { return world_.keyless; }
  /// Finished, or gone as it should be, and what its user has to do is done.
  bool over() const;
  /// An attempt with fewer workers than the one before; later one with more.
  bool has_shrunk() const;
  bool has_grown_again() const;
  std::vector<std::string> problems;
  const std::string name;
  const Scenario scenario;

 private:
  Faults faults() const;
  void edit(const std::function<void(Json&)>& change);
  void meddle();
  void mend();
  bool waits_for_suspension();
  void problem(const std::string& text);
  std::shared_ptr<const Json> job() const;
  std::vector<std::shared_ptr<const Json>> ours(const std::string& kind) const;
  bool finished() const { return job_ ? ended(status_) : pods_.empty(); }
  static bool ended(const OwnStatus& st) {
    return is_true(st.conditions, "Complete") || is_true(st.conditions, "Failed");
  }
  void check_precondition(const kube::Request& request);
  void check_deletion(const std::string& pod);
  bool account_is_another(const Json& pod) const;
  bool told_attempt(const Json& object);
  void check_pods(bool looked);
  void check_groups();
  void check_complete();
  void check_heard();
  void check_status();
  void check_sizes();
  void check_completed();
  void check_damage();
  void check_reason();
  void check_gone();
  std::string unended() const;

  kube::testing::FakeApiServer& server_;
  SimClock& clock_;
  Chance& chance_;
  Platform& platform_;
  Agents world_;
  kube::Client user_;
  std::shared_ptr<const Json> job_;
  OwnStatus status_;
  std::vector<std::shared_ptr<const Json>> pods_;
  bool can_stop_ = false;  ///< when it was suspended, its ranks had steps enough to stop in between
  bool suspended_ = false, met_attempt_ = false, was_over_ = false, disturbed_ = false;
  int replicas_ = 1, turn_ = 0, told_since_ = 0, meddle_at_ = 0, mend_at_ = 0;
  int64_t restarts_ = 0, told_attempt_ = 0;
  struct Life {
    std::string uid;
    int turns = 0;  ///< in which an operator looked
  };
  std::map<std::string, Life> lives_;  ///< of pods, by name
  std::set<std::string> damage_told_;  ///< what events told of damaged checkpoints
};

}  // namespace dsj::op::sim
