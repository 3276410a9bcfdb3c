// The gated delta rule (Yang, Kautz, Hatamizadeh 2024, arXiv:2412.06464) over chunks of tokens, forward
// and hand-written backward. Of each head a state S [key, value] goes from token to token:
//   S = exp(g) S;  S += k (beta (v - S^T k))^T;  o = S^T q.
// Within a chunk of T tokens the writes depend on each other by a unit lower triangular system, so that
// all is matrix products and a triangular solve (section 3.3); from chunk to chunk goes the state. fp32;
// on whatever device the tensors lie.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

namespace dsj::models::ops {

/// C chunks of H heads. A token that fills a chunk up has g 0 and beta 0, so that it changes no state.
struct DeltaChunks {
  at::Tensor q, k;     ///< [C, H, T, key]; q is scaled
  at::Tensor v;        ///< [C, H, T, value]
  at::Tensor g, beta;  ///< [C, H, T]; g at most 0
};

class DeltaRule {
 public:
  /// `rows`: of each step in order, how many of the first rows have a chunk (layout::DeltaPiece): their
  /// sum is C.
  DeltaRule(const DeltaChunks& chunks, std::span<const int64_t> rows);
  /// `state` [rows of the first step, H, key, value]: before the first chunk; becomes that behind the
  /// last one. Returns o [C, H, T, value]. `keep`: backward follows.
  at::Tensor forward(at::Tensor state, bool keep);
  /// The gradients of the chunks. dout as forward's result; `dstate` as the state: of that behind the
  /// last chunk, becomes that of the one before the first. Once.
  DeltaChunks backward(const at::Tensor& dout, at::Tensor dstate);

 private:
  template <typename F>
  void each_step(bool backwards, F f) const;

  const DeltaChunks c_;
  const std::vector<int64_t> rows_;
  // G is the sum of g up to a token of its chunk, itself included.
  at::Tensor decay_;          ///< [C, H, T, T] exp(G_i - G_j), 0 for j > i
  at::Tensor from_start_;     ///< [C, H, T] exp(G_i)
  at::Tensor to_end_;         ///< [C, H, T] exp(G_T - G_i)
  at::Tensor over_;           ///< [C, H, 1, 1] exp(G_T)
  at::Tensor system_;         ///< [C, H, T, T] beta_i (k_i k_j) decay; counts below the diagonal
  at::Tensor scores_;         ///< [C, H, T, T] (q_i k_j) decay
  at::Tensor values_, keys_;  ///< what is written to an empty state, and what a state takes away
  at::Tensor starting_;       ///< q from_start
  at::Tensor ending_;         ///< k to_end
  at::Tensor states_;         ///< [C, H, key, value] before each chunk
  at::Tensor written_;        ///< as v: what each chunk writes
};

}  // namespace dsj::models::ops
