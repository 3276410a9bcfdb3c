#include "job/failure_reasons.h"

#include <gtest/gtest.h>

namespace dsj {
namespace {

TEST(FailureReasons, ARankSaysAnyWordThatIsNobodyElses) {
  for (const char* word : {"CudaOutOfMemory", "LossNotFinite", "PeerLost", "BadInput", "E2"}) {
    EXPECT_EQ(reason_of_rank(word), word);
    EXPECT_EQ(reason_of_agent(word), word);
  }
}

TEST(FailureReasons, WordsOfTheOperatorAreReservedForIt) {
  for (const std::string_view word : kOperatorsReasons) {
    EXPECT_EQ(reason_of_agent(word), kReasonRankFailed) << word;
    EXPECT_EQ(reason_of_rank(word), kReasonRankFailed) << word;
  }
}

TEST(FailureReasons, WordsOfAnAgentAreNotARanks) {
  for (const std::string_view word : kAgentsReasons) {
    EXPECT_EQ(reason_of_agent(word), word);
    EXPECT_EQ(reason_of_rank(word), kReasonRankFailed) << word;
  }
}

TEST(FailureReasons, WhatIsNoWordIsReplaced) {
  for (const std::string& text :
       {std::string(), std::string("two words"), std::string("9lives"), std::string("a\"b"),
        std::string("\xe2\x82\xac"), std::string(65, 'x'), std::string("x\0y", 3)}) {
    EXPECT_EQ(reason_of_rank(text), kReasonRankFailed);
  }
  EXPECT_EQ(reason_of_rank(std::string(64, 'x')), std::string(64, 'x'));
}

TEST(FailureReasons, ALabelIsAListedWordOrOther) {
  for (const std::string_view word : {"NodeLost", "Preempted", "HangDetected", "OOMKilled"})
    EXPECT_EQ(reason_label(word), word);
  for (const std::string_view word : {"", "CudaOutOfMemory", "E1", "two words", "oomkilled"})
    EXPECT_EQ(reason_label(word), kReasonOther) << word;
}

}  // namespace
}  // namespace dsj
