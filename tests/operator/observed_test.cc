// What the operator takes from objects that others write.
#include "operator/observed.h"

#include <gtest/gtest.h>

#include "common/text.h"
#include "job/contract.h"

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
    const auto pod = pod_view(
        {{"metadata",
          {{"name", "j-worker-0-1"},
           {"labels", {{contract::kLabelReplicaIndex, "0"}, {contract::kLabelIncarnation, "1"}}}}},
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

}  // namespace
}  // namespace dsj::op::testing
