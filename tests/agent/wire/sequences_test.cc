#include "agent/wire/transport.h"

#include <gtest/gtest.h>

namespace dsj::agent {
namespace {

WorkerReport beat(int64_t sequence, int64_t incarnation = 1, int worker = 1) {
  return {.worker = worker, .incarnation = incarnation, .sequence = sequence};
}

TEST(Sequences, WhatWasOvertakenIsRefusedWithTheNumberToGoOnFrom) {
  Sequences sequences;
  EXPECT_EQ(sequences.refuse(beat(5)), std::nullopt);
  EXPECT_EQ(sequences.refuse(beat(4)), 5);
  EXPECT_EQ(sequences.refuse(beat(5)), std::nullopt) << "sent twice: the session drops it";
  EXPECT_EQ(sequences.refuse(beat(6)), std::nullopt);
  EXPECT_EQ(sequences.refuse(beat(1, 1, 2)), std::nullopt) << "another worker counts for itself";
}

TEST(Sequences, ANumberFarAheadIsNotTaken) {
  Sequences sequences;
  EXPECT_EQ(sequences.refuse(beat(INT64_MAX)), -1);
  EXPECT_EQ(sequences.refuse(beat(0)), std::nullopt);
  EXPECT_EQ(sequences.refuse(beat(kSequenceStepMax)), std::nullopt);
  EXPECT_EQ(sequences.refuse(beat(2 * kSequenceStepMax + 1)), kSequenceStepMax);
  EXPECT_EQ(sequences.refuse(beat(kSequenceStepMax + 1)), std::nullopt);
}

TEST(Sequences, ALaterLifeCountsAnew) {
  Sequences sequences;
  EXPECT_EQ(sequences.refuse(beat(9, 1)), std::nullopt);
  EXPECT_EQ(sequences.refuse(beat(1, 2)), std::nullopt);
  EXPECT_EQ(sequences.refuse(beat(3, 1)), std::nullopt) << "it must hear that it was replaced";
  EXPECT_EQ(sequences.refuse(beat(0, 2)), 1) << "which moved nothing";
}

}  // namespace
}  // namespace dsj::agent
