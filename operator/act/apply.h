// Carries out a plan; the only writer. It writes keys, objects, marks of nodes, the status, pods, then
// deletes, each with a precondition, so that a second leader or a stale cache does no harm: a name that
// another owner has is refused, a status is written over the version that was decided on, a delete names
// the uid (but that of a key whose Secret was announced and never told of, keys.h). A mark is the same
// whoever writes it.
// After a write that failed it begins nothing more. Exceptions: if the server refuses an object,
// the status is still written, provided that the pass already knew of the refusal; what may be deleted
// after the status is deleted even if a pod cannot be made; a child that cannot be mended stays; a node
// that may not be marked is told as an event.
#pragma once

#include <functional>

#include "kube/client.h"
#include "operator/act/applied.h"
#include "operator/act/resources.h"
#include "operator/observe/observed.h"
#include "operator/render/plan.h"

namespace dsj::op {

/// Where events go. Those of one pass come one after the other. May be slow.
class EventSink {
 public:
  virtual ~EventSink() = default;
  virtual void tell(const JobView& job, const Event& event) = 0;
};

Result<ServerCertificate> issue_worker_key(const KeyChange& change);

/// On threads of this call.
void work_on_threads(int at_once, const ClaimTask& claim, const CarryTask& carry);

/// Asks `may_write` before every write: a leader that lost its lease stops, and so does a pass
/// whose decision is out of date. Creates up to `at_once` at a time, by `crew`: objects, one that refers to
/// another behind that, the key beside them; then pods. Of a gang that does not go at once, and after a refusal,
/// one is tried first, so that a quota or a policy is met once. Events are told meanwhile.
Applied apply(kube::Client& client, const Observed& observed, const Plan& plan,
              const std::function<bool()>& may_write, Writes& writes, EventSink& events,
              int at_once = 1, const Crew& crew = work_on_threads,
              const IssueKey& issue = issue_worker_key);

}  // namespace dsj::op
