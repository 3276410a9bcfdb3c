#include <ATen/ATen.h>

#include "common/check.h"
#include "engine/models/unit/unit.h"

namespace dsj::models {
namespace {

enum Table { kTokens, kPositions };

ops::Dropout dropout_of(const layout::ModelConfig& config, const EmbeddingCall& call) {
  return call.dropout_key ? ops::Dropout{config.dropout.embedding, *call.dropout_key}
                          : ops::Dropout{};
}

/// The model's factor on the embeddings.
double scale_of(const layout::ModelConfig& config, const at::Tensor& x) {
  if (!config.rounds_embedding_scale) return config.embedding_scale;
  return at::scalar_tensor(config.embedding_scale, at::dtype(x.scalar_type())).item<double>();
}

/// The learned embeddings of the tokens' positions.
at::Tensor positions_of(const layout::ModelConfig& config, const EmbeddingCall& call) {
  DSJ_CHECK(call.rows->positions_end() <= config.max_position);
  const at::Tensor& positions = call.rows->positions();
  return config.first_position == 0 ? positions : positions + config.first_position;
}

}  // namespace

at::Tensor embedding_forward(const zero::UnitParameters& p, const layout::ModelConfig& config,
                             const at::Tensor& ids, const EmbeddingCall& call) {
  // A table gathered in the products' type gives the same rows as any other.
  at::Tensor x = p.weight(kTokens).index_select(0, ids).to(p.stream_type());
  if (call.noise) x.add_(*call.noise);
  if (config.embedding_scale != 1) x.mul_(scale_of(config, x));
  if (config.learned_positions)
    x.add_(p.weight(kPositions).index_select(0, positions_of(config, call)));
  ops::dropout(x, dropout_of(config, call));
  return x;
}

void embedding_backward(const zero::UnitParameters& p, const layout::ModelConfig& config,
                        const at::Tensor& ids, const at::Tensor& dx, const EmbeddingCall& call) {
  ops::dropout(dx, dropout_of(config, call));
  if (config.embedding_scale != 1) dx.mul_(scale_of(config, dx));
  if (config.learned_positions) {
    if (const auto positions = p.grad(kPositions); positions.tensor.defined()) {
      positions.zero_if_new();
      ops::scatter_rows(dx, positions_of(config, call), positions.tensor);
    }
  }
  if (const auto tokens = p.grad(kTokens); tokens.tensor.defined()) {
    tokens.zero_if_new();
    if (config.padding_id >= 0) dx.masked_fill_(ids.eq(config.padding_id).unsqueeze(1), 0);
    ops::scatter_rows(dx, ids, tokens.tensor);
  }
}

}  // namespace dsj::models
