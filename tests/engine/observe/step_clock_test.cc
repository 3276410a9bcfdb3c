// Where a step's time goes, on a clock that tells what the test says.
#include "engine/observe/step_clock.h"

#include <gtest/gtest.h>

namespace dsj::observe {
namespace {

using layout::Action;
using Kind = Action::Kind;

/// Time is a number of milliseconds that the test moves.
class FakeMarks final : public Marks {
 public:
  explicit FakeMarks(const double& now) : now_(now) {}
  void clear() override { times_.clear(); }
  size_t add() override {
    times_.push_back(now_);
    return times_.size() - 1;
  }
  double between_ms(size_t from, size_t to) override { return times_[to] - times_[from]; }

 private:
  const double& now_;
  std::vector<double> times_;
};

struct Walk {
  double now = 0;
  StepClock clock{std::make_unique<FakeMarks>(now), 3};
  int micro_step = 0;
  void act(Kind kind, int unit, double ms) {
    const Action action{kind, unit, 0, micro_step};
    clock.before(action);
    now += ms;
    clock.after(action);
    now += 1000;  // what lies between actions is nobody's
  }
  void part(StepPart part, double ms) {
    clock.before(part);
    now += ms;
    clock.after(part);
  }
};

TEST(StepClock, EveryActionHasItsPhase) {
  Walk walk;
  for (walk.micro_step = 0; walk.micro_step < 2; ++walk.micro_step) {
    walk.act(Kind::Gather, -1, 1);
    walk.act(Kind::Forward, 0, 2);
    walk.act(Kind::Forward, 1, 4);
    walk.act(Kind::Turn, 2, 8);
    walk.act(Kind::Release, -1, 16);  // behind the turn: backward's
    walk.act(Kind::Backward, 1, 32);
    walk.act(Kind::Reduce, 1, 64);
  }
  walk.part(StepPart::FinishReductions, 128);
  walk.part(StepPart::Update, 256);
  const StepTimes times = walk.clock.take();
  EXPECT_EQ(times.forward, 2 * (1 + 2 + 4));
  EXPECT_EQ(times.backward_inner, 2 * (8 + 16 + 32));
  EXPECT_EQ(times.backward_allreduce, 2 * 64 + 128);
  EXPECT_EQ(times.backward(), times.backward_inner + times.backward_allreduce);
  EXPECT_EQ(times.step, 256);
  EXPECT_EQ(times.unit_forward, (std::vector<double>{4, 8, 0}));
  EXPECT_EQ(times.unit_backward, (std::vector<double>{0, 64, 16}));
  EXPECT_EQ(walk.clock.take().forward, 0) << "taken";
}

TEST(StepClock, TimesAddUp) {
  StepTimes sum;
  for (int i = 0; i < 2; ++i) {
    sum += StepTimes{.forward = 1, .step = 2, .unit_forward = {3}, .unit_backward = {4}};
  }
  EXPECT_EQ(sum.forward, 2);
  EXPECT_EQ(sum.step, 4);
  EXPECT_EQ(sum.unit_forward, std::vector<double>{6});
  EXPECT_EQ(sum.unit_backward, std::vector<double>{8});
}

}  // namespace
}  // namespace dsj::observe
