#include "job/roofline/unit_work.h"

#include <algorithm>

#include "job/layout/row_pieces.h"

namespace dsj::roofline {
namespace {

using layout::Activation;
using layout::NormKind;
using layout::Role;

/// gpt2 orders its parameters as a layer with one weight for q, k and v.
layout::ModelConfig with_roles(layout::ModelConfig model) {
  if (model.block == layout::Block::Gpt2) model.fused_qkv = true;
  return model;
}

}  // namespace

int64_t norm_partials(int64_t rows) {
  return std::clamp<int64_t>((rows + 7) / 8, 1, 264);
}

UnitWork::UnitWork(const layout::ModelConfig& model, const std::vector<layout::UnitSpec>& units,
                   const layout::FlatPlan& plan, const std::optional<LoraArgs>& lora)
    : model_(with_roles(model)),
      units_(units),
      roles_(layout::decoder_roles(model_)),
      recorder_(units, plan, /*element=*/2, lora ? lora->r : 0),
      qkv_(projection(Role::Q, Role::QBias,
                      model_.fused_qkv
                          ? std::vector{model_.query_size() + 2 * model_.kv_size()}
                          : std::vector{model_.query_size(), model_.kv_size(), model_.kv_size()},
                      model_.hidden_size)),
      q_(projection(Role::Q, Role::QBias, {model_.query_size()}, model_.hidden_size)),
      kv_(projection(Role::K, Role::KBias, {model_.kv_size(), model_.kv_size()},
                     model_.hidden_size)),
      o_(projection(Role::O, Role::OBias, {model_.hidden_size}, model_.query_size())),
      up_(model_.gated
              ? projection(Role::Gate, Role::GateBias,
                           model_.fused_gate_up ? std::vector{2 * model_.intermediate_size}
                                                : std::vector(2, model_.intermediate_size),
                           model_.hidden_size)
              : projection(Role::Up, Role::UpBias, {model_.intermediate_size}, model_.hidden_size)),
      down_(
          projection(Role::Down, Role::DownBias, {model_.hidden_size}, model_.intermediate_size)) {}

int UnitWork::index(Role role) const {
  const auto found = std::ranges::find(roles_, role);
  return found == roles_.end() ? -1 : static_cast<int>(found - roles_.begin());
}

Projection UnitWork::projection(Role weight, Role bias, std::vector<int64_t> sizes,
                                int64_t in) const {
  return {index(weight), index(bias), std::move(sizes), in};
}

UnitWork::Norm UnitWork::norm_at(Role role) const {
  return {index(role), role == Role::Norm1   ? index(Role::Norm1Bias)
                       : role == Role::Norm2 ? index(Role::Norm2Bias)
                                             : -1};
}

UnitWork::Rows UnitWork::rows_of(int unit, const Batch& batch) const {
  return {batch.tokens(), unit == model_.num_layers ? batch.outputs() : 0};
}

// ---- norms (engine/models/unit/norms.h)

int64_t UnitWork::norm_element() const {
  const bool once = model_.norm == NormKind::RmsOnce || model_.norm == NormKind::RmsPlusOne;
  return once ? 4 : recorder_.element();
}

/// The factor of normed values, in a type of `element` bytes.
void UnitWork::factor(bool has_weight, int64_t width, int64_t element) {
  if (!has_weight) return one(width);  // ones
  if (element == 4) cast(width);
  if (model_.norm == NormKind::RmsPlusOne || model_.norm == NormKind::LayerPlusOne)
    recorder_.pass(2 * width * element);
}

/// Converts x and the factor to the kernel's types.
void UnitWork::norm_factors(const Norm& norm) {
  factor(norm.weight >= 0, model_.hidden_size, norm_element());
}

void UnitWork::norm(const Norm& norm, int64_t rows) {
  const int64_t hidden = model_.hidden_size, element = norm_element();
  if (element == 4) cast(rows * hidden);
  norm_factors(norm);
  if (model_.rms()) {
    recorder_.ours((2 * rows * hidden + hidden) * element + 4 * rows);
  } else {
    if (norm.bias < 0) one(hidden);  // a bias of zeros
    recorder_.ours(bytes(2 * rows * hidden + 2 * hidden) + 8 * rows);
  }
  if (element == 4) cast(rows * hidden);
}

void UnitWork::sum_rows(int weight, int64_t rows, int64_t width) {
  if (weight < 0 || !recorder_.trained(weight)) return;
  const bool accumulate = recorder_.accumulates(weight);
  recorder_.ours(4 * norm_partials(rows) * width + bytes((accumulate ? 2 : 1) * width));
}

void UnitWork::norm_backward(const Norm& norm, int64_t rows) {
  const int64_t hidden = model_.hidden_size, parts = norm_partials(rows) * hidden,
                element = norm_element(), all = rows * hidden;
  const bool wide = element == 4;
  if (wide) {
    cast(all);                // x
    recorder_.pass(4 * all);  // zeroes its gradient
    cast(all);                // dy
  }
  norm_factors(norm);
  // dy, x, and dx twice. accumulates() comes before the kernel runs: on a first write it zeroes the
  // padding.
  if (model_.rms())
    recorder_.ours((4 * all + hidden) * element + 4 * rows + 4 * parts);
  else
    recorder_.ours(bytes(4 * all + hidden) + 8 * rows + 8 * parts);
  sum_rows(norm.weight, rows, hidden);
  if (!model_.rms()) sum_rows(norm.bias, rows, hidden);
  if (wide) recorder_.pass(all * (2 * recorder_.element() + 4));  // adds dx to it
}

void UnitWork::before(Role role, int64_t rows) {
  if (model_.pre_norms) norm(norm_at(role), rows);
}

void UnitWork::backward_before(Role role, int64_t rows) {
  if (model_.pre_norms) return norm_backward(norm_at(role), rows);
  recorder_.add_to(rows * model_.hidden_size);
}

// ---- heads: norms and rope (DecoderLayer::project_qkv, rotate_back)

int64_t UnitWork::heads_element() const {
  return model_.qk_norm ? norm_element() : recorder_.element();
}

void UnitWork::head_norms(int64_t rows) {
  const int64_t element = heads_element();
  const auto norm = [&](int64_t heads, int64_t width) {  // width: of all heads
    const int64_t sums = model_.qk_norm_whole ? 1 : heads, weight = width / sums;
    factor(true, weight, element);
    recorder_.ours((2 * rows * width + weight) * element + 4 * rows * sums);
  };
  norm(model_.num_heads, model_.query_size());
  norm(model_.num_kv_heads, model_.kv_size());
}

void UnitWork::head_norms_backward(int64_t rows) {
  const int64_t element = heads_element();
  if (element == 4 && !model_.qk_norm_after_rope) cast(rows * queries_keys());  // kept for backward
  const auto backward = [&](Role role, int64_t heads, int64_t width) {
    const int64_t sums = model_.qk_norm_whole ? 1 : heads, weight = width / sums;
    factor(true, weight, element);
    recorder_.ours((3 * rows * width + weight) * element + 4 * rows * sums +
                   4 * norm_partials(rows) * weight);
    sum_rows(index(role), rows, weight);
  };
  backward(Role::QNorm, model_.num_heads, model_.query_size());
  backward(Role::KNorm, model_.num_kv_heads, model_.kv_size());
}

void UnitWork::rope(int layer, const Batch& batch) {
  if (!model_.rotates(layer)) return;
  const int64_t tokens = batch.tokens(), heads = model_.num_heads + model_.num_kv_heads,
                element = heads_element();
  if (!model_.rope_in_pairs && model_.rotary_size() == model_.head_dim)
    return recorder_.ours(2 * tokens * heads * model_.head_dim * element +
                          4 * batch.longest() * model_.head_dim + 8 * tokens);
  // A part of each head, or neighbouring elements: ops::rope_parts.
  const int64_t half = model_.rotary_size() / 2, rows = tokens * half, all = rows * heads;
  for (int table = 0; table < 2; ++table) recorder_.pass(2 * 4 * rows + 8 * tokens);
  for (int sum = 0; sum < 2; ++sum) {
    for (int term = 0; term < 2; ++term) recorder_.pass(all * (element + 4) + 4 * rows);
    recorder_.pass(3 * 4 * all);
    recorder_.pass(all * (element + 4));
  }
}

// ---- activations (ops::activated)

/// An activation without a kernel of ours.
void UnitWork::act(int64_t elements) {
  one(2 * elements);
  if (model_.activation == Activation::Relu2) one(2 * elements);
}

void UnitWork::act_backward(int64_t elements) {
  if (model_.activation != Activation::Relu2) return one(3 * elements);
  one(2 * elements);
  one(2 * elements);
  one(3 * elements);
}

void UnitWork::activation(int64_t rows) {
  const int64_t inner = rows * model_.intermediate_size;
  if (model_.block == layout::Block::Gpt2) return recorder_.ours(bytes(2 * inner));
  if (model_.gated && model_.activation == Activation::Silu)
    return recorder_.ours(bytes(3 * inner));
  act(inner);
  if (model_.gated) recorder_.add_to(inner);  // times up
}

void UnitWork::activation_backward(int64_t rows) {
  const int64_t inner = rows * model_.intermediate_size;
  if (model_.block == layout::Block::Gpt2) return recorder_.ours(bytes(3 * inner));
  if (model_.gated && model_.activation == Activation::Silu)
    return recorder_.ours(bytes(5 * inner));
  if (model_.gated) one(3 * inner);  // da * up
  act_backward(inner);
  if (model_.gated) {
    act(inner);
    one(3 * inner);  // times da
    one(2 * inner);
  }
  one(2 * inner);
}

// ---- sums with the residual (DecoderLayer::add_branch)

void UnitWork::add_branch(const Projection& projection, Role post_norm, int64_t rows) {
  const int64_t all = rows * model_.hidden_size;
  recorder_.project(projection, rows);
  if (model_.post_norms) norm(norm_at(post_norm), rows);
  if (model_.residual_scale != 1) one(2 * all);
  recorder_.add_to(all);
}

/// `again`: recomputes the norm's input, which was not kept.
void UnitWork::branch_backward(const Projection& projection, Role post_norm, int64_t rows,
                               bool again) {
  const int64_t all = rows * model_.hidden_size;
  if (model_.residual_scale != 1) one(2 * all);
  if (model_.post_norms) {
    if (again) {
      recorder_.project(projection, rows);
      norm(norm_at(post_norm), rows);
    }
    recorder_.zero(all);
    norm_backward(norm_at(post_norm), rows);
  }
  recorder_.project_backward(projection, rows);
}

// ---- attention

void UnitWork::scatter(int64_t rows) {
  recorder_.ours(bytes(3 * rows * model_.hidden_size) + 16 * rows, 2);
}

void UnitWork::attention(int unit, const Batch& batch, bool backward) {
  const int64_t tokens = batch.tokens(), query = model_.query_size();
  const int64_t qkv = query + 2 * model_.kv_size(), sums = 4 * tokens * model_.num_heads;
  // Two products forward, five backward.
  const int64_t product = 2 * query * batch.pairs(model_.window(unit - 1));
  if (!backward) return recorder_.attention(2 * product, bytes(tokens * (qkv + query)) + sums);
  recorder_.attention(5 * product, bytes(tokens * (2 * qkv + 2 * query)) + sums);
  one(2 * tokens * qkv);  // join the three gradients
}

void UnitWork::put_back(int64_t rows, int64_t tokens, int64_t width) {
  if (rows == 0) return;
  recorder_.zero(tokens * width);
  recorder_.pick(rows, width);
}

/// Reorders a weight between groups and all query heads, key heads, value heads.
void UnitWork::regroup(int64_t rows) {
  if (!model_.qkv_by_group || model_.num_kv_heads == 1) return;
  for (const int64_t width : {model_.query_size(), model_.kv_size(), model_.kv_size()})
    one(2 * rows * width);
}

void UnitWork::qkv_forward(const Rows& rows) {
  if (rows.outputs == 0 || model_.fused_qkv) {
    recorder_.project(qkv_, rows.tokens);
    return regroup(rows.tokens);
  }
  const int64_t query = model_.query_size();
  recorder_.project(kv_, rows.tokens);
  one(2 * rows.tokens * kv_.width());
  recorder_.zero(rows.tokens * query);
  recorder_.pick(rows.outputs, model_.hidden_size);
  recorder_.project(q_, rows.outputs);
  recorder_.pick(rows.outputs, query);
}

void UnitWork::qkv_backward(const Rows& rows) {
  if (rows.outputs == 0 || model_.fused_qkv) {
    regroup(rows.tokens);
    return recorder_.project_backward(qkv_, rows.tokens);
  }
  recorder_.project_backward(kv_, rows.tokens);
  recorder_.pick(rows.outputs, model_.query_size());
  recorder_.pick(rows.outputs, model_.hidden_size);
  recorder_.project_backward(q_, rows.outputs);
  scatter(rows.outputs);
}

void UnitWork::attend(int unit, const Batch& batch, bool keeps) {
  const Rows rows = rows_of(unit, batch);
  const int64_t turned = rows.tokens * queries_keys(), element = heads_element();
  before(Role::Norm1, rows.tokens);
  qkv_forward(rows);
  if (element == 4) cast(turned);
  if (keeps && model_.qk_norm)
    recorder_.pass(2 * turned * (model_.qk_norm_after_rope ? element : recorder_.element()));
  if (model_.qk_norm) head_norms(rows.tokens);
  rope(unit - 1, batch);
  if (element == 4) cast(turned);
  attention(unit, batch, false);
  if (rows.outputs > 0) {
    recorder_.pick(rows.outputs, model_.query_size());
    recorder_.pick(rows.outputs, model_.hidden_size);
  }
  add_branch(o_, Role::PostAttentionNorm, rows.behind());
}

// ---- layers

void UnitWork::mlp_inner(const Rows& rows, bool keeps) {
  const bool there = model_.shared_norm && keeps && rows.outputs == 0;
  if (!there) before(model_.shared_norm ? Role::Norm1 : Role::Norm2, rows.behind());
  recorder_.project(up_, rows.behind());
}

void UnitWork::layer_forward(int unit, const Batch& batch, bool keeps) {
  const Rows rows = rows_of(unit, batch);
  attend(unit, batch, keeps);
  mlp_inner(rows, keeps);
  activation(rows.behind());
  add_branch(down_, Role::PostMlpNorm, rows.behind());
}

void UnitWork::layer_backward(int unit, const Batch& batch, bool recomputed) {
  const Rows rows = rows_of(unit, batch);
  const int64_t hidden = model_.hidden_size, query = model_.query_size();
  const int64_t all = rows.tokens * hidden, behind = rows.behind() * hidden;
  if (model_.parallel) recorder_.zero(behind);
  // the MLP
  activation(rows.behind());  // recompute
  branch_backward(down_, Role::PostMlpNorm, rows.behind(), recomputed);
  activation_backward(rows.behind());
  recorder_.project_backward(up_, rows.behind());
  if (model_.shared_norm)
    recorder_.add_to(behind);
  else
    backward_before(Role::Norm2, rows.behind());
  // attention
  if (rows.outputs > 0) recorder_.pick(rows.outputs, query);
  branch_backward(o_, Role::PostAttentionNorm, rows.behind(), false);
  put_back(rows.outputs, rows.tokens, query);
  attention(unit, batch, true);
  const bool wide = heads_element() == 4;  // only if heads have norms
  if (wide) cast(rows.tokens * queries_keys());
  rope(unit - 1, batch);
  if (model_.qk_norm) head_norms_backward(rows.tokens);
  if (wide) cast(rows.tokens * queries_keys());
  qkv_backward(rows);
  put_back(rows.outputs, rows.tokens, hidden);
  if (model_.parallel) {
    put_back(rows.outputs, rows.tokens, hidden);
    recorder_.add_to(all);
  }
  backward_before(Role::Norm1, rows.tokens);
}

// ---- embedding and head

void UnitWork::embedding_forward(const Batch& batch) {
  const int64_t tokens = batch.tokens(), all = tokens * model_.hidden_size;
  recorder_.pick(tokens, model_.hidden_size);
  if (model_.embedding_scale != 1) one(2 * all);
  if (!model_.learned_positions) return;
  if (model_.first_position != 0) recorder_.pass(2 * 8 * tokens);
  recorder_.pick(tokens, model_.hidden_size);
  recorder_.add_to(all);
}

void UnitWork::embedding_backward(const Batch& batch) {
  const int64_t tokens = batch.tokens(), all = tokens * model_.hidden_size;
  const auto& parameters = units_[0].parameters;
  if (model_.embedding_scale != 1) one(2 * all);
  for (int table = 0; table < (model_.learned_positions ? 2 : 1); ++table) {
    if (!recorder_.trained(table)) continue;
    if (!recorder_.accumulates(table)) recorder_.zero(parameters[table].numel());
    if (table == 1 && model_.first_position != 0) recorder_.pass(2 * 8 * tokens);
    if (table == 0 && model_.padding_id >= 0) {
      recorder_.pass((8 + 1) * tokens);         // find the padding tokens
      recorder_.pass(bytes(2 * all) + tokens);  // set their gradients to 0
    }
    scatter(tokens);
  }
}

Ops UnitWork::turn(const Batch& batch) {
  const int head = static_cast<int>(units_.size()) - 1;
  const int64_t targets = batch.targets, hidden = model_.hidden_size;
  const int64_t vocab = model_.head_rows();
  const bool alone = batch.outputs() > 0;
  const int weight = model_.tied ? 0 : model_.norm_parameters();
  const int bias = model_.norm_parameters() + (model_.tied ? 0 : 1);
  const Norm last{model_.norm_weight ? 0 : -1,
                  model_.norm_bias ? model_.norm_parameters() - 1 : -1};
  recorder_.enter(model_.tied ? 0 : head);
  const bool trains = recorder_.trained(weight);
  const bool before = trains && recorder_.accumulates(weight);
  recorder_.enter(head);
  const bool bias_trains = model_.head_bias && recorder_.trained(bias);
  const bool bias_before = bias_trains && recorder_.accumulates(bias);
  recorder_.pass(8);                           // zeroes the loss
  if (bias_trains) recorder_.pass(4 * vocab);  // and the bias's gradient
  if (!alone) recorder_.pick(targets, hidden);
  norm(last, targets);
  const int64_t rows = layout::logit_rows(
      targets, vocab, layout::logit_elements(/*accelerator=*/true), {.piece = INT64_MAX});
  const bool several = targets > rows;
  if (several && trains) recorder_.begin_weight_sum(hidden, vocab, before);
  for (int64_t first = 0; first < targets; first += rows) {
    const int64_t count = std::min(rows, targets - first), logits = count * vocab;
    recorder_.linear(count, hidden, vocab, model_.head_bias);
    const bool scaled = model_.logits_scale != 1, capped = model_.logits_cap > 0;
    if (scaled) one(2 * logits);
    if (capped)  // quotient, tanh, its square, ones, the slope, product with the cap
      for (const int passes : {2, 2, 2, 1, 3, 2}) one(passes * logits);
    recorder_.ours(bytes(3 * logits) + 24 * count, 2);
    if (capped) one(3 * logits);
    if (scaled) one(2 * logits);
    recorder_.grad_input(count, hidden, vocab);
    if (trains && several)
      recorder_.add_grad_weight(count, hidden, vocab);
    else if (trains)
      recorder_.grad_weight(count, hidden, vocab, before);
    if (trains && several && first + rows >= targets) recorder_.end_weight_sum(hidden, vocab);
    if (!bias_trains) continue;
    recorder_.pass(bytes(logits) + 4 * vocab);
    recorder_.pass(3 * 4 * vocab);
  }
  recorder_.zero(targets * hidden);
  norm_backward(last, targets);
  if (!alone) put_back(targets, batch.tokens(), hidden);
  if (bias_trains) {
    cast(vocab);
    recorder_.grad_bias(1, vocab, bias_before);
  }
  return recorder_.take();
}

Ops UnitWork::forward(int unit, const Batch& batch, bool keeps) {
  recorder_.enter(unit);
  unit == 0 ? embedding_forward(batch) : layer_forward(unit, batch, keeps);
  return recorder_.take();
}

Ops UnitWork::recompute(int unit, const Batch& batch) {
  recorder_.enter(unit);
  attend(unit, batch, true);
  mlp_inner(rows_of(unit, batch), true);
  return recorder_.take();
}

Ops UnitWork::backward(int unit, const Batch& batch, bool recomputed) {
  recorder_.enter(unit);
  unit == 0 ? embedding_backward(batch) : layer_backward(unit, batch, recomputed);
  return recorder_.take();
}

}  // namespace dsj::roofline
