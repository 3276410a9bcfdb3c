// The mean of vectors over all ranks with one bit per number on the wire, and error feedback. The
// 1-bit optimizers send it instead of a gradient. Each vector has one chunk per rank; rank r owns
// chunk r. Each rank compresses its vector, and each owner compresses the mean of its chunk. The
// error of a compression is kept and added to the next input.
//
// Arithmetic: DeepSpeed 0.18.9's compressed_allreduce, the same in all its backends. Sums run over
// ranks in order, in fp32. Every rank gets the same bits. Backends: all, through the port
// (collectives.h). All vectors travel in two operations: an all_to_all and an all_gather.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "engine/comm/collectives.h"

namespace dsj::comm {

/// One vector on this rank, on the group's device. `chunk`: a multiple of 8, equal on all ranks.
struct ErrorFeedback {
  /// [world * chunk] fp32. In: this rank's vector plus the error of the last compression. Out: the
  /// error of this compression.
  at::Tensor worker;
  at::Tensor server;  ///< [chunk] fp32: the error of the owned chunk; updated
};

/// The means as received: world * chunk signs per vector, and one scale per owner.
class SignMeans {
 public:
  /// out [n] fp32 = elements [first, first + n) of vector number `vector`.
  void read(std::size_t vector, std::int64_t first, const at::Tensor& out) const;

 private:
  friend SignMeans compressed_mean(Collectives&, std::span<const ErrorFeedback>, Label);
  std::vector<std::int64_t> chunks_;  ///< [vector]: elements
  at::Tensor messages_;               ///< [world, bytes] uint8
};

/// Collective: all ranks, with the same chunks. Throws CollectiveError. Needs at least two ranks. A
/// rank sends 2 (world-1) messages of 4 bytes per vector and one bit per number of a chunk.
SignMeans compressed_mean(Collectives& collectives, std::span<const ErrorFeedback> vectors,
                          Label label);
/// The bytes that a rank sends in one compressed_mean, as Counters reports them.
std::int64_t compressed_mean_bytes(std::span<const std::int64_t> chunks, int world);

}  // namespace dsj::comm
