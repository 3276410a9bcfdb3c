#include "engine/models/mixers/short_conv.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "common/check.h"
#include "job/layout/row_pieces.h"

namespace dsj::models {

using layout::Role;

namespace {

/// Tokens of neighbouring rows of equal length: of each row those from `first` to `end`.
struct ConvPiece {
  int64_t start = 0;  ///< first token of the first row
  int64_t rows = 1, length = 0;
  int64_t first = 0, end = 0;
  /// The view [rows, to - from, columns] of x [N, columns].
  at::Tensor of(const at::Tensor& x, int64_t from, int64_t to) const {
    return x.narrow(0, start, rows * length)
        .view({rows, length, x.size(1)})
        .narrow(1, from, to - from);
  }
};

/// Each piece has at most kConvTokens tokens: of one row, or several rows.
std::vector<ConvPiece> conv_pieces(const RowBounds& rows) {
  std::vector<ConvPiece> pieces;
  for (const RowBounds::Run& run : rows.runs()) {
    const int64_t together = std::max<int64_t>(1, layout::kConvTokens / run.length);
    for (const layout::RowPiece& some : layout::row_pieces(run.rows, together))
      for (const layout::RowPiece& part : layout::row_pieces(run.length, layout::kConvTokens))
        pieces.push_back({.start = run.start + some.first * run.length,
                          .rows = some.count,
                          .length = run.length,
                          .first = part.first,
                          .end = part.first + part.count});
  }
  return pieces;
}

/// The parts of the product, [.., H] each.
struct ConvParts {
  at::Tensor before, after, x;
  explicit ConvParts(const at::Tensor& products) {
    const auto parts = products.chunk(3, -1);
    before = parts[0], after = parts[1], x = parts[2];
  }
};

/// The filter's results for the last `count` tokens of seen [rows, tokens, H], in fp32: a token
/// before the first is 0.
at::Tensor filtered(const at::Tensor& seen, int64_t count, const at::Tensor& filters) {
  const int64_t taps = filters.size(0), earlier = seen.size(1) - count;
  at::Tensor sum = at::zeros({seen.size(0), count, seen.size(2)}, seen.options());
  for (int64_t tap = 0; tap < taps; ++tap) {
    const int64_t back = taps - 1 - tap;
    const int64_t skipped = std::max<int64_t>(0, back - earlier);
    if (skipped >= count) continue;
    sum.narrow(1, skipped, count - skipped)
        .addcmul_(seen.narrow(1, earlier + skipped - back, count - skipped), filters[tap]);
  }
  return sum;
}

}  // namespace

ShortConv::ShortConv(const layout::ModelConfig& config)
    : kernel_(config.conv.kernel), hidden_(config.hidden_size) {
  DSJ_CHECK(kernel_ >= 1);
  const auto roles = layout::decoder_roles(config, /*experts=*/false, layout::Mixer::Conv);
  const auto at = [&](Role role) {
    return static_cast<int>(std::ranges::find(roles, role) - roles.begin());
  };
  in_ = {at(Role::ConvIn), -1, {3 * hidden_}};
  weight_ = at(Role::ConvWeight);
}

at::Tensor ShortConv::filters(const zero::UnitParameters& p) const {
  const at::Tensor weight = p.weight(weight_).view({hidden_, kernel_});
  return weight.to(p.product_type()).to(at::kFloat).t().contiguous();
}

at::Tensor ShortConv::forward(const zero::UnitParameters& p, const at::Tensor& h,
                              const RowBounds& rows, DropoutKey key, at::Tensor& products) const {
  products = project(p, in_, h, key);
  const at::Tensor taps = filters(p);
  at::Tensor out = at::empty({h.size(0), hidden_}, products.options());
  for (const ConvPiece& piece : conv_pieces(rows)) {
    const int64_t from = std::max<int64_t>(0, piece.first - (kernel_ - 1));
    const ConvParts seen(piece.of(products, from, piece.end));
    const int64_t count = piece.end - piece.first;
    const at::Tensor sum = filtered((seen.before * seen.x).to(at::kFloat), count, taps);
    const at::Tensor after = seen.after.narrow(1, piece.first - from, count);
    at::Tensor to = piece.of(out, piece.first, piece.end);
    at::mul_out(to, after, sum.to(out.scalar_type()));
  }
  return out;
}

at::Tensor ShortConv::backward(const zero::UnitParameters& p, const at::Tensor& dout,
                               const at::Tensor& h, const RowBounds& rows,
                               const at::Tensor& products, DropoutKey key) const {
  const at::ScalarType type = products.scalar_type();
  const at::Tensor taps = filters(p);
  const at::Tensor dtaps = at::zeros_like(taps);
  const at::Tensor dproducts = at::empty_like(products), gradient = dout.contiguous();
  for (const ConvPiece& piece : conv_pieces(rows)) {
    const int64_t halo = kernel_ - 1, count = piece.end - piece.first;
    const int64_t from = std::max<int64_t>(0, piece.first - halo);
    const int64_t to = std::min(piece.length, piece.end + halo);
    const ConvParts seen(piece.of(products, from, to));
    const ConvParts grads(piece.of(dproducts, piece.first, piece.end));
    const auto own = [&](const at::Tensor& x) { return x.narrow(1, piece.first - from, count); };
    // The filter's input up to the piece's end, and the gradient of its result from the piece's
    // first token on, which reaches the piece's tokens from `halo` later ones.
    const at::Tensor in =
        (seen.before * seen.x).narrow(1, 0, piece.end - from).to(at::kFloat).contiguous();
    const at::Tensor later = piece.of(gradient, piece.first, to);
    const at::Tensor dsum =
        (later * seen.after.narrow(1, piece.first - from, to - piece.first)).to(at::kFloat);
    {
      const at::Tensor sum = filtered(in, count, taps).to(type);
      grads.after.copy_(later.narrow(1, 0, count).to(type) * sum);
    }
    at::Tensor din = at::zeros({piece.rows, count, hidden_}, dsum.options());
    for (int64_t tap = 0; tap < kernel_; ++tap) {
      const int64_t back = kernel_ - 1 - tap;
      const int64_t reached = std::min(count, to - piece.first - back);
      if (reached > 0) din.narrow(1, 0, reached).addcmul_(dsum.narrow(1, back, reached), taps[tap]);
      const int64_t skipped = std::max<int64_t>(0, back - (piece.first - from));
      if (skipped >= count) continue;
      const at::Tensor read = in.narrow(1, piece.first - from + skipped - back, count - skipped);
      dtaps[tap].add_((dsum.narrow(1, skipped, count - skipped) * read).sum(at::IntArrayRef{0, 1}));
    }
    const at::Tensor rounded = din.to(type);
    grads.before.copy_(rounded * own(seen.x));
    grads.x.copy_(rounded * own(seen.before));
  }
  if (const zero::GradView grad = p.grad(weight_); grad.tensor.defined()) {
    const at::Tensor sum = dtaps.t().reshape(grad.tensor.sizes());
    grad.accumulate ? grad.tensor.add_(sum) : grad.tensor.copy_(sum);
  }
  return project_backward(p, in_, dproducts, h, key);
}

at::Tensor ShortConv::forward_cached(const zero::UnitParameters& p, const at::Tensor& h,
                                     const RowBounds& rows, const at::Tensor& cache) const {
  const ConvParts parts(project(p, in_, h, {}));
  const at::Tensor taps = filters(p);
  if (rows.runs().front().first == 0) cache.zero_();
  const at::Tensor fresh = parts.before * parts.x;
  at::Tensor out = at::empty({h.size(0), hidden_}, h.options());
  for (int64_t row = 0; row < rows.rows(); ++row) {
    const int64_t start = rows.starts()[row], length = rows.length(row);
    const at::Tensor seen =
        at::cat({cache.select(0, row).to(fresh.scalar_type()), fresh.narrow(0, start, length)});
    cache.select(0, row).copy_(seen.narrow(0, length, kernel_ - 1));
    const at::Tensor sum =
        filtered(seen.to(at::kFloat).unsqueeze(0), length, taps).squeeze(0).to(out.scalar_type());
    out.narrow(0, start, length).copy_(sum * parts.after.narrow(0, start, length));
  }
  return out;
}

}  // namespace dsj::models
