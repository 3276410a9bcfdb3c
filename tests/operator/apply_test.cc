// apply against an API server: names, owners, preconditions, and a crash around every write.
#include "operator/act/apply.h"

#include <gmock/gmock.h>
#include <spdlog/spdlog.h>

#include <atomic>
#include <set>

#include "common/json.h"
#include "job/contract.h"
#include "job/join_keys.h"
#include "kube/base64.h"
#include "operator/render/render_config.h"
#include "tests/kube/fake_api_server.h"
#include "tests/operator/sim/sim_operator.h"
#include "tests/operator/world.h"

namespace dsj::op::testing {
namespace {

using kube::testing::FakeApiServer;
using sim::Chance;
using sim::Killed;
using sim::SimClock;
using sim::SimOperator;
using ::testing::HasSubstr;

class ApplyTest : public ::testing::Test {
 protected:
  ApplyTest() {
    spdlog::set_level(spdlog::level::off);
    serve(server);
  }
  static void serve(FakeApiServer& server) {
    server.serve(jobs_resource(), true);
    server.serve(pod_groups_resource(), true);
    server.serve(job_templates_resource(), false);
  }
  Json submit(const Json& spec = quick_spec()) {
    return *client.create(jobs_resource(), "n",
                          {{"apiVersion", jobspec::kApiVersion},
                           {"kind", jobspec::kKind},
                           {"metadata", {{"name", "j"}, {"namespace", "n"}}},
                           {"spec", spec}});
  }
  void turns(SimOperator& op, int count = 5) {
    for (int i = 0; i < count; ++i) {
      clock.now += Seconds(1);
      op.turn();
    }
  }
  Json job() { return server.objects(jobs_resource())[0]; }
  std::vector<std::string> names(const std::string& kind) {
    std::vector<std::string> all;
    for (const Json& object : server.objects(resource_of(kind))) {
      all.push_back(object["metadata"]["name"]);
    }
    return all;
  }

  FakeApiServer server;
  SimClock clock;
  Chance chance{1};
  kube::Client client{server, clock};
};

/// Every object of the job, without what a server stamps on it.
Json state(FakeApiServer& server) {
  Json all = Json::object();
  std::string account;  // a uid, too
  for (const Json& object : server.objects(resource_of("ServiceAccount")))
    account = object["metadata"]["uid"];
  for (const char* kind : {"ConfigMap", "Service", "ServiceAccount", "Role", "RoleBinding",
                           "NetworkPolicy", "PodGroup", "Pod", "DeepSpeedJob"}) {
    for (Json object : server.objects(resource_of(kind))) {
      for (const char* stamp : {"uid", "resourceVersion", "creationTimestamp", "generation"}) {
        object["metadata"].erase(stamp);
      }
      if (object["kind"] == "Pod") set_key(object, "j", 1, "made by chance");
      Json& metadata = object["metadata"];
      if (json_text(json_child(metadata, "annotations"), kAnnotationAccount) == account)
        metadata["annotations"].erase(kAnnotationAccount);
      if (object.contains("status")) {
        for (Json& condition : object["status"]["conditions"]) {
          condition.erase("lastTransitionTime");
        }
        for (const char* by_chance : {"startTime", kKeyRun, kKeyUid})
          object["status"].erase(by_chance);
      }
      all[kind].push_back(std::move(object));
    }
  }
  return all;
}

struct CrashTest : ApplyTest, ::testing::WithParamInterface<bool> {};

TEST_P(CrashTest, AroundAnyWriteEndsInTheSameObjects) {
  Json spec = quick_spec();
  if (GetParam()) spec["runPolicy"]["schedulingPolicy"] = {{"scheduler", "volcano"}};
  Json wanted;
  int64_t writes = 0;
  {
    FakeApiServer untouched;
    serve(untouched);
    kube::Client user(untouched, clock);
    (void)user.create(jobs_resource(), "n",
                      {{"apiVersion", jobspec::kApiVersion},
                       {"kind", jobspec::kKind},
                       {"metadata", {{"name", "j"}, {"namespace", "n"}}},
                       {"spec", spec}});
    SimOperator op(untouched, clock, chance, nullptr);
    turns(op);
    writes = op.transport.writes;
    wanted = state(untouched);
  }
  ASSERT_GE(writes, 8);
  ASSERT_EQ(wanted["NetworkPolicy"].size(), 1u);
  ASSERT_EQ(wanted["Pod"].size(), 2u);
  ASSERT_EQ(wanted.value("PodGroup", Json::array()).size(), GetParam() ? 1u : 0u);
  int crashes = 0;
  for (int64_t at = 0; at < writes; ++at) {
    for (const bool after : {false, true}) {
      SCOPED_TRACE(std::to_string(at) + (after ? " after" : " before"));
      clock.now = Milliseconds(
          0);  // the status says of pods that are old that no scheduler has looked at them
      FakeApiServer one;
      serve(one);
      kube::Client user(one, clock);
      (void)user.create(jobs_resource(), "n",
                        {{"apiVersion", jobspec::kApiVersion},
                         {"kind", jobspec::kKind},
                         {"metadata", {{"name", "j"}, {"namespace", "n"}}},
                         {"spec", spec}});
      auto op = std::make_unique<SimOperator>(one, clock, chance, nullptr);
      op->transport.kill_at_write = static_cast<int>(at);
      op->transport.kill_after_it = after;
      try {
        turns(*op);
        ADD_FAILURE() << "not killed";
      } catch (const Killed&) {
        ++crashes;
      }
      op = std::make_unique<SimOperator>(one, clock, chance, nullptr);
      turns(*op);
      EXPECT_EQ(state(one), wanted);
    }
  }
  std::printf("%d crashes around %lld writes\n", crashes, static_cast<long long>(writes));
}

INSTANTIATE_TEST_SUITE_P(Scheduling, CrashTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "Volcano" : "Default"; });

/// Passes that end after the key's Secret was made and before a pod has its authority.
TEST_F(ApplyTest, ARunWhoseKeyIsCutOffAgainAndAgainHasOneSecret) {
  submit();
  for (int i = 0; i < 4; ++i) {
    SimOperator op(server, clock, chance, nullptr);
    op.transport.watch_writes = [](const kube::Request& request) {
      if (request.method == "POST" && request.path.ends_with("/pods")) throw Killed{};
    };
    EXPECT_THROW(turns(op), Killed) << i;
    EXPECT_EQ(names("Secret"), std::vector<std::string>{"j-dsj-key-1"}) << i;
  }
  SimOperator op(server, clock, chance, nullptr);
  turns(op, 10);
  EXPECT_EQ(names("Pod").size(), 2u);
  EXPECT_EQ(names("Secret"), std::vector<std::string>{"j-dsj-key-1"});
}

TEST_F(ApplyTest, ANameThatSomebodyElseHasIsLeftAlone) {
  (void)client.create(kube::resources::services(), "n",
                      {{"apiVersion", "v1"},
                       {"kind", "Service"},
                       {"metadata", {{"name", "j-worker"}, {"namespace", "n"}}},
                       {"spec", {{"clusterIP", "1.2.3.4"}}}});
  submit();
  SimOperator op(server, clock, chance, nullptr);
  turns(op);
  const OwnStatus status = own_status_from_json(own_part(job()["status"]));
  EXPECT_EQ(find_condition(status.conditions, "Scheduled")->reason, "NameTaken");
  EXPECT_TRUE(names("Pod").empty());
  EXPECT_EQ(server.objects(kube::resources::services())[0]["spec"]["clusterIP"], "1.2.3.4");
  turns(op, 600);
  const int64_t before = op.transport.writes;
  turns(op, 60);
  EXPECT_EQ(op.transport.writes, before) << "it only looks";
  (void)client.remove(kube::resources::services(), "n", "j-worker");
  turns(op, 5);
  EXPECT_EQ(names("Pod").size(), 2u);
  EXPECT_NE(find_condition(own_status_from_json(own_part(job()["status"])).conditions, "Scheduled")
                ->reason,
            "NameTaken");
}

/// kubectl replace --force: the pods of the job before save and go.
TEST_F(ApplyTest, WhatAnEarlierJobOfTheNameHasIsWaitedFor) {
  ASSERT_TRUE(
      client.create(kube::resources::pods(), "n",
                    {{"apiVersion", "v1"},
                     {"kind", "Pod"},
                     {"metadata",
                      {{"name", "j-worker-1-1"},
                       {"namespace", "n"},
                       {"labels", {{contract::kLabelJobName, "j"}}},
                       {"ownerReferences", Json::array({{{"apiVersion", jobspec::kApiVersion},
                                                         {"kind", jobspec::kKind},
                                                         {"name", "j"},
                                                         {"uid", "earlier"},
                                                         {"controller", true}}})}}}}));
  submit();
  SimOperator op(server, clock, chance, nullptr);
  turns(op);
  const auto scheduled = [&] {
    const auto status = own_status_from_json(own_part(job()["status"]));
    const Condition* found = find_condition(status.conditions, "Scheduled");
    return found ? found->reason + ": " + found->message : "";
  };
  EXPECT_EQ(scheduled(),
            "EarlierJob: Pod j-worker-1-1 belongs to an earlier job of this name and is being "
            "deleted; this job "
            "waits for it");
  turns(op, 600);
  (void)client.remove(kube::resources::pods(), "n", "j-worker-1-1", {.grace_seconds = 0});
  turns(op, 5);
  EXPECT_EQ(names("Pod").size(), 2u);
}

/// Garbage collection has taken their owner off. What to do is said; they are not taken over, because pods may be among them.
TEST_F(ApplyTest, WhatAnOrphaningDeletionLeftIsNamedAsThat) {
  ASSERT_TRUE(client.create(kube::resources::services(), "n",
                            {{"apiVersion", "v1"},
                             {"kind", "Service"},
                             {"metadata",
                              {{"name", "j-worker"},
                               {"namespace", "n"},
                               {"labels", {{contract::kLabelJobName, "j"}}}}}}));
  submit();
  SimOperator op(server, clock, chance, nullptr);
  turns(op);
  const auto status = own_status_from_json(own_part(job()["status"]));
  const Condition* scheduled = find_condition(status.conditions, "Scheduled");
  ASSERT_NE(scheduled, nullptr);
  EXPECT_EQ(scheduled->reason, "NameTaken");
  EXPECT_THAT(scheduled->message,
              ::testing::HasSubstr("Service j-worker has no owner: a job of this name was deleted "
                                   "with --cascade=orphan, or a backup was restored with its "
                                   "objects; delete what is left of it"));
  EXPECT_TRUE(names("Pod").empty());
}

TEST_F(ApplyTest, AQuotaIsShownAndTriedAgain) {
  bool full = true;
  server.set_fault([&](const kube::Request& request) {
    kube::testing::Fault fault;
    if (full && request.method == "POST" && request.path.ends_with("/pods")) {
      fault.kind = kube::testing::Fault::Kind::Refuse;
      fault.status = 403;
    }
    return fault;
  });
  submit();
  SimOperator op(server, clock, chance, nullptr);
  turns(op);
  auto reason = [&] {
    const auto conditions = own_status_from_json(own_part(job()["status"])).conditions;
    return find_condition(conditions, "Scheduled")->reason;
  };
  EXPECT_EQ(reason(), "Forbidden");
  const auto version = job()["metadata"]["resourceVersion"];
  turns(op, 20);
  EXPECT_EQ(job()["metadata"]["resourceVersion"], version) << "written again and again";
  full = false;
  turns(op, 70);
  EXPECT_EQ(names("Pod"), (std::vector<std::string>{"j-worker-0-1", "j-worker-1-1"}));
  EXPECT_EQ(reason(), "Waiting");
}

TEST_F(ApplyTest, AStatusIsNotWrittenOverANewerOne) {
  submit();
  SimOperator op(server, clock, chance, nullptr);
  turns(op);
  op.deaf = true;
  server.edit(jobs_resource(), "n", "j", [](Json& object) { object["spec"]["suspend"] = true; });
  Observed observed;
  observed.ns = "n";
  observed.name = "j";
  observed.job = job_view(job());
  observed.job->resource_version = "1";
  struct NoWrites final : Writes {
    void wrote(const std::string&, const Json&) override {}
  } writes;
  struct CountedEvents final : EventSink {
    int told = 0;
    void tell(const JobView&, const Event&) override { ++told; }
  } events;
  const Json before = job();
  Plan plan{.status = {{"phase", "Nonsense"}}, .events = {{"Normal", "Told", ""}}};
  plan.deletes.push_back({.kind = "Pod", .name = "j-worker-0-1"});
  const Applied applied = apply(
      client, observed, plan, [] { return true; }, writes, events);
  EXPECT_FALSE(applied.done);
  EXPECT_EQ(job(), before);
  EXPECT_EQ(events.told, 0);
  EXPECT_EQ(names("Pod").size(), 2u) << "what comes after the status is not done";
}

TEST_F(ApplyTest, WhoDoesNotLeadWritesNothing) {
  submit();
  SimOperator op(server, clock, chance, nullptr);
  op.leads = false;
  turns(op);
  EXPECT_EQ(op.transport.writes, 0);
}

TEST_F(ApplyTest, AtRestNothingIsWritten) {
  Json spec = quick_spec();
  spec["suspend"] = true;
  submit(spec);
  SimOperator op(server, clock, chance, nullptr);
  turns(op);
  const int64_t writes = op.transport.writes;
  EXPECT_EQ(writes, 2);  // a dry run of its pod, the one status
  turns(op, 600);
  EXPECT_EQ(op.transport.writes, writes);
}

TEST_F(ApplyTest, PodsOfAJobThatHadSomeAreMadeAfterALookAtTheServer) {
  int looks = 0;
  server.set_fault([&](const kube::Request& request) {
    looks += request.method == "GET" && request.path.find("/pods?") != std::string::npos &&
             request.path.find("job-name") != std::string::npos;
    return kube::testing::Fault{};
  });
  submit();
  SimOperator op(server, clock, chance, nullptr);
  turns(op);
  EXPECT_EQ(names("Pod").size(), 2u);
  EXPECT_EQ(looks, 0) << "its first status was written before its first pod: it had none";
  ASSERT_TRUE(client.remove(kube::resources::pods(), "n", names("Pod")[0], {.grace_seconds = 0}));
  turns(op, 60);
  EXPECT_EQ(names("Pod").size(), 2u);
  EXPECT_GE(looks, 1);
}

/// A gang of thousands takes a while to make.
TEST_F(ApplyTest, AJobThatIsSuspendedOrDeletedInThePassGetsNoMorePods) {
  for (const bool deleted : {false, true}) {
    SCOPED_TRACE(deleted ? "deleted" : "suspended");
    FakeApiServer one;
    serve(one);
    kube::Client user(one, clock);
    (void)user.create(jobs_resource(), "n",
                      {{"apiVersion", jobspec::kApiVersion},
                       {"kind", jobspec::kKind},
                       {"metadata", {{"name", "j"}, {"namespace", "n"}}},
                       {"spec", quick_spec(50)}});
    SimOperator op(one, clock, chance, nullptr);
    int made = 0;
    op.transport.watch_writes = [&](const kube::Request& request) {
      if (request.method != "POST" || !request.path.ends_with("/pods") || ++made != 10) return;
      if (deleted) {
        (void)user.remove(jobs_resource(), "n", "j");
      } else {
        one.edit(jobs_resource(), "n", "j", [](Json& job) { job["spec"]["suspend"] = true; });
      }
      op.look();
    };
    turns(op, 20);
    EXPECT_EQ(made, 10);
    EXPECT_TRUE(one.objects(kube::resources::pods()).empty());
  }
}

TEST_F(ApplyTest, WhatSomebodyChangedInAChildIsMended) {
  submit();
  SimOperator op(server, clock, chance, nullptr);
  turns(op);
  const Json role = server.objects(kube::resources::roles())[0];
  const Json policy = server.objects(kube::resources::network_policies())[0];
  server.edit(kube::resources::roles(), "n", "j-worker",
              [](Json& object) { object["rules"][0]["verbs"].push_back("delete"); });
  server.edit(kube::resources::network_policies(), "n", "j-worker",
              [](Json& object) { object["spec"]["ingress"] = Json::array({Json::object()}); });
  turns(op);
  EXPECT_EQ(server.objects(kube::resources::roles())[0]["rules"], role["rules"]);
  EXPECT_EQ(server.objects(kube::resources::network_policies())[0]["spec"], policy["spec"]);
  turns(op, 20);  // the status says that no scheduler has looked at the pods
  const int64_t writes = op.transport.writes;
  turns(op, 20);
  EXPECT_EQ(op.transport.writes, writes);
}

/// openshift/library-go 2042, istio-ecosystem/sail-operator 1651: a policy of the cluster adds to each object that is written,
/// and the operator writes it again for ever.
TEST_F(ApplyTest, WhatAPolicyAddsToAChildIsLeft) {
  server.set_admission([](Json& object) {
    const std::string kind = object["kind"];
    object["metadata"]["annotations"]["policy/seen"] = "yes";
    if (kind == "NetworkPolicy") object["spec"]["policyTypes"] = Json::array({"Ingress", "Egress"});
    if (kind == "Service") object["spec"]["selector"]["mesh"] = "on";
    if (kind == "Role") object["rules"].push_back({{"verbs", {"get"}}});
    if (kind == "RoleBinding") object["subjects"].push_back({{"kind", "Group"}, {"name", "audit"}});
    if (kind == "ConfigMap") object["data"]["added"] = "x";
  });
  submit();
  auto op = std::make_unique<SimOperator>(server, clock, chance, nullptr);
  turns(*op, 25);
  EXPECT_EQ(names("Pod").size(), 2u);
  EXPECT_EQ(server.requests("PUT"), 0);
  // A restarted operator does not know of the policy, and finds out by one write of each.
  op = std::make_unique<SimOperator>(server, clock, chance, nullptr);
  turns(*op, 25);
  EXPECT_EQ(server.requests("PUT"), 4);
  // What somebody changes is mended as ever.
  server.edit(kube::resources::roles(), "n", "j-worker",
              [](Json& object) { object["rules"] = Json::array(); });
  turns(*op, 25);
  EXPECT_EQ(server.requests("PUT"), 5);
  EXPECT_EQ(server.objects(kube::resources::roles())[0]["rules"].size(), 3u);
}

/// An operator whose rights are those of an older chart.
TEST_F(ApplyTest, AChildThatCannotBeMendedHoldsUpNothing) {
  server.set_fault([](const kube::Request& request) {
    using Fault = kube::testing::Fault;
    return request.method == "PUT" ? Fault{.kind = Fault::Kind::Refuse, .status = 403} : Fault{};
  });
  submit();
  SimOperator op(server, clock, chance, nullptr);
  turns(op);
  server.edit(kube::resources::roles(), "n", "j-worker",
              [](Json& object) { object["rules"] = Json::array(); });
  ASSERT_TRUE(client.remove(kube::resources::pods(), "n", names("Pod")[0], {.grace_seconds = 0}));
  turns(op, 60);
  EXPECT_EQ(names("Pod").size(), 2u);
}

TEST_F(ApplyTest, ADsConfigOfAConfigMapIsTakenAsItWas) {
  auto map = [&](const char* text) {
    return Json{{"apiVersion", "v1"},
                {"kind", "ConfigMap"},
                {"metadata", {{"name", "c"}, {"namespace", "n"}}},
                {"data", {{"ds.json", text}}}};
  };
  Json spec = quick_spec();
  spec["deepspeed"] =
      Json::parse(R"({"configFrom": {"configMapKeyRef": {"name": "c", "key": "ds.json"}}})");
  submit(spec);
  auto op = std::make_unique<SimOperator>(server, clock, chance, nullptr);
  turns(*op);
  auto accepted = [&] {
    const auto conditions = own_status_from_json(own_part(job()["status"])).conditions;
    return find_condition(conditions, "Accepted")->reason;
  };
  EXPECT_EQ(accepted(), "ConfigMapMissing");
  (void)client.create(kube::resources::config_maps(), "n",
                      map("{train_micro_batch_size_per_gpu: 1, // Hjson\n}"));
  turns(*op, 30);
  EXPECT_EQ(accepted(), "ConfigAccepted");
  EXPECT_EQ(names("Pod").size(), 2u);
  // A restarted operator, a changed ConfigMap: the job keeps what it began with.
  server.edit(kube::resources::config_maps(), "n", "c",
              [](Json& object) { object["data"]["ds.json"] = "{zero_optimization: {stage: 9}}"; });
  const std::string revision = job()["status"]["revision"];
  op = std::make_unique<SimOperator>(server, clock, chance, nullptr);
  turns(*op);
  EXPECT_EQ(job()["status"]["revision"], revision);
  EXPECT_EQ(accepted(), "ConfigAccepted");
}

/// What kubectl makes of a file that is no UTF-8, and of PowerShell's. Mended, the job starts without an edit.
TEST_F(ApplyTest, ADsConfigThatIsMendedIsReadAgain) {
  const std::string good = "{\"train_micro_batch_size_per_gpu\": 1}";
  std::string utf16 = "\xFF\xFE";
  for (const char c : good) (utf16 += c) += '\0';
  (void)client.create(kube::resources::config_maps(), "n",
                      {{"apiVersion", "v1"},
                       {"kind", "ConfigMap"},
                       {"metadata", {{"name", "c"}, {"namespace", "n"}}},
                       {"data", {{"other.json", good}}},
                       {"binaryData", {{"ds.json", kube::to_base64(utf16)}}}});
  Json spec = quick_spec();
  spec["deepspeed"] =
      Json::parse(R"({"configFrom": {"configMapKeyRef": {"name": "c", "key": "ds"}}})");
  submit(spec);
  SimOperator op(server, clock, chance, nullptr);
  turns(op);
  auto accepted = [&] {
    const auto conditions = own_status_from_json(own_part(job()["status"])).conditions;
    const Condition* found = find_condition(conditions, "Accepted");
    return found->reason + ": " + found->message;
  };
  EXPECT_THAT(accepted(), HasSubstr("it has no key \"ds\"; it has other.json, ds.json"));
  server.edit(jobs_resource(), "n", "j", [](Json& object) {
    object["spec"]["deepspeed"]["configFrom"]["configMapKeyRef"]["key"] = "ds.json";
  });
  turns(op);
  EXPECT_THAT(accepted(), HasSubstr("ConfigInvalid"));
  EXPECT_THAT(accepted(), HasSubstr("UTF-16"));
  server.edit(kube::resources::config_maps(), "n", "c", [&](Json& object) {
    object["binaryData"]["ds.json"] = kube::to_base64("\xEF\xBB\xBF" + good);
  });
  turns(op, 30);
  EXPECT_THAT(accepted(), HasSubstr("ConfigAccepted"));
  EXPECT_EQ(names("Pod").size(), 2u);
}

/// A job that names a DeepSpeedJobTemplate, and what becomes of its pods.
class Templates : public ApplyTest {
 protected:
  Templates() {
    Json spec = quick_spec();
    spec["workers"]["templateRef"] = {{"name", "h200"}};
    submit(spec);
    restart();
  }
  void restart(const std::string& default_template = "") {
    op = std::make_unique<SimOperator>(server, clock, chance, nullptr, default_template);
  }
  static Json pod_with(const char* image) {
    return {{"spec",
             {{"nodeSelector", {{"gpu", "h200"}}},
              {"containers", Json::array({{{"name", "worker"}, {"image", image}}})}}}};
  }
  void make_template(const Json& pod) {
    ASSERT_TRUE(client.create(job_templates_resource(), "",
                              {{"apiVersion", jobspec::kApiVersion},
                               {"kind", "DeepSpeedJobTemplate"},
                               {"metadata", {{"name", "h200"}}},
                               {"spec", {{"template", pod}}}}));
  }
  void edit_template(const Json& pod) {
    server.edit(job_templates_resource(), "", "h200",
                [&](Json& object) { object["spec"]["template"] = pod; });
  }
  /// An edit that by itself changes no pod.
  void edit_job(int budget) {
    server.edit(jobs_resource(), "n", "j",
                [&](Json& object) { object["spec"]["backoffLimit"] = budget; });
  }
  OwnStatus status() { return own_status_from_json(own_part(job()["status"])); }
  std::string accepted() {
    const auto conditions = status().conditions;
    const Condition* found = find_condition(conditions, "Accepted");
    return found->reason + ": " + found->message;
  }
  std::set<std::string> images() {
    std::set<std::string> all;
    for (const Json& pod : server.objects(kube::resources::pods()))
      if (!pod["metadata"].contains("deletionTimestamp"))
        all.insert(pod["spec"]["containers"][0]["image"]);
    return all;
  }

  std::unique_ptr<SimOperator> op;
};

TEST_F(Templates, AMissingOneIsSaidAndLookedForAgain) {
  turns(*op);
  EXPECT_THAT(accepted(), ::testing::StartsWith("TemplateMissing: deepspeedjobtemplate h200: "));
  EXPECT_EQ(status().reason, "TemplateMissing");
  EXPECT_TRUE(names("Pod").empty());
  make_template(pod_with("base:1"));
  turns(*op, 30);
  EXPECT_EQ(images(), std::set<std::string>{"base:1"});
  EXPECT_EQ(names("Pod").size(), 2u);
  EXPECT_EQ(server.objects(kube::resources::pods())[0]["spec"]["nodeSelector"]["gpu"], "h200");
  EXPECT_EQ(status().template_name, "h200");
  EXPECT_THAT(accepted(), ::testing::HasSubstr("with template h200 (generation "));
}

TEST_F(Templates, AJobKeepsWhatItBeganWithUntilItIsEdited) {
  make_template(pod_with("base:1"));
  turns(*op);
  const std::string revision = status().revision;
  const int64_t generation = status().template_generation;
  edit_template(pod_with("base:2"));
  restart();
  turns(*op, 30);
  EXPECT_EQ(status().revision, revision);
  EXPECT_EQ(status().template_generation, generation);
  EXPECT_EQ(images(), std::set<std::string>{"base:1"});
  edit_job(9);
  turns(*op, 30);
  EXPECT_NE(status().revision, revision);
  EXPECT_EQ(status().template_generation, generation + 1);
  EXPECT_EQ(images(), std::set<std::string>{"base:2"});
}

TEST_F(Templates, TheOperatorsOwnChoiceIsForJobsThatNameNone) {
  make_template(pod_with("base:1"));
  server.edit(jobs_resource(), "n", "j",
              [](Json& object) { object["spec"]["workers"].erase("templateRef"); });
  restart();
  turns(*op);
  EXPECT_EQ(status().template_name, "");
  const auto own = images();
  restart("h200");  // a job that runs is left alone
  turns(*op, 30);
  EXPECT_EQ(images(), own);
  edit_job(8);
  turns(*op, 30);
  EXPECT_EQ(images(), std::set<std::string>{"base:1"});
  EXPECT_EQ(status().template_name, "h200");
  restart();  // and this one keeps what it has taken up
  turns(*op, 30);
  EXPECT_EQ(images(), std::set<std::string>{"base:1"});
  restart("nowhere");
  edit_job(9);
  turns(*op, 30);
  EXPECT_THAT(accepted(),
              ::testing::StartsWith("TemplateMissing: the previous spec stays in force: "
                                    "deepspeedjobtemplate nowhere: "));
}

TEST_F(Templates, WhatIsWrongInOneIsTheJobsRefusal) {
  make_template({{"spec", {{"hostname", "x"}}}});
  turns(*op);
  EXPECT_THAT(accepted(), ::testing::HasSubstr("ConfigInvalid: with template h200 (generation "));
  EXPECT_THAT(accepted(), ::testing::HasSubstr("spec.workers.template.spec.hostname"));
  EXPECT_TRUE(names("Pod").empty());
  EXPECT_EQ(status().phase, "Refused");
}

TEST_F(Templates, OneThatIsGoneLeavesTheAcceptedSpecInForce) {
  make_template(pod_with("base:1"));
  turns(*op);
  ASSERT_TRUE(client.remove(job_templates_resource(), "", "h200"));
  edit_job(9);
  restart();
  turns(*op, 30);
  EXPECT_THAT(accepted(), ::testing::HasSubstr("the previous spec stays in force"));
  EXPECT_EQ(images(), std::set<std::string>{"base:1"});
  EXPECT_EQ(status().reason, "TemplateMissing");
}

/// Plans whose creates are made eight at a time.
class AtOnce : public ApplyTest {
 protected:
  AtOnce() { observed.job = job_view(submit()); }
  Create object(const std::string& kind, const std::string& name) {
    return {.kind = kind,
            .name = name,
            .object = {{"metadata", metadata_of(*observed.job, name)}, {"spec", Json::object()}}};
  }
  Applied make(const Plan& plan) {
    struct Told final : Writes {
      explicit Told(std::vector<std::string>& list) : gone(list) {}
      void wrote(const std::string&, const Json&) override { ++count; }
      void absent(const std::string& kind, const std::string& ns, const std::string& name,
                  const std::string& uid) override {
        gone.push_back(kind + " " + ns + "/" + name + " " + uid);
      }
      std::atomic<int> count = 0;
      std::vector<std::string>& gone;
    } writes(absent);
    NoEvents events;
    kube::Client steady(server, kube::system_clock());
    const Applied applied = apply(
        steady, observed, plan, [] { return true; }, writes, events, 8);
    EXPECT_EQ(writes.count, applied.created);
    return applied;
  }
  Applied make(int count) {
    Plan plan;
    for (int i = 0; i < count; ++i) {
      plan.pods.push_back(object("Pod", "j-worker-" + std::to_string(i) + "-1"));
    }
    return make(plan);
  }

  Delete deletion(int worker) {
    const std::string name = "j-worker-" + std::to_string(worker) + "-1";
    for (const Json& pod : server.objects(kube::resources::pods())) {
      if (pod["metadata"]["name"] == name) {
        return {.kind = "Pod", .name = name, .uid = pod["metadata"]["uid"]};
      }
    }
    return {.kind = "Pod", .name = name, .uid = "u"};
  }

  Observed observed{.ns = "n", .name = "j"};
  std::vector<std::string> absent;  ///< what apply heard is gone
};

TEST_F(AtOnce, ADeletionThatMeetsAConflictIsDecidedAgain) {
  int status = 409;
  server.set_fault([&](const kube::Request& request) {
    using Fault = kube::testing::Fault;
    return request.method == "DELETE" ? Fault{.kind = Fault::Kind::Refuse, .status = status}
                                      : Fault{};
  });
  EXPECT_TRUE(make(1).done);
  const Plan plan{.deletes = {deletion(0)}};
  const Applied conflict = make(plan);
  EXPECT_FALSE(conflict.done);
  EXPECT_TRUE(conflict.overtaken);
  EXPECT_TRUE(absent.empty());
  status = 404;
  EXPECT_TRUE(make(plan).done) << "it is gone";
  ASSERT_EQ(absent.size(), 1u) << "the cache must hear of it: no watch tells";
  EXPECT_EQ(absent[0], "Pod n/j-worker-0-1 " + plan.deletes[0].uid);
}

TEST_F(AtOnce, ADeletionThatMeetsAnotherObjectOfThatNameIsDone) {
  EXPECT_TRUE(make(1).done);
  const Plan plan{.deletes = {{.kind = "Pod", .name = "j-worker-0-1", .uid = "before"}}};
  EXPECT_TRUE(make(plan).done);
  EXPECT_EQ(absent, (std::vector<std::string>{"Pod n/j-worker-0-1 before"}));
  EXPECT_EQ(names("Pod").size(), 1u);
}

TEST_F(AtOnce, ARefusedCreateBlocksNoDeletion) {
  EXPECT_TRUE(make(4).done);
  server.set_fault([&](const kube::Request& request) {
    using Fault = kube::testing::Fault;
    return request.method == "POST" ? Fault{.kind = Fault::Kind::Refuse, .status = 403} : Fault{};
  });
  observed.refusal = Refusal{"Forbidden", "known from the pass before"};
  Plan plan{.deletes = {deletion(0), deletion(1)}};
  plan.creates.push_back(object("ConfigMap", "c"));
  plan.pods.push_back(object("Pod", "j-worker-9-1"));
  Applied applied = make(plan);
  EXPECT_FALSE(applied.done);
  EXPECT_TRUE(applied.refusal);
  EXPECT_EQ(names("Pod"), (std::vector<std::string>{"j-worker-2-1", "j-worker-3-1"}));
  observed.refusal.reset();  // of a pod it need not be known: the status is written before
  plan = {.pods = plan.pods, .deletes = {deletion(2)}};
  applied = make(plan);
  EXPECT_FALSE(applied.done);
  EXPECT_TRUE(applied.refusal);
  EXPECT_EQ(names("Pod"), (std::vector<std::string>{"j-worker-3-1"}));
}

TEST_F(AtOnce, ARefusedDeletionBlocksNoOther) {
  EXPECT_TRUE(make(3).done);
  server.set_fault([&](const kube::Request& request) {
    using Fault = kube::testing::Fault;
    return request.method == "DELETE" && request.path.ends_with("-0-1")
               ? Fault{.kind = Fault::Kind::Refuse, .status = 403}
               : Fault{};
  });
  const Applied applied = make({.deletes = {deletion(0), deletion(1), deletion(2)}});
  EXPECT_FALSE(applied.done);
  EXPECT_EQ(names("Pod"), (std::vector<std::string>{"j-worker-0-1"}));
}

TEST_F(AtOnce, WhatRefersToAnotherObjectIsMadeAfterIt) {
  std::vector<std::string> order;  // requests come one at a time here, from eight threads
  server.set_fault([&](const kube::Request& request) {
    if (request.method == "POST") {
      const Json body = Json::parse(request.body);
      order.push_back(request.path + "/" + body["metadata"]["name"].get<std::string>());
    }
    return kube::testing::Fault{};
  });
  Plan plan;
  plan.creates.push_back(object("RoleBinding", "j"));
  plan.creates.back().refers = true;
  plan.creates.back().object["roleRef"] = {{"kind", "Role"}, {"name", "j7"}};
  for (int i = 0; i < 20; ++i) plan.creates.push_back(object("Role", "j" + std::to_string(i)));
  plan.pods.push_back(object("Pod", "j-worker-0-1"));
  const Applied applied = make(plan);
  EXPECT_TRUE(applied.done) << applied.problem;
  ASSERT_EQ(order.size(), 22u);
  const auto at = [&](const std::string& end) {
    return std::ranges::find_if(order, [&](const auto& path) { return path.ends_with(end); });
  };
  EXPECT_LT(at("/roles/j7"), at("/rolebindings/j"));
  EXPECT_LT(at("/rolebindings/j"), at("/pods/j-worker-0-1"));
  EXPECT_THAT(order[21], ::testing::EndsWith("/pods/j-worker-0-1"));
  // The server does not want one of them: nothing that refers to it, and no pod.
  order.clear();
  server.set_fault([&](const kube::Request& request) {
    using Fault = kube::testing::Fault;
    if (request.method == "POST") order.push_back(request.path);
    return request.path.ends_with("/roles") ? Fault{.kind = Fault::Kind::Refuse, .status = 403}
                                            : Fault{};
  });
  plan.creates.back() = object("Role", "another");
  const Applied refused = make(plan);
  EXPECT_FALSE(refused.done);
  ASSERT_TRUE(refused.refusal) << refused.problem;
  EXPECT_THAT(order, ::testing::Each(::testing::EndsWith("/roles")));
}

/// How many tasks each round had that went to the crew.
std::vector<size_t> rounds_of(kube::Client& client, const Observed& observed, const Plan& plan) {
  struct : Writes {
    void wrote(const std::string&, const Json&) override {}
  } writes;
  NoEvents events;
  std::vector<size_t> rounds;
  const Crew crew = [&](int, const ClaimTask& claim, const CarryTask& carry) {
    rounds.push_back(0);
    while (const auto task = claim()) {
      ++rounds.back();
      carry(*task);
    }
  };
  (void)apply(
      client, observed, plan, [] { return true; }, writes, events, 8, crew);
  return rounds;
}

TEST_F(ApplyTest, ASmallJobIsMadeInTwoRounds) {
  World world(quick_spec(4));
  world.o.job = job_view(submit(quick_spec(4)));
  const Plan plan = reconcile(world.o, world.now);
  // ConfigMap, Service, ServiceAccount, NetworkPolicy; Role and RoleBinding; the Secret of the key
  EXPECT_EQ(rounds_of(client, world.o, plan), (std::vector<size_t>{6, 4}));
  EXPECT_EQ(names("RoleBinding").size(), 1u);
  EXPECT_EQ(names("Secret").size(), 1u);
  EXPECT_EQ(names("ConfigMap").size(), 1u);
  EXPECT_EQ(names("Pod").size(), 4u);
  // The job's own, the seven above, the pods; and the status. Nothing is asked.
  EXPECT_EQ(server.requests("POST"), 1 + 7 + 4);
  EXPECT_EQ(server.requests("PATCH"), 1);
  EXPECT_EQ(server.requests("GET"), 0);
}

/// Whoever makes one more has to say here what for (docs/decisions.md).
TEST_F(ApplyTest, TheRequestsOfAJobOfFourPods) {
  std::vector<std::string> asked;
  server.set_fault([&](const kube::Request& request) {
    if (request.method == "GET" && request.path.contains("watch=")) return kube::testing::Fault{};
    std::string path = request.path.substr(0, request.path.find('?'));
    if (request.path.contains("dryRun")) path += "?dryRun";
    asked.push_back(request.method + " " + path);
    return kube::testing::Fault{};
  });
  SimOperator op(server, clock, chance, nullptr);
  turns(op);
  submit(quick_spec(4));
  asked.clear();
  turns(op);
  const std::string core = "POST /api/v1/namespaces/n/",
                    rbac = "POST /apis/rbac.authorization.k8s.io/v1/namespaces/n/";
  const std::string pod = core + "pods",
                    status =
                        "PATCH /apis/training.dsj.dev/v1alpha1/namespaces/n/deepspeedjobs/j/status";
  const std::vector<std::string> own = {
      core + "serviceaccounts",
      rbac + "roles",
      rbac + "rolebindings",
      core + "services",
      core + "configmaps",
      core + "secrets",
      "POST /apis/networking.k8s.io/v1/namespaces/n/networkpolicies"};
  ASSERT_EQ(asked.size(), 1u + 7 + 1 + 4 + 1) << ::testing::PrintToString(asked);
  EXPECT_EQ(asked[0], pod + "?dryRun") << "once an hour for each template";
  const auto from = asked.begin() + 1;
  EXPECT_THAT(std::vector(from, from + 7), ::testing::UnorderedElementsAreArray(own));
  EXPECT_EQ(asked[8], status) << "before the first pod";
  EXPECT_THAT(std::vector(from + 8, from + 12), ::testing::Each(pod));
  EXPECT_EQ(asked[13], status) << "how many pods there are";
  EXPECT_EQ(op.told.size(), 1u) << "one event";
  // A second job of the same template is not tried.
  kube::Client user(server, clock, {.attempts = 1});
  ASSERT_TRUE(user.create(jobs_resource(), "n",
                          {{"apiVersion", jobspec::kApiVersion},
                           {"kind", jobspec::kKind},
                           {"metadata", {{"name", "k"}, {"namespace", "n"}}},
                           {"spec", quick_spec(4)}}));
  asked.clear();
  turns(op);
  EXPECT_EQ(asked.size(), 7u + 1 + 4 + 1) << ::testing::PrintToString(asked);
}

std::string account_of_pod(const Json& pod) {
  return json_text(json_child(pod["metadata"], "annotations"), kAnnotationAccount);
}

/// However soon after it: the pod that has the token of the one before is replaced, and its successor is not.
TEST_F(ApplyTest, AServiceAccountThatIsDeletedReplacesWorkerZeroAloneAndOnce) {
  for (const int at : {1, 2, 3, 5, 9, 11, 20}) {
    FakeApiServer fresh;
    serve(fresh);
    SimClock time;
    fresh.set_wall([&] { return std::chrono::floor<Seconds>(time.at()); });
    kube::Client user(fresh, time, {.attempts = 1});
    ASSERT_TRUE(user.create(jobs_resource(), "n",
                            {{"apiVersion", jobspec::kApiVersion},
                             {"kind", jobspec::kKind},
                             {"metadata", {{"name", "j"}, {"namespace", "n"}}},
                             {"spec", quick_spec()}}));
    SimOperator op(fresh, time, chance, nullptr);
    const auto turns_of = [&](int count) {
      for (int i = 0; i < count; ++i) {
        time.now += Seconds(1);
        op.turn();
      }
    };
    const auto pods = [&] { return fresh.objects(kube::resources::pods()); };
    const auto uid = [&] {
      return (*user.get(kube::resources::service_accounts(), "n", "j-worker"))["metadata"]["uid"]
          .get<std::string>();
    };
    turns_of(at);
    ASSERT_EQ(pods().size(), 2u);
    for (const Json& pod : pods()) {
      const bool zero = label_of(pod, contract::kLabelReplicaIndex) == "0";
      EXPECT_EQ(account_of_pod(pod), zero ? uid() : "");
    }
    ASSERT_TRUE(user.remove(kube::resources::service_accounts(), "n", "j-worker"));
    turns_of(30);
    std::set<std::string> names;
    for (const Json& pod : pods()) {
      names.insert(pod["metadata"]["name"]);
      if (label_of(pod, contract::kLabelReplicaIndex) == "0") {
        EXPECT_EQ(account_of_pod(pod), uid()) << at;
      }
    }
    EXPECT_EQ(names, (std::set<std::string>{"j-worker-0-2", "j-worker-1-1"})) << at;
  }
}

TEST_F(AtOnce, AGangThatGoesAtOnceTriesNoPodFirst) {
  const auto rounds = [&](int first, int count) {
    Plan plan;
    for (int i = first; i < first + count; ++i) {
      plan.pods.push_back(object("Pod", "j-worker-" + std::to_string(i) + "-1"));
    }
    return rounds_of(client, observed, plan);
  };
  using Rounds = std::vector<size_t>;
  EXPECT_EQ(rounds(0, 8), Rounds{8});
  EXPECT_EQ(rounds(10, 9), Rounds{8}) << "the first alone";
  observed.refusal = Refusal{"QuotaExceeded", "in the pass before"};
  EXPECT_EQ(rounds(20, 8), Rounds{7}) << "the first alone";
  observed.refusal.reset();
  observed.pods.emplace_back();
  EXPECT_EQ(rounds(30, 30), Rounds{30}) << "the job has pods: there is room, or was";
  EXPECT_EQ(names("Pod").size(), 55u);
}

TEST_F(AtOnce, EveryPodIsMadeOnce) {
  const Applied applied = make(100);
  EXPECT_TRUE(applied.done) << applied.problem;
  EXPECT_EQ(applied.created, 100);
  EXPECT_EQ(names("Pod").size(), 100u);
  EXPECT_EQ(server.requests("POST"), 101) << "the job's own, and one per pod";
}

TEST_F(AtOnce, ARefusalIsMetOnceAndReported) {
  server.set_fault([&](const kube::Request& request) {
    using Fault = kube::testing::Fault;
    return request.path.ends_with("/pods") ? Fault{.kind = Fault::Kind::Refuse, .status = 403}
                                           : Fault{};
  });
  const Applied applied = make(100);
  EXPECT_FALSE(applied.done);
  ASSERT_TRUE(applied.refusal);
  EXPECT_EQ(applied.refusal->reason, "Forbidden");
  EXPECT_EQ(server.requests("POST"), 2);
}

TEST_F(AtOnce, AFailureInTheMiddleStopsTheRest) {
  int made = 0;
  server.set_fault([&](const kube::Request& request) {
    using Fault = kube::testing::Fault;
    if (!request.path.ends_with("/pods") || ++made <= 10) return Fault{};
    return Fault{.kind = Fault::Kind::Refuse, .status = 422};
  });
  const Applied applied = make(100);
  EXPECT_FALSE(applied.done);
  ASSERT_TRUE(applied.refusal) << applied.problem;
  EXPECT_EQ(applied.refusal->reason, "Invalid");
  EXPECT_EQ(applied.created, 10);
  EXPECT_LE(server.requests("POST"), 1 + 10 + 8) << "at most one refused by each thread";
}

}  // namespace
}  // namespace dsj::op::testing
