// The cache against watches that tell late, twice or not at all.
#include "operator/cache.h"

#include <gmock/gmock.h>

#include "common/contract.h"

namespace dsj::op {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

Json pod(const std::string& name, int version, const std::string& ns = "n") {
  return {{"metadata",
           {{"name", name},
            {"namespace", ns},
            {"uid", "uid-of-" + name},
            {"resourceVersion", std::to_string(version)},
            {"labels",
             {{contract::kLabelJobName, "j"},
              {contract::kLabelReplicaIndex, "0"},
              {contract::kLabelIncarnation, "1"}}}}}};
}

class CacheTest : public ::testing::Test {
 protected:
  std::vector<std::string> pods(const std::string& key = "n/j") {
    std::vector<std::string> names;
    for (const PodView& pod : cache.observe(key).pods) names.push_back(pod.name);
    return names;
  }
  static void list(kube::Sink& sink, const std::vector<Json>& objects) {
    sink.list_begin();
    for (const Json& object : objects) sink.listed(object);
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
  list(sink, {pod("a", 5)});
  EXPECT_THAT(pods(), ElementsAre("a"));
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
