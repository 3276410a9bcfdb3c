// Records what matrix products, projections and adapters queue on a GPU: the counterpart, on shapes
// only, of engine/models/ops/gemm.h, projection.h and adapters.h in a 16-bit type. It tracks which
// gradients exist, because a second gradient is added to the first. One thread.
// Tested by: tests/engine/simulated/work_test.cc
#pragma once

#include <cstdint>
#include <vector>

#include "job/layout/partition.h"
#include "job/layout/units.h"
#include "job/roofline/work.h"

namespace dsj::roofline {

/// As engine/models/ops/projection_shape.h.
struct Projection {
  int weight = -1;  ///< index of the first weight among the unit's parameters
  int bias = -1;    ///< of the first bias, or -1
  std::vector<int64_t> sizes;
  int64_t in = 0;
  int64_t width() const;
};

class Recorder {
 public:
  /// Both must outlive it. `element`: bytes of the compute type. `rank`: rank of the adapters.
  Recorder(const std::vector<layout::UnitSpec>& units, const layout::FlatPlan& plan,
           int64_t element, int64_t rank);

  /// The operations recorded since the last call.
  Ops take();
  int64_t element() const { return element_; }
  /// Sets the unit to which the parameter indices of later calls belong.
  void enter(int unit) { unit_ = unit; }
  bool trained(int parameter) const;
  /// Records that a gradient is written. True if it is added to an existing one.
  bool accumulates(int parameter);
  /// Records that the flat's gradient no longer exists.
  void forget(int flat);

  void ours(int64_t bytes, int64_t launches = 1) { add({Kind::Ours, 0, bytes, launches}); }
  void pass(int64_t bytes) { add({Kind::Pass, 0, bytes, 1}); }
  void attention(int64_t flops, int64_t bytes) { add({Kind::Attention, flops, bytes, 1}); }
  /// Reads or writes rows of `width` elements by index.
  void pick(int64_t rows, int64_t width) { pass(2 * rows * width * element_ + 8 * rows); }
  void zero(int64_t elements) { pass(elements * element_); }
  void add_to(int64_t elements) { pass(3 * elements * element_); }

  void linear(int64_t n, int64_t i, int64_t o, bool bias = false);
  void grad_input(int64_t n, int64_t i, int64_t o, bool accumulate = false);
  void grad_weight(int64_t n, int64_t i, int64_t o, bool accumulate);
  void grad_bias(int64_t n, int64_t o, bool accumulate);
  /// Several products that sum to a weight's gradient in fp32 (gemm::WeightSum): before the first of
  /// them, each, and after the last.
  void begin_weight_sum(int64_t i, int64_t o, bool accumulate);
  void add_grad_weight(int64_t n, int64_t i, int64_t o);
  void end_weight_sum(int64_t i, int64_t o);

  void project(const Projection& projection, int64_t n);
  void project_add(const Projection& projection, int64_t n);
  void project_backward(const Projection& projection, int64_t n);

 private:
  void add(Op op) { ops_.push_back(op); }
  void product(int64_t n, int64_t i, int64_t o, int64_t more_elements = 0);
  void bias_backward(const Projection& projection, int64_t n);
  /// An adapter, and the width of its output.
  struct Part {
    const layout::Adapter* adapter;
    int64_t size;
  };
  std::vector<Part> parts_of(const Projection& projection) const;
  /// Whether their A are one matrix.
  bool are_neighbours(const std::vector<Part>& parts) const;
  void adapters_forward(const Projection& projection, int64_t n);
  void adapters_backward(const Projection& projection, int64_t n);
  /// Whether `count` parameters from `first` on are contiguous in one flat.
  bool together(int first, int count) const;
  const layout::Adapter* adapter(int weight) const;
  bool has_adapters(const Projection& projection) const;

  const std::vector<layout::UnitSpec>& units_;
  const layout::FlatPlan& plan_;
  const int64_t element_, rank_;
  int unit_ = 0;
  struct Gradient {
    bool there = false;
    std::vector<bool> written;
  };
  std::vector<Gradient> gradients_;  ///< [flat]
  Ops ops_;
};

}  // namespace dsj::roofline
