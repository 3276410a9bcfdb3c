#include <ATen/ATen.h>

#include "common/check.h"
#include "engine/models/unit.h"

namespace dsj::models {
namespace {

enum Table { kTokens, kPositions };

ops::Dropout dropout_of(const layout::ModelConfig& config, const EmbeddingCall& call) {
  return call.dropout_key ? ops::Dropout{config.dropout.embedding, *call.dropout_key}
                          : ops::Dropout{};
}

}  // namespace

at::Tensor embedding_forward(const zero::UnitParameters& p, const layout::ModelConfig& config,
                             const at::Tensor& ids, const EmbeddingCall& call) {
  // A table that was gathered in the products' type gives the rows that others give.
  at::Tensor x = p.weight(kTokens).index_select(0, ids).to(p.stream_type());
  if (config.learned_positions()) {
    DSJ_CHECK(call.rows->positions_end() <= config.max_position);
    x.add_(p.weight(kPositions).index_select(0, call.rows->positions()));
  }
  ops::dropout(x, dropout_of(config, call));
  return x;
}

void embedding_backward(const zero::UnitParameters& p, const layout::ModelConfig& config,
                        const at::Tensor& ids, const at::Tensor& dx, const EmbeddingCall& call) {
  ops::dropout(dx, dropout_of(config, call));
  if (const auto tokens = p.grad(kTokens); tokens.tensor.defined()) {
    tokens.zero_if_new();
    ops::scatter_rows(dx, ids, tokens.tensor);
  }
  if (!config.learned_positions()) return;
  if (const auto positions = p.grad(kPositions); positions.tensor.defined()) {
    positions.zero_if_new();
    ops::scatter_rows(dx, call.rows->positions(), positions.tensor);
  }
}

}  // namespace dsj::models
