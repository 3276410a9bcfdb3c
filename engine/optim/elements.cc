#include "engine/optim/elements.h"

#include "common/check.h"

namespace dsj::optim {

ElementRule element_rule(const Update& update, int states) {
  const ElementRule rule = std::visit(
      [&](const auto& of) { return of.element({.states = states, .first = update.first}); },
      update.rule);
  const int kept = std::visit([](const auto& one) { return one.kStates; }, rule);
  DSJ_CHECK(kept <= states, "a rule of %d states for %d vectors", kept, states);
  return rule;
}

LambMoments lamb_moments(const LambRule& rule) {
  return {moments_of(rule.beta1, rule.beta2), rule.direction()};
}

}  // namespace dsj::optim
