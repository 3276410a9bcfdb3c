#include "operator/decide/readiness.h"

#include <gmock/gmock.h>

#include <fstream>

#include "test_paths.h"
#include "tests/operator/kstatus.h"
#include "tests/operator/world.h"

namespace dsj::op::testing {
namespace {

using ::testing::HasSubstr;

Json object_of(const World& world) {
  return {{"metadata", {{"name", "j"}, {"generation", world.o.job->generation}}},
          {"spec", {{"suspend", world.o.job->spec.value("suspend", false)}}},
          {"status", world.o.job->own_status}};
}

struct Stage {
  const char* name;
  /// By kstatus' rules for batch/v1's Job: Current when it runs, is suspended as asked or is complete.
  const char* kstatus;
  /// By Argo CD's rules for batch/v1's Job: Progressing until it is complete.
  const char* argo_cd;
  std::function<void(World&)> reach;
};

const std::vector<Stage>& stages() {
  static const std::vector<Stage> all = {
      {"Pending", "InProgress", "Progressing", [](World& world) { world.settle(); }},
      {"Starting", "InProgress", "Progressing",
       [](World& world) {
         world.settle();
         world.run_pods();
         world.settle();
       }},
      {"Running", "Current", "Progressing", [](World& world) { world.to_running(); }},
      {"Running, but agent 0 is silent", "InProgress", "Progressing",
       [](World& world) {
         world.to_running();
         world.now += Seconds(86'400);
         world.settle();
       }},
      {"Restarting", "InProgress", "Progressing",
       [](World& world) {
         world.to_running();
         world.end(world.pod(1), 1, "RankFailed");
         world.settle();
       }},
      {"Suspending", "InProgress", "Progressing",
       [](World& world) {
         world.to_running();
         world.edit("/suspend", true);
         world.settle();
       }},
      {"Suspended", "Current", "Suspended",
       [](World& world) {
         world.edit("/suspend", true);
         world.settle();
       }},
      {"Complete", "Current", "Healthy",
       [](World& world) {
         world.to_running();
         for (const int worker : {0, 1}) world.end(world.pod(worker), 0, "Completed", 10);
         world.settle();
       }},
      {"Failed", "Failed", "Degraded",
       [](World& world) {
         world.edit("/restartPolicy", "Never");
         world.to_running();
         world.end(world.pod(1), 1, "RankFailed");
         world.settle();
       }},
      {"Refused", "Failed", "Degraded",
       [](World& world) {
         world.edit("/training/learningRat", 1);
         world.settle();
       }},
      {"Running, but an edit is refused", "Failed", "Degraded",
       [](World& world) {
         world.to_running();
         world.edit("/deepspeed/config/zero_optimization/stage", 7);
         world.settle();
       }},
      {"Refused until its ConfigMap is there", "InProgress", "Progressing",
       [](World& world) {
         Json spec = quick_spec();
         spec["deepspeed"] = {{"configFrom", {{"configMapKeyRef", {{"name", "c"}, {"key", "k"}}}}}};
         world.edit(spec);
         world.settle();
       }},
      {"edited, and not seen yet", "InProgress", "Progressing",
       [](World& world) {
         world.to_running();
         world.edit("/backoffLimit", 7);
       }},
      {"a pass was broken off", "Failed", "Degraded",
       [](World& world) {
         world.to_running();
         OwnStatus status = world.status();
         set_broken_off("why", world.o.job->generation, world.now, status.conditions);
         world.o.job->own_status = to_json(status);
       }},
  };
  return all;
}

TEST(Readiness, EachStageIsWhatItIsForAJobOfBatch) {
  Json shown = Json::array();
  for (const Stage& stage : stages()) {
    World world;
    stage.reach(world);
    const Json object = object_of(world);
    EXPECT_EQ(kstatus(object), stage.kstatus) << stage.name << object.dump(1);
    shown.push_back({{"stage", stage.name},
                     {"kstatus", stage.kstatus},
                     {"argoCd", stage.argo_cd},
                     {"object", object}});
  }
  // The health script for Argo CD is tried against these (tests/run/argocd_health_check.py).
  const std::string path = DSJ_SOURCE_DIR "/tests/fixtures/readiness.json";
  if (std::getenv("DSJ_WRITE_FIXTURES")) std::ofstream(path) << shown.dump(1) << "\n";
  std::ifstream file(path);
  EXPECT_TRUE(Json::parse(file, nullptr, false) == shown)
      << path << ": DSJ_WRITE_FIXTURES=1 writes it anew";
}

TEST(Readiness, AJobThatNobodySawIsNotCurrent) {
  const Json fresh = {{"metadata", {{"generation", 1}}}, {"status", {{"observedGeneration", -1}}}};
  EXPECT_EQ(kstatus(fresh), "InProgress");
  EXPECT_TRUE(own_part(fresh["status"]).empty());
}

TEST(Readiness, ThePassAfterABrokenOneTakesItBack) {
  World world;
  world.to_running();
  OwnStatus status = world.status();
  set_broken_off("why", world.o.job->generation, world.now, status.conditions);
  EXPECT_THAT(find_condition(status.conditions, kStalled)->message, HasSubstr("why"));
  world.o.job->own_status = to_json(status);
  world.settle();
  EXPECT_EQ(find_condition(world.status().conditions, kStalled), nullptr);
  EXPECT_EQ(world.condition(kReady), "True AttemptRunning");
}

TEST(Readiness, OneThatStaysKeepsItsTime) {
  World world;
  world.edit("/training/learningRat", 1);
  world.settle();
  const Time since = find_condition(world.status().conditions, kStalled)->since;
  world.now += Seconds(100);
  world.edit("/training/learningRat", 2);
  world.settle();
  EXPECT_EQ(find_condition(world.status().conditions, kStalled)->since, since);
  EXPECT_EQ(find_condition(world.status().conditions, kStalled)->observed_generation, 3);
}

}  // namespace
}  // namespace dsj::op::testing
