// The form of each rule for one element. What it does to tensors:
// tests/engine/zero/optimizers_oracle_test.cc and update_test.cc.
#include "engine/optim/elements.h"

#include <gtest/gtest.h>

#include <cmath>

namespace dsj::optim {
namespace {

template <typename Element>
Element element(const Rule& rule, bool first = false) {
  return std::get<Element>(element_rule({.rule = rule, .first = first}, Element::kStates));
}

TEST(ElementRule, DoublesAreCombinedBeforeTheyAreRounded) {
  const AdamRule adam{0.1, 0.9, 0.999, 1e-8, 0.01, true, 0.5, 0.25};
  const auto decoupled = element<AdamElement>(adam);
  EXPECT_EQ(decoupled.keep, static_cast<float>(1 - 0.1 * 0.01));
  EXPECT_EQ(decoupled.decay, 0);
  EXPECT_EQ(decoupled.moments.rest2, static_cast<float>(1 - 0.999));
  EXPECT_EQ(decoupled.root, 0.5f);
  EXPECT_EQ(decoupled.step, 0.2f);
  AdamRule coupled = adam;
  coupled.decoupled = false;
  EXPECT_EQ(element<AdamElement>(coupled).keep, 1);
  EXPECT_EQ(element<AdamElement>(coupled).decay, 0.01f);
}

/// The states that a parameter keeps say which form: a schedule may set a momentum of 0.
TEST(ElementRule, FollowsTheStatesThatAreKept) {
  const SgdRule sgd{.lr = 1, .momentum = 0};
  EXPECT_TRUE(std::holds_alternative<SgdElement>(element_rule({.rule = sgd}, 0)));
  EXPECT_TRUE(std::holds_alternative<MomentumElement>(element_rule({.rule = sgd}, 1)));
  const RMSpropRule plain{.lr = 1, .alpha = 0.5}, centered{.lr = 1, .alpha = 0.5, .centered = true};
  EXPECT_EQ(element_rule({.rule = plain}, 1).index(), 4);
  EXPECT_EQ(element_rule({.rule = centered}, 2).index(), 5);
  EXPECT_EQ(element_rule({.rule = plain}, 2).index(), 6);
  EXPECT_EQ(element_rule({.rule = centered}, 3).index(), 7);
  EXPECT_DEATH(element_rule({.rule = LionRule{.lr = 1}}, 0), "a rule of 1 states for 0 vectors");
}

TEST(ElementRule, ACoefficientScalesLambsRate) {
  auto lamb = element<LambElement>(LambRule{.lr = 0.5});
  EXPECT_EQ(lamb.step, 0.5f);
  lamb.take(3);
  EXPECT_EQ(lamb.step, 1.5f);
}

/// What is not finite must stay to be seen, and must not spread where nothing multiplies it.
TEST(ElementRule, KeepsWhatIsNotFinite) {
  float s[3] = {0, 0.01f, 0}, p = INFINITY;
  element<AdamElement>(AdamRule{1, 0.9, 0.9, 1e-8, 0, true, 1, 1})(p, 0, s);
  EXPECT_EQ(p, INFINITY);
  EXPECT_EQ(s[0], 0) << "no decay: the parameter is not in the gradient";
  for (const float bad : {static_cast<float>(NAN), INFINITY}) {
    float kept[3] = {0, bad, 0}, from_gradient[3] = {0, 0.1f, 0}, q = 1, r = 1;
    element<AdamaxElement>(AdamaxRule{1, 0.9, 0.9, 1e-8, 0})(q, 0, kept);
    EXPECT_EQ(std::isnan(kept[1]), std::isnan(bad));
    element<AdamaxElement>(AdamaxRule{1, 0.9, 0.9, 1e-8, 0})(r, bad, from_gradient);
    EXPECT_FALSE(std::isfinite(from_gradient[1]));
  }
  float previous[3] = {1, 0.1f, 0}, q = 1;
  element<RpropElement>(RpropRule{0.1, 0.5, 1.2, 0, 1})(q, NAN, previous);
  EXPECT_TRUE(std::isnan(q));
}

TEST(ElementRule, RpropTurnsAndItsFirstStepIsTheRate) {
  const RpropRule rule{0.25, 0.5, 2, 0.01, 10};
  float s[3] = {0, 0, 0}, p = 0;
  element<RpropElement>(rule, true)(p, 3, s);
  EXPECT_EQ(p, -0.25f);
  element<RpropElement>(rule)(p, 3, s);
  EXPECT_EQ(p, -0.75f);
  element<RpropElement>(rule)(p, -3, s);
  EXPECT_EQ(p, -0.75f) << "the sign turned: no step";
  EXPECT_EQ(s[1], 0.25f);
  EXPECT_EQ(s[0], 0);
}

}  // namespace
}  // namespace dsj::optim
