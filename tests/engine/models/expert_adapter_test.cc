// An adapter of all experts beside its slow twin: PEFT's delta of every expert's weight, made whole, and
// torch's autograd of the product with it. Sizes and the experts of the tokens are drawn.
#include "engine/models/unit/expert_adapter.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <array>
#include <random>

#include "test_paths.h"
#include "tests/engine/support/ranks.h"

namespace dsj::models {
namespace {

/// A layer's experts: parameters of the first unit with any.
struct DrawnExperts {
  layout::ModelConfig config;
  LoraArgs lora;
  int64_t tokens;
};

DrawnExperts drawn_experts(std::mt19937& random) {
  const auto draw = [&](int64_t n) { return static_cast<int64_t>(random() % n); };
  const char* model = std::array{"tiny-qwen3-moe", "tiny-gpt-oss", "tiny-granitemoe"}[draw(3)];
  const auto read =
      layout::read_model_config(std::string(DSJ_SOURCE_DIR) + "/tests/fixtures/" + model);
  DrawnExperts drawn{.config = *read,
                     .lora = {.r = 1 + draw(5), .alpha = static_cast<double>(1 + draw(9))},
                     .tokens = draw(4) == 0 ? 1 : 1 + draw(30)};
  drawn.config.experts.count = 2 + draw(5);
  drawn.config.experts.per_token = 2;
  drawn.config.experts.inner = 8 * (1 + draw(4));
  drawn.lora.use_rslora = draw(2) == 1;
  drawn.lora.no_modules = true;
  drawn.lora.target_parameters = {"experts.gate_up_proj", "experts.down_proj"};
  return drawn;
}

/// PEFT's get_delta_weight: "o r e, e r i -> e o i".
at::Tensor delta_of(const layout::Adapter& adapter, const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor of_a = a.reshape({adapter.experts, -1, a.size(1)});
  const at::Tensor of_b = b.reshape({b.size(0), -1, adapter.experts}).permute({2, 0, 1});
  return at::bmm(of_b, of_a) * adapter.scaling;
}

TEST(ExpertAdapter, EqualsTheDeltaOfEveryExpert) {
  std::mt19937 random(5);
  for (int round = 0; round < 40; ++round) {
    SCOPED_TRACE(round);
    const DrawnExperts drawn = drawn_experts(random);
    testing_support::run_ranks(1, [&](comm::Collectives& collectives, memory::Ledger&) {
      const auto lora = layout::resolve_lora(drawn.config, drawn.lora);
      ASSERT_TRUE(lora) << lora.error().to_string();
      zero::ModelState state(drawn.config, {}, at::kCPU, collectives, *lora);
      const auto p = state.unit(1);
      memory::MemoryScope outside(memory::Class::Activations, memory::process_ledger());
      at::manual_seed(round);
      ASSERT_EQ(state.units()[1].adapters.size(), 2u);
      for (const layout::Adapter& adapter : state.units()[1].adapters) {
        p.weight(adapter.a).copy_(at::randn(p.weight(adapter.a).sizes()));
        p.weight(adapter.b).copy_(at::randn(p.weight(adapter.b).sizes()));
        const c10::AutoGradMode on(true);
        const at::Tensor a = p.weight(adapter.a).clone().set_requires_grad(true);
        const at::Tensor b = p.weight(adapter.b).clone().set_requires_grad(true);
        const at::Tensor x = at::randn({drawn.tokens, a.size(1)}).set_requires_grad(true);
        const at::Tensor dy = at::randn({drawn.tokens, b.size(0)});
        std::vector<int64_t> first = {0};  // tokens of each expert, some without any
        for (int64_t e = 0; e < adapter.experts; ++e)
          first.push_back(e + 1 == adapter.experts
                              ? drawn.tokens
                              : first.back() + static_cast<int64_t>(
                                                   random() % (drawn.tokens - first.back() + 1)));
        ExpertAdapter fast(p, adapter.weight);
        fast.begin_backward();
        const at::Tensor y = at::zeros(dy.sizes()), dx = at::zeros(x.sizes());
        std::vector<at::Tensor> parts;
        const at::Tensor delta = delta_of(adapter, a, b);
        for (int64_t e = 0; e < adapter.experts; ++e) {
          const int64_t from = first[e], count = first[e + 1] - from;
          if (count == 0) continue;
          const at::Tensor rows = x.detach().narrow(0, from, count);
          const c10::AutoGradMode off(false);
          fast.forward(e, rows, y.narrow(0, from, count));
          fast.backward(e, dy.narrow(0, from, count), rows, dx.narrow(0, from, count));
        }
        for (int64_t e = 0; e < adapter.experts; ++e)
          parts.push_back(
              at::mm(x.narrow(0, first[e], first[e + 1] - first[e]), delta.select(0, e).t()));
        fast.finish_backward();
        const at::Tensor slow = at::cat(parts);
        slow.backward(dy);
        // A second call says where the gradient is, and that it was written.
        const auto a_grad = p.grad(adapter.a), b_grad = p.grad(adapter.b);
        EXPECT_TRUE(a_grad.accumulate && b_grad.accumulate);
        EXPECT_TRUE(at::allclose(y, slow.detach(), 1e-4, 1e-4));
        EXPECT_TRUE(at::allclose(dx, x.grad(), 1e-4, 1e-4));
        EXPECT_TRUE(at::allclose(a_grad.tensor, a.grad(), 1e-4, 1e-3));
        EXPECT_TRUE(at::allclose(b_grad.tensor, b.grad(), 1e-4, 1e-3));
        // The same once more is added.
        fast.begin_backward();
        for (int64_t e = 0; e < adapter.experts; ++e) {
          const int64_t from = first[e], count = first[e + 1] - from;
          if (count == 0) continue;
          fast.backward(e, dy.narrow(0, from, count), x.detach().narrow(0, from, count),
                        dx.narrow(0, from, count));
        }
        fast.finish_backward();
        EXPECT_TRUE(at::allclose(a_grad.tensor, 2 * a.grad(), 1e-4, 2e-3));
        EXPECT_TRUE(at::allclose(b_grad.tensor, 2 * b.grad(), 1e-4, 2e-3));
      }
    });
  }
}

TEST(ExpertAdapter, WithoutAnAdapterNothingChanges) {
  testing_support::run_ranks(1, [&](comm::Collectives& collectives, memory::Ledger&) {
    const auto config =
        layout::read_model_config(std::string(DSJ_SOURCE_DIR) + "/tests/fixtures/tiny-gpt-oss");
    LoraArgs args;
    args.target_parameters = {"experts.down_proj"};
    const auto lora = layout::resolve_lora(*config, args);
    ASSERT_TRUE(lora) << lora.error().to_string();
    zero::ModelState state(*config, {}, at::kCPU, collectives, *lora);
    memory::MemoryScope outside(memory::Class::Activations, memory::process_ledger());
    ExpertAdapter none(state.unit(1), state.units()[1].adapters.at(0).weight - 2);
    const at::Tensor y = at::zeros({3, 4});
    none.begin_backward();
    none.forward(0, at::ones({3, 2}), y);
    none.backward(0, y, at::ones({3, 2}), y);
    none.finish_backward();
    EXPECT_EQ(y.abs().sum().item<float>(), 0);
  });
}

}  // namespace
}  // namespace dsj::models
