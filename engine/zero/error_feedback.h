// What a rank keeps for compressed means (comm/compressed.h): the errors of the vectors that the
// plan cuts the parameters into, and where each parameter lies in them. The 1-bit optimizers
// (one_bit.h) own one each. Not thread-safe.
// Tested by: tests/engine/zero/one_bit_test.cc, tests/engine/train/resume_test.cc
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

  /// The worker error of elements [first, first + numel) of a parameter, fp32: add to it what this
  /// rank contributes. The first call allocates all errors, zero.
  at::Tensor worker(size_t flat, size_t slot, int64_t first, int64_t numel);
  /// The mean of what all ranks contributed. Collective.
  comm::SignMeans mean();
  /// out [n] fp32 = elements [first, first + n) of a parameter's mean.
  void read(const comm::SignMeans& means, size_t flat, size_t slot, int64_t first,
            const at::Tensor& out) const;
  /// The same of a vector's padding, [0] where it has none.
  at::Tensor worker_padding(size_t vector);
  void read_padding(const comm::SignMeans& means, size_t vector, const at::Tensor& out) const;
  /// Elements of it.
  int64_t padding(size_t vector) const;
  /// Sets all errors to zero.
  void clear() { errors_.clear(); }

  // ---- state, saved once there are errors: "worker_error" of a vector is world * world * chunk
  // elements, by rank; "server_error" is world * chunk. "error_feedback" says that there are some.
  Status for_pieces(const checkpoint::EmitPiece& emit) const;
  void add_extents(std::vector<checkpoint::Extent>& extents) const;
  /// Reads this rank's errors, if the checkpoint is of as many ranks and cuts its vectors alike. Else
  /// they are zero again. Error: the checkpoint's.
  Status restore(checkpoint::SavedRun& saved);
  /// The last restore() met errors that it could not use. The same on all ranks.
  bool dropped() const { return dropped_; }
  /// Whether there are errors: those of a compressed step, or restored ones.
  bool some() const { return !errors_.empty(); }

 private:
  void allocate();

  const plan::OneBitPlan plan_;
  comm::Collectives& collectives_;
  const at::Device device_;
  std::vector<comm::ErrorFeedback> errors_;  ///< [vector]; empty: all zero
  bool dropped_ = false;
};

/// The elements of a tensor in host memory.
std::span<float> elements_of(const at::Tensor& host);

}  // namespace dsj::zero
