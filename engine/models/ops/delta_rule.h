// The gated delta rule (Yang, Kautz, Hatamizadeh 2024, arXiv:2412.06464) over chunks of tokens,
// forward and hand-written backward. Each head carries a state S [key, value] from token to token:
//   S = exp(g) S;  S += k (beta (v - S^T k))^T;  o = S^T q.
// Within a chunk of T tokens the writes depend on each other by a unit lower triangular system. So
// a chunk is computed by matrix products and a triangular solve (section 3.3); the state is carried
// between chunks. Without beta a write is not corrected by what the state knows, S += k v^T: that is
// Mamba 2's rule (Dao, Gu 2024, arXiv:2405.21060). fp32; any device.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

namespace dsj::models::ops {

/// C chunks of H heads. Padding tokens have g 0 and beta 0, so that they change no state.
struct DeltaChunks {
  at::Tensor q, k;     ///< [C, H, T, key]; q is scaled
  at::Tensor v;        ///< [C, H, T, value]
  at::Tensor g, beta;  ///< [C, H, T]; g at most 0; beta undefined: writes are not corrected
};

class DeltaRule {
 public:
  /// `rows`: for each step in order, the number of leading rows that have a chunk
  /// (layout::DeltaPiece). Their sum is C.
  DeltaRule(const DeltaChunks& chunks, std::span<const int64_t> rows);
  /// `state` [rows of the first step, H, key, value]: the state before the first chunk; updated to
  /// that after the last one. Returns o [C, H, T, value]. `keep`: backward follows.
  at::Tensor forward(at::Tensor state, bool keep);
  /// Returns the gradients of the chunks. dout: of forward's result. `dstate`: gradient of the
  /// final state; updated to that of the initial one. Call it once.
  DeltaChunks backward(const at::Tensor& dout, at::Tensor dstate);

 private:
  bool corrects() const { return c_.beta.defined(); }
  /// From the gradient of the writes to those of what they are computed from.
  void backward_writes(const at::Tensor& dwritten, DeltaChunks& d, at::Tensor dsum);
  template <typename F>
  void each_step(bool backwards, F f) const;

  const DeltaChunks c_;
  const std::vector<int64_t> rows_;
  // G is the sum of g up to and including a token, within its chunk.
  at::Tensor decay_;          ///< [C, H, T, T] exp(G_i - G_j), 0 for j > i
  at::Tensor from_start_;     ///< [C, H, T] exp(G_i)
  at::Tensor to_end_;         ///< [C, H, T] exp(G_T - G_i)
  at::Tensor over_;           ///< [C, H, 1, 1] exp(G_T)
  at::Tensor system_;         ///< [C, H, T, T] beta_i (k_i k_j) decay; only below the diagonal
  at::Tensor scores_;         ///< [C, H, T, T] (q_i k_j) decay
  at::Tensor values_, keys_;  ///< the write to an empty state, and its dependence on the state
  at::Tensor starting_;       ///< q from_start
  at::Tensor ending_;         ///< k to_end
  at::Tensor states_;         ///< [C, H, key, value] before each chunk
  at::Tensor written_;        ///< as v: the writes of each chunk
};

}  // namespace dsj::models::ops
