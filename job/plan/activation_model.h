// Bytes of activations and of scratch memory for matrix products, derived from what the units keep
// and use (engine/models). An upper bound, exact except for small temporaries. Internal to
// memory_model. Pure.
#pragma once

#include <cstdint>

#include "job/plan/memory_input.h"

namespace dsj::plan {

struct ActivationModel {
  int64_t step = 0;       ///< for the whole step: ids, labels, rope tables, the sum of the losses
  int64_t boundary = 0;   ///< the tensor between two units: [rows, hidden]
  int64_t kept = 0;       ///< what a layer keeps for backward, besides its input
  int64_t kept_last = 0;  ///< the same for the last layer: fewer tokens if few have a target
  // The peak beyond that while ...
  int64_t forward = 0;        ///< a layer runs forward and keeps what it needs
  int64_t backward = 0;       ///< a layer runs backward (without what it kept and its dy)
  int64_t backward_last = 0;  ///< the last layer runs backward
  int64_t head = 0;           ///< the head runs
  int64_t embedding = 0;
  // Sums of 16-bit gradients that arrive in pieces; they count as buckets.
  int64_t piece_sums = 0;     ///< of a layer's MLP
  int64_t head_products = 0;  ///< of the head's weight
  /// torch_autocast: elements of a weight's gradient that are rounded at a time before they are
  /// accumulated; a CPU widens them again for that.
  int64_t gradient_piece = 0;
  /// torch_autocast in fp16: whether gradients of pieces accumulate in fp32 beside the existing
  /// gradient: those of the head's logits, and those of a layer's MLP.
  bool sums_head = false, sums_mlp = false;
  // What layers share (engine/models/unit/carried.h):
  int64_t inputs = 0;          ///< the inputs of all layers (ModelConfig::layer_input)
  int64_t table_forward = 0;   ///< the peak beyond that while their table is read
  int64_t table_backward = 0;  ///< and while its gradient is written
  int64_t inputs_forward = 0;  ///< the same for the projection that is added to them
  int64_t inputs_backward = 0;
  int64_t inputs_sums = 0;      ///< sums of its 16-bit gradients; they count as buckets
  bool sums_inputs = false;     ///< as sums_mlp, for that projection
  int64_t keys = 0, dkeys = 0;  ///< keys and values of a layer that others use; their gradients
};

/// `mixer`: of the layers with it.
ActivationModel activation_model(const MemoryInput& input,
                                 layout::Mixer mixer = layout::Mixer::Attention);
/// For a layer in which random-LTD drops tokens: it processes the largest number that it ever
/// keeps, and copies these in and out. Equals activation_model() if no tokens are dropped.
ActivationModel dropping_model(const MemoryInput& input,
                               layout::Mixer mixer = layout::Mixer::Attention);

}  // namespace dsj::plan
