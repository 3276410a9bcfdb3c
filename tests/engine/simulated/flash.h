// What libtorch's flash attention computes over rows laid end to end, by the plain formula in fp32,
// and what it refuses (libtorch 2.11, the variable-length calls of its CUDA kernels, by reading).
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <tuple>

namespace dsj::simulated {

/// The arguments as libtorch's operation names them; tensors of the CPU.
struct FlashCall {
  at::Tensor q, k, v;  ///< [N, heads, dim], [N, kv_heads, dim]
  at::Tensor starts_q, starts_k;
  int64_t longest_q, longest_k;
  double dropout;
  bool causal;
  double scale;
  std::optional<int64_t> left, right;  ///< of the window
};

/// Output [N, heads, dim] of q's type and log-sum-exp [heads, N]. Throws c10::Error on what the
/// kernel refuses.
std::tuple<at::Tensor, at::Tensor> flash_forward(const FlashCall& call);
std::tuple<at::Tensor, at::Tensor, at::Tensor> flash_backward(const FlashCall& call,
                                                              const at::Tensor& dout,
                                                              const at::Tensor& out,
                                                              const at::Tensor& logsumexp);

}  // namespace dsj::simulated
