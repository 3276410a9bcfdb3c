// wall_clock_breakdown: where the milliseconds of a step go. It sets marks at the boundaries that a
// StepObserver hears of. A mark is a reading of the clock (CPU) or an event on the stream (CUDA,
// engine/train/device_marks.h), so nothing waits during the step.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <vector>

#include "engine/observe/step_observer.h"

namespace dsj::observe {

/// Points in time that are read after the step.
class Marks {
 public:
  virtual ~Marks() = default;
  /// Forgets all marks, because a step begins.
  virtual void clear() = 0;
  /// Sets a mark and returns its number.
  virtual size_t add() = 0;
  /// Milliseconds between two marks. May wait for the device.
  virtual double between_ms(size_t from, size_t to) = 0;
};

/// Marks by std::chrono::steady_clock.
class HostMarks final : public Marks {
 public:
  void clear() override { times_.clear(); }
  size_t add() override;
  double between_ms(size_t from, size_t to) override;

 private:
  std::vector<std::chrono::steady_clock::time_point> times_;
};

/// Milliseconds of one step on this rank, under DeepSpeed's names. The head's loss and gradient are
/// one visit, whose time counts as backward's. Waiting for parameters belongs to the visit that
/// needs them.
struct StepTimes {
  double forward = 0;
  double backward_inner = 0;
  double backward_allreduce = 0;                    ///< starting reductions, and waiting for them
  double step = 0;                                  ///< norm, clip, optimizer
  std::vector<double> unit_forward, unit_backward;  ///< [unit], without gathers and reductions
  double backward() const { return backward_inner + backward_allreduce; }
  void operator+=(const StepTimes& other);
};

class StepClock final : public StepObserver {
 public:
  /// `units`: how many the model has.
  StepClock(std::unique_ptr<Marks> marks, size_t units);
  void before(const layout::Action& action) override;
  void after(const layout::Action& action) override;
  void before(StepPart part) override;
  void after(StepPart part) override;
  /// The times since the last call.
  StepTimes take();

 private:
  enum class Phase { Forward, Backward, Reduce, Update };
  struct Span {
    Phase phase;
    int unit;  ///< -1: of none
    size_t from, to;
  };
  void open(Phase phase, int unit);
  void close();

  std::unique_ptr<Marks> marks_;
  const size_t units_;
  std::vector<Span> spans_;
  int micro_step_ = 0;
  bool backward_ = false;  ///< the walk is past the head of this micro-step
};

}  // namespace dsj::observe
