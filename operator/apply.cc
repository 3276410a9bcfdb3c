#include "operator/apply.h"

#include <thread>

#include "job/join_keys.h"
#include "operator/application.h"
#include "operator/keys.h"

namespace dsj::op {

void work_on_threads(int at_once, const ClaimTask& claim, const CarryTask& carry) {
  std::vector<std::jthread> running;
  for (int i = 0; i < at_once; ++i) {
    running.emplace_back([&] {
      while (const auto task = claim()) carry(*task);
    });
  }
}

Result<ServerCertificate> issue_worker_key(const KeyChange& change) {
  const std::string identity = change.metadata.value("namespace", "") + "/" + change.job;
  return issue_certificate({change.host}, identity, change.made, kKeyLifetime, kJobOrganization);
}

Applied apply(kube::Client& client, const Observed& observed, const Plan& plan,
              const std::function<bool()>& may_write, Writes& writes, EventSink& events,
              int at_once, const Crew& crew, const IssueKey& issue) {
  Application application(client, observed, may_write, writes);
  auto create = [&](const std::vector<Create>& creates, auto&& chosen) {
    std::vector<const Create*> list;
    for (const Create& one : creates) {
      if (chosen(one)) list.push_back(&one);
    }
    return application.create_all(list, at_once, crew);
  };
  auto refers = [](const Create& one) { return one.refers; };
  auto first = [&](const Create& one) { return &one == &plan.pods.front(); };
  auto tell = [&] {
    for (const Event& event : plan.events) events.tell(*observed.job, event);
    for (const Event& event : application.events) events.tell(*observed.job, event);
  };
  std::jthread telling;  // pods do not wait for events
  auto all = [&] {
    // A refused object is shown in the status once a pass knows of the refusal.
    bool made = create(plan.creates, std::not_fn(refers)) && create(plan.creates, refers);
    // Pods need their first key; a renewal has time. A refused key keeps no spec from being stored: the
    // status may speak of that spec from now on.
    const bool keyed = !plan.keys || application.change_keys(*plan.keys, issue);
    made &= keyed || !plan.keys->version.empty();
    if (!made && !(application.result.refusal && observed.refusal)) return false;
    bool mended = true;
    for (const Create& update : plan.updates) mended &= application.update(update);
    // Once the status names a node nobody asks for its mark again.
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
    const bool complete = made && create(plan.pods, first) && create(plan.pods, std::not_fn(first));
    return application.remove_all(plan.deletes) && complete && mended && keyed;
  };
  application.result.done = all();
  return application.result;
}

}  // namespace dsj::op
