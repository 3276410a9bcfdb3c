#include "engine/train/generator.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace dsj::train {

Generator::Generator(const layout::ModelConfig& model, comm::Collectives& collectives,
                     const std::optional<LoraArgs>& lora)
    : model_(model),
      state_(model, config_, at::kCPU, collectives, lora),
      layer_(models::make_layer(model)) {}

Status Generator::load(const weights::WeightSource& source, const weights::WeightSource* adapter) {
  return state_.load(source, {.saved = adapter});
}

at::Tensor Generator::next(const at::Tensor& ids, int64_t first, Cache& cache) {
  const int64_t batch = ids.size(0), seq = ids.size(1);
  const bool rotary = model_.block == layout::Block::Llama;
  const auto table =
      !rotary ? models::ops::RopeTable{}
              : models::ops::rope_table(model_.rope, model_.head_dim, first, seq, at::kFloat);
  at::Tensor x = models::embedding_forward(state_.unit(0), model_, ids, {.first = first});
  for (int i = 0; i < model_.num_layers; ++i) {
    const models::LayerCall call{.layer = i, .batch = batch, .rope = &table};
    x = layer_->forward_cached(state_.unit(i + 1), x, call, first, cache.keys[i], cache.values[i]);
  }
  const at::Tensor last = x.view({batch, seq, -1}).select(1, seq - 1).contiguous();
  const int head = static_cast<int>(model_.num_layers) + 1;
  return models::head_logits(state_.unit(head), model_, last).argmax(-1);
}

std::vector<std::vector<int32_t>> Generator::complete(std::span<const std::vector<int32_t>> prompts,
                                                      int64_t fresh,
                                                      std::span<const int32_t> stops) {
  const auto batch = static_cast<int64_t>(prompts.size()),
             length = static_cast<int64_t>(prompts[0].size());
  // A completion ends where learned positions end.
  if (model_.block == layout::Block::Gpt2)
    fresh = std::min(fresh, model_.max_position - length + 1);
  Cache cache;
  for (int64_t i = 0; i < model_.num_layers; ++i) {
    for (auto* list : {&cache.keys, &cache.values}) {
      list->push_back(at::empty({batch, model_.num_kv_heads, length + fresh, model_.head_dim}));
    }
  }
  at::Tensor ids = at::empty({batch, length}, at::kLong);
  for (int64_t b = 0; b < batch; ++b) {
    std::ranges::copy(prompts[b], ids.data_ptr<int64_t>() + b * length);
  }
  std::vector<std::vector<int32_t>> out(batch);
  std::vector<bool> done(batch, false);
  int64_t first = 0;
  for (int64_t made = 0; made < fresh && std::ranges::count(done, false) > 0; ++made) {
    const at::Tensor best = next(ids, first, cache);
    first += ids.size(1);
    for (int64_t b = 0; b < batch; ++b) {
      const auto id = static_cast<int32_t>(best.const_data_ptr<int64_t>()[b]);
      done[b] = done[b] || std::ranges::find(stops, id) != stops.end();
      if (!done[b]) out[b].push_back(id);
    }
    ids = best.view({batch, 1});
  }
  return out;
}

}  // namespace dsj::train
