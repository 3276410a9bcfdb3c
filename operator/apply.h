// Carries out a plan; the only writer. It writes keys, objects, the status, pods, then deletes, each with
// a precondition, so that a second leader or a stale cache does no harm: a name that another owner
// has is refused, a status is written over the version that was decided on, a delete names the uid (but
// that of a key whose Secret was announced and never told of, keys.h).
// After a write that failed it begins nothing more. Exceptions: if the server refuses an object,
// the status is still written, provided that the pass already knew of the refusal; what may be deleted
// after the status is deleted even if a pod cannot be made; a child that cannot be mended stays.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "kube/client.h"
#include "operator/observed.h"
#include "operator/plan.h"
#include "operator/webhook/certificate.h"

namespace dsj::op {

kube::Resource jobs_resource();
kube::Resource job_templates_resource();
/// Volcano's PodGroups.
kube::Resource pod_groups_resource();
/// The resource of a kind that a plan names.
kube::Resource resource_of(const std::string& kind);

/// Hears from apply what the server answered, so that caches need not wait for their watch.
class Writes {
 public:
  virtual ~Writes() = default;
  virtual void wrote(const std::string& kind, const Json& object) = 0;
  /// The server does not have the object of that name and uid any more.
  virtual void absent(const std::string& /*kind*/, const std::string& /*ns*/,
                      const std::string& /*name*/, const std::string& /*uid*/) {}
};

/// Where events go. Those of one pass come one after the other. May be slow.
class EventSink {
 public:
  virtual ~EventSink() = default;
  virtual void tell(const JobView& job, const Event& event) = 0;
};

struct Applied {
  bool done = false;               ///< every write succeeded
  std::optional<Refusal> refusal;  ///< the server refused an object
  std::string problem;             ///< for the log; empty when done
  bool overtaken = false;          ///< another write came first: decide again; no defect
  Milliseconds retry_after{0};
  int64_t created = 0, deleted = 0;
  bool status_written = false;
  /// A set of keys that cannot be made, because its Secrets' names are taken; another is to be made.
  std::string taken_set;
};

/// Makes a key for a set, by chance and the clock of the plan.
using IssueKey = std::function<Result<ServerCertificate>(const KeyChange&)>;
Result<ServerCertificate> issue_worker_key(const KeyChange& change);

/// The next task; nullopt: none is left, or one has failed.
using ClaimTask = std::function<std::optional<size_t>()>;
using CarryTask = std::function<void(size_t)>;
/// Claims tasks and carries out up to `at_once` of them at a time, in no order, until none is left.
using Crew = std::function<void(int at_once, const ClaimTask& claim, const CarryTask& carry)>;
/// On threads of this call.
void work_on_threads(int at_once, const ClaimTask& claim, const CarryTask& carry);

/// Asks `may_write` before every write: a leader that lost its lease stops, and so does a pass
/// whose decision is out of date. Creates up to `at_once` objects at a time, by `crew`: first
/// objects, then objects that refer to them, then pods. The first pod is created alone, so that a
/// quota or a policy is met once. Events are told meanwhile.
Applied apply(kube::Client& client, const Observed& observed, const Plan& plan,
              const std::function<bool()>& may_write, Writes& writes, EventSink& events,
              int at_once = 1, const Crew& crew = work_on_threads,
              const IssueKey& issue = issue_worker_key);

}  // namespace dsj::op
