#include "engine/observe/step_clock.h"

#include <algorithm>
#include <utility>

namespace dsj::observe {

using Kind = layout::Action::Kind;

size_t HostMarks::add() {
  times_.push_back(std::chrono::steady_clock::now());
  return times_.size() - 1;
}

double HostMarks::between_ms(size_t from, size_t to) {
  return std::chrono::duration<double, std::milli>(times_[to] - times_[from]).count();
}

void StepTimes::operator+=(const StepTimes& other) {
  forward += other.forward;
  backward_inner += other.backward_inner;
  backward_allreduce += other.backward_allreduce;
  step += other.step;
  unit_forward.resize(std::max(unit_forward.size(), other.unit_forward.size()));
  unit_backward.resize(std::max(unit_backward.size(), other.unit_backward.size()));
  for (size_t i = 0; i < other.unit_forward.size(); ++i) unit_forward[i] += other.unit_forward[i];
  for (size_t i = 0; i < other.unit_backward.size(); ++i)
    unit_backward[i] += other.unit_backward[i];
}

StepClock::StepClock(std::unique_ptr<Marks> marks, size_t units)
    : marks_(std::move(marks)), units_(units) {}

void StepClock::open(Phase phase, int unit) {
  spans_.push_back({phase, unit, marks_->add(), 0});
}

void StepClock::close() {
  spans_.back().to = marks_->add();
}

void StepClock::before(const layout::Action& action) {
  if (action.micro_step != micro_step_) backward_ = false;
  micro_step_ = action.micro_step;
  switch (action.kind) {
    case Kind::Forward:
      backward_ = false;
      return open(Phase::Forward, action.unit);
    case Kind::Turn:
    case Kind::Backward:
      backward_ = true;
      return open(Phase::Backward, action.unit);
    case Kind::Reduce:
      return open(Phase::Reduce, -1);
    case Kind::Gather:
    case Kind::Release:
      return open(backward_ ? Phase::Backward : Phase::Forward, -1);
  }
}

void StepClock::after(const layout::Action&) {
  close();
}

void StepClock::before(StepPart part) {
  open(part == StepPart::Update ? Phase::Update : Phase::Reduce, -1);
}

void StepClock::after(StepPart) {
  close();
}

StepTimes StepClock::take() {
  StepTimes times;
  times.unit_forward.resize(units_);
  times.unit_backward.resize(units_);
  for (const Span& span : spans_) {
    const double ms = marks_->between_ms(span.from, span.to);
    switch (span.phase) {
      case Phase::Forward:
        times.forward += ms;
        if (span.unit >= 0) times.unit_forward[static_cast<size_t>(span.unit)] += ms;
        break;
      case Phase::Backward:
        times.backward_inner += ms;
        if (span.unit >= 0) times.unit_backward[static_cast<size_t>(span.unit)] += ms;
        break;
      case Phase::Reduce:
        times.backward_allreduce += ms;
        break;
      case Phase::Update:
        times.step += ms;
        break;
    }
  }
  spans_.clear();
  marks_->clear();
  backward_ = false;
  return times;
}

}  // namespace dsj::observe
