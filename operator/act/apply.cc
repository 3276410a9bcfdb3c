#include "operator/act/apply.h"

#include <algorithm>
#include <list>
#include <thread>

#include "common/json.h"
#include "common/log.h"
#include "job/contract.h"
#include "job/join_keys.h"
#include "operator/act/application.h"
#include "operator/render/keys.h"

namespace dsj::op {
namespace {

Task creating(const Create& one) {
  return [&one](Application& part) { return part.create(one); };
}

/// A RoleBinding must be created after its Role, if the plan creates that too.
bool comes_behind(const Create& one, const Create& other) {
  if (!one.refers) return false;
  const Json& role = json_child(one.object, "roleRef");
  return json_text(role, "kind") == other.kind && json_text(role, "name") == other.name;
}

/// One task per object. Objects that refer to it follow in the same task.
std::vector<Task> in_chains(const std::vector<Create>& creates) {
  std::vector<Task> tasks;
  for (const Create& first : creates) {
    if (std::ranges::any_of(creates, [&](const Create& it) { return comes_behind(first, it); })) {
      continue;
    }
    std::vector<const Create*> chain = {&first};
    for (const Create& one : creates) {
      if (comes_behind(one, first)) chain.push_back(&one);
    }
    tasks.push_back([chain](Application& part) {
      return std::ranges::all_of(chain, [&](const Create* one) { return part.create(*one); });
    });
  }
  return tasks;
}

/// Whether one pod is created before the others, so that a quota or policy refuses once and not for
/// every thread. Not if the job has pods or if the gang fits into one batch: there it would cost
/// more than it saves.
bool tries_one_first(const Observed& observed, size_t pods, int at_once) {
  return observed.refusal || (observed.pods.empty() && pods > static_cast<size_t>(at_once));
}

/// uid of the ServiceAccount whose tokens the pods get. Empty if it is not the job's own.
std::string account_of(const Observed& observed, const Applied& made) {
  if (!made.account.empty()) return made.account;
  for (const ChildView& child : observed.children)
    if (child.kind == "ServiceAccount" && child.owner_uid == observed.job->uid) return child.uid;
  return {};
}

/// The pod with what is known only now: a new key and, for worker 0, the uid of its ServiceAccount.
/// nullopt if there is nothing to add.
std::optional<Create> completed(const Create& pod, const std::string& job,
                                const std::string& account, const MadeKey& key) {
  const bool zero = label_of(pod.object, contract::kLabelReplicaIndex) == "0";
  if (key.run == 0 && (account.empty() || !zero)) return std::nullopt;
  Create whole = pod;
  if (!account.empty() && zero)
    whole.object["metadata"]["annotations"][kAnnotationAccount] = account;
  if (key.run > 0) set_key(whole.object, job, key.run, key.authority);
  return whole;
}

}  // namespace

void work_on_threads(int at_once, const ClaimTask& claim, const CarryTask& carry) {
  const auto work = [&] {
    while (const auto task = claim()) carry(*task);
  };
  std::vector<std::jthread> others;
  for (int i = 1; i < at_once; ++i) others.emplace_back(work);
  work();
}

Result<ServerCertificate> issue_worker_key(const NewKey& key) {
  return issue_certificate({key.host}, key.identity, key.made, kKeyLifetime, kJobOrganization);
}

Applied apply(kube::Client& client, const Observed& observed, const Plan& plan,
              const std::function<bool()>& may_write, Writes& writes, EventSink& events,
              int at_once, const Crew& crew, const IssueKey& issue) {
  Application application(client, observed, may_write, writes);
  auto tell = [&] {
    try {
      for (const Event& event : plan.events) events.tell(*observed.job, event);
      for (const Event& event : application.events) events.tell(*observed.job, event);
    } catch (const std::exception& error) {  // may be on its own thread
      log::error(std::string("events are lost: ") + error.what());
    }
  };
  auto make_pods = [&] {
    std::list<Create> changed;  // only these are copied
    std::vector<Task> tasks;
    const std::string account = account_of(observed, application.result);
    for (const Create& pod : plan.pods) {
      auto whole = completed(pod, observed.name, account, application.result.key);
      tasks.push_back(creating(whole ? changed.emplace_back(std::move(*whole)) : pod));
    }
    if (!tasks.empty() && tries_one_first(observed, tasks.size(), at_once)) {
      if (!tasks.front()(application)) return false;
      tasks.erase(tasks.begin());
    }
    return application.carry_out(tasks, at_once, crew);
  };
  std::jthread telling;  // pods do not wait for events
  auto all = [&] {
    // Keys come first because they take longest. A refused key must not prevent the spec from being
    // stored, because the status may refer to that spec from now on.
    bool keyed = true;
    std::vector<Task> tasks = in_chains(plan.creates);
    if (plan.old_key || plan.key) {
      tasks.insert(tasks.begin(), [&](Application& part) {
        keyed = (!plan.old_key || part.remove(*plan.old_key)) &&
                (!plan.key || part.make_key(*plan.key, issue));
        return true;
      });
    }
    const bool made = application.carry_out(tasks, at_once, crew) && keyed;
    // The status shows a refused object only after a pass knows of the refusal.
    const bool told = application.result.refusal || !application.result.create_problem.empty();
    if (!made && !(told && observed.refusal)) return false;
    bool mended = true;
    for (const Create& update : plan.updates) mended &= application.update(update);
    // Once the status lists a node, its mark is not requested again.
    for (const NodeMark& mark : plan.marks) {
      if (!application.mark(mark)) return false;
    }
    if (!plan.status.is_null()) {
      if (!application.status(plan)) return false;
      if (at_once > 1 && !plan.pods.empty()) {
        telling = std::jthread(tell);
      } else {
        tell();
      }
    }
    bool complete = made && make_pods();
    for (const Release& release : plan.releases) complete &= application.release(release);
    return application.remove_all(plan.deletes) && complete && mended;
  };
  application.result.done = all();
  return application.result;
}

}  // namespace dsj::op
