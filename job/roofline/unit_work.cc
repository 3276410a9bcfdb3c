#include "job/roofline/unit_work.h"

#include <algorithm>

#include "job/layout/row_pieces.h"

namespace dsj::roofline {

using layout::Role;

namespace {

/// Parameters of a layer of gpt2, in the order of layout::units_of.
enum Gpt2 { kNorm1, kQkv = 2, kQkvBias, kO, kOBias, kNorm2, kUp = 8, kUpBias, kDown, kDownBias };

}  // namespace

int64_t norm_partials(int64_t rows) {
  return std::clamp<int64_t>((rows + 7) / 8, 1, 264);
}

UnitWork::UnitWork(const layout::ModelConfig& model, const std::vector<layout::UnitSpec>& units,
                   const layout::FlatPlan& plan, const std::optional<LoraArgs>& lora)
    : model_(model),
      units_(units),
      recorder_(units, plan, /*element=*/2, lora ? lora->r : 0),
      projections_(llama() ? llama_projections() : gpt2_projections()) {}

int UnitWork::index(Role role) const {
  const auto roles = layout::decoder_roles(model_);
  const auto found = std::ranges::find(roles, role);
  return found == roles.end() ? -1 : static_cast<int>(found - roles.begin());
}

UnitWork::Projections UnitWork::llama_projections() const {
  const int64_t hidden = model_.hidden_size, inner = model_.intermediate_size;
  const int64_t q = model_.query_size(), kv = model_.kv_size();
  return {.qkv = {index(Role::Q), index(Role::QBias), {q, kv, kv}, hidden},
          .q = {index(Role::Q), index(Role::QBias), {q}, hidden},
          .kv = {index(Role::K), index(Role::KBias), {kv, kv}, hidden},
          .o = {index(Role::O), index(Role::OBias), {hidden}, q},
          .up = {index(Role::Gate), index(Role::GateBias), {inner, inner}, hidden},
          .down = {index(Role::Down), index(Role::DownBias), {hidden}, inner}};
}

UnitWork::Projections UnitWork::gpt2_projections() const {
  const int64_t hidden = model_.hidden_size, inner = model_.intermediate_size;
  return {.qkv = {kQkv, kQkvBias, {3 * hidden}, hidden},
          .q = {},
          .kv = {},
          .o = {kO, kOBias, {hidden}, hidden},
          .up = {kUp, kUpBias, {inner}, hidden},
          .down = {kDown, kDownBias, {hidden}, inner}};
}

// ---- our kernels

void UnitWork::norm(int64_t rows) {
  const int64_t hidden = model_.hidden_size;
  if (llama()) return recorder_.ours(bytes(2 * rows * hidden + hidden) + 4 * rows);
  recorder_.ours(bytes(2 * rows * hidden + 2 * hidden) + 8 * rows);
}

void UnitWork::sum_rows(int weight, int64_t rows, int64_t width) {
  if (!recorder_.trained(weight)) return;
  const bool accumulate = recorder_.accumulates(weight);
  recorder_.ours(4 * norm_partials(rows) * width + bytes((accumulate ? 2 : 1) * width));
}

void UnitWork::norm_backward(const Norm& norm) {
  const int64_t hidden = model_.hidden_size, parts = norm_partials(norm.rows) * hidden;
  const int64_t rows = bytes(4 * norm.rows * hidden + hidden);  // dy, x, and dx twice
  // Gradients are named before the kernel runs, and what pads them is then set to 0.
  if (llama()) {
    recorder_.ours(rows + 4 * norm.rows + 4 * parts);
    return sum_rows(norm.weight, norm.rows, hidden);
  }
  recorder_.ours(rows + 8 * norm.rows + 8 * parts);
  sum_rows(norm.weight, norm.rows, hidden);
  sum_rows(norm.weight + 1, norm.rows, hidden);
}

void UnitWork::head_norm_backward(int weight, int64_t rows, int64_t heads) {
  const int64_t dim = model_.head_dim;
  recorder_.ours(bytes(3 * rows * heads * dim + dim) + 4 * rows * heads +
                 4 * norm_partials(rows) * dim);
  sum_rows(weight, rows, dim);
}

void UnitWork::head_norms_backward(int64_t rows) {
  if (!model_.qk_norm) return;
  head_norm_backward(index(Role::QNorm), rows, model_.num_heads);
  head_norm_backward(index(Role::KNorm), rows, model_.num_kv_heads);
}

void UnitWork::head_norms(int64_t rows, bool keeps) {
  if (!model_.qk_norm) return;
  const int64_t dim = model_.head_dim;
  if (keeps) recorder_.pass(bytes(2 * rows * (model_.query_size() + model_.kv_size())));
  for (const int64_t heads : {model_.num_heads, model_.num_kv_heads})
    recorder_.ours(bytes(2 * rows * heads * dim + dim) + 4 * rows * heads);
}

void UnitWork::rope(const Batch& batch) {
  if (!llama()) return;
  const int64_t tokens = batch.tokens(), heads = model_.num_heads + model_.num_kv_heads;
  recorder_.ours(bytes(2 * tokens * heads * model_.head_dim) +
                 4 * batch.longest() * model_.head_dim + 8 * tokens);
}

void UnitWork::activation(int64_t rows, bool backward) {
  const int64_t inner = rows * model_.intermediate_size;
  recorder_.ours(bytes((llama() ? (backward ? 5 : 3) : (backward ? 3 : 2)) * inner));
}

void UnitWork::scatter(int64_t rows) {
  recorder_.ours(bytes(3 * rows * model_.hidden_size) + 16 * rows, 2);
}

// ---- layers

void UnitWork::attention(int unit, const Batch& batch, bool backward) {
  const int64_t tokens = batch.tokens(), query = model_.query_size();
  const int64_t qkv = query + 2 * model_.kv_size(), sums = 4 * tokens * model_.num_heads;
  // Two products forward, five backward.
  const int64_t product = 2 * query * batch.pairs(model_.window(unit - 1));
  if (!backward) return recorder_.attention(2 * product, bytes(tokens * (qkv + query)) + sums);
  recorder_.attention(5 * product, bytes(tokens * (2 * qkv + 2 * query)) + sums);
  recorder_.pass(bytes(2 * tokens * qkv));  // the three gradients become one
}

void UnitWork::put_back(int64_t rows, int64_t tokens, int64_t width) {
  if (rows == 0) return;
  recorder_.zero(tokens * width);
  recorder_.pick(rows, width);
}

void UnitWork::qkv_forward(int64_t tokens, int64_t outputs) {
  if (outputs == 0 || !llama()) return recorder_.project(projections_.qkv, tokens);
  const int64_t query = model_.query_size();
  recorder_.project(projections_.kv, tokens);
  recorder_.pass(bytes(2 * tokens * projections_.kv.width()));
  recorder_.zero(tokens * query);
  recorder_.pick(outputs, model_.hidden_size);
  recorder_.project(projections_.q, outputs);
  recorder_.pick(outputs, query);
}

void UnitWork::qkv_backward(int64_t tokens, int64_t outputs) {
  if (outputs == 0 || !llama()) return recorder_.project_backward(projections_.qkv, tokens);
  recorder_.project_backward(projections_.kv, tokens);
  recorder_.pick(outputs, model_.query_size());
  recorder_.pick(outputs, model_.hidden_size);
  recorder_.project_backward(projections_.q, outputs);
  scatter(outputs);
}

void UnitWork::layer_forward(int unit, const Batch& batch, bool keeps, bool again) {
  const int64_t tokens = batch.tokens();
  const int64_t outputs = unit == model_.num_layers ? batch.outputs() : 0;
  const int64_t behind = outputs > 0 ? outputs : tokens;  // rows behind attention
  norm(tokens);
  qkv_forward(tokens, outputs);
  head_norms(tokens, keeps);
  rope(batch);
  attention(unit, batch, false);
  if (outputs > 0) {
    recorder_.pick(outputs, model_.query_size());
    recorder_.pick(outputs, model_.hidden_size);
  }
  recorder_.project_add(projections_.o, behind);
  norm(behind);
  recorder_.project(projections_.up, behind);
  if (again) return;
  activation(behind, false);
  recorder_.project_add(projections_.down, behind);
}

void UnitWork::layer_backward(int unit, const Batch& batch) {
  const int64_t tokens = batch.tokens(), hidden = model_.hidden_size;
  const int64_t outputs = unit == model_.num_layers ? batch.outputs() : 0;
  const int64_t behind = outputs > 0 ? outputs : tokens;
  activation(behind, false);  // again
  recorder_.project_backward(projections_.down, behind);
  activation(behind, true);
  recorder_.project_backward(projections_.up, behind);
  norm_backward({llama() ? index(Role::Norm2) : int{kNorm2}, behind});
  if (outputs > 0) recorder_.pick(outputs, model_.query_size());
  recorder_.project_backward(projections_.o, behind);
  put_back(outputs, tokens, model_.query_size());
  attention(unit, batch, true);
  rope(batch);
  head_norms_backward(tokens);
  qkv_backward(tokens, outputs);
  put_back(outputs, tokens, hidden);
  norm_backward({llama() ? index(Role::Norm1) : int{kNorm1}, tokens});
}

// ---- the ends

void UnitWork::embedding_forward(const Batch& batch) {
  const int64_t tokens = batch.tokens(), hidden = model_.hidden_size;
  recorder_.pick(tokens, hidden);
  if (llama()) return;
  recorder_.pick(tokens, hidden);
  recorder_.add_to(tokens * hidden);
}

void UnitWork::embedding_backward(const Batch& batch) {
  const auto& parameters = units_[0].parameters;
  for (int table = 0; table < static_cast<int>(parameters.size()); ++table) {
    if (table > (llama() ? 0 : 1) || !recorder_.trained(table)) continue;
    if (!recorder_.accumulates(table)) recorder_.zero(parameters[table].numel());
    scatter(batch.tokens());
  }
}

Ops UnitWork::turn(const Batch& batch) {
  const int head = static_cast<int>(units_.size()) - 1;
  const int64_t targets = batch.targets, hidden = model_.hidden_size, vocab = model_.vocab_size;
  const bool alone = batch.outputs() > 0;
  const int weight = model_.tied ? 0 : llama() ? 1 : 2;
  recorder_.enter(model_.tied ? 0 : head);
  const bool trains = recorder_.trained(weight);
  const bool before = trains && recorder_.accumulates(weight);
  recorder_.pass(8);  // the loss begins at 0
  if (!alone) recorder_.pick(targets, hidden);
  norm(targets);
  const int64_t rows = layout::logit_rows(
      targets, vocab, layout::logit_elements(/*accelerator=*/true), {.piece = INT64_MAX});
  const bool several = targets > rows;
  if (several && trains) recorder_.zero(vocab * hidden);
  for (int64_t first = 0; first < targets; first += rows) {
    const int64_t count = std::min(rows, targets - first);
    recorder_.linear(count, hidden, vocab);
    recorder_.ours(bytes(3 * count * vocab) + 24 * count, 2);
    recorder_.grad_input(count, hidden, vocab);
    if (!trains) continue;
    if (several)
      recorder_.add_grad_weight(count, hidden, vocab, before || first > 0);
    else
      recorder_.grad_weight(count, hidden, vocab, before);
  }
  recorder_.enter(head);
  recorder_.zero(targets * hidden);
  norm_backward({0, targets});
  if (!alone) put_back(targets, batch.tokens(), hidden);
  return recorder_.take();
}

Ops UnitWork::forward(int unit, const Batch& batch, bool keeps) {
  recorder_.enter(unit);
  unit == 0 ? embedding_forward(batch) : layer_forward(unit, batch, keeps, false);
  return recorder_.take();
}

Ops UnitWork::recompute(int unit, const Batch& batch) {
  recorder_.enter(unit);
  layer_forward(unit, batch, true, true);
  return recorder_.take();
}

Ops UnitWork::backward(int unit, const Batch& batch) {
  recorder_.enter(unit);
  unit == 0 ? embedding_backward(batch) : layer_backward(unit, batch);
  return recorder_.take();
}

}  // namespace dsj::roofline
