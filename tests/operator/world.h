// One job and its objects by hand: plans are carried out on the observation itself, and the test
// moves pods, agent 0 and time.
#pragma once

#include <gtest/gtest.h>

#include <set>

#include "job/contract.h"
#include "job/node_health.h"
#include "operator/act/apply.h"
#include "operator/decide/pod_pace.h"
#include "operator/decide/reconcile.h"
#include "operator/observe/child_content.h"
#include "operator/observe/own_status.h"
#include "operator/render/keys.h"

namespace dsj::op::testing {

/// Hears events, and keeps none.
struct NoEvents final : EventSink {
  void tell(const JobView&, const Event&) override {}
};

inline Json quick_spec(int replicas = 2) {
  Json spec = Json::parse(R"({
    "deepspeed": {"config": {"train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": 2}}},
    "training": {"modelNameOrPath": "/m", "dataPath": "/d.json", "outputDir": "/tmp/out", "maxSteps": 10},
    "workers": {"slotsPerWorker": 1}})");
  spec["workers"]["replicas"] = replicas;
  return spec;
}

/// What a pod's environment says of its key.
inline Json env_of_key(const PodView& pod) {
  return Json::array({{{"name", contract::kEnvJoinRun}, {"value", std::to_string(pod.run)}},
                      {{"name", contract::kEnvJoinAuthority}, {"value", pod.authority}}});
}

class World {
 public:
  explicit World(Json spec = quick_spec()) {
    o.ns = "n";
    o.name = "j";
    o.job = JobView{.ns = "n", .name = "j", .uid = "job-uid", .generation = 0};
    edit(std::move(spec));
  }

  /// As a user's apply: a new generation, judged anew.
  void edit(Json spec) {
    const auto before = o.wanted.accepted ? o.wanted.accepted : o.in_force;
    o.job->spec = std::move(spec);
    ++o.job->generation;
    o.wanted = judge(o.name, o.job->spec, std::nullopt, "");
    // The controller finds it in the job's ConfigMap.
    const bool kept = std::ranges::any_of(
        o.children, [&](const ChildView& child) { return child.name == status().config_map; });
    o.in_force = o.wanted.accepted || !kept ? nullptr : before;
  }
  void edit(const char* pointer, Json value) {
    Json spec = o.job->spec;
    spec[Json::json_pointer(pointer)] = std::move(value);
    edit(std::move(spec));
  }

  /// One pass, carried out.
  Plan pass() {
    Plan plan = reconcile(o, now);
    if (plan.old_key) {
      EXPECT_FALSE(plan.old_key->uid.empty());
      if (plan.old_key->uid == "uid of " + plan.old_key->name) secrets.erase(plan.old_key->name);
    }
    if (plan.key) {
      const bool replaced = plan.key->uid == "uid of " + plan.key->name;
      if (secrets.contains(plan.key->name) && !replaced)
        plan.key = with_another_name(*plan.key, "j");
      EXPECT_TRUE(secrets.insert(plan.key->name).second || replaced) << plan.key->name;
      EXPECT_FALSE(plan.status.is_null());
      plan.status[kKeyRun] = plan.key->run;
      plan.status[kKeyUid] = "uid of " + plan.key->name;
    }
    for (const Create& create : made(plan)) {
      Json object = create.object;
      if (plan.key && create.kind == "Pod")
        set_key(object, "j", plan.key->run, "of " + plan.key->name);
      object["metadata"]["uid"] = create.name + "-uid" + std::to_string(++uids_);
      if (create.kind == "Pod") {
        for (const PodView& pod : o.pods) EXPECT_NE(pod.name, create.name) << "made twice";
        o.pods.push_back(*pod_view(object));
      } else {
        o.children.push_back(child_view(object));
        o.children.back().kind = create.kind;
        o.children.back().content = content_of(create.kind, object);
      }
    }
    for (const Create& update : plan.updates) {
      for (ChildView& child : o.children) {
        if (child.kind != update.kind || child.name != update.name) continue;
        EXPECT_EQ(update.object["metadata"]["resourceVersion"], child.resource_version);
        child.content = content_of(update.kind, update.object);
      }
    }
    if (!plan.status.is_null()) o.job->own_status = plan.status;
    for (const Delete& entry : plan.deletes) {
      if (entry.kind == "DeepSpeedJob") {
        o.job.reset();
        continue;
      }
      if (entry.kind == "Secret") {
        secrets.erase(entry.name);
        continue;
      }
      std::erase_if(o.children, [&](const ChildView& child) { return child.uid == entry.uid; });
      for (PodView& pod : o.pods) {
        if (pod.uid == entry.uid) pod.deleting_from = now;
      }
      std::erase_if(o.pods, [&](const PodView& pod) {
        return pod.uid == entry.uid && pod.finalizers.empty() &&
               (entry.force || pod.ended() || pod.node.empty());
      });
    }
    for (const Release& release : plan.releases) carry_out(release, plan);
    const auto gone = std::ranges::count(plan.deletes, "Pod", &Delete::kind);
    o.pods_full =
        pods_paid(o.pods_full, plan.workers, static_cast<int>(std::ssize(plan.pods) + gone), now);
    return plan;
  }
  static std::vector<Create> made(const Plan& plan) {
    std::vector<Create> all = plan.creates;
    all.insert(all.end(), plan.pods.begin(), plan.pods.end());
    return all;
  }
  /// Passes until nothing is left to do.
  void settle() {
    for (int i = 0; i < 10; ++i) {
      const Plan plan = pass();
      if (made(plan).empty() && plan.updates.empty() && plan.deletes.empty() &&
          plan.releases.empty() && plan.status.is_null()) {
        return;
      }
    }
    ADD_FAILURE() << "does not come to rest: " << o.job->own_status.dump(1);
  }

  /// The newest pod of a worker.
  PodView& pod(int worker) {
    PodView* newest = nullptr;
    for (PodView& pod : o.pods) {
      if (pod.worker == worker && (!newest || pod.incarnation > newest->incarnation)) newest = &pod;
    }
    EXPECT_NE(newest, nullptr) << "no pod of worker " << worker;
    return *newest;
  }
  void run_pods() {
    for (PodView& pod : o.pods) {
      if (pod.ended() || pod.deleting_from) continue;
      pod.phase = PodView::Phase::Running;
      pod.scheduled = pod.running = true;
      if (pod.node.empty()) pod.node = "node-" + std::to_string(pod.worker);
    }
  }
  void start_attempt() {
    run_pods();
    ++o.job->agent.attempt;
    o.job->agent.stop_step.reset();
    o.job->agent.updated = now;
    settle();
  }
  /// To the first attempt.
  void to_running() {
    settle();
    start_attempt();
    EXPECT_EQ(phase(), "Running") << o.job->own_status.dump(1);
  }
  void end(PodView& pod, int code, const std::string& reason, std::optional<int64_t> step = {}) {
    pod.phase = code == 0 ? PodView::Phase::Succeeded : PodView::Phase::Failed;
    pod.running = false;
    pod.termination = Termination{.exit_code = code,
                                  .reason = reason,
                                  .message = "said " + reason,
                                  .step = step,
                                  .attempt = o.job->agent.attempt};
  }
  void end_all(int code, const std::string& reason, std::optional<int64_t> step = {}) {
    for (PodView& pod : o.pods) {
      if (!pod.ended()) end(pod, code, reason, step);
    }
  }
  /// status.training.lastFailure.
  void agent_tells(const Json& failure, const Json& earlier = Json()) {
    o.job->agent.failures =
        agents_failures({{"lastFailure", failure}, {"earlierFailures", earlier}});
  }
  /// The pod with another status, read as a watch's object is.
  void kubelet_says(PodView& pod, const Json& status) {
    Json object = {
        {"metadata",
         {{"name", pod.name},
          {"uid", pod.uid},
          {"resourceVersion", pod.resource_version},
          {"creationTimestamp", to_text(now)},
          {"ownerReferences", Json::array({{{"apiVersion", jobspec::kApiVersion},
                                            {"kind", jobspec::kKind},
                                            {"uid", pod.owner_uid},
                                            {"controller", true}}})},
          {"annotations",
           {{contract::kAnnotationRestarts, std::to_string(pod.restarts)},
            {contract::kAnnotationAvoids, pod.avoids}}},
          {"labels",
           {{contract::kLabelReplicaIndex, std::to_string(pod.worker)},
            {contract::kLabelIncarnation, std::to_string(pod.incarnation)},
            {contract::kLabelRevision, pod.revision},
            {contract::kLabelGang, pod.gang}}}}},
        {"spec",
         {{"containers",
           Json::array({{{"name", "worker"}, {"image", pod.image}, {"env", env_of_key(pod)}}})}}},
        {"status", status}};
    if (!pod.node.empty()) object["spec"]["nodeName"] = pod.node;
    if (pod.deleting_from) object["metadata"]["deletionTimestamp"] = to_text(*pod.deleting_from);
    pod = *pod_view(object);
  }
  /// Pods on their way out are gone.
  void reap() {
    std::erase_if(o.pods, [](const PodView& pod) {
      return pod.deleting_from.has_value() && pod.finalizers.empty();
    });
  }

  OwnStatus status() const { return own_status_from_json(o.job->own_status); }
  std::string phase() const { return o.job->own_status.value("phase", ""); }
  /// "True Completed".
  std::string condition(const std::string& type) const {
    const auto all = status().conditions;
    const Condition* found = find_condition(all, type);
    return found ? found->status + " " + found->reason : "";
  }
  std::string message(const std::string& type) const {
    const auto all = status().conditions;
    const Condition* found = find_condition(all, type);
    return found ? found->message : "";
  }
  std::vector<std::string> pod_names() const {
    std::vector<std::string> names;
    for (const PodView& pod : o.pods) names.push_back(pod.name);
    return names;
  }

  Observed o;
  std::set<std::string> secrets;
  Time now = Time(Seconds(1'767'225'600));

 private:
  void carry_out(const Release& release, const Plan& plan) {
    for (PodView& pod : o.pods) {
      if (pod.name != release.pod) continue;
      EXPECT_EQ(release.metadata["uid"], pod.uid);
      pod.group_over |= release.metadata.contains("annotations");
      if (!release.metadata.contains("finalizers")) continue;
      EXPECT_EQ(release.metadata["resourceVersion"], pod.resource_version);
      pod.finalizers = release.metadata["finalizers"].get<std::vector<std::string>>();
    }
    std::erase_if(o.pods, [&](const PodView& pod) {
      const bool forced = std::ranges::any_of(
          plan.deletes, [&](const Delete& entry) { return entry.uid == pod.uid && entry.force; });
      return pod.name == release.pod && pod.deleting_from && pod.finalizers.empty() &&
             (forced || pod.ended() || pod.node.empty());
    });
  }
  int uids_ = 0;
};

}  // namespace dsj::op::testing
