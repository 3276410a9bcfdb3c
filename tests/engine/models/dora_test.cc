// DoRA in a projection against PEFT's formula (DoraLinearLayer.forward of 0.21.2) by autograd: output and
// every gradient, with and without dropout, with and without bias, for drawn shapes. PEFT's own losses:
// tests/engine/train/lora_test.cc.
#include "engine/models/ops/dora.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <random>

#include "engine/models/ops/ops.h"
#include "engine/models/unit/projection.h"
#include "engine/models/unit/unit.h"
#include "test_paths.h"
#include "tests/engine/support/ranks.h"

namespace dsj::models {
namespace {

struct DoraCase {
  LoraArgs lora;
  std::optional<uint64_t> key;
  bool biased = false;
  int64_t tokens = 1;
};

void expect_close(const at::Tensor& got, const at::Tensor& want, const std::string& what) {
  EXPECT_LT((got - want).norm().item<double>(), 1e-5 * want.norm().item<double>() + 1e-6) << what;
}

void expect_pefts(const DoraCase& c) {
  testing_support::run_ranks(1, [&](comm::Collectives& collectives, memory::Ledger&) {
    const auto config =
        layout::read_model_config(std::string(DSJ_SOURCE_DIR) + "/tests/fixtures/tiny-qwen2");
    ASSERT_TRUE(config);
    const auto lora = layout::resolve_lora(*config, c.lora);
    ASSERT_TRUE(lora) << lora.error().to_string();
    zero::ModelState state(*config, {}, at::kCPU, collectives, *lora);
    const auto p = state.unit(1);
    const layout::UnitSpec& unit = state.units()[1];
    memory::MemoryScope outside(memory::Class::Activations, memory::process_ledger());
    at::manual_seed(11);
    for (size_t i = 0; i < unit.parameters.size(); ++i)
      p.weight(static_cast<int>(i)).copy_(at::randn(unit.parameters[i].shape));
    const Projection projection{
        .weight = 1,
        .bias = c.biased ? 4 : -1,
        .sizes = {config->query_size(), config->kv_size(), config->kv_size()}};
    const at::Tensor x = at::randn({c.tokens, config->hidden_size});
    const at::Tensor dy = at::randn({c.tokens, projection.width()});
    at::Tensor got, dx;
    {
      const c10::AutoGradMode off(false);
      got = project(p, projection, x, c.key);
      dx = project_backward(p, projection, dy, x, c.key);
    }
    // The same by PEFT's formula.
    const c10::AutoGradMode on(true);
    const at::Tensor input = x.clone().set_requires_grad(true);
    std::vector<at::Tensor> leaves, outs;
    for (int i = 0; i < 3; ++i) {
      const int weight = projection.weight + i;
      const at::Tensor w = p.weight(weight).clone();
      const at::Tensor b = c.biased ? p.weight(projection.bias + i).clone() : at::Tensor();
      at::Tensor out = at::linear(input, w, b);
      if (const layout::Adapter* adapter = p.adapter(weight)) {
        const auto leaf = [&](int index) {
          leaves.push_back(p.weight(index).clone().set_requires_grad(true));
          return leaves.back();
        };
        const at::Tensor a = leaf(adapter->a), up = leaf(adapter->b), m = leaf(adapter->magnitude);
        const at::Tensor norm =
            at::linalg_vector_norm((w + adapter->scaling * at::mm(up, a)).detach(), 2, {1});
        const at::Tensor scale = (m / norm).view({1, -1});
        at::Tensor seen = input, base = out;
        if (c.key && lora->dropout > 0) {
          at::Tensor mask = at::ones_like(x);
          ops::dropout(mask, {lora->dropout, dropout_key(*c.key, (1 << 16) + weight)});
          seen = input * mask;
          base = at::linear(seen, w);
        } else if (b.defined()) {
          base = out - b;
        }
        const at::Tensor low = at::linear(at::linear(seen, a), up);
        out = out + (scale - 1) * base + scale * low * adapter->scaling;
      }
      outs.push_back(out);
    }
    const at::Tensor want = at::cat(outs, 1);
    (want * dy).sum().backward();
    expect_close(got, want.detach(), "output");
    expect_close(dx, input.grad(), "dx");
    size_t leaf = 0;
    for (int i = 0; i < 3; ++i) {
      const layout::Adapter* adapter = p.adapter(projection.weight + i);
      if (!adapter) continue;
      for (const int index : {adapter->a, adapter->b, adapter->magnitude}) {
        const at::Tensor& theirs = leaves[leaf++].grad();
        expect_close(p.grad(index).tensor, theirs, unit.parameters[index].name);
      }
    }
    EXPECT_GT(leaf, 0u);
  });
}

TEST(Dora, OutputAndGradientsArePefts) {
  std::mt19937 random(5);
  const auto draw = [&](int below) {
    return std::uniform_int_distribution<>(0, below - 1)(random);
  };
  const std::vector<std::vector<std::string>> targets = {
      {"q_proj"}, {"q_proj", "v_proj"}, {"q_proj", "k_proj", "v_proj"}};
  for (int round = 0; round < 24; ++round) {
    DoraCase c{.lora = {.r = 1 + draw(6),
                        .alpha = 1.0 + draw(20),
                        .dropout = 0.1 * draw(5),
                        .target_modules = targets[round % 3],
                        .use_rslora = draw(2) == 1,
                        .use_dora = true},
               .key = {},
               .biased = draw(2) == 1,
               .tokens = 1 + draw(30)};
    if (draw(3) > 0) c.key = 100 + round;
    if (draw(2) == 1) c.lora.rank_pattern = {{"v_proj", 2}};
    SCOPED_TRACE("round " + std::to_string(round));
    expect_pefts(c);
  }
}

}  // namespace
}  // namespace dsj::models
