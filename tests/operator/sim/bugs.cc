#include "tests/operator/sim/bugs.h"

#include <algorithm>
#include <atomic>

#include "job/contract.h"
#include "operator/own_status.h"

namespace dsj::op::sim {
namespace {

Bug decision(const char* name, std::function<Plan(const Observed&, Time)> decide) {
  return {.name = name, .decide = std::move(decide)};
}

/// The plan of what is not so.
Bug seen(const char* name, std::function<void(Observed&)> change) {
  return decision(name, [change](const Observed& observed, Time now) {
    Observed wrong = observed;
    change(wrong);
    return reconcile(wrong, now);
  });
}

/// Something else than what was planned.
Bug planned(const char* name, std::function<void(const Observed&, Plan&)> change) {
  return decision(name, [change](const Observed& observed, Time now) {
    Plan plan = reconcile(observed, now);
    change(observed, plan);
    return plan;
  });
}

Bug rewritten(const char* name, std::function<void(kube::Request&)> rewrite) {
  return {.name = name, .rewrite = std::move(rewrite)};
}

Bug lease(const char* name) {
  return {.name = name, .takes_held_leases = true};
}

Bug agents(const char* name, AgentBugs bugs) {
  return {.name = name, .agents = bugs};
}

void change_body(kube::Request& request, const std::function<void(Json&)>& change) {
  Json body = Json::parse(request.body);
  change(body);
  request.body = body.dump();
}

Delete deletion_of(const PodView& pod) {
  return {.kind = "Pod", .name = pod.name, .uid = pod.uid};
}

}  // namespace

const std::vector<Bug>& planted_bugs() {
  static const std::vector<Bug> bugs = {
      seen("one worker that is done counts for all",
           [](Observed& o) {
             const auto done = std::ranges::find_if(o.pods, is_done);
             if (done == o.pods.end()) return;
             const Termination words = *done->termination;
             for (PodView& pod : o.pods) {
               pod.phase = PodView::Phase::Succeeded;
               pod.termination = words;
             }
           }),
      planned("suspending deletes the pods at once",
              [](const Observed& o, Plan& plan) {
                if (!o.job || !o.job->spec.value("suspend", false)) return;
                for (const PodView& pod : o.pods) plan.deletes.push_back(deletion_of(pod));
              }),
      planned("a failure restarts the pods of all workers",
              [](const Observed& o, Plan& plan) {
                const bool again = std::ranges::any_of(
                    plan.pods, [](const Create& pod) { return !pod.name.ends_with("-1"); });
                if (!again) return;
                for (const PodView& pod : o.pods) {
                  if (!pod.ended()) plan.deletes.push_back(deletion_of(pod));
                }
              }),
      planned("failed pods are not replaced",
              [](const Observed&, Plan& plan) {
                std::erase_if(plan.pods,
                              [](const Create& pod) { return !pod.name.ends_with("-1"); });
              }),
      planned("restarts are not charged",
              [](const Observed&, Plan& plan) {
                if (plan.status.is_object()) plan.status["restarts"]["counted"] = 0;
              }),
      seen("an ended attempt is forgotten and charged in every pass",
           [](Observed& o) {
             if (o.job && o.job->own_status.contains("restarts")) {
               o.job->own_status["restarts"]["attempt"] = 0;
             }
           }),
      seen("incarnations are not remembered",
           [](Observed& o) {
             if (o.job) o.job->own_status.erase("incarnation");
           }),
      seen("a node that is away is given up at once",
           [](Observed& o) {
             for (auto& [name, node] : o.nodes) node.since = Time{};
             for (PodView& pod : o.pods) pod.created.reset();
             if (o.job) o.job->agent.updated.reset();
           }),
      seen("a lost node's pod is waited for",
           [](Observed& o) {
             o.nodes.clear();
             for (PodView& pod : o.pods) {
               if (pod.deleting_from) pod.deleting_from = Time::max() - std::chrono::hours(99);
             }
           }),
      seen("pods of another spec are taken for this one's",
           [](Observed& o) {
             if (!o.wanted.accepted) return;
             for (PodView& pod : o.pods) pod.revision = o.wanted.accepted->revision;
           }),
      seen("old pods are not waited for",
           [](Observed& o) {
             if (!o.wanted.accepted) return;
             std::erase_if(o.pods, [&](const PodView& pod) {
               return pod.revision != o.wanted.accepted->revision;
             });
           }),
      seen("suspension is overlooked",
           [](Observed& o) {
             if (o.job) o.job->spec.erase("suspend");
             if (!o.wanted.accepted) return;
             auto accepted = std::make_shared<Accepted>(*o.wanted.accepted);
             accepted->job.policies.suspend = false;
             o.wanted.accepted = accepted;
           }),
      seen("a refused spec runs all the same",
           [](Observed& o) {
             if (!o.job || o.wanted.accepted) return;
             Json spec = o.job->spec;
             spec["training"].erase("learningRat");
             o.wanted = judge(o.name, spec, std::nullopt, "");
           }),
      seen("a bad edit takes the last accepted spec away", [](Observed& o) { o.in_force.reset(); }),
      planned("the status is written in every pass",
              [](const Observed& o, Plan& plan) {
                static std::atomic<int64_t> passes = 0;
                if (!o.job) return;
                if (plan.status.is_null()) plan.status = o.job->own_status;
                plan.status["observedGeneration"] = ++passes;
                plan.again = plan.again.value_or(Time{});
              }),
      planned("pods of a finished job run on",
              [](const Observed& o, Plan& plan) {
                if (!o.job) return;
                const auto st = own_status_from_json(o.job->own_status);
                if (st.completion) plan.deletes.clear();
              }),
      planned("deadlines are not looked at again",
              [](const Observed&, Plan& plan) { plan.again.reset(); }),
      planned("a pod group outlives its run",
              [](const Observed&, Plan& plan) {
                std::erase_if(plan.deletes,
                              [](const Delete& entry) { return entry.kind == "PodGroup"; });
              }),
      planned("a replaced pod is in a group of its own",
              [](const Observed&, Plan& plan) {
                for (Create& pod : plan.pods) {
                  if (pod.name.ends_with("-1")) continue;
                  pod.object["metadata"]["labels"][contract::kLabelGang] = pod.name;
                }
              }),
      planned("a job has no network policy",
              [](const Observed&, Plan& plan) {
                std::erase_if(plan.creates,
                              [](const Create& entry) { return entry.kind == "NetworkPolicy"; });
              }),
      rewritten("objects have no owner",
                [](kube::Request& request) {
                  if (request.method != "POST") return;
                  change_body(request,
                              [](Json& body) { body["metadata"].erase("ownerReferences"); });
                }),
      rewritten("a status is written over a newer one",
                [](kube::Request& request) {
                  if (request.method != "PATCH") return;
                  change_body(request,
                              [](Json& body) { body["metadata"].erase("resourceVersion"); });
                }),
      lease("lease: taken while its holder leads"),
      agents("agent: a new agent 0 counts attempts from 1", {.attempt_falls = true}),
      agents("agent: Completed before the last step", {.completes_early = true}),
      agents("agent: a save is told before it is done", {.tells_save_before_it = true}),
      agents("agent: a suspension is not heard", {.ignores_suspend = true}),
  };
  return bugs;
}

}  // namespace dsj::op::sim
