// One pass of reconcile. Used only by reconcile: reconcile.cc calls the concerns in order, and each
// reconcile_*.cc implements one.
#pragma once

#include <string>
#include <vector>

#include "job/report/status.h"
#include "job/restart_budget.h"
#include "operator/observe/observed.h"
#include "operator/observe/own_status.h"
#include "operator/render/keys.h"
#include "operator/render/plan.h"

namespace dsj::op {

/// Reason of Restarting: the gang was not complete in time and released its nodes.
inline constexpr char kGangReleased[] = "GangReleased";

/// One worker's pods.
struct Slot {
  int worker = 0;
  const PodView* newest = nullptr;
  std::vector<const PodView*> older;
};

/// How a worker's pod ended. Derived from exit codes, kubelets and nodes, never from message text.
enum class PodEnd {
  Failed,     ///< a restart may help
  Fatal,      ///< no restart helps
  Preempted,  ///< stopped on request: every rank saved the same step
  TakenAway,  ///< removed by the platform or a user: not charged
};

/// A worker's pod failed, was lost with its node, or is gone. It holds everything that later steps
/// need about the pod, because the pod may no longer exist.
struct PodFailure {
  report::FailureRecord said;
  PodEnd end = PodEnd::Failed;
  bool gave_up = false;                    ///< its agent stopped waiting for others: a consequence
  std::vector<std::string> conditions;     ///< types of the pod's conditions that are True
  std::optional<int64_t> restarts_before;  ///< status.restarts.total when the pod was created
  bool fetched = false;                    ///< its initializer failed
};

/// `reason` as a word that a status may use: characters other than letters and digits become "_".
/// `otherwise` if it does not begin and end suitably or is too long.
std::string word_or(const std::string& reason, const std::string& otherwise);

class Pass {
 public:
  Pass(const Observed& observed, Time now);
  Plan run();

 private:
  enum class Drained { No, Saved, NotSaved };

  // reconcile.cc
  void believe_pods();
  void set(const char* type, bool yes, const std::string& reason, const std::string& message);
  void set_unknown(const char* type, const std::string& reason, const std::string& message);
  void due(Time time);
  /// Times in the status have whole seconds; times for comparisons have milliseconds.
  Time shown_now() const { return std::chrono::floor<Seconds>(now_); }
  void remove(const PodView& pod, bool force = false);
  void start_anew();
  bool accept();
  std::string revision(bool edited);
  void note_template();
  void unfinished();
  void look();
  void finish();
  // reconcile_pods.cc
  void group_pods();
  void tidy_replaced();
  void tidy_pods();
  void make_pods();
  void make_children(bool shared_only = false);
  bool waits_out(const ObjectName& object);
  void replace_disowned();
  void note_pods();
  void pace_pods();
  int64_t next_incarnation(const Slot& slot) const;
  std::string gang() const;
  void tidy_gangs(const std::string& keep);
  // reconcile_elastic.cc
  void enter_elastic();
  void take_size(const std::string& base);
  bool resize();
  void make_spares();
  ElasticSeen seen_sizes() const;
  bool is_spare(const PodView& pod) const;
  bool node_answers(const PodView& pod) const;
  bool goes_on(const PodView& pod) const;
  // reconcile_keys.cc
  void choose_key();
  std::string key_problem() const;
  void tidy_keys();
  // reconcile_wait.cc
  bool held() const;
  bool wait_for_gang();
  void release(const std::string& why, bool for_others);
  std::string who_is_missing() const;
  std::pair<int, std::string> missing_workers() const;
  // reconcile_stop.cc
  void suspend();
  void roll();
  Drained drained();
  void forget_attempt();
  // reconcile_queue.cc
  bool leave_finished_group();
  void leave_queue();
  // reconcile_complete.cc
  bool complete();
  bool attested() const;
  bool said_done(const PodView* pod) const;
  void hear_completion();
  // reconcile_failures.cc
  Time heard() const;
  void lost_pods();
  void failures();
  PodFailure failure_of(const PodView& pod) const;
  // reconcile_charge.cc
  void ended_in_place();
  void failed_in_place(report::FailureRecord failure);
  void charge(std::vector<PodFailure> failures, bool may_fail_by_rule);
  Seconds uncharged();
  RestartVerdict charge_one(int64_t newest_checkpoint);
  void count_ends(int64_t attempt);
  void restarted();
  void no_restart_left(const report::FailureRecord& cause);
  void note_failure(report::FailureRecord failure);
  bool waited_in_vain(const PodFailure& failure) const;
  std::optional<jobspec::FailureAction> rule_for(const report::FailureRecord& said,
                                                 const std::vector<std::string>& conditions) const;
  bool is_new_fetch(const PodFailure& failure) const;
  // reconcile_nodes.cc
  void avoided_nodes();
  void note_nodes();
  void mark_node(const UnhealthyNode& node);
  Seconds node_pause(const std::vector<PodFailure>& failures) const;
  // reconcile_end.cc
  void fail(const std::string& reason, const std::string& message);
  void deadlines();
  void finished();
  // reconcile_conditions.cc
  void conditions();
  void scheduled_condition();
  std::string unheard();
  std::pair<const PodView*, std::string> silent_pod();
  void initialized_condition();
  void progressing_condition();
  void contested_condition();

  const JobView& job() const { return *o_.job; }
  const jobspec::Job& spec() const { return force_->job; }
  bool ended() const;        ///< Complete or Failed
  bool has_trained() const;  ///< an attempt has run, no matter how it ended
  /// Agent 0 has started an attempt whose end is not counted yet.
  bool attempt_open() const;
  bool all_run() const;
  std::vector<const PodView*> live() const;  ///< pods whose containers may still run

  const Observed& o_;
  const Time now_;
  Plan plan_;
  OwnStatus st_;
  std::shared_ptr<const Accepted> force_;  ///< the spec in force; null if there is none
  std::vector<const PodView*> pods_;       ///< pods of this job
  std::vector<Slot> slots_;                ///< of workers 0 .. replicas - 1
  bool suspend_ = false;
  bool new_revision_ = false;  ///< this pass is the first under the spec in force
  bool creating_ = false;      ///< pods are being created, or wait for the restart's pause
  bool withheld_ = false;      ///< a missing object waits for its pause (contest.h)
  bool paced_ = false;         ///< missing pods wait for tokens (pod_pace.h)
  int wanted_ = 0;             ///< elastic: number of workers in the last accepted spec
  int spares_ = 0;             ///< elastic: number of pods beyond the gang that request nodes
  std::string spare_revision_;
  RunKey key_;  ///< of the pods that this pass creates
};

}  // namespace dsj::op
