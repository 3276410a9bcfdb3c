// What a unit queues on a GPU, forward and backward, in a 16-bit type: the twin, on shapes, of
// engine/models. It holds where flash attention takes all rows at once and nothing is dropped out.
// Launches and bytes equal what the simulated GPU counts. One thread.
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

/// Partial sums of a norm's backward over so many rows: engine/kernels/cuda/launchers.h's.
int64_t norm_partials(int64_t rows);

class UnitWork {
 public:
  /// All must outlive it.
  UnitWork(const layout::ModelConfig& model, const std::vector<layout::UnitSpec>& units,
           const layout::FlatPlan& plan, const std::optional<LoraArgs>& lora);

  /// `keeps`: what backward needs is kept (no recompute).
  Ops forward(int unit, const Batch& batch, bool keeps = true);
  /// A layer's forward again, without its last activation and product (engine/models/pieces.h).
  Ops recompute(int unit, const Batch& batch);
  /// The head's one visit.
  Ops turn(const Batch& batch);
  Ops backward(int unit, const Batch& batch);
  /// The flat's gradient is no longer there: the next one is not added to it.
  void forget(int flat) { recorder_.forget(flat); }

 private:
  struct Projections {
    Projection qkv, q, kv, o, up, down;  ///< up: gate and up, or gpt2's
  };
  struct Norm {
    int weight;
    int64_t rows;
  };
  int index(layout::Role role) const;
  Projections llama_projections() const;
  Projections gpt2_projections() const;
  bool llama() const { return model_.block == layout::Block::Llama; }
  int64_t bytes(int64_t elements) const { return elements * recorder_.element(); }

  void norm(int64_t rows);
  void norm_backward(const Norm& norm);
  void head_norms(int64_t rows, bool keeps);
  void head_norms_backward(int64_t rows);
  void head_norm_backward(int weight, int64_t rows, int64_t heads);
  void sum_rows(int weight, int64_t rows, int64_t width);
  void rope(const Batch& batch);
  void activation(int64_t rows, bool backward);
  void attention(int unit, const Batch& batch, bool backward);
  void layer_forward(int unit, const Batch& batch, bool keeps, bool again);
  void layer_backward(int unit, const Batch& batch);
  void qkv_forward(int64_t tokens, int64_t outputs);
  void qkv_backward(int64_t tokens, int64_t outputs);
  void embedding_forward(const Batch& batch);
  void embedding_backward(const Batch& batch);
  void scatter(int64_t rows);
  void put_back(int64_t rows, int64_t tokens, int64_t width);

  const layout::ModelConfig& model_;
  const std::vector<layout::UnitSpec>& units_;
  Recorder recorder_;
  const Projections projections_;
};

}  // namespace dsj::roofline
