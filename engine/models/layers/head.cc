#include <ATen/ATen.h>

#include <algorithm>
#include <atomic>
#include <numeric>

#include "common/check.h"
#include "engine/device/device.h"
#include "engine/models/ops/factors.h"
#include "engine/models/ops/gemm.h"
#include "engine/models/unit/norms.h"
#include "engine/models/unit/unit.h"

namespace dsj::models {
namespace {

std::atomic<int64_t> logits_limit_{0};

/// The norm's parameters come first, then the head's weight if it is not tied, then its bias.
NormAt norm_at(const layout::ModelConfig& config) {
  return {.weight = config.norm_weight ? 0 : -1,
          .bias = config.norm_bias ? config.norm_parameters() - 1 : -1};
}
int head_index(const layout::ModelConfig& config) {
  return config.tied ? 0 : config.norm_parameters();
}
int bias_index(const layout::ModelConfig& config) {
  return config.norm_parameters() + (config.tied ? 0 : 1);
}
/// The bias in the products' type; undefined if the head has none.
at::Tensor bias_of(const zero::UnitParameters& p, const layout::ModelConfig& config) {
  return config.head_bias ? p.weight(bias_index(config)).to(p.product_type()) : at::Tensor();
}

ops::Normed normed_rows(const zero::UnitParameters& p, const layout::ModelConfig& config,
                        const at::Tensor& x) {
  return as_factor(p, norm(p, config, norm_at(config), x));
}

/// Writes the norm's gradients and returns that of x.
at::Tensor rows_backward(const zero::UnitParameters& p, const layout::ModelConfig& config,
                         const at::Tensor& dy, const at::Tensor& x, const ops::Normed& normed) {
  at::Tensor dx = at::zeros_like(x);
  norm_backward(p, config, norm_at(config), dy, x, normed, dx);
  return dx;
}

/// Scales and then caps the product's result, in place, as the model says. Returns the slope of the
/// cap if there is one and `slope` asks for it.
at::Tensor shape_logits(const layout::ModelConfig& config, at::Tensor logits, bool slope) {
  if (config.logits_scale != 1) logits.mul_(config.logits_scale);
  if (config.logits_cap <= 0) return {};
  logits.div_(config.logits_cap).tanh_();
  const at::Tensor of_cap = slope ? 1 - logits.square() : at::Tensor();
  logits.mul_(config.logits_cap);
  return of_cap;
}

zero::UnitParameters owner(const zero::UnitParameters& p, bool tied) {
  return tied ? p.embedding() : p;
}

/// Whether x has only the rows of the targets. There are always fewer targets than tokens, because
/// a row's last token has no target.
bool has_targets_alone(const at::Tensor& x, const MicroBatch& batch) {
  const bool alone = x.size(0) == batch.targets().count;
  DSJ_CHECK(alone || x.size(0) == batch.rows().tokens());
  return alone;
}

at::Tensor no_loss(const at::Tensor& x) {
  return at::zeros({}, x.options().dtype(at::kDouble));
}

/// The number of rows, of n, whose logits are in memory at a time.
int64_t logit_rows(int64_t n, const at::Tensor& x, int64_t vocab, const layout::PieceRule& pieces) {
  const int64_t limit = logits_limit_;
  return layout::logit_rows(
      n, vocab, limit > 0 ? limit : layout::logit_elements(!x.device().is_cpu()), pieces);
}

/// -log p of each label, [rows] fp32. Widens some rows at a time.
at::Tensor negative_logs(const at::Tensor& logits, const at::Tensor& labels) {
  constexpr int64_t kWidened = 1 << 18;  // elements
  const int64_t rows = logits.size(0), some = std::max<int64_t>(1, kWidened / logits.size(1));
  const at::Tensor out = at::empty({rows}, logits.options().dtype(at::kFloat));
  for (int64_t first = 0; first < rows; first += some) {
    const int64_t count = std::min(some, rows - first);
    const at::Tensor wide = logits.narrow(0, first, count).to(at::kFloat);
    const at::Tensor own = wide.gather(1, labels.narrow(0, first, count).unsqueeze(1)).squeeze(1);
    out.narrow(0, first, count).copy_(at::logsumexp(wide, {1}).sub_(own));
  }
  return out;
}

/// ops::cross_entropy() of TokenLoss::dft.
void dft_cross_entropy(const at::Tensor& logits, const at::Tensor& labels, double scale,
                       const at::Tensor& loss) {
  const at::Tensor negative = negative_logs(logits, labels);
  const at::Tensor p = negative.neg().exp_();
  loss.add_((negative * p).sum(at::kDouble));
  ops::cross_entropy(logits, labels, scale, at::zeros_like(loss));
  logits.mul_(p.to(logits.scalar_type()).unsqueeze(1));
}

/// ops::cross_entropy() with label smoothing: the loss of the label, plus `smoothing` times the
/// difference between its logit and the mean logit.
void smoothed_cross_entropy(const at::Tensor& logits, const at::Tensor& labels, double scale,
                            double smoothing, const at::Tensor& loss) {
  if (smoothing == 0) return ops::cross_entropy(logits, labels, scale, loss);
  const at::Tensor at_labels = labels.unsqueeze(1);
  const at::Tensor above =
      logits.gather(1, at_labels).squeeze(1).to(at::kFloat) - logits.mean(1, false, at::kFloat);
  loss.add_(above.sum(at::kDouble), smoothing);
  ops::cross_entropy(logits, labels, scale, loss);
  logits.scatter_add_(1, at_labels, at::full_like(at_labels, scale * smoothing, logits.options()));
  logits.sub_(scale * smoothing / static_cast<double>(logits.size(1)));
}

void cross_entropy(const at::Tensor& logits, const at::Tensor& labels, double scale,
                   const TokenLoss& kind, const at::Tensor& loss) {
  if (kind.dft) return dft_cross_entropy(logits, labels, scale, loss);
  smoothed_cross_entropy(logits, labels, scale, kind.smoothing, loss);
}

/// The state of one head_turn() that its pieces share.
struct Turn {
  const zero::UnitParameters& p;
  const layout::ModelConfig& config;
  at::Tensor w;  ///< the projection's weight, in the products' type
  gemm::WeightSum dw;
  at::Tensor bias;  ///< see bias_of()
  at::Tensor db;    ///< [V] fp32, the sum of its gradient; undefined without one
  const Targets& targets;
  double scale;        ///< on each target's loss
  at::Tensor weights;  ///< [targets] float: a further factor per target; may be undefined
  TokenLoss kind;
  at::Tensor loss;

  /// The products of rows h of some targets, and their loss. Writes the gradient of h.
  void project(const layout::RowPiece& piece, const at::Tensor& h, const at::Tensor& dh) {
    at::Tensor logits = at::empty({piece.count, w.size(0)}, h.options());
    gemm::linear(logits, h, w, bias);
    const at::Tensor slope = shape_logits(config, logits, true);
    cross_entropy(logits, targets.labels.narrow(0, piece.first, piece.count), scale, kind, loss);
    if (weights.defined()) logits.mul_(weights.narrow(0, piece.first, piece.count).unsqueeze(1));
    if (slope.defined()) logits.mul_(slope);
    if (config.logits_scale != 1) logits.mul_(config.logits_scale);
    gemm::grad_input(dh, logits, w, false);
    dw.add(logits, h);
    if (db.defined()) db.add_(logits.sum(0, false, at::kFloat));
  }
};

/// `x`: rows of all tokens, or of the targets only. Returns its gradient.
at::Tensor turn_whole(Turn& turn, const at::Tensor& x, bool alone, int64_t rows) {
  at::Tensor picked = alone ? x : x.index_select(0, turn.targets.tokens);
  ops::Normed normed = normed_rows(turn.p, turn.config, picked);
  at::Tensor dh = at::empty_like(normed.y);
  for (const auto& piece : layout::row_pieces(turn.targets.count, rows))
    turn.project(piece, normed.y.narrow(0, piece.first, piece.count),
                 dh.narrow(0, piece.first, piece.count));
  at::Tensor dx = rows_backward(turn.p, turn.config, dh, picked, normed);
  if (alone) return dx;
  dh.reset(), picked.reset(), normed = {};
  return at::zeros_like(x).index_copy_(0, turn.targets.tokens, dx);
}

at::Tensor turn_in_pieces(Turn& turn, const at::Tensor& x, bool alone, int64_t rows) {
  at::Tensor dx = alone ? at::empty_like(x) : at::zeros_like(x);
  zero::PieceSums sums;
  const zero::UnitParameters adding = turn.p.adding_to(sums);
  for (const auto& piece : layout::row_pieces(turn.targets.count, rows)) {
    const at::Tensor tokens = turn.targets.tokens.narrow(0, piece.first, piece.count);
    const at::Tensor picked =
        alone ? x.narrow(0, piece.first, piece.count) : x.index_select(0, tokens);
    const ops::Normed normed = normed_rows(adding, turn.config, picked);
    const at::Tensor dh = at::empty_like(normed.y);
    turn.project(piece, normed.y, dh);
    const at::Tensor dpicked = rows_backward(adding, turn.config, dh, picked, normed);
    sums.add();
    alone ? dx.narrow(0, piece.first, piece.count).copy_(dpicked)
          : dx.index_copy_(0, tokens, dpicked);
  }
  sums.finish();
  return dx;
}

/// `scale`: on each target's loss; 1 with `weights`.
HeadResult turn_head(const zero::UnitParameters& p, const layout::ModelConfig& config,
                     const at::Tensor& x, const MicroBatch& batch, double scale,
                     const at::Tensor& weights, const layout::PieceRule& pieces,
                     const TokenLoss& kind) {
  const int weight = head_index(config);
  const zero::UnitParameters projection = owner(p, config.tied);
  const Targets& targets = batch.targets();
  const bool alone = has_targets_alone(x, batch);
  HeadResult result{no_loss(x), targets.count, {}};
  const auto head_grad = projection.grad(weight);
  const auto bias_grad = config.head_bias ? p.grad(bias_index(config)) : zero::GradView{};
  if (result.targets == 0) {
    for (int i = 0; i < config.norm_parameters(); ++i) p.grad(i).zero_if_new();
    head_grad.zero_if_new();
    bias_grad.zero_if_new();
    result.dx = at::zeros_like(x);
    return result;
  }
  const at::Tensor w = gemm::as_factor(projection.weight(weight), p.product_type());
  const int64_t n = result.targets;
  const int64_t rows = logit_rows(n, x, w.size(0), pieces);
  Turn turn{p,
            config,
            w,
            gemm::WeightSum(head_grad, w.scalar_type(), (n + rows - 1) / rows),
            bias_of(p, config),
            bias_grad.tensor.defined() ? at::zeros({w.size(0)}, w.options().dtype(at::kFloat))
                                       : at::Tensor(),
            targets,
            scale,
            weights,
            kind,
            result.loss_sum};
  result.dx =
      pieces.cuts(n) ? turn_in_pieces(turn, x, alone, rows) : turn_whole(turn, x, alone, rows);
  if (turn.db.defined()) gemm::grad_bias(bias_grad, turn.db.to(w.scalar_type()).unsqueeze(0));
  return result;
}

}  // namespace

void set_logits_limit(int64_t elements) {
  logits_limit_ = elements;
}

HeadResult head_turn(const zero::UnitParameters& p, const layout::ModelConfig& config,
                     const at::Tensor& x, const MicroBatch& batch, double scale,
                     const layout::PieceRule& pieces, const TokenLoss& loss) {
  const int64_t n = std::max<int64_t>(1, batch.targets().count);
  return turn_head(p, config, x, batch, scale / n, {}, pieces, loss);
}

HeadResult head_turn_weighted(const zero::UnitParameters& p, const layout::ModelConfig& config,
                              const at::Tensor& x, const MicroBatch& batch,
                              const at::Tensor& weights, const layout::PieceRule& pieces) {
  DSJ_CHECK(weights.size(0) == batch.targets().count);
  return turn_head(p, config, x, batch, 1, weights, pieces, {});
}

namespace {

/// Adds the loss of n targets, from `begin` on, to `loss` [] double: only the forward pass, in
/// pieces.
void add_losses(const zero::UnitParameters& p, const layout::ModelConfig& config,
                const at::Tensor& x, const MicroBatch& batch, int64_t begin, int64_t n,
                const layout::PieceRule& pieces, const TokenLoss& kind, const at::Tensor& loss) {
  const Targets& targets = batch.targets();
  const bool alone = has_targets_alone(x, batch);
  for (const auto& piece : layout::row_pieces(n, logit_rows(n, x, config.vocab_size, pieces))) {
    const int64_t first = begin + piece.first, count = piece.count;
    const at::Tensor picked = alone ? x.narrow(0, first, count)
                                    : x.index_select(0, targets.tokens.narrow(0, first, count));
    cross_entropy(head_logits(p, config, picked), targets.labels.narrow(0, first, count), 1.0, kind,
                  loss);
  }
}

}  // namespace

at::Tensor head_part_losses(const zero::UnitParameters& p, const layout::ModelConfig& config,
                            const at::Tensor& x, const MicroBatch& batch,
                            std::span<const int64_t> parts, const layout::PieceRule& pieces) {
  DSJ_CHECK(std::accumulate(parts.begin(), parts.end(), int64_t{0}) == batch.targets().count);
  const at::Tensor sums = at::zeros({std::ssize(parts)}, x.options().dtype(at::kDouble));
  int64_t begin = 0;
  for (int64_t part = 0; part < std::ssize(parts); ++part) {
    const int64_t n = parts[static_cast<size_t>(part)];
    add_losses(p, config, x, batch, begin, n, pieces, {}, sums.select(0, part));
    begin += n;
  }
  return sums;
}

HeadResult head_loss(const zero::UnitParameters& p, const layout::ModelConfig& config,
                     const at::Tensor& x, const MicroBatch& batch, const layout::PieceRule& pieces,
                     const TokenLoss& loss) {
  const int64_t n = batch.targets().count;
  HeadResult result{no_loss(x), n, {}};
  add_losses(p, config, x, batch, 0, n, pieces, loss, result.loss_sum);
  return result;
}

at::Tensor head_scores(const zero::UnitParameters& p, const layout::ModelConfig& config,
                       const at::Tensor& x, const MicroBatch& batch) {
  DSJ_CHECK(config.scored);
  if (batch.targets().count == 0) return at::zeros({0}, x.options().dtype(at::kDouble));
  const bool alone = has_targets_alone(x, batch);
  return head_logits(p, config, alone ? x : x.index_select(0, batch.targets().tokens))
      .squeeze(1)
      .to(at::kDouble);
}

at::Tensor head_score_turn(const zero::UnitParameters& p, const layout::ModelConfig& config,
                           const at::Tensor& x, const MicroBatch& batch, const at::Tensor& slopes) {
  const int64_t targets = batch.targets().count;
  DSJ_CHECK(config.scored && slopes.size(0) == targets);
  const int weight = head_index(config);
  if (targets == 0) {
    for (int i = 0; i <= weight; ++i) p.grad(i).zero_if_new();
    return at::zeros_like(x);
  }
  const bool alone = has_targets_alone(x, batch);
  const at::Tensor picked = alone ? x : x.index_select(0, batch.targets().tokens);
  const ops::Normed normed = normed_rows(p, config, picked);
  const at::Tensor w = gemm::as_factor(p.weight(weight), p.product_type());
  const at::Tensor dy = slopes.to(normed.y.scalar_type()).unsqueeze(1);
  const at::Tensor dh = at::empty_like(normed.y);
  gemm::grad_input(dh, dy, w, false);
  gemm::WeightSum(p.grad(weight), w.scalar_type(), 1).add(dy, normed.y);
  const at::Tensor dx = rows_backward(p, config, dh, picked, normed);
  return alone ? dx : at::zeros_like(x).index_copy_(0, batch.targets().tokens, dx);
}

at::Tensor head_logits(const zero::UnitParameters& p, const layout::ModelConfig& config,
                       const at::Tensor& x) {
  const at::Tensor h = normed_rows(p, config, x).y;
  const at::Tensor w = owner(p, config.tied).weight(head_index(config));
  at::Tensor logits = at::empty({x.size(0), w.size(0)}, h.options());
  gemm::linear(logits, h, w, bias_of(p, config));
  shape_logits(config, logits, false);
  return logits;
}

}  // namespace dsj::models
