// What the layers of a micro-batch get besides the residual of the layer before (Gemma 4 E2B, E4B):
// an input of each layer, and keys and values of an earlier layer. Forward fills it; it stays until
// backward. One object per micro-batch; it outlives the calls that use it. N: tokens; L: layers;
// P: layout::ModelConfig::layer_input.
// Tested by: tests/engine/train/model_oracle_test.cc, tests/engine/train/inputs/long_rows_test.cc
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>

namespace dsj::models {

struct Carried {
  /// Rotated and normed keys, then values, of a layer that others use.
  struct Keys {
    at::Tensor kv;   ///< [N, 2 kv_heads D], in the products' type
    at::Tensor dkv;  ///< the same in fp32: the sum of the other layers' gradients; may be undefined
  };
  /// [N, L P] in the stream's type: layer l reads columns l P to (l + 1) P. Its backward replaces
  /// them by their gradient.
  at::Tensor inputs;
  at::Tensor embedded;  ///< [N, H]: the embedding's result, for layer_inputs_backward() (unit.h)
  std::map<int64_t, Keys> keys;  ///< by the layer that computed them
};

}  // namespace dsj::models
