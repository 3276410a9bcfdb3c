// A small model's flats and steps of a 1-bit optimizer over them, with gradients that are no model's.
#pragma once

#include <ATen/ATen.h>

#include <functional>
#include <random>
#include <vector>

#include "engine/zero/model_state.h"

namespace dsj::testing_support {

/// About a thousand parameters: chance does not meet a sign that rounding decides.
inline layout::ModelConfig small_model() {
  return {.model_type = "qwen2",
          .vocab_size = 24,
          .hidden_size = 8,
          .intermediate_size = 16,
          .num_layers = 1,
          .num_heads = 2,
          .num_kv_heads = 1,
          .head_dim = 4,
          .max_position = 16};
}

/// [numel] fp32 from -1 to 1.
inline at::Tensor drawn(std::uint32_t seed, std::int64_t numel) {
  std::mt19937 random(seed);
  std::vector<float> numbers;
  for (std::int64_t i = 0; i < numel; ++i)
    numbers.push_back(static_cast<float>(random()) / 2147483648.f - 1);
  return at::tensor(numbers);
}

/// The rate of a step.
inline double rate(std::int64_t step) {
  return 1e-3 * (1 + static_cast<double>(step % 3));
}

/// This rank's gradient [numel] of a parameter, which has number `index` among the flats' slots.
using GradientOf = std::function<at::Tensor(const layout::Slot& slot, size_t index)>;

/// Step `number`. Collective.
inline void one_bit_step(zero::ModelState& state, std::int64_t number, double lr,
                         const GradientOf& gradient) {
  const bool local = state.update_method().keeps_gradients_local(number);
  state.keep_gradients_local(local);
  for (size_t unit = 0; unit < state.units().size(); ++unit) state.wait_for(static_cast<int>(unit));
  size_t index = 0;
  for (int f = 0; f < static_cast<int>(state.plan().flats.size()); ++f) {
    for (int s = 0; s < static_cast<int>(state.plan().flats[f].slots().size()); ++s) {
      const at::Tensor grad = state.flat(f).grad(s).tensor.view(-1);
      grad.copy_(gradient(state.plan().flats[f].slots()[s], index++));
    }
    state.reduce(f, true);
  }
  state.finish_reductions();
  const double scale = local ? 1 : 1.0 / state.collectives().world();
  state.step({.rates = {.lr = lr}, .updates = number, .grad_scale = scale});
  state.clear_grad();
}

}  // namespace dsj::testing_support
