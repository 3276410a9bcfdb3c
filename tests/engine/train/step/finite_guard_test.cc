// Numbers that are not finite: what they end, and what is kept from them.
#include "engine/train/step/finite_guard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/engine/train/support.h"

namespace dsj::train {
namespace {

using testing::HasSubstr;

struct Guarded {
  Rank rank;
  const Events events{-1};
  FiniteGuard guard;
  Guarded(const SmallRun& run, comm::Collectives& collectives, const TrainingArgs& given = {})
      : rank(run, collectives), guard(given, rank.config, rank.state, events) {
    rank.load(run.model);
  }
  /// Spoils the last element of the first trained parameter, on every rank's own part of it.
  void spoil() {
    bool done = false;
    ASSERT_TRUE(rank.state.flat(0).load_state(
        false, [&](int, const zero::Flat::HostRange& range) -> Status {
          if (!done && !range.data.empty()) range.data[0] = NAN;
          done = true;
          return {};
        }));
    rank.state.flat(0).publish();
  }
};

void with_guard(const SmallRun& run, const TrainingArgs& args,
                const std::function<void(Guarded&)>& check) {
  testing_support::run_ranks(run.world, [&](comm::Collectives& collectives, memory::Ledger&) {
    Guarded one(run, collectives, args);
    check(one);
  });
}

const StepResult kGood{.loss = 1};
const StepResult kSkipped{.loss = NAN, .finite = false, .skipped = true, .bad_gradient = "w"};
const StepResult kBad{.loss = NAN, .finite = false};

TEST(FiniteGuardTest, TwentyBadStepsInARowEndTheRun) {
  with_guard({.config = small_config(1)}, {}, [](Guarded& one) {
    one.guard.begin();
    for (int step = 1; step <= 19; ++step) {
      one.guard.took(kSkipped);
      EXPECT_EQ(one.guard.gives_up(step), "");
    }
    one.guard.took(kGood);
    EXPECT_EQ(one.guard.gives_up(20), "");
    for (int step = 21; step <= 39; ++step) {
      one.guard.took(kSkipped);
      EXPECT_EQ(one.guard.gives_up(step), "");
    }
    one.guard.took(kSkipped);
    EXPECT_THAT(one.guard.gives_up(40), HasSubstr("in steps 21 to 40: the gradient of \"w\""));
  });
}

TEST(FiniteGuardTest, TheNumberIsTheUsersAndSkippedOrNotIsTheSame) {
  with_guard({.config = small_config(0)}, {.max_skipped_steps = 2}, [](Guarded& one) {
    one.guard.took(kBad);
    EXPECT_EQ(one.guard.gives_up(1), "");
    one.guard.took(kBad);
    EXPECT_THAT(one.guard.gives_up(2), HasSubstr("the loss is nan"));
  });
  with_guard({.config = small_config(0)}, {.max_skipped_steps = 0}, [](Guarded& one) {
    for (int step = 1; step < 100; ++step) one.guard.took(kBad);
    EXPECT_EQ(one.guard.gives_up(100), "");
  });
}

TEST(FiniteGuardTest, ADynamicLossScaleHasItsOwnEnd) {
  SmallRun run{.config = small_config(1)};
  run.config.precision = run.config.communication_dtype = dsconfig::Precision::Fp16;
  with_guard(run, {.max_skipped_steps = 1}, [](Guarded& one) {
    one.guard.took(kSkipped);
    EXPECT_EQ(one.guard.gives_up(1), "");
  });
  run.config.loss_scale.fixed = 128;
  with_guard(run, {}, [](Guarded& one) {
    for (int step = 1; step < 100; ++step) one.guard.took(kSkipped);
    EXPECT_EQ(one.guard.gives_up(100), "") << "as in DeepSpeed";
  });
  with_guard(run, {.max_skipped_steps = 1}, [](Guarded& one) {
    one.guard.took(kSkipped);
    EXPECT_NE(one.guard.gives_up(1), "");
  });
}

TEST(FiniteGuardTest, WeightsThatWentBadAreNeitherSavedNorExported) {
  for (const int stage : {0, 2, 3}) {
    with_guard({.config = small_config(stage)}, {}, [](Guarded& one) {
      one.guard.begin();
      one.guard.took(kGood);
      EXPECT_TRUE(one.guard.may_save(1));
      EXPECT_EQ(one.guard.keeps_back(), "");
      one.spoil();
      EXPECT_FALSE(one.guard.may_save(2)) << "though the last loss was a number";
      EXPECT_THAT(one.guard.keeps_back(), HasSubstr("not exported"));
      EXPECT_THAT(one.guard.keeps_back(), HasSubstr("exportNotFinite"));
    });
    with_guard({.config = small_config(stage)}, {.export_not_finite = true}, [](Guarded& one) {
      one.spoil();
      EXPECT_EQ(one.guard.keeps_back(), "");
    });
  }
}

TEST(FiniteGuardTest, AModelThatItsLastStepBrokeIsNotExported) {
  with_guard({.config = small_config(1)}, {}, [](Guarded& one) {
    one.guard.took(kGood);
    one.guard.tried(true);
    EXPECT_EQ(one.guard.keeps_back(), "");
    one.guard.tried(false);
    EXPECT_THAT(one.guard.keeps_back(), HasSubstr("before it did"));
    one.guard.replaced();
    EXPECT_EQ(one.guard.keeps_back(), "") << "it is a better checkpoint's model now";
    one.guard.took(kBad);
    one.guard.tried(false);
    EXPECT_EQ(one.guard.keeps_back(), "") << "the rows had no finite loss before, either";
  });
  with_guard({.config = small_config(1)}, {.export_not_finite = true}, [](Guarded& one) {
    one.guard.took(kGood);
    one.guard.tried(false);
    EXPECT_EQ(one.guard.keeps_back(), "");
  });
}

/// Rows of the embedding that no token uses may hold anything.
TEST(FiniteGuardTest, WeightsThatWereBadFromTheBeginningAreSavedWhileTheLossIsANumber) {
  with_guard({.config = small_config(2)}, {}, [](Guarded& one) {
    one.spoil();
    one.guard.begin();
    one.guard.took(kGood);
    EXPECT_TRUE(one.guard.may_save(1));
    one.guard.took(kBad);
    EXPECT_FALSE(one.guard.may_save(2));
  });
}

}  // namespace
}  // namespace dsj::train
