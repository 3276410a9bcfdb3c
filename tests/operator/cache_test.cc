// The cache against watches that tell late, twice or not at all.
#include "operator/observe/cache.h"

#include <gmock/gmock.h>
#include <spdlog/spdlog.h>

#include "job/contract.h"
#include "job/node_health.h"

namespace dsj::op {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

/// What follows in the names of these pods.
constexpr char kOfWorker[] = "-worker-0-1";

Json pod(const std::string& name, int version, const std::string& ns = "n") {
  return {{"metadata",
           {{"name", name + kOfWorker},
            {"namespace", ns},
            {"uid", "uid-of-" + name},
            {"resourceVersion", std::to_string(version)},
            {"labels", {{contract::kLabelJobName, "j"}}}}}};
}

class CacheTest : public ::testing::Test {
 protected:
  std::vector<std::string> pods(const std::string& key = "n/j") {
    std::vector<std::string> names;
    for (const PodView& pod : cache.observe(key).pods)
      names.push_back(pod.name.substr(0, pod.name.find(kOfWorker)));
    return names;
  }
  static void list(kube::Sink& sink, const std::vector<Json>& objects, int at = 5) {
    sink.list_begin();
    for (const Json& object : objects) sink.listed(object);
    EXPECT_TRUE(sink.list_at(std::to_string(at)));
    sink.list_done();
  }

  Cache cache{[](const std::string&) {}};
};

TEST_F(CacheTest, WhatWeWroteIsThereBeforeTheWatchTells) {
  kube::Sink& sink = cache.sink("Pod");
  list(sink, {pod("a", 5)});
  cache.wrote("Pod", pod("b", 7));
  EXPECT_THAT(pods(), ElementsAre("a", "b"));
  sink.upserted(pod("b", 7));
  sink.deleted(pod("b", 9));
  EXPECT_THAT(pods(), ElementsAre("a"));
}

TEST_F(CacheTest, WhatIsNotInANewListIsGoneWhoeverBroughtIt) {
  kube::Sink& sink = cache.sink("Pod");
  list(sink, {pod("a", 5)});
  cache.wrote("Pod", pod("b", 7));  // and deleted while the watch was cut
  list(sink, {pod("a", 5)}, 9);
  EXPECT_THAT(pods(), ElementsAre("a"));
}

/// The reflector lists while a worker writes: b was made after the list had begun and was deleted
/// before the server took its snapshot, so that neither list nor watch tells of it.
TEST_F(CacheTest, WhatCameAndWentBeforeTheSnapshotOfAListIsGone) {
  kube::Sink& sink = cache.sink("Pod");
  list(sink, {pod("a", 5)});
  sink.list_begin();
  cache.wrote("Pod", pod("b", 7));   // deleted at 8
  cache.wrote("Pod", pod("c", 12));  // after the snapshot: the watch will tell of it
  sink.listed(pod("a", 5));
  sink.list_at("10");
  sink.list_done();
  EXPECT_THAT(pods(), ElementsAre("a", "c"));
  // An answer that comes only now is as old.
  cache.wrote("Pod", pod("d", 9));
  EXPECT_THAT(pods(), ElementsAre("a", "c"));
}

/// A backup of the server was restored: its versions begin again at an older one. The list is the truth.
TEST_F(CacheTest, AServerWhoseVersionsRunBackwardsIsBelieved) {
  kube::Sink& sink = cache.sink("Pod");
  list(sink, {pod("a", 50), pod("gone", 60)}, 70);
  cache.wrote("Pod", pod("b", 80));
  for (const int at : {20, 75}) {  // short of what the watch had seen; beyond it
    SCOPED_TRACE(at);
    Json aged = pod("a", 10 + at / 10);
    aged["status"]["phase"] = at == 20 ? "Running" : "Failed";
    sink.list_begin();
    sink.listed(aged);
    ASSERT_FALSE(sink.list_at(std::to_string(at))) << "it is to be listed again";
    sink.list_aborted();
    list(sink, {aged}, at);
    EXPECT_THAT(pods(), ElementsAre("a"));
    EXPECT_EQ(cache.observe("n/j").pods[0].resource_version, std::to_string(10 + at / 10));
    EXPECT_EQ(cache.observe("n/j").pods[0].phase,
              at == 20 ? PodView::Phase::Running : PodView::Phase::Failed);
    // In the new history things are as ever.
    cache.wrote("Pod", pod("c", at + 5));
    EXPECT_THAT(pods(), ElementsAre("a", "c"));
    sink.upserted(pod("a", at + 6));
    sink.upserted(pod("a", at + 3));
    EXPECT_EQ(cache.observe("n/j").pods[0].resource_version, std::to_string(at + 6));
  }
}

/// One that is only written to while it is listed is not restored.
TEST_F(CacheTest, AListThatIsOlderThanOurOwnWriteHolds) {
  kube::Sink& sink = cache.sink("Pod");
  list(sink, {pod("a", 5)});
  cache.wrote("Pod", pod("a", 12));
  sink.list_begin();
  sink.listed(pod("a", 5));
  EXPECT_TRUE(sink.list_at("10"));
  sink.list_done();
  EXPECT_EQ(cache.observe("n/j").pods[0].resource_version, "12");
}

/// Nothing that a server may send ends the watch's thread.
TEST_F(CacheTest, AnObjectThatCannotBeReadCostsItself) {
  spdlog::set_level(spdlog::level::off);
  kube::Sink& sink = cache.sink("Pod");
  list(sink, {pod("a", 5)});
  sink.upserted(Json::parse(R"({"metadata": {"name": 5, "labels": []}})"));
  sink.upserted(Json::parse(R"({})"));
  sink.deleted(Json::parse(R"({"metadata": []})"));
  sink.upserted(pod("b", 6));
  EXPECT_THAT(pods(), ElementsAre("a", "b"));
}

TEST_F(CacheTest, WhatTheServerDoesNotHaveIsGone) {
  kube::Sink& sink = cache.sink("Pod");
  list(sink, {pod("a", 5), pod("b", 6)});
  cache.absent("Pod", "n", std::string("a") + kOfWorker, "uid-of-another");
  EXPECT_THAT(pods(), ElementsAre("a", "b"));
  cache.absent("Pod", "n", std::string("a") + kOfWorker, "uid-of-a");
  EXPECT_THAT(pods(), ElementsAre("b"));
}

TEST_F(CacheTest, AListOfOneNamespaceSaysNothingOfAnother) {
  kube::Sink& n = cache.sink("Pod", "n");
  list(n, {pod("a", 5)});
  list(cache.sink("Pod", "m"), {pod("c", 6, "m")});
  cache.wrote("Pod", pod("d", 7, "m"));
  list(n, {});
  EXPECT_THAT(pods(), IsEmpty());
  EXPECT_THAT(pods("m/j"), ElementsAre("c", "d"));
}

TEST_F(CacheTest, AnAnswerThatComesAfterTheDeletionBringsNothingBack) {
  kube::Sink& sink = cache.sink("Pod");
  list(sink, {});
  sink.upserted(pod("a", 5));
  sink.deleted(pod("a", 8));
  cache.wrote("Pod", pod("a", 5));
  EXPECT_THAT(pods(), IsEmpty());
  cache.wrote("Pod", pod("b", 9));
  EXPECT_THAT(pods(), ElementsAre("b"));
}

Json node(const std::string& name, bool ready) {
  Json made = Json::parse(R"({"metadata": {"resourceVersion": "1"},
                              "status": {"conditions": [{"type": "Ready"}]}})");
  made["metadata"]["name"] = name;
  made["status"]["conditions"][0]["status"] = ready ? "True" : "False";
  return made;
}

/// Its pods are gone from there, so only the job's history and the pod that waits know of it.
TEST(CacheOfNodes, WhoKeepsAwayFromALostNodeIsToldThatItIsBack) {
  std::vector<std::string> told;
  Cache cache{[&](const std::string& key) { told.push_back(key); }};
  kube::Sink& nodes = cache.sink("Node");
  kube::Sink& jobs = cache.sink(contract::kKind);
  kube::Sink& pods = cache.sink("Pod");
  const auto list = [](kube::Sink& sink, const std::vector<Json>& objects) {
    sink.list_begin();
    for (const Json& object : objects) sink.listed(object);
    sink.list_at("5");
    sink.list_done();
  };
  list(nodes, {node("lost", false), node("other", false)});
  const Json job = Json::parse(R"({
    "metadata": {"name": "j", "namespace": "n", "uid": "u", "resourceVersion": "2"}, "spec": {},
    "status": {"failureHistory": [{"reason": "NodeLost", "node": "lost"}]}})");
  list(jobs, std::vector<Json>(1, job));
  Json waits = pod("a", 3);
  waits["metadata"]["annotations"][contract::kAnnotationAvoids] = "lost";
  list(pods, std::vector<Json>(1, waits));
  EXPECT_FALSE(cache.observe("n/j").nodes.at("lost").ready);
  EXPECT_FALSE(cache.observe("n/j").nodes.contains("other"));
  told.clear();
  nodes.upserted(node("other", true));
  EXPECT_THAT(told, IsEmpty());
  nodes.upserted(node("lost", true));
  EXPECT_THAT(told, ElementsAre("n/j"));
  EXPECT_TRUE(cache.observe("n/j").nodes.at("lost").ready);
  nodes.deleted(node("lost", true));
  told.clear();
  nodes.upserted(node("lost", true));  // the machine was put up again
  EXPECT_THAT(told, ElementsAre("n/j"));
}

/// Mere reports of agent 0 need no pass. One that becomes an event does, also after the job's end.
TEST(CacheOfJobs, ADamagedCheckpointIsLookedAt) {
  std::vector<std::string> told;
  Cache cache{[&](const std::string& key) { told.push_back(key); }};
  kube::Sink& jobs = cache.sink(contract::kKind);
  Json job = Json::parse(R"({
    "metadata": {"name": "j", "namespace": "n", "uid": "u", "resourceVersion": "2"}, "spec": {},
    "status": {"training": {"attempt": 2, "step": 4}}})");
  jobs.upserted(job);
  told.clear();
  job["metadata"]["resourceVersion"] = "3";
  job["status"]["training"]["step"] = 5;
  jobs.upserted(job);
  EXPECT_THAT(told, IsEmpty());
  job["metadata"]["resourceVersion"] = "4";
  job["status"]["checkpoint"]["lastDamaged"] = {{"step", 4}, {"attempt", 2}, {"message", "m"}};
  jobs.upserted(job);
  EXPECT_THAT(told, ElementsAre("n/j"));
}

TEST_F(CacheTest, AListThatBreaksOffTakesNothingAway) {
  kube::Sink& sink = cache.sink("Pod");
  list(sink, {pod("a", 5), pod("b", 6)});
  sink.list_begin();
  sink.listed(pod("a", 5));
  sink.list_aborted();
  EXPECT_THAT(pods(), ElementsAre("a", "b"));
}

}  // namespace
}  // namespace dsj::op
