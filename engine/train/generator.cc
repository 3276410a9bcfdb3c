#include "engine/train/generator.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "common/check.h"

namespace dsj::train {

Generator::Generator(const layout::ModelConfig& model, comm::Collectives& collectives,
                     const std::optional<LoraArgs>& lora)
    : model_(model),
      state_(model, config_, at::kCPU, collectives, lora),
      layer_(models::make_layer(model)),
      ropes_(model, at::kFloat) {}

Status Generator::load(const weights::WeightSource& source, const weights::WeightSource* adapter) {
  return state_.load(source, {.saved = adapter});
}

bool Generator::takes_one_length(const layout::ModelConfig& model) {
  using Scaling = layout::RopeConfig::Scaling;
  const auto by_length = [](const layout::RopeConfig& rope) {
    return rope.scaling == Scaling::Dynamic || rope.scaling == Scaling::LongRope;
  };
  return !model.learned_positions &&
         (by_length(model.rope) || (model.local_rope && by_length(*model.local_rope)));
}

Generator::Cache Generator::make_cache(int64_t rows, int64_t length) const {
  Cache cache;
  for (int64_t i = 0; i < model_.num_layers; ++i) {
    for (auto* list : {&cache.keys, &cache.values})
      list->push_back(at::empty({rows, model_.num_kv_heads, length, model_.head_dim}));
  }
  return cache;
}

at::Tensor Generator::next(const at::Tensor& ids, const models::RowBounds& rows, Cache& cache) {
  at::Tensor x = models::embedding_forward(state_.unit(0), model_, ids, {.rows = &rows});
  for (int i = 0; i < model_.num_layers; ++i) {
    const models::LayerCall call{
        .layer = i, .rows = &rows, .rope = ropes_.of(i, rows.positions_end())};
    x = layer_->forward_cached(state_.unit(i + 1), x, call, cache.keys[i], cache.values[i]);
  }
  std::vector<int64_t> last;  // token of each row
  for (int64_t row = 0; row < rows.rows(); ++row) last.push_back(rows.starts()[row + 1] - 1);
  const int head = static_cast<int>(model_.num_layers) + 1;
  return models::head_logits(state_.unit(head), model_, x.index_select(0, at::tensor(last)))
      .argmax(-1);
}

std::vector<std::vector<int32_t>> Generator::complete(std::span<const std::vector<int32_t>> prompts,
                                                      int64_t fresh,
                                                      std::span<const int32_t> stops) {
  const size_t count = prompts.size();
  std::vector<int64_t> lengths, ids;
  for (const auto& prompt : prompts) {
    lengths.push_back(std::ssize(prompt));
    ids.insert(ids.end(), prompt.begin(), prompt.end());
  }
  const auto [shortest, longest] = std::ranges::minmax(lengths);
  DSJ_CHECK(shortest == longest || !takes_one_length(model_));
  // A completion ends where learned positions end.
  int64_t end = longest + fresh;
  if (model_.learned_positions) end = std::min(end, model_.max_position);
  Cache cache = make_cache(std::ssize(prompts), end);
  std::vector<std::vector<int32_t>> out(count);
  std::vector<bool> done(count, fresh == 0);
  at::Tensor tokens = at::tensor(ids);
  models::RowBounds rows(lengths, at::kCPU);
  while (std::ranges::count(done, false) > 0) {
    const at::Tensor best = next(tokens, rows, cache);
    const auto* id = best.const_data_ptr<int64_t>();
    for (size_t row = 0; row < count; ++row) {
      if (done[row]) continue;
      done[row] = std::ranges::find(stops, static_cast<int32_t>(id[row])) != stops.end();
      if (!done[row]) out[row].push_back(static_cast<int32_t>(id[row]));
      done[row] = done[row] || std::ssize(out[row]) == fresh || lengths[row] == end;
    }
    // A row that is done still takes part; what it gives is not looked at.
    std::vector<int64_t> firsts;
    for (int64_t& length : lengths) {
      length = std::min(length + 1, end);
      firsts.push_back(length - 1);
    }
    tokens = best;
    rows = models::RowBounds(std::vector<int64_t>(count, 1), at::kCPU, firsts);
  }
  return out;
}

}  // namespace dsj::train
