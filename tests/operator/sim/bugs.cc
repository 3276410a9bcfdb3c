#include "tests/operator/sim/bugs.h"

#include <algorithm>
#include <atomic>

#include "job/contract.h"
#include "operator/observe/own_status.h"
#include "tests/operator/sim/scenario.h"

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

Bug carried_out(const char* name, CarryOut carry_out) {
  return {.name = name, .carry_out = std::move(carry_out)};
}

/// The parts of a plan one by one, each by the real apply. `goes_on`: also after a failure.
CarryOut in_parts(std::function<std::vector<Plan>(const Plan&)> split, bool goes_on = false) {
  return
      [split, goes_on](kube::Client& client, const Observed& observed, const Plan& plan,
                       const std::function<bool()>& may_write, Writes& writes, EventSink& events) {
        Applied all{.done = true};
        for (const Plan& part : split(plan)) {
          Applied one = apply(client, observed, part, may_write, writes, events);
          one.created += all.created;
          one.deleted += all.deleted;
          one.status_written |= all.status_written;
          one.done &= all.done;
          all = std::move(one);
          if (!all.done && !goes_on) break;
        }
        return all;
      };
}

Plan pods_of(const Plan& plan) {
  return {.key = plan.key, .creates = plan.creates, .pods = plan.pods};
}

/// Pods are made from what the cache had, though the server was asked.
Plan decide_by_cache(const Observed& observed, Time now) {
  thread_local std::string last;
  thread_local Time last_now;
  thread_local std::vector<PodView> cached;
  Observed o = observed;
  const std::string uid = o.job ? o.job->uid + o.job->resource_version : "";
  const bool again = !uid.empty() && uid == last && now == last_now;
  if (again) o.pods = cached;
  Plan plan = reconcile(o, now);
  last = again ? "" : uid;
  last_now = now;
  cached = o.pods;
  return plan;
}

Bug agents(const char* name, AgentBugs bugs, int scenario = -1) {
  return {.name = name, .agents = bugs, .scenario = scenario};
}

void change_body(kube::Request& request, const std::function<void(Json&)>& change) {
  Json body = Json::parse(request.body);
  change(body);
  request.body = body.dump();
}

/// The time to end counts from another moment than the first Completed.
std::function<void(Observed&)> others_are_done_since(const char* time) {
  return [time](Observed& o) {
    if (o.job && o.job->own_status.contains("completedAttemptTime")) {
      o.job->own_status["completedAttemptTime"] = time;
    }
  };
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
      seen("who has not ended when the others are done is not waited for",
           others_are_done_since("2000-01-01T00:00:00Z")),
      planned("suspending deletes the pods at once",
              [](const Observed& o, Plan& plan) {
                if (!o.job || !o.job->spec.value("suspend", false)) return;
                for (const PodView& pod : o.pods) plan.deletes.push_back(deletion_of(pod));
              }),
      seen("an elastic job takes sizes that do not fit its batch",
           [](Observed& o) {
             if (!o.wanted.accepted || o.wanted.accepted->sizes.empty()) return;
             auto accepted = std::make_shared<Accepted>(*o.wanted.accepted);
             accepted->sizes = {1, 2, 3, 4};
             o.wanted.accepted = std::move(accepted);
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
      seen("a damaged checkpoint is told by every operator",
           [](Observed& o) {
             if (o.job) o.job->own_status.erase("damageToldAttempt");
           }),
      planned("a damaged checkpoint is told and not remembered",
              [](const Observed&, Plan& plan) {
                if (plan.status.is_object()) plan.status.erase("damageToldAttempt");
              }),
      seen("a damaged checkpoint is not told",
           [](Observed& o) {
             if (o.job) o.job->agent.damaged_attempt = 0;
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
      planned("a run gets no key", [](const Observed&, Plan& plan) { plan.key.reset(); }),
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
      {.name = "cache: what was deleted stays", .cache = {.ignores_deletions = true}},
      {.name = "cache: a new list removes nothing", .cache = {.keeps_what_is_gone = true}},
      {.name = "cache: an older pod replaces a newer one", .cache = {.takes_old_pods = true}},
      {.name = "cache: a late answer brings back what is gone",
       .cache = {.takes_late_answers = true}},
      {.name = "queue: a change during a pass is lost", .queue = {.loses_changes_in_a_pass = true}},
      {.name = "queue: a key rests for minutes", .queue = {.rests_for_minutes = true}},
      decision("controller: the server is asked for pods, the cache is believed", decide_by_cache),
      {.name = "controller: a job that the cache lacks is taken for deleted",
       .answer = [](const kube::Request& request) -> std::optional<kube::Response> {
         const bool of_job = request.method == "GET" && !request.path.contains('?') &&
                             request.path.contains("/deepspeedjobs/");
         if (!of_job) return std::nullopt;
         return kube::Response{
             .status = 404,
             .body = R"({"kind":"Status","code":404,"reason":"NotFound","message":"planted"})"};
       }},
      carried_out("controller: a failed pass counts as done",
                  [](kube::Client& client, const Observed& observed, const Plan& plan,
                     const std::function<bool()>& may_write, Writes& writes, EventSink& events) {
                    Applied applied = apply(client, observed, plan, may_write, writes, events);
                    applied.done = true;
                    return applied;
                  }),
      carried_out("apply: the status is written in the pass after the pods",
                  in_parts([](const Plan& plan) {
                    return std::vector<Plan>{plan.pods.empty() ? plan : pods_of(plan)};
                  })),
      carried_out("apply: pods are deleted before the status is written",
                  in_parts([](const Plan& plan) {
                    Plan rest = plan;
                    rest.deletes.clear();
                    return std::vector<Plan>{{.deletes = plan.deletes}, rest};
                  })),
      carried_out(
          "apply: goes on after a failed status write",
          in_parts(
              [](const Plan& plan) {
                Plan first = plan;
                first.pods.clear();
                first.deletes.clear();
                return std::vector<Plan>{first, {.pods = plan.pods}, {.deletes = plan.deletes}};
              },
              true)),
      {.name = "lease: taken while its holder leads", .lease = {.takes_held = true}},
      {.name = "lease: leads on without a renewal", .lease = {.leads_without_renewal = true}},
      {.name = "lease: a deleted one is made at once, whoever held it",
       .lease = {.forgets_the_holder = true}},
      agents("agent: a new agent 0 counts attempts from 1", {.attempt_falls = true}),
      agents("agent: Completed before the last step", {.completes_early = true}),
      agents("agent: a save is told before it is done", {.tells_save_before_it = true}),
      agents("agent: a suspension is not heard", {.ignores_suspend = true}),
      agents("agent: what the operator has counted is charged again", {.charges_twice = true},
             static_cast<int>(Scenario::CrashLoop)),
  };
  return bugs;
}

}  // namespace dsj::op::sim
