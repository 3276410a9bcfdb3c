// A small run's second step as its ledger and its counters saw it, beside what the plan says of it.
#pragma once

#include <gtest/gtest.h>

#include "job/plan/memory_model.h"
#include "tests/engine/train/support.h"

namespace dsj::train {

struct PlannedStep {
  plan::MemoryModel planned;
  comm::Counters all, world, near, rail, replicas;
  int64_t parameters = 0, gradients = 0, optimizer = 0, buckets = 0;
  int flats = 0;  ///< trained ones that stage 3 gathers
};

/// What the plan says of a small run.
inline plan::MemoryModel memory_planned(const Rank& rank, const SmallRun& run) {
  return plan::memory_model({.model = rank.model,
                             .config = rank.config,
                             .world = run.world,
                             .tokens_per_row = 24,
                             .recompute = run.recompute,
                             .lora = resolved_lora(run)});
}

inline PlannedStep measure_planned(const SmallRun& run) {
  PlannedStep out;
  measure_a_step(run, [&](Rank& rank, const memory::Ledger& ledger) {
    const zero::Groups& groups = rank.groups.groups();
    out.all = rank.groups.counters();
    out.world = groups.world->counters();
    if (groups.near) out.near = groups.near->counters();
    if (groups.rail) out.rail = groups.rail->counters();
    if (groups.replicas) out.replicas = groups.replicas->counters();
    out.parameters = ledger.peak(memory::Class::Parameters);
    out.gradients = ledger.peak(memory::Class::Gradients);
    out.optimizer = ledger.peak(memory::Class::Optimizer);
    out.buckets = ledger.peak(memory::Class::Buckets);
    for (int i = 0; i < static_cast<int>(rank.state.plan().flats.size()); ++i)
      out.flats += rank.state.flat(i).sharded_parameters() && !rank.state.flat(i).frozen();
    out.planned = memory_planned(rank, run);
  });
  return out;
}

inline void expect_planned(const PlannedStep& m) {
  EXPECT_EQ(m.parameters, m.planned.bytes.parameters);
  EXPECT_EQ(m.optimizer, m.planned.bytes.optimizer);
  EXPECT_LE(m.gradients, m.planned.bytes.gradients);
  EXPECT_EQ(m.all.of(comm::Traffic::Gradients).bytes, m.planned.wire.gradient_bytes);
  EXPECT_EQ(m.all.of(comm::Traffic::Parameters).bytes, m.planned.wire.parameter_bytes);
}

}  // namespace dsj::train
