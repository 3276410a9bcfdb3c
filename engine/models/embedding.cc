#include <ATen/ATen.h>

#include "common/check.h"
#include "engine/models/unit.h"

namespace dsj::models {
namespace {

enum Index { kTokens, kPositions };

bool learned_positions(const layout::ModelConfig& config) {
  return config.block == layout::Block::Gpt2;
}

ops::Dropout dropout_of(const layout::ModelConfig& config, const EmbeddingCall& call) {
  return call.dropout_key ? ops::Dropout{config.dropout.embedding, *call.dropout_key}
                          : ops::Dropout{};
}

void zero_if_new(const zero::GradView& grad) {
  if (!grad.accumulate) grad.tensor.zero_();
}

}  // namespace

at::Tensor embedding_forward(const zero::UnitParameters& p, const layout::ModelConfig& config,
                             const at::Tensor& ids, const EmbeddingCall& call) {
  at::Tensor x = p.weight(kTokens).index_select(0, ids.reshape({-1}));
  if (learned_positions(config)) {
    const int64_t seq = ids.size(1);
    DSJ_CHECK(call.first + seq <= config.max_position);
    x.view({ids.size(0), seq, x.size(1)}).add_(p.weight(kPositions).narrow(0, call.first, seq));
  }
  ops::dropout(x, dropout_of(config, call));
  return x;
}

void embedding_backward(const zero::UnitParameters& p, const layout::ModelConfig& config,
                        const at::Tensor& ids, const at::Tensor& dx, const EmbeddingCall& call) {
  ops::dropout(dx, dropout_of(config, call));
  if (const auto tokens = p.grad(kTokens); tokens.tensor.defined()) {
    zero_if_new(tokens);
    ops::scatter_rows(dx, ids.reshape({-1}), tokens.tensor);
  }
  if (!learned_positions(config)) return;
  if (const auto positions = p.grad(kPositions); positions.tensor.defined()) {
    zero_if_new(positions);
    const int64_t seq = ids.size(1);
    positions.tensor.narrow(0, 0, seq).add_(dx.view({ids.size(0), seq, dx.size(1)}).sum(0));
  }
}

}  // namespace dsj::models
