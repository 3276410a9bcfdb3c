// LoRA with offload: the frozen shard goes where offload_param puts parameters, the adapters' state
// where offload_optimizer puts it, and no number changes.
#include <gtest/gtest.h>

#include "tests/engine/train/offload_support.h"

namespace dsj::train {
namespace {

using memory::Class;

SmallRun adapters(int stage, OffloadDevice optimizer, OffloadDevice param,
                  const std::string& root) {
  SmallRun run = offloaded(stage, optimizer, param, root);
  run.config.zero.param_persistence_threshold = 0;
  run.lora = {.r = 4, .alpha = 8, .dropout = 0.1, .target_pattern = "all-linear"};
  return run;
}

TEST(LoraOffload, EqualsNoOffload) {
  constexpr OffloadDevice kPlaces[] = {OffloadDevice::None, OffloadDevice::Cpu,
                                       OffloadDevice::Nvme};
  const ScratchRoot root;
  for (const bool bf16 : {false, true}) {
    for (int stage = 1; stage <= 3; ++stage) {
      RunResult plain;
      for (const OffloadDevice optimizer : kPlaces) {
        for (const OffloadDevice param : kPlaces) {
          if (param != OffloadDevice::None && stage != 3) continue;
          SmallRun run = adapters(stage, optimizer, param, root.path());
          if (bf16) make_bf16(run);
          const RunResult result = run_small(run);
          if (optimizer == OffloadDevice::None && param == OffloadDevice::None) {
            plain = result;
            continue;
          }
          const std::string what = "stage " + std::to_string(stage) + ", optimizer " +
                                   dsconfig::name_of(optimizer) + ", param " +
                                   dsconfig::name_of(param) + (bf16 ? ", bf16" : "");
          EXPECT_EQ(result.losses, plain.losses) << what;
          EXPECT_EQ(result.norms, plain.norms) << what;
          for (const auto& [name, value] : plain.weights)
            EXPECT_TRUE(result.weights.at(name).equal(value)) << what << ": " << name;
        }
      }
    }
  }
}

TEST(LoraOffload, TheHostHoldsTheFrozenShardAndTheAdaptersState) {
  SmallRun run = adapters(3, OffloadDevice::Cpu, OffloadDevice::Cpu, "");
  make_bf16(run);
  testing_support::run_ranks(2, [&](comm::Collectives& collectives, memory::Ledger& ledger) {
    Rank rank(run, collectives);
    rank.load(run.model);
    rank.step(0);
    int64_t frozen = 0, trained = 0;
    for (const auto& flat : rank.state.plan().flats)
      (flat.frozen() ? frozen : trained) += flat.shard_numel();
    EXPECT_EQ(ledger.live(Class::Parameters) + ledger.live(Class::Optimizer), 0);
    // 16 bits of everything; fp32 master and two moments of the adapters.
    EXPECT_EQ(ledger.live(Class::Host), 2 * (frozen + trained) + 12 * trained);
  });
}

}  // namespace
}  // namespace dsj::train
