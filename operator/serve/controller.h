// One pass over one job: observe, reconcile, apply, and schedule the next pass. Thread-safe for
// different keys; the queue never returns a key that is in work.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "kube/clock.h"
#include "operator/act/apply.h"
#include "operator/act/trial.h"
#include "operator/decide/reconcile.h"
#include "operator/observe/cache.h"
#include "operator/serve/queue.h"

namespace dsj::op {

/// Receives the results of passes, for the counters in metrics.h.
class Watcher {
 public:
  virtual ~Watcher() = default;
  virtual void pass(Milliseconds /*queued*/, std::chrono::microseconds /*decided*/,
                    const Plan& /*plan*/, const Applied& /*applied*/) {}
  virtual void transition(const JobView& /*before*/, const Plan& /*plan*/) {}
};

/// Carries out a plan, as apply() does (apply.h).
using CarryOut = std::function<Applied(kube::Client& client, const Observed& observed,
                                       const Plan& plan, const std::function<bool()>& may_write,
                                       Writes& writes, EventSink& events)>;

struct ControllerOptions {
  Settings settings;
  std::function<bool()> may_write;          ///< true while this process leads
  std::function<std::string()> token_keys;  ///< the cluster's JWKS; empty if it cannot be read
  std::shared_ptr<PodTrials> trials = std::make_shared<PodTrials>();  ///< shared with the webhook
  std::function<Plan(const Observed&, Time)> decide = reconcile;
  int creates_at_once = 1;  ///< for the pods of one job
  Crew crew = work_on_threads;
  CarryOut carry_out = nullptr;  ///< null means apply() with the two above
};

class Controller {
 public:
  Controller(kube::Client& client, Cache& cache, Queue& queue, EventSink& events,
             ControllerOptions options, Watcher& watcher);

  /// Runs a pass over the key that has been due longest. An exception in a pass affects only its
  /// own job: the condition Stalled reports it, and the pass is repeated after a growing pause.
  /// Returns false if no key is due. `wall` is the time of the call; delays after the pass count
  /// from its end, by `clock`.
  bool step(const kube::Clock& clock, Time wall);
  /// Drops what was remembered from earlier passes. Call when leadership is lost or won.
  void forget();

 private:
  struct Memory {
    std::string uid;
    int64_t generation = -1;
    std::string queue_label;  ///< an edit of the label changes no generation
    Verdict wanted;
    Time judged{};
    std::string in_force_revision;
    std::shared_ptr<const Accepted> in_force;
    AdmittedObjects admitted;
    std::optional<Refusal> refusal;
    int create_problems = 0;  ///< consecutive passes with one (applied.h)
    PodWords words;
    Time pods_full{};
    MadeKey unused_key;
    Contests contests;
  };

  static ControllerOptions completed(ControllerOptions options);
  void pass(const std::string& key, Milliseconds queued, const kube::Clock& clock, Time wall);
  void note_create_problem(const std::string& key, Applied& applied);
  void tell_stalled(const std::string& key, const std::string& why, Time wall);
  bool confirm(const std::string& key, Observed& observed);
  bool look_at_pods(const std::string& key, Observed& observed);
  bool still_taken(const Observed& observed);
  bool look(const std::string& key, Observed& observed, Time wall);
  bool judge_spec(const std::string& key, Observed& observed, Time wall, bool& tried);
  std::optional<std::optional<ChildView>> kept_spec(const Observed& observed,
                                                    const std::string& name);
  std::optional<std::string> config_text(const Observed& observed, std::string& problem);
  TemplateText template_text(const Observed& observed);
  bool try_pod(const Observed& observed, Verdict& wanted, Time wall);
  void read_words(const std::string& key, const Observed& observed,
                  const std::vector<std::string>& pods, Time wall);

  kube::Client& client_;
  Cache& cache_;
  Queue& queue_;
  EventSink& events_;
  const ControllerOptions options_;
  Watcher& watcher_;
  std::mutex mutex_;
  std::map<std::string, Memory> memory_;
};

}  // namespace dsj::op
