// What a unit queues on a GPU, forward and backward, in a 16-bit type: the counterpart, on shapes
// only, of engine/models. It reads the same description of a layer as the engine does
// (layout::ModelConfig, layout::decoder_roles), so it has no list of families. It requires flash
// attention over all rows at once and no dropout. Launches and bytes equal the simulated GPU's
// counts. One thread.
// Tested by: tests/engine/simulated/work_test.cc
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "job/layout/lora.h"
#include "job/layout/model_config.h"
#include "job/layout/partition.h"
#include "job/roofline/recorder.h"

namespace dsj::roofline {

/// Partial sums of a norm's backward over `rows`, as in engine/kernels/cuda/launchers.h.
int64_t norm_partials(int64_t rows);

class UnitWork {
 public:
  /// All must outlive it.
  UnitWork(const layout::ModelConfig& model, const std::vector<layout::UnitSpec>& units,
           const layout::FlatPlan& plan, const std::optional<LoraArgs>& lora);

  /// `keeps`: activations are kept for backward (no recompute).
  Ops forward(int unit, const Batch& batch, bool keeps = true);
  /// A layer's recomputation, without its last activation and product (engine/models/unit/pieces.h).
  Ops recompute(int unit, const Batch& batch);
  /// The head's only visit, forward and backward.
  Ops turn(const Batch& batch);
  /// `recomputed`: after recompute(), which omits what the MLP adds to the residual.
  Ops backward(int unit, const Batch& batch, bool recomputed = false);
  /// The flat's gradient no longer exists: the next one is not added to it.
  void forget(int flat) { recorder_.forget(flat); }

 private:
  /// Indices of a norm's parameters in its unit; -1 if it has none.
  struct Norm {
    int weight = -1, bias = -1;
  };
  /// Rows of a layer: one per token; those whose output the last layer computes (0: all); and the
  /// number of rows after its attention.
  struct Rows {
    int64_t tokens, outputs;
    int64_t behind() const { return outputs > 0 ? outputs : tokens; }
  };
  Rows rows_of(int unit, const Batch& batch) const;
  int index(layout::Role role) const;
  Projection projection(layout::Role weight, layout::Role bias, std::vector<int64_t> sizes,
                        int64_t in) const;
  Norm norm_at(layout::Role role) const;
  int64_t bytes(int64_t elements) const { return elements * recorder_.element(); }
  /// Bytes per element in norms that round once.
  int64_t norm_element() const;
  /// Bytes per element in head norms and rope.
  int64_t heads_element() const;
  int64_t queries_keys() const { return model_.query_size() + model_.kv_size(); }

  void one(int64_t elements) { recorder_.pass(bytes(elements)); }
  void cast(int64_t elements) { recorder_.pass(elements * (recorder_.element() + 4)); }
  void factor(bool has_weight, int64_t width, int64_t element);
  void norm_factors(const Norm& norm);
  void norm(const Norm& norm, int64_t rows);
  void norm_backward(const Norm& norm, int64_t rows);
  void before(layout::Role role, int64_t rows);
  void backward_before(layout::Role role, int64_t rows);
  void sum_rows(int weight, int64_t rows, int64_t width);
  void head_norms(int64_t rows);
  void head_norms_backward(int64_t rows);
  void rope(int layer, const Batch& batch);
  void regroup(int64_t rows);
  void act(int64_t elements);
  void act_backward(int64_t elements);
  void activation(int64_t rows);
  void activation_backward(int64_t rows);
  void add_branch(const Projection& projection, layout::Role post_norm, int64_t rows);
  void branch_backward(const Projection& projection, layout::Role post_norm, int64_t rows,
                       bool again);
  void attention(int unit, const Batch& batch, bool backward);
  void qkv_forward(const Rows& rows);
  void qkv_backward(const Rows& rows);
  void attend(int unit, const Batch& batch, bool keeps);
  void mlp_inner(const Rows& rows, bool keeps);
  void layer_forward(int unit, const Batch& batch, bool keeps);
  void layer_backward(int unit, const Batch& batch, bool recomputed);
  void embedding_forward(const Batch& batch);
  void embedding_backward(const Batch& batch);
  void scatter(int64_t rows);
  void put_back(int64_t rows, int64_t tokens, int64_t width);

  const layout::ModelConfig model_;  ///< gpt2's single weight for q, k and v is fused_qkv
  const std::vector<layout::UnitSpec>& units_;
  const std::vector<layout::Role> roles_;  ///< of a layer's parameters
  Recorder recorder_;
  const Projection qkv_, q_, kv_, o_, up_, down_;  ///< up_ includes the gate
};

}  // namespace dsj::roofline
