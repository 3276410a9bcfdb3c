#include "job/layout/shape/model_shape.h"

#include <algorithm>
#include <cmath>

namespace dsj::layout {

double ModelConfig::attention_scale(int64_t layer) const {
  if (attention_multiplier) return *attention_multiplier;
  const double scale = scale_attention ? 1.0 / std::sqrt(static_cast<double>(head_dim)) : 1.0;
  return scale_by_layer ? scale / static_cast<double>(layer + 1) : scale;
}

ModelConfig ModelConfig::of_layer(int64_t layer) const {
  ModelConfig one = *this;
  if (shapes.empty()) return one;
  const LayerShape& shape = shapes[static_cast<size_t>(layer)];
  one.head_dim = shape.head_dim;
  one.num_kv_heads = shape.num_kv_heads;
  one.keys_are_values = shape.keys_are_values;
  one.shares_keys = shape.shares_keys;
  if (shape.intermediate_size > 0) one.intermediate_size = shape.intermediate_size;
  one.shapes.clear();
  return one;
}

LayerKinds ModelConfig::layer_kinds() const {
  LayerKinds kinds;
  const auto alike = [&](int64_t a, int64_t b) {
    return mixer(a) == mixer(b) && (shapes.empty() || shapes[a] == shapes[b]);
  };
  for (int64_t layer = 0; layer < num_layers; ++layer) {
    const auto found =
        std::ranges::find_if(kinds.first, [&](int64_t first) { return alike(first, layer); });
    kinds.of.push_back(static_cast<int>(found - kinds.first.begin()));
    if (found == kinds.first.end()) kinds.first.push_back(layer);
  }
  return kinds;
}

int64_t ModelConfig::largest_head() const {
  int64_t most = head_dim;
  for (const LayerShape& shape : shapes) most = std::max(most, shape.head_dim);
  return most;
}

bool ModelConfig::gives_keys(int64_t layer) const {
  for (size_t other = 0; other < key_layers.size(); ++other)
    if (key_layers[other] == layer && static_cast<int64_t>(other) != layer) return true;
  return false;
}

int64_t ModelConfig::longest_sequence() const {
  const bool grows = !learned_positions && rope.scaling == RopeConfig::Scaling::Dynamic;
  return grows ? INT64_MAX : max_position;
}

}  // namespace dsj::layout
