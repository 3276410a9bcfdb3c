#include "engine/train/step/finite_guard.h"

#include "common/text.h"

namespace dsj::train {
namespace {

constexpr int64_t kMaxSkippedSteps = 20;

int64_t most_bad_steps(const TrainingArgs& args, const dsconfig::ResolvedConfig& config) {
  const bool scales = dsconfig::scales_loss(config);
  if (scales && config.loss_scale.fixed == 0) return 0;
  return args.max_skipped_steps.value_or(scales ? 0 : kMaxSkippedSteps);
}

std::string not_finite(const std::string& weight) {
  return "\"" + weight + "\" has values that are not finite";
}

}  // namespace

FiniteGuard::FiniteGuard(const TrainingArgs& args, const dsconfig::ResolvedConfig& config,
                         zero::ModelState& state, const Events& events)
    : exports_all_(args.export_not_finite.value_or(false)),
      most_bad_steps_(most_bad_steps(args, config)),
      state_(state),
      events_(events) {}

void FiniteGuard::warn(const std::string& text) const {
  if (state_.collectives().rank() == 0) events_.warn(text);
}

void FiniteGuard::begin() {
  const std::string bad = state_.first_bad_weight();
  began_finite_ = bad.empty();
  for (const std::string& name : {bad, state_.first_bad_frozen_weight()})
    if (!name.empty())
      warn("before the first step " + not_finite(name) + ": a torn download, or a bad merge?");
}

void FiniteGuard::took(const StepResult& result) {
  bad_steps_ = result.finite ? 0 : bad_steps_ + 1;
  cause_ = result.bad_gradient.empty()
               ? "the loss is " + text::number(result.loss)
               : "the gradient of \"" + result.bad_gradient + "\" is not finite";
}

std::string FiniteGuard::gives_up(int64_t step) const {
  if (most_bad_steps_ == 0 || bad_steps_ < most_bad_steps_) return {};
  return "loss or gradient were not finite in steps " + std::to_string(step - bad_steps_ + 1) +
         " to " + std::to_string(step) + ": " + cause_ +
         "; lower the learning rate, or look for bad rows or weights (maxSkippedSteps is how many "
         "such steps in a row end a run)";
}

bool FiniteGuard::may_save(int64_t step) {
  const std::string bad = state_.first_bad_weight();
  if (bad.empty() || (!began_finite_ && bad_steps_ == 0)) return true;
  warn("step " + std::to_string(step) + " is not saved: " + not_finite(bad) +
       "; the checkpoints from before stay");
  return false;
}

std::string FiniteGuard::keeps_back() {
  const std::string bad = state_.first_bad_weight();
  if (bad.empty() && !broken_by_last_step_) return {};
  const std::string why =
      bad.empty()
          ? "after the last step it gives no finite loss on that step's rows, and before it "
            "did"
          : not_finite(bad);
  if (!exports_all_)
    return "the model is not exported: " + why +
           "; resume from an earlier checkpoint with a lower learning rate, or export it as it is "
           "with exportNotFinite";
  warn("the exported model is not sound: " + why);
  return {};
}

}  // namespace dsj::train
