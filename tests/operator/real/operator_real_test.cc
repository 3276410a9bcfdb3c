// The operator on a real API server with the real CRD; the test is kubelet and agent. $KUBECONFIG
// names the server; without one this program fails.
#include <gmock/gmock.h>

#include <functional>
#include <random>
#include <regex>
#include <set>
#include <thread>

#include "operator/act/apply.h"
#include "operator/act/trial.h"
#include "operator/observe/own_status.h"
#include "operator/run.h"
#include "tests/kube/real_cluster.h"
#include "tests/operator/drawn_template.h"
#include "tests/operator/rendered_pod.h"

namespace dsj::op {
namespace {

using kube::resources::pods;
using ::testing::HasSubstr;

/// Whether `kept` says all that `sent` says.
bool says(const Json& sent, const Json& kept) {
  if (sent.is_object())
    return kept.is_object() && std::ranges::all_of(sent.items(), [&](const auto& one) {
             return kept.contains(one.key()) && says(one.value(), kept[one.key()]);
           });
  if (!sent.is_array()) return sent == kept;
  if (!kept.is_array() || kept.size() != sent.size()) return false;
  for (size_t i = 0; i < sent.size(); ++i)
    if (!says(sent[i], kept[i])) return false;
  return true;
}

class RealOperator : public kube::testing::RealCluster {
 protected:
  void SetUp() override {
    RealCluster::SetUp();
    if (HasFatalFailure()) return;
    options_.health_address.clear();
    options_.lease_namespace = ns_;
    options_.namespaces = {ns_};
    start();
  }
  void TearDown() override {
    halt();
    RealCluster::TearDown();
  }

  void start() {
    stop_ = kube::Cancel();
    process_ = std::thread(
        [this] { ended_ = run_operator(options_, *transport_, kube::system_clock(), ns_, stop_); });
  }
  void halt() {
    if (!process_.joinable()) return;
    stop_.cancel();
    process_.join();
    EXPECT_TRUE(ended_);
  }

  Json job() { return client_->get(jobs_resource(), ns_, "quick").value_or(Json::object()); }
  std::string phase() { return job().value("status", Json::object()).value("phase", ""); }
  std::vector<Json> pods_of() {
    std::vector<Json> all;
    (void)client_->list(pods(), ns_, {}, [&](const Json& pod) { all.push_back(pod); });
    return all;
  }
  kube::ApiResult<Json> submit(const std::function<void(Json&)>& change = {}) {
    Json object = Json::parse(R"({
      "apiVersion": "training.dsj.dev/v1alpha1", "kind": "DeepSpeedJob",
      "metadata": {"name": "quick"},
      "spec": {
        "deepspeed": {"config": {"train_micro_batch_size_per_gpu": "auto",
          "bf16": {"enabled": "auto"}, "optimizer": {"type": "AdamW", "params": {"lr": 1e-6}},
          "zero_optimization": {"stage": 2, "reduce_bucket_size": 2e8}}},
        "training": {"modelNameOrPath": "/m", "dataPath": "/d", "outputDir": "/tmp/o", "maxSteps": 3,
          "learningRate": 1e-6},
        "workers": {"replicas": 2}}})");
    if (change) change(object);
    return client_->create(jobs_resource(), ns_, object);
  }
  void edit(const Json& patch) {
    const auto edited = client_->merge_patch(jobs_resource(), ns_, "quick", patch);
    ASSERT_TRUE(edited) << edited.error().to_string();
  }

  /// As a kubelet says it.
  void set_pods(const std::string& phase, const Json& state) {
    for (const Json& pod : pods_of()) {
      const Json status = {{"phase", phase},
                           {"containerStatuses", Json::array({{{"name", "worker"},
                                                               {"image", "i"},
                                                               {"imageID", ""},
                                                               {"ready", false},
                                                               {"restartCount", 0},
                                                               {"state", state}}})}};
      const auto set = client_->merge_patch(pods(), ns_, pod["metadata"]["name"],
                                            {{"status", status}}, "status");
      ASSERT_TRUE(set) << set.error().to_string();
    }
  }
  /// As agent 0 says it.
  void report(const Json& training, const Json& checkpoint) {
    const auto told = client_->apply(
        jobs_resource(), ns_,
        {{"apiVersion", jobspec::kApiVersion},
         {"kind", jobspec::kKind},
         {"metadata", {{"name", "quick"}, {"namespace", ns_}, {"uid", job()["metadata"]["uid"]}}},
         {"status", {{"training", training}, {"checkpoint", checkpoint}}}},
        {.manager = contract::kAgentManager, .subresource = "status"});
    ASSERT_TRUE(told) << told.error().to_string();
  }

  Options options_;
  kube::Cancel stop_;
  std::thread process_;
  Status ended_;
};

TEST_F(RealOperator, AJobToCompleteWithARestartOfTheOperatorMeanwhile) {
  const auto made = submit();
  ASSERT_TRUE(made) << made.error().to_string();
  ASSERT_TRUE(soon([&] { return pods_of().size() == 2; }));
  const Json config = job()["spec"]["deepspeed"]["config"];
  EXPECT_EQ(config["zero_optimization"]["reduce_bucket_size"], 2e8);
  EXPECT_EQ(config["optimizer"]["params"]["lr"], 1e-6);
  EXPECT_EQ(config["bf16"]["enabled"], "auto");
  set_pods("Running", {{"running", Json::object()}});
  report({{"attempt", 1}, {"step", 1}, {"loss", "2.5"}}, {{"lastSaved", {{"step", 1}}}});
  ASSERT_TRUE(soon([&] { return phase() == "Running"; })) << job().dump(1);
  std::vector<std::string> before;
  for (const Json& pod : pods_of()) before.push_back(pod["metadata"]["uid"]);
  halt();
  options_.settings.worker_image = "another:2";  // an upgrade
  start();
  std::this_thread::sleep_for(Seconds(2));
  std::vector<std::string> after;
  for (const Json& pod : pods_of()) after.push_back(pod["metadata"]["uid"]);
  EXPECT_EQ(after, before);
  EXPECT_EQ(job()["status"]["training"]["loss"], "2.5") << "the agent's fields stay";
  const Json words = {{"reason", "Completed"}, {"step", 3}, {"attempt", 1}};
  set_pods("Succeeded", {{"terminated", {{"exitCode", 0}, {"message", words.dump()}}}});
  ASSERT_TRUE(soon([&] { return phase() == "Complete"; })) << job().dump(1);
  const auto version = job()["metadata"]["resourceVersion"];
  std::this_thread::sleep_for(Seconds(2));
  EXPECT_EQ(job()["metadata"]["resourceVersion"], version) << "a status write at rest";
  int events = 0;
  (void)client_->list(kube::resources::events(), ns_, {}, [&](const Json&) { ++events; });
  EXPECT_GE(events, 3);  // accepted, running, completed
}

TEST_F(RealOperator, SuspendKeepsThePodsUntilTheStepIsSavedAndScaleIsServed) {
  ASSERT_TRUE(submit());
  ASSERT_TRUE(soon([&] { return pods_of().size() == 2; }));
  set_pods("Running", {{"running", Json::object()}});
  report({{"attempt", 1}, {"step", 1}}, Json::object());
  ASSERT_TRUE(soon([&] { return phase() == "Running"; }));
  edit({{"spec", {{"suspend", true}}}});
  ASSERT_TRUE(soon([&] { return phase() == "Suspending"; }));
  report({{"attempt", 1}, {"step", 2}, {"stopStep", 2}}, Json::object());
  std::this_thread::sleep_for(Seconds(1));
  EXPECT_EQ(pods_of().size(), 2u);
  report({{"attempt", 1}, {"step", 2}, {"stopStep", 2}}, {{"lastSaved", {{"step", 2}}}});
  ASSERT_TRUE(soon([&] { return phase() == "Suspended"; })) << job().dump(1);
  EXPECT_TRUE(pods_of().empty());
  const auto scale =
      transport_->call({.path = jobs_resource().object(ns_, "quick", "scale")}, kube::Cancel());
  ASSERT_TRUE(scale);
  const Json scaled = Json::parse(scale->body);
  EXPECT_EQ(scaled["spec"]["replicas"], 2) << scale->body;
  EXPECT_EQ(scaled["status"]["replicas"], 0);
  EXPECT_EQ(scaled["status"]["selector"], "training.dsj.dev/job-name=quick");
  edit({{"spec", {{"suspend", false}, {"workers", {{"replicas", 3}}}}}});
  ASSERT_TRUE(soon([&] { return pods_of().size() == 3; }));
  for (const Json& pod : pods_of()) {
    EXPECT_EQ(pod["metadata"]["labels"][contract::kLabelIncarnation], "2");
  }
}

TEST_F(RealOperator, WhatTheCrdAndTheOperatorRefuse) {
  auto refused = [&](const std::function<void(Json&)>& change) {
    const auto made = submit(change);
    return made ? "" : made.error().message;
  };
  EXPECT_THAT(refused([](Json& j) { j["metadata"]["name"] = std::string(41, 'a'); }),
              HasSubstr("at most 40"));
  EXPECT_THAT(refused([](Json& j) { j["spec"]["deepspeed"] = Json::object(); }),
              HasSubstr("exactly one of config and configFrom"));
  EXPECT_THAT(refused([](Json& j) { j["spec"]["workers"]["replicas"] = 0; }),
              HasSubstr("spec.workers.replicas"));
  ASSERT_TRUE(
      submit([](Json& j) { j["spec"]["deepspeed"]["config"]["zero_optimization"]["stage"] = 7; }));
  ASSERT_TRUE(soon([&] { return phase() == "Refused"; }));
  const auto conditions = own_status_from_json(own_part(job()["status"])).conditions;
  EXPECT_THAT(find_condition(conditions, "Accepted")->message,
              HasSubstr("zero_optimization.stage"));
  EXPECT_TRUE(pods_of().empty());
  const auto other =
      client_->merge_patch(jobs_resource(), ns_, "quick", {{"spec", {{"launcher", "Command"}}}});
  ASSERT_FALSE(other);
  EXPECT_THAT(other.error().message, HasSubstr("the launcher of a job does not change"));
  (void)client_->remove(jobs_resource(), ns_, "quick");
}

// The rules of tests/operator/drawn_template_test.cc are written by hand; these are the server's own.
TEST_F(RealOperator, TakesThePodOfEachDrawnTemplateThatIsNotRefused) {
  const auto account = client_->create(
      kube::resources::service_accounts(), ns_,
      {{"apiVersion", "v1"}, {"kind", "ServiceAccount"}, {"metadata", {{"name", "j-worker"}}}});
  ASSERT_TRUE(account) << account.error().to_string();
  int taken = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    const testing::DrawnTemplate drawn(seed);
    Json spec = testing::quick_spec();
    spec["workers"]["template"] = drawn.pod();
    testing::World world(spec);
    if (!world.o.wanted.accepted) continue;
    for (const int worker : {0, 1}) {
      Json pod = testing::pod_of(world, worker);
      pod["metadata"]["namespace"] = ns_;
      pod["metadata"].erase("ownerReferences");  // of a job that is not there
      const auto answer =
          transport_->call({.method = "POST",
                            .path = pods().collection(ns_) + "?dryRun=All&fieldValidation=Strict",
                            .content_type = "application/json",
                            .body = pod.dump()},
                           {});
      ASSERT_TRUE(answer) << answer.error().message;
      ASSERT_EQ(answer->status, 201) << "seed " << seed << ": " << answer->body << pod.dump(1);
    }
    ++taken;
  }
  EXPECT_GT(taken, 100);
}

/// A field that no Kubernetes has, put at a drawn place of a template.
struct UnknownField {
  std::string path;  ///< of the object that has it, as a server writes it
  std::string name;
};

UnknownField add_unknown(Json& pod, std::mt19937_64& random) {
  std::vector<std::pair<Json*, std::string>> places;
  const std::function<void(Json&, const std::string&)> visit = [&](Json& at,
                                                                   const std::string& path) {
    if (at.is_array())
      for (size_t i = 0; i < at.size(); ++i) visit(at[i], path + "[" + std::to_string(i) + "]");
    if (!at.is_object()) return;
    // Maps: their keys are the user's.
    for (const char* map : {".nodeSelector", ".limits", ".requests"})
      if (path.ends_with(map)) return;
    places.emplace_back(&at, path);
    for (auto& [name, value] : at.items()) visit(value, path + "." + name);
  };
  visit(pod["spec"], "spec");
  auto& [object, path] = places[random() % places.size()];
  const std::string name = "dsjField" + std::to_string(random() % 100);
  const Json values[] = {true, 7, "text", Json::array({1, 2}), {{"deep", {{"deeper", 1}}}}};
  (*object)[name] = values[random() % 5];
  return {path, name};
}

// A cluster's next version has fields that no schema of today knows. The server keeps them in a job, and its own answer says
// whether its pods have them.
TEST_F(RealOperator, KeepsAndJudgesFieldsThatTheSchemaDoesNotKnow) {
  halt();
  std::mt19937_64 random(7);
  std::set<std::string> places;
  int refused = 0;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    const testing::DrawnTemplate drawn(seed);
    Json spec = testing::quick_spec();
    spec["workers"]["template"] = drawn.pod();
    if (!testing::World(spec).o.wanted.accepted) continue;
    Json& pod = spec["workers"]["template"];
    const UnknownField unknown = add_unknown(pod, random);
    places.insert(std::regex_replace(unknown.path, std::regex(R"(\[\d+\])"), "[]"));
    const Json sent = pod;
    const auto stored = client_->try_create(jobs_resource(), ns_,
                                            {{"apiVersion", jobspec::kApiVersion},
                                             {"kind", jobspec::kKind},
                                             {"metadata", {{"name", "quick"}}},
                                             {"spec", spec}});
    ASSERT_TRUE(stored) << "seed " << seed << ": " << stored.error().message;
    const Json kept = (*stored)["spec"]["workers"]["template"];
    ASSERT_TRUE(says(sent, kept)) << "seed " << seed << ": " << kept.dump(1);
    testing::World world(spec);
    ASSERT_TRUE(world.o.wanted.accepted) << "seed " << seed << ": " << world.o.wanted.message;
    world.o.job->ns = ns_;
    const std::string sentence =
        PodTrials()
            .try_pod(*client_, *world.o.job, {}, *world.o.wanted.accepted, world.now)
            .refusal;
    ASSERT_THAT(sentence, HasSubstr("unknown field \"spec")) << "seed " << seed << pod.dump(1);
    ASSERT_THAT(sentence, HasSubstr("." + unknown.name + "\"")) << "seed " << seed;
    ++refused;
  }
  EXPECT_GT(refused, 100);
  EXPECT_GT(places.size(), 25u);
  std::printf("%d templates, unknown fields at %zu different places\n", refused, places.size());
}

TEST_F(RealOperator, AFieldThatTheServersPodsLackIsTheJobsRefusal) {
  ASSERT_TRUE(submit([](Json& job) {
    job["spec"]["workers"]["template"]["spec"]["futureField"] = {{"of", "1.99"}};
  }));
  ASSERT_TRUE(soon([&] { return phase() == "Refused"; })) << job().dump(1);
  EXPECT_EQ(job()["spec"]["workers"]["template"]["spec"]["futureField"]["of"], "1.99");
  const auto conditions = own_status_from_json(own_part(job()["status"])).conditions;
  EXPECT_THAT(find_condition(conditions, "Accepted")->message,
              HasSubstr("strict decoding error: unknown field \"spec.futureField\""));
  EXPECT_TRUE(pods_of().empty());
  edit({{"spec", {{"workers", {{"template", {{"spec", {{"futureField", nullptr}}}}}}}}}});
  ASSERT_TRUE(soon([&] { return pods_of().size() == 2; })) << job().dump(1);
}

}  // namespace
}  // namespace dsj::op
