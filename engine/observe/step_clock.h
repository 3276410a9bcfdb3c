// wall_clock_breakdown: how the milliseconds of a step are spent. Sets marks at the boundaries that
// a StepObserver gets. A mark is a time of the clock (CPU) or an event on the stream (CUDA,
// engine/train/device_marks.h), so that the step never waits.
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
  /// Forgets all marks. Called when a step begins.
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
/// computed together, and their time counts as backward. Waiting for parameters counts for the unit
/// that needs them.
struct StepTimes {
  double forward = 0;
  double backward_inner = 0;
  double backward_allreduce = 0;                    ///< starting and awaiting reductions
  double step = 0;                                  ///< norm, clip, optimizer
  std::vector<double> unit_forward, unit_backward;  ///< [unit], without gathers and reductions
  double backward() const { return backward_inner + backward_allreduce; }
  void operator+=(const StepTimes& other);
};

class StepClock final : public StepObserver {
 public:
  /// `units`: the model's number of units.
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
    int unit;  ///< -1 if none
    size_t from, to;
  };
  void open(Phase phase, int unit);
  void close();

  std::unique_ptr<Marks> marks_;
  const size_t units_;
  std::vector<Span> spans_;
  int micro_step_ = 0;
  bool backward_ = false;  ///< after the head of this micro-step
};

}  // namespace dsj::observe
