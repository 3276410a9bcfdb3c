#include "job/layout/model_shape.h"

#include <cmath>

namespace dsj::layout {

double ModelConfig::attention_scale(int64_t layer) const {
  if (attention_multiplier) return *attention_multiplier;
  const double scale = scale_attention ? 1.0 / std::sqrt(static_cast<double>(head_dim)) : 1.0;
  return scale_by_layer ? scale / static_cast<double>(layer + 1) : scale;
}

int64_t ModelConfig::longest_sequence() const {
  const bool grows = !learned_positions && rope.scaling == RopeConfig::Scaling::Dynamic;
  return grows ? INT64_MAX : max_position;
}

}  // namespace dsj::layout
