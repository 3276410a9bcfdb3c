// What the operator takes from objects that others write.
#include "operator/observe/observed.h"

#include <gtest/gtest.h>

#include "common/text.h"
#include "job/contract.h"
#include "tests/operator/world.h"

namespace dsj::op::testing {
namespace {

/// Long last words are cut; with half a character in it no status could be compared with what is stored.
TEST(Observed, WhatAPodSaysIsCutBetweenCharacters) {
  std::string words;
  for (int i = 0; i < 500; ++i) words += "\xe2\x82\xac";  // 1,500 bytes
  for (int shift = 0; shift < 3; ++shift, words += "x") {
    const Json message = {
        {"reason", "RankFailed"}, {"message", words}, {"lastWords", words}, {"attempt", 1}};
    const Json ended = {{"exitCode", 1}, {"message", message.dump()}};
    const auto pod =
        pod_view({{"metadata", {{"name", "j-worker-0-1"}}},
                  {"status",
                   {{"phase", "Failed"},
                    {"containerStatuses", Json::array({{{"name", contract::kContainerName},
                                                        {"state", {{"terminated", ended}}}}})}}}});
    ASSERT_TRUE(pod && pod->termination) << shift;
    for (const std::string& text : {pod->termination->message, pod->termination->last_words}) {
      EXPECT_EQ(text::invalid_utf8(text), std::string::npos) << shift;
      EXPECT_GE(text.size(), 990u);
      EXPECT_LE(text.size(), 1000u);
      EXPECT_TRUE(text.ends_with(words.substr(words.size() - 900))) << "the end says why";
    }
  }
}

TEST(Observed, WhatAgent0TellsOfDamagedCheckpoints) {
  const auto job = [](Json damaged) {
    return job_view({{"metadata", {{"name", "j"}, {"namespace", "n"}}},
                     {"status", {{"checkpoint", {{"lastDamaged", std::move(damaged)}}}}}});
  };
  const JobView one = job({{"attempt", 2}, {"step", 6}, {"message", "step-6 is damaged"}});
  EXPECT_EQ(one.agent.damaged_attempt, 2);
  EXPECT_EQ(one.agent.damaged, "step-6 is damaged");
  EXPECT_FALSE(one.own_status.contains("checkpoint"));
  const JobView long_one = job({{"attempt", 3}, {"message", std::string(5000, 'x')}});
  EXPECT_EQ(long_one.agent.damaged, std::string(1000, 'x'));
  for (const Json& odd : {Json(), Json(5), Json::object(), Json::object({{"attempt", "x"}})}) {
    EXPECT_EQ(job(odd).agent.damaged_attempt, 0);
  }
}

/// Whoever may patch a pod may write any label, and the name of the next pod has to differ.
TEST(PodView, ItsNameSaysWhichWorkerItIs) {
  const auto place = [](const std::string& name) -> std::pair<int, int64_t> {
    const auto pod =
        pod_view({{"metadata",
                   {{"name", name},
                    {"labels",
                     {{contract::kLabelReplicaIndex, "5"}, {contract::kLabelIncarnation, "x"}}}}}});
    return pod ? std::pair(pod->worker, pod->incarnation) : std::pair(-1, int64_t{-1});
  };
  EXPECT_EQ(place("j-worker-3-17"), std::pair(3, int64_t{17}));
  EXPECT_EQ(place("a-worker-1-2-worker-0-1000000000000001"), std::pair(0, 1000000000000001));
  for (const char* name : {"", "j", "j-worker-1", "worker-1-1-", "j-other-1-1", "j-worker--1",
                           "j-worker-1-", "j-worker-1-x", "j-worker-1-9999999999999999999"}) {
    EXPECT_EQ(place(name).first, -1) << name;
  }
}

TEST(JobView, AQueueLabelIsItsSchedulingPolicy) {
  Json object = {{"metadata", {{"name", "j"}, {"labels", {{"kueue.x-k8s.io/queue-name", "q"}}}}},
                 {"spec", quick_spec()}};
  const JobView job = job_view(object);
  const Json policy = {{"scheduler", "kueue"}, {"queue", "q"}};
  EXPECT_EQ(job.spec["runPolicy"]["schedulingPolicy"], policy);
  const Verdict queued = agreeing_with("q", judge("j", job.spec, std::nullopt, ""));
  ASSERT_TRUE(queued.accepted) << queued.message;
  EXPECT_EQ(queued.accepted->job.policies.run.scheduling.queue, "q");

  object["spec"]["runPolicy"]["schedulingPolicy"] = {{"scheduler", "kueue"}, {"queue", "other"}};
  const JobView contrary = job_view(object);
  EXPECT_EQ(contrary.spec, object["spec"]) << "nothing is guessed";
  const Verdict refused = agreeing_with("q", judge("j", contrary.spec, std::nullopt, ""));
  EXPECT_FALSE(refused.accepted);
  EXPECT_EQ(refused.reason, "ConfigInvalid");
  EXPECT_EQ(refused.message,
            "spec.runPolicy.schedulingPolicy: the queue is \"other\", and the label "
            "kueue.x-k8s.io/queue-name says \"q\" (remove one of the two)");
}

}  // namespace
}  // namespace dsj::op::testing
