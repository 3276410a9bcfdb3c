// Bytes of activations and of the scratch of matrix products, derived from what the units keep and
// use (engine/models). An upper bound, exact but for small temporaries. Internal to memory_model.
// Pure.
#pragma once

#include <cstdint>

#include "job/plan/memory_input.h"

namespace dsj::plan {

struct ActivationModel {
  int64_t step = 0;  ///< held for the whole step: ids, labels, rope tables, the sum of the losses
  int64_t boundary = 0;   ///< between two units: [rows, hidden]
  int64_t kept = 0;       ///< what a layer keeps for backward, without its input
  int64_t kept_last = 0;  ///< the last layer: fewer tokens where few have a target
  // The most beyond that while ...
  int64_t forward = 0;        ///< a layer runs forward and keeps what it needs
  int64_t backward = 0;       ///< a layer runs backward (without what it kept and its dy)
  int64_t backward_last = 0;  ///< the last layer
  int64_t head = 0;           ///< the head runs
  int64_t embedding = 0;
  // Sums of 16-bit gradients that come in pieces; counted as buckets.
  int64_t piece_sums = 0;     ///< of a layer's MLP
  int64_t head_products = 0;  ///< of the head's weight
  /// torch_autocast: elements of a weight's gradient that are rounded at a time, before they are
  /// added up; on a CPU widened again for that.
  int64_t gradient_piece = 0;
  /// torch_autocast in fp16: gradients of pieces add up in fp32 beside what is there, those of the
  /// head's logits, and those of a layer's MLP.
  bool sums_head = false, sums_mlp = false;
};

/// `delta`: its layers are those with the delta rule.
ActivationModel activation_model(const MemoryInput& input, bool delta = false);
/// Of a layer that random-LTD has drop tokens: it sees the most that it ever keeps, and copies those
/// in and out. Nothing is dropped: the same as activation_model().
ActivationModel dropping_model(const MemoryInput& input, bool delta = false);

}  // namespace dsj::plan
