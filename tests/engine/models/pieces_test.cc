// A layer whose MLP runs in pieces, under torch_autocast in fp16: the gradient of a weight or bias is
// rounded to fp16 once, and overflows where that of whole rows does.
#include "engine/models/unit/pieces.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>

#include "test_paths.h"
#include "tests/engine/support/micro_batch.h"
#include "tests/engine/support/ranks.h"

namespace dsj::models {
namespace {

using Gradients = std::map<std::string, at::Tensor>;

/// Of the first layer's MLP, after so many backwards.
Gradients mlp_gradients(zero::ModelState& state, const layout::ModelConfig& model,
                        const at::Tensor& x, const at::Tensor& dy, const LayerCall& call,
                        int times) {
  const auto layer = make_layer(model);
  const auto p = state.unit(1);
  for (int i = 0; i < times; ++i)
    layer->backward(p, dy.clone(), call, layer->recompute(p, x, call));
  Gradients found;
  const auto& parameters = state.units()[1].parameters;
  for (size_t i = 0; i < parameters.size(); ++i)
    if (parameters[i].name.contains(".mlp."))
      found[parameters[i].name] = p.grad(static_cast<int>(i)).tensor.clone();
  state.clear_grad();
  return found;
}

double largest(const Gradients& gradients) {
  double most = 0;
  for (const auto& [name, gradient] : gradients)
    most = std::max(most, gradient.abs().max().item<double>());
  return most;
}

void check_layer(zero::ModelState& state, const layout::ModelConfig& model) {
  at::manual_seed(3);
  const auto p = state.unit(1);
  for (size_t i = 0; i < state.units()[1].parameters.size(); ++i) {
    const at::Tensor weight = p.weight(static_cast<int>(i));
    weight.copy_(at::randn(weight.sizes()).mul_(weight.dim() > 1 ? 0.3 : 1));
  }
  constexpr int64_t kTokens = 48;
  const MicroBatch batch = testing_support::ragged({std::vector<int64_t>(kTokens, 3)},
                                                   {std::vector<int64_t>(kTokens, 4)});
  const auto rope = ops::rope_table(model.rope, model.head_dim, kTokens, p.weight(0).options());
  LayerCall call{.layer = 0, .rows = &batch.rows(), .rope = &rope};
  const at::Tensor x = at::randn({kTokens, model.hidden_size}), dy = at::randn(x.sizes());
  const double most = largest(mlp_gradients(state, model, x, dy, call, 1));

  const at::Tensor fits = dy * (30000 / most), beyond = dy * (1.02 * 65504 / most);
  const Gradients whole = mlp_gradients(state, model, x, fits, call, 1);
  EXPECT_EQ(largest(mlp_gradients(state, model, x, beyond, call, 1)), INFINITY);
  call.pieces = {.piece = 8};
  EXPECT_EQ(largest(mlp_gradients(state, model, x, beyond, call, 1)), INFINITY) << "the sum does";
  const Gradients once = mlp_gradients(state, model, x, fits, call, 1);
  const Gradients twice = mlp_gradients(state, model, x, fits, call, 2);
  for (const auto& [name, gradient] : once) {
    EXPECT_TRUE(gradient.to(at::kHalf).to(at::kFloat).equal(gradient)) << name << " is rounded";
    EXPECT_TRUE(twice.at(name).equal(gradient * 2)) << name << " is added to what was there";
    // What enters the products is rounded, too, after sums of another order.
    EXPECT_LE((gradient - whole.at(name)).abs().max().item<double>(), 30000 * 0x1p-9) << name;
  }
}

TEST(Pieces, AnFp16GradientIsRoundedOnce) {
  for (const char* name : {"tiny-qwen2", "tiny-gpt2"}) {
    SCOPED_TRACE(name);
    const auto model =
        layout::read_model_config(std::string(DSJ_SOURCE_DIR) + "/tests/fixtures/" + name);
    ASSERT_TRUE(model) << model.error().to_string();
    dsconfig::ResolvedConfig config;
    config.autocast = {dsconfig::Precision::Fp16, {"torch.nn.Linear"}};
    testing_support::run_ranks(1, [&](comm::Collectives& collectives, memory::Ledger&) {
      zero::ModelState state(*model, config, at::kCPU, collectives);
      const memory::MemoryScope outside(memory::Class::Activations, memory::process_ledger());
      check_layer(state, *model);
    });
  }
}

}  // namespace
}  // namespace dsj::models
