// Selects rows of a tensor and puts them back, for a layer of which only some tokens need an output
// (LayerCall::outputs).
// Tested by: tests/engine/models/last_layer_test.cc
#pragma once

#include <ATen/ATen.h>

#include <cstdint>

namespace dsj::models {

/// The rows `which` [T] int64 of x [N, W]: [T, W]; x itself if `which` is null.
inline at::Tensor picked(const at::Tensor& x, const at::Tensor* which) {
  return which ? x.index_select(0, *which) : x;
}

/// [N, W] with the rows of x [T, W] at `which`, and 0 elsewhere; x itself if `which` is null.
inline at::Tensor put_back(const at::Tensor& x, const at::Tensor* which, int64_t tokens) {
  return which ? at::zeros({tokens, x.size(1)}, x.options()).index_copy_(0, *which, x) : x;
}

}  // namespace dsj::models
