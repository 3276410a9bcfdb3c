// The errors that a rank keeps for compressed means (comm/compressed.h), per vector of the plan,
// and the position of each parameter in these vectors. Each 1-bit optimizer (one_bit.h) owns one.
// Not thread-safe.
// Tested by: tests/engine/zero/methods/one_bit_test.cc, tests/engine/train/resume_test.cc
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "common/result.h"
#include "engine/checkpoint/saved_run.h"
#include "engine/checkpoint/writer.h"
#include "engine/comm/compressed.h"
#include "job/plan/one_bit_plan.h"

namespace dsj::zero {

class ErrorFeedback {
 public:
  ErrorFeedback(plan::OneBitPlan plan, comm::Collectives& collectives, at::Device device);

  /// The worker error of elements [first, first + numel) of a parameter, fp32. The caller adds this
  /// rank's contribution to it. The first call allocates all errors, as zeros.
  at::Tensor worker(size_t flat, size_t slot, int64_t first, int64_t numel);
  /// The compressed mean of all ranks' contributions. Collective.
  comm::SignMeans mean();
  /// out [n] fp32 = elements [first, first + n) of a parameter's mean.
  void read(const comm::SignMeans& means, size_t flat, size_t slot, int64_t first,
            const at::Tensor& out) const;
  /// The same for a vector's padding; [0] if it has no padding.
  at::Tensor worker_padding(size_t vector);
  void read_padding(const comm::SignMeans& means, size_t vector, const at::Tensor& out) const;
  /// The elements of a vector's padding.
  int64_t padding(size_t vector) const;
  /// Sets all errors to zero.
  void clear() { errors_.clear(); }

  // ---- state, saved if errors exist. "worker_error" of a vector has world * world * chunk
  // elements, in rank order; "server_error" has world * chunk. "error_feedback" marks them.
  Status for_pieces(const checkpoint::EmitPiece& emit) const;
  void add_extents(std::vector<checkpoint::Extent>& extents) const;
  /// Reads this rank's errors if the checkpoint has the same number of ranks and the same vectors.
  /// Otherwise sets them to zero. Errors: as reading the checkpoint.
  Status restore(checkpoint::SavedRun& saved);
  /// Whether the last restore() dropped saved errors. The same on all ranks.
  bool dropped() const { return dropped_; }
  /// Whether errors exist: after a compressed step or a restore.
  bool some() const { return !errors_.empty(); }

 private:
  void allocate();

  const plan::OneBitPlan plan_;
  comm::Collectives& collectives_;
  const at::Device device_;
  std::vector<comm::ErrorFeedback> errors_;  ///< [vector]; empty means all zero
  bool dropped_ = false;
};

/// The elements of a tensor in host memory.
std::span<float> elements_of(const at::Tensor& host);

}  // namespace dsj::zero
