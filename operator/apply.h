// Carries a plan out: the only writer. Objects, the status, pods, deletes, in this order, each with
// a precondition, so that a second leader or a stale cache can do no harm: a name that is taken by
// another owner is refused, a status is written over the version it was decided on, a delete names
// the uid. Begins nothing after a write that did not go through; after a create that the server does
// not want the status is still written, if it was made in the knowledge of that.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "kube/client.h"
#include "operator/observed.h"
#include "operator/plan.h"

namespace dsj::op {

kube::Resource jobs_resource();
/// Volcano's.
kube::Resource pod_groups_resource();
/// Of a kind that a plan names.
kube::Resource resource_of(const std::string& kind);

/// Told by apply about what the server answered, so that caches need not wait for their watch.
class Writes {
 public:
  virtual ~Writes() = default;
  virtual void wrote(const std::string& kind, const Json& object) = 0;
};

/// Where events go: those of a pass one after the other; may be slow.
class EventSink {
 public:
  virtual ~EventSink() = default;
  virtual void tell(const JobView& job, const Event& event) = 0;
};

struct Applied {
  bool done = false;               ///< every write went through
  std::optional<Refusal> refusal;  ///< an object that the server does not want
  std::string problem;             ///< for the log; empty when done
  bool overtaken = false;          ///< another write came first: to be decided again, no defect
  Milliseconds retry_after{0};
  int64_t created = 0, deleted = 0;
  bool status_written = false;
};

/// `may_write` is asked before every write: a leader that lost its lease stops. Creates go up to
/// `at_once` at a time, on threads of this call: objects, then those that refer to one of them,
/// then pods, of which the first is made alone, so that a quota or a policy is met once. Events are
/// told meanwhile.
Applied apply(kube::Client& client, const Observed& observed, const Plan& plan,
              const std::function<bool()>& may_write, Writes& writes, EventSink& events,
              int at_once = 1);

}  // namespace dsj::op
