#include "job/report/training_status.h"

#include <algorithm>
#include <utility>

#include "common/cut_text.h"
#include "job/contract.h"
#include "job/report/field_value.h"

namespace dsj::report {

using nlohmann::json;

TrainingStatus::TrainingStatus(int64_t world_size, const json& checkpoint)
    : world_size_(world_size) {
  if (!checkpoint.is_object()) return;
  checkpoint_ = checkpoint;
  if (const json& saved = json_child(checkpoint, kLastSaved); saved.is_object()) {
    saved_step_ = field_value<&Checkpoint::step>(saved).value_or(0);
  }
}

void TrainingStatus::take(const Report& report, const std::string& now) {
  std::visit(overloaded{[&](const Attempt& attempt) {
                          attempt_ = attempt.attempt;
                          world_size_ = attempt.world_size;
                          step_ = steps_timed_ = 0;
                          training_.attempt = attempt;
                          training_.stragglers.reset();
                          training_.skipped_steps.reset();
                          training_.cut_rows.reset();
                          passed_over_ = false;
                        },
                        [&](const Resolved& resolved) {
                          total_steps_ = resolved.total_steps.value_or(0);
                          training_.resolved = resolved;
                          training_.resolved->total_steps = total_steps_;
                        },
                        [&](const Resumed& resumed) { take_resumed(resumed, now); },
                        [&](const Damage& damage) { take_damage(damage, now); },
                        [&](const Step& step) { take_step(step, now); },
                        [&](const Eval& eval) { training_.eval = eval; },
                        [&](const CutRows& rows) { training_.cut_rows = rows; },
                        [&](const Stragglers& stragglers) { training_.stragglers = stragglers; },
                        [&](const Memory& memory) { training_.memory = memory; },
                        [&](const Checkpoint& saved) { take_checkpoint(saved, now); },
                        [&](const Exported& exported) { training_.exported = exported; },
                        [&](const End& end) {
                          if (end.exit_code != contract::kExitPreempted) {
                            training_.seconds_left.reset();
                          }
                        },
                        [](const Failure&) {}, [](const Warning&) {}, [](const Log&) {},
                        [](const Note&) {}},
             report);
}

void TrainingStatus::take_checkpoint(const Checkpoint& checkpoint, const std::string& now) {
  saved_step_ = checkpoint.step;
  checkpoint_[kLastSaved] =
      status_json(Saved{.time = now, .world_size = world_size_, .checkpoint = checkpoint});
}

void TrainingStatus::take_resumed(const Resumed& resumed, const std::string& now) {
  step_ = resumed.step;
  training_.step = step_;
  checkpoint_[kLastRestored] = status_json(Restored{.time = now, .resumed = resumed});
  if (!passed_over_) return;
  // The newest checkpoint was set aside. The time and world size of the loaded one are unknown.
  saved_step_ = resumed.step;
  checkpoint_[kLastSaved] =
      status_json(Saved{.checkpoint = Checkpoint{.step = resumed.step, .path = resumed.path}});
}

void TrainingStatus::take_damage(Damage damage, const std::string& now) {
  passed_over_ = true;
  damage.message = text::first_bytes(damage.message, kDamageBytesMax);
  checkpoint_[kLastDamaged] =
      status_json(Damaged{.time = now, .attempt = attempt_, .damage = std::move(damage)});
}

void TrainingStatus::take_step(const Step& step, const std::string& now) {
  step_ = step.step;
  training_.step = step_;
  training_.newest = step;
  training_.updated = now;
  if (step.skipped.value_or(false))
    training_.skipped_steps = training_.skipped_steps.value_or(0) + 1;
  if (step.step_seconds) {
    // The first step includes lazy set-up, so it does not count.
    ++steps_timed_;
    const double weight = steps_timed_ <= 2 ? 1.0 : std::max(0.05, 1.0 / double(steps_timed_ - 1));
    seconds_per_step_ += weight * (*step.step_seconds - seconds_per_step_);
  }
  if (!total_steps_ || *total_steps_ <= 0) return;
  training_.percentage = std::min<int64_t>(100, step_ * 100 / *total_steps_);
  if (const auto left = seconds_left()) {
    training_.seconds_left = static_cast<int64_t>(*left + 0.5);
  }
}

std::optional<double> TrainingStatus::seconds_left() const {
  if (!total_steps_ || steps_timed_ < 2) return std::nullopt;
  return seconds_per_step_ * static_cast<double>(std::max<int64_t>(0, *total_steps_ - step_));
}

}  // namespace dsj::report
