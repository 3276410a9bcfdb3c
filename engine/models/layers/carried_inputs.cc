#include <ATen/ATen.h>

#include <cmath>
#include <utility>

#include "engine/models/ops/ops.h"
#include "engine/models/unit/norms.h"
#include "engine/models/unit/pieces.h"
#include "engine/models/unit/projection.h"
#include "engine/models/unit/unit.h"

namespace dsj::models {
namespace {

constexpr int kTable = 0;
constexpr int kProjection = 0, kProjectionNorm = 1;

/// The two summands are averaged with this factor.
const double kHalf = std::sqrt(0.5);

/// Rounded to the type of the rows, as the embedding's.
double table_scale(const layout::ModelConfig& config, const at::Tensor& rows) {
  const double scale = std::sqrt(static_cast<double>(config.layer_input));
  return at::scalar_tensor(scale, at::dtype(rows.scalar_type())).item<double>();
}

/// The first piece has the key of whole rows.
std::optional<uint64_t> own_key(std::optional<uint64_t> key, const layout::RowPiece& piece) {
  return piece.first > 0 ? piece_key(key, piece) : key;
}

Projection projection(const layout::ModelConfig& config) {
  return {kProjection, -1, {config.num_layers * config.layer_input}};
}

/// The projection of x [n, H], a row per token and layer: [n L, P].
at::Tensor projected(const zero::UnitParameters& p, const layout::ModelConfig& config,
                     const at::Tensor& x, std::optional<uint64_t> dropout_key) {
  return project(p, projection(config), x.to(p.product_type()), dropout_key)
      .to(p.stream_type())
      .mul_(1 / std::sqrt(static_cast<double>(config.hidden_size)))
      .view({-1, config.layer_input});
}

void backward_piece(const zero::UnitParameters& p, const layout::ModelConfig& config,
                    const at::Tensor& d, const at::Tensor& x, const at::Tensor& dx,
                    std::optional<uint64_t> dropout_key) {
  const NormAt at{.weight = kProjectionNorm};
  const at::Tensor read = projected(p, config, x, dropout_key);
  const at::Tensor dread = at::zeros_like(read);
  norm_backward(p, config, at, d.reshape({-1, config.layer_input}), read, norm(p, config, at, read),
                dread);
  dread.mul_(1 / std::sqrt(static_cast<double>(config.hidden_size)));
  dx.add_(project_backward(p, projection(config), dread.view({x.size(0), -1}),
                           x.to(p.product_type()), dropout_key));
}

}  // namespace

void layer_table_forward(const zero::UnitParameters& p, const layout::ModelConfig& config,
                         const at::Tensor& ids, Carried& carried) {
  carried.inputs = p.weight(kTable).index_select(0, ids).to(p.stream_type());
  carried.inputs.mul_(table_scale(config, carried.inputs));
}

void layer_table_backward(const zero::UnitParameters& p, const layout::ModelConfig& config,
                          const at::Tensor& ids, Carried& carried) {
  const at::Tensor d = std::exchange(carried.inputs, {});
  const auto table = p.grad(kTable);
  if (!table.tensor.defined()) return;
  table.zero_if_new();
  d.mul_(table_scale(config, d));
  if (config.padding_id >= 0) d.masked_fill_(ids.eq(config.padding_id).unsqueeze(1), 0);
  ops::scatter_rows(d, ids, table.tensor);
}

void layer_inputs_forward(const zero::UnitParameters& p, const layout::ModelConfig& config,
                          const at::Tensor& x, std::optional<uint64_t> dropout_key,
                          const layout::PieceRule& pieces, Carried& carried) {
  for (const auto& piece : pieces.of(x.size(0))) {
    const at::Tensor inputs = carried.inputs.narrow(0, piece.first, piece.count);
    const at::Tensor read =
        projected(p, config, x.narrow(0, piece.first, piece.count), own_key(dropout_key, piece));
    const at::Tensor y = norm(p, config, {.weight = kProjectionNorm}, read).y;
    inputs.add_(y.view(inputs.sizes())).mul_(kHalf);
  }
}

void layer_inputs_backward(const zero::UnitParameters& p, const layout::ModelConfig& config,
                           at::Tensor dx, std::optional<uint64_t> dropout_key,
                           const layout::PieceRule& pieces, Carried& carried) {
  const at::Tensor x = std::exchange(carried.embedded, {});
  const at::Tensor d = carried.inputs.mul_(kHalf);
  if (!pieces.cuts(x.size(0))) return backward_piece(p, config, d, x, dx, dropout_key);
  zero::PieceSums sums;
  const zero::UnitParameters adding = p.adding_to(sums);
  for (const auto& piece : pieces.of(x.size(0))) {
    const auto rows = [&](const at::Tensor& of) { return of.narrow(0, piece.first, piece.count); };
    backward_piece(adding, config, rows(d), rows(x), rows(dx), own_key(dropout_key, piece));
    sums.add();
  }
  sums.finish();
}

void carry_inputs(const zero::UnitParameters& table, const zero::UnitParameters& inputs,
                  const layout::ModelConfig& config, const at::Tensor& ids, const at::Tensor& x,
                  Carried& carried) {
  layer_table_forward(table, config, ids, carried);
  layer_inputs_forward(inputs, config, x, std::nullopt, {}, carried);
}

}  // namespace dsj::models
