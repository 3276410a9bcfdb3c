// Carries out a plan; the only writer of job objects. It writes keys, objects, node marks, the
// status and pods, then deletes. Each write has a precondition, so that a second leader or a stale
// cache does no harm: a create is refused if another owner has the name, the status replaces the
// version that was decided on, and an update names the version and uid of an object that was seen to
// belong to the job, and a delete names such an object's uid. A mark is the same no matter who
// writes it.
// After a failed write it begins no further one, with these exceptions: if the server refuses an
// object, the status is still written, provided that the pass already knew of the refusal;
// deletions that follow the status are made even if a pod cannot be created; a child that cannot be
// updated stays; a node that must not be marked becomes an event.
#pragma once

#include <functional>

#include "kube/client.h"
#include "operator/act/applied.h"
#include "operator/act/resources.h"
#include "operator/observe/observed.h"
#include "operator/render/plan.h"

namespace dsj::op {

/// Receives events. Events of one pass arrive one at a time. May be slow.
class EventSink {
 public:
  virtual ~EventSink() = default;
  virtual void tell(const JobView& job, const Event& event) = 0;
};

Result<ServerCertificate> issue_worker_key(const NewKey& key);

/// A Crew on threads of this call.
void work_on_threads(int at_once, const ClaimTask& claim, const CarryTask& carry);

/// Calls `may_write` before every write: a leader that lost its lease stops, and so does a pass
/// whose decision is outdated. Creates up to `at_once` objects at a time with `crew`: first
/// children and the key in parallel, each after the object that it refers to, then pods. If a gang
/// does not fit into one batch, or after a refusal, one pod is tried first, so that a quota or
/// policy refuses only once. Events are published meanwhile.
Applied apply(kube::Client& client, const Observed& observed, const Plan& plan,
              const std::function<bool()>& may_write, Writes& writes, EventSink& events,
              int at_once = 1, const Crew& crew = work_on_threads,
              const IssueKey& issue = issue_worker_key);

}  // namespace dsj::op
