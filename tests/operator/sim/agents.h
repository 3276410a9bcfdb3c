// A small model of the agents and ranks of one job: they join, step, save, stop and end, on pods
// that a small model of scheduler and kubelets starts and kills. The shared volume (attempt file,
// checkpoints) is the truth that the oracle compares with.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "job/restart_budget.h"
#include "kube/client.h"
#include "operator/observe/observed.h"
#include "operator/observe/own_status.h"
#include "tests/kube/fake_api_server.h"
#include "tests/operator/sim/bugs.h"
#include "tests/operator/sim/chance.h"
#include "tests/operator/sim/clock.h"
#include "tests/operator/sim/platform.h"

namespace dsj::op::sim {

inline constexpr int64_t kTotalSteps = 12;
inline constexpr int64_t kSaveEvery = 4;
inline constexpr Seconds kJoinTimeout{150};
inline constexpr Seconds kRefusalsTaken{60};
inline constexpr Seconds kLease{6};  ///< a cut-off agent ends its ranks by then

struct Faults {
  double rank_crash = 0, agent_kill = 0, evict = 0, pod_delete = 0;
  double collect = 0;  ///< a pod that is done is deleted before anybody may have seen it
};

/// A container with an agent and its ranks.
struct Container {
  std::string uid, pod, node, revision, authority;
  int worker = 0, replicas = 1;
  int64_t incarnation = 0;
  std::string account;               ///< uid of its ServiceAccount (strict)
  std::optional<Time> began;         ///< (strict)
  bool alive = false, told = false;  ///< told: its end is in the pod's status
  bool term = false;                 ///< SIGTERM came
  std::optional<Time> kill_at, cut_since, alone_since;
  int exit_code = 0;
  Json words;
};

class Agents {
 public:
  Agents(kube::testing::FakeApiServer& server, SimClock& clock, Chance& chance, Platform& platform,
         std::string job, AgentBugs bugs);

  void turn(const Faults& faults);

  // ---- the truth
  std::vector<std::string> violations;
  int64_t attempt = 0;  ///< the attempt file
  int64_t saved = 0;    ///< newest checkpoint; 0: none
  bool last_step_saved = false;
  std::map<int64_t, std::set<int>> done;  ///< attempt → workers whose ranks did the last step
  std::optional<Time> first_completed;    ///< when the first agent ended with that word
  std::map<int64_t, int> sizes;           ///< attempt → its workers
  int64_t charged = 0;                    ///< ends that agents charged
  int64_t keyless = 0;                    ///< ends of worker 0 for want of its key
  int64_t crashes = 0;                    ///< of ranks and agents, not disruptions
  bool died_unheard = false;              ///< agent 0, once: with a report that nobody has stored
  bool may_crash_always = false;          ///< the crash loop: every attempt crashes at once
  bool pods_crash = false;                ///< agents end before they join
  bool fatal = false;                     ///< the next attempt ends with exit code 3
  int64_t total_steps = kTotalSteps;
  bool sidecars = false;  ///< beside every worker: it ends only with its pod
  bool strict = false;    ///< pods and agents need every object that the operator makes for them
  int places = 1000;      ///< nodes' places for pods of this job
  /// What runs beyond `count` places is gone with its nodes, and no more pods find a node.
  void leave_places(int count);
  bool attempt_running() const { return running_; }
  std::optional<int64_t> stop_step() const { return stop_; }
  int64_t step() const { return step_; }
  /// Workers whose ranks run now.
  int living(int worker) const;

 private:
  void power();
  void kubelets(const Faults& faults);
  void start_container(const Json& pod);
  bool has_what_it_mounts(const Json& pod) const;
  bool has_key(const Container& container) const;
  bool may_report(const Container& container) const;
  bool lacks_key();
  std::shared_ptr<const Json> shown(const char* kind, const std::string& name) const;
  void tell_end(Container& container);
  void gang(const Faults& faults);
  void maybe_start();
  void give_up();
  void lose_attempt(int worker, const std::string& reason, int exit_code);
  void run_step();
  void finish(Container& container, int code, const std::string& reason, int64_t step);
  void report();
  void account();
  Container* alive_worker(int worker, const std::string& revision);
  bool stop_wanted() const;
  bool job_stops() const;
  const Container* zero() const;
  bool beyond_the_gang(const Container& container) const;
  bool of_the_next_gang(const Container& container) const;
  void spares_leave();
  bool has_place(const Json& pod);
  std::shared_ptr<const Json> job_now() const;
  const OwnStatus& told_by_operator(const std::shared_ptr<const Json>& job) const;
  bool api_delete(const std::string& kind, const std::string& name, bool force);

  kube::testing::FakeApiServer& server_;
  SimClock& clock_;
  Chance& chance_;
  Platform& platform_;
  const std::string job_;
  const AgentBugs bugs_;
  kube::Client client_;
  std::map<std::string, Container> containers_;  ///< by pod uid
  // the gang
  bool running_ = false, leaving_ = false;
  std::vector<std::string> members_;
  int64_t step_ = 0;
  std::optional<int64_t> stop_;
  Time not_before_{};
  RestartBudget account_;            ///< the operator's
  std::vector<ChargedEnd> charged_;  ///< ends that it lacks
  Json last_failure_;
  std::vector<Json> earlier_failures_;  ///< that the operator has not counted
  Json damage_;                         ///< status.checkpoint.lastDamaged; null: none
  bool urgent_ = false;
  std::optional<Time> refused_;  ///< since when the API server refuses agent 0's reports
  Time reported_{}, stepped_{};
  /// The job, as it was read for a report that is not written yet.
  std::shared_ptr<const Json> read_;
  mutable std::shared_ptr<const Json> told_of_;
  mutable OwnStatus told_;  ///< by that job
};

}  // namespace dsj::op::sim
