// A layer's experts against a twin that is written plainly, on autograd: every expert runs over all
// tokens, and what the router did not choose is multiplied by 0.
#include "engine/models/layers/experts.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <string>

#include "engine/zero/storage/scalar_type.h"
#include "test_paths.h"
#include "tests/engine/support/fixtures.h"
#include "tests/engine/support/ranks.h"

namespace dsj::models {
namespace {

using layout::ExpertsConfig;

layout::ModelConfig model_of(const std::string& name) {
  const auto read = layout::read_model_config(testing_support::fixture(name));
  EXPECT_TRUE(read) << read.error().to_string();
  return *read;
}

/// What the choice goes by: of the groups whose two best experts have the largest sums.
at::Tensor plain_choice(const ExpertsConfig& config, const at::Tensor& corrected) {
  if (config.groups == 1) return corrected;
  const at::Tensor by_group = corrected.view({corrected.size(0), config.groups, -1});
  const at::Tensor best =
      std::get<0>(by_group.sort(-1, /*descending=*/true)).narrow(-1, 0, 2).sum(-1);
  const at::Tensor least =
      std::get<0>(best.sort(-1, /*descending=*/true)).narrow(-1, config.groups_taken - 1, 1);
  return at::where(best.lt(least).unsqueeze(-1), -1e9, by_group).view_as(corrected);
}

/// The router's rule in plain words: the weight of every expert for every token, [N, E]; 0 where it
/// is not chosen.
at::Tensor plain_weights(const ExpertsConfig& config, const at::Tensor& probabilities,
                         const at::Tensor& correction) {
  const at::Tensor corrected = correction.defined() ? probabilities + correction : probabilities;
  const auto chosen = std::get<1>(plain_choice(config, corrected).topk(config.per_token, -1));
  const at::Tensor mask = at::zeros_like(probabilities).scatter(1, chosen, 1.0);
  at::Tensor weights = probabilities * mask;
  if (config.normalized) weights = weights / weights.sum(-1, true);
  return weights * config.scale;
}

/// Switch Transformer's loss of one layer.
at::Tensor plain_balance(const ExpertsConfig& config, const at::Tensor& probabilities) {
  const auto chosen = std::get<1>(probabilities.detach().topk(config.per_token, -1));
  const auto tokens = static_cast<double>(probabilities.size(0));
  const at::Tensor counts = at::zeros_like(probabilities).scatter(1, chosen, 1.0).sum(0) / tokens;
  return (counts * probabilities.mean(0)).sum() * static_cast<double>(config.count);
}

using Weights = std::map<std::string, at::Tensor>;

struct Twin {
  const layout::ModelConfig& model;
  const std::string prefix;  ///< "model.layers.0."
  Weights weights;
  at::Tensor correction = {};

  at::Tensor w(const std::string& name) const { return weights.at(prefix + name); }
  at::Tensor probabilities(const at::Tensor& h) const {
    const at::Tensor logits = at::linear(h, w(std::string(model.names.router) + ".weight"));
    return model.experts.sigmoid ? logits.sigmoid() : logits.softmax(-1);
  }
  /// silu(gate) * up → down.
  static at::Tensor mlp(const at::Tensor& h, const at::Tensor& gate, const at::Tensor& up,
                        const at::Tensor& down) {
    return at::linear(at::silu(at::linear(h, gate)) * at::linear(h, up), down);
  }
  at::Tensor expert(const at::Tensor& h, int64_t index) const {
    if (model.experts.stacked) {
      const auto parts = w(model.names.stacked_up).select(0, index).chunk(2, 0);
      return mlp(h, parts[0], parts[1], w(model.names.stacked_down).select(0, index));
    }
    const std::string name = std::string(model.names.experts) + "." + std::to_string(index) + ".";
    return mlp(h, w(name + model.names.expert_gate + ".weight"),
               w(name + model.names.expert_up + ".weight"),
               w(name + model.names.expert_down + ".weight"));
  }
  at::Tensor output(const at::Tensor& h) const {
    const at::Tensor weights = plain_weights(model.experts, probabilities(h), correction);
    at::Tensor y = at::zeros_like(h);
    for (int64_t i = 0; i < model.experts.count; ++i)
      y = y + weights.narrow(1, i, 1) * expert(h, i);
    if (model.experts.shared_inner == 0) return y;
    const std::string shared = model.names.shared;
    at::Tensor extra = mlp(h, w(shared + ".gate_proj.weight"), w(shared + ".up_proj.weight"),
                           w(shared + ".down_proj.weight"));
    if (model.experts.shared_scaled)
      extra = extra * at::linear(h, w(std::string(model.names.shared_scale) + ".weight")).sigmoid();
    return y + extra;
  }
};

struct Case {
  std::string model;
  int64_t tokens = 40;
  double balance = 0;  ///< the auxiliary loss's weight
  int64_t groups = 1, groups_taken = 1;
  dsconfig::Precision precision = dsconfig::Precision::Fp32;
  double tolerance = 2e-5;
};

double apart(const at::Tensor& got, const at::Tensor& want) {
  const double size = want.to(at::kDouble).norm().item<double>();
  const double distance = (got.to(at::kDouble) - want.to(at::kDouble)).norm().item<double>();
  return size > 0 ? distance / size : distance;
}

void compare(const Case& c) {
  SCOPED_TRACE(c.model + ", " + std::to_string(c.tokens) + " tokens");
  testing_support::run_ranks(1, [&](comm::Collectives& collectives, memory::Ledger&) {
    auto model = model_of(c.model);
    model.experts.groups = c.groups;
    model.experts.groups_taken = c.groups_taken;
    dsconfig::ResolvedConfig config;
    config.precision = config.grad_accum_dtype = config.communication_dtype = c.precision;
    zero::ModelState state(model, config, at::kCPU, collectives);
    const memory::MemoryScope outside(memory::Class::Activations, memory::process_ledger());
    at::manual_seed(7);
    const auto p = state.unit(1);
    const auto& parameters = state.units()[1].parameters;
    const auto type = zero::scalar_type(c.precision);
    Twin twin{model, "model.layers.0.", {}};
    for (size_t i = 0; i < parameters.size(); ++i) {
      const at::Tensor weight = p.weight(static_cast<int>(i));
      weight.copy_(at::randn(weight.sizes()).mul_(0.3));
      twin.weights[parameters[i].name] = weight.to(at::kFloat).clone().set_requires_grad(true);
      // A gradient that nobody writes must not stay what it was.
      p.grad(static_cast<int>(i)).tensor.fill_(1e6);
    }
    state.clear_grad();
    if (model.experts.corrected)
      twin.correction = p.buffer(0).copy_(at::randn({model.experts.count}).mul_(0.3)).clone();

    const at::Tensor h = at::randn({c.tokens, model.hidden_size}).to(type);
    const at::Tensor dy = at::randn({c.tokens, model.hidden_size}).to(type);
    const ExpertMlp experts(model);
    ExpertsSaved saved;
    const at::Tensor inner = experts.inner(p, {h}, {}, saved);
    const at::Tensor y = experts.output(p, h, inner, saved, {});
    RouterBalance balance(model.experts.count, c.balance, at::kCPU);
    balance.add(saved.routing);
    const at::Tensor dh =
        experts.backward(p, dy, {h}, inner, saved, c.balance > 0 ? &balance : nullptr, {}).h;

    const c10::AutoGradMode enabled(true);
    const at::Tensor x = h.to(at::kFloat).clone().set_requires_grad(true);
    const at::Tensor want = twin.output(x);
    const at::Tensor auxiliary = plain_balance(model.experts, twin.probabilities(x));
    at::Tensor objective = (want * dy.to(at::kFloat)).sum() + auxiliary * c.balance;
    objective.backward();
    const c10::AutoGradMode disabled(false);
    EXPECT_LT(apart(y, want), c.tolerance);
    if (!model.experts.corrected) {
      EXPECT_NEAR(balance.loss().item<double>(), auxiliary.item<double>(),
                  1e-2 * c.tolerance * 1e3);
    }
    EXPECT_LT(apart(dh, x.grad()), c.tolerance);
    const auto roles = layout::decoder_roles(model, /*experts=*/true);
    for (size_t i = 0; i < parameters.size(); ++i) {
      const bool of_mlp = i >= roles.size() || roles[i] >= layout::Role::Router;
      if (!of_mlp) continue;
      const at::Tensor of_twin = twin.weights.at(parameters[i].name).grad();
      const at::Tensor got = p.grad(static_cast<int>(i)).tensor;
      if (of_twin.defined())
        EXPECT_LT(apart(got, of_twin), c.tolerance) << parameters[i].name;
      else
        EXPECT_EQ(got.abs().max().item<double>(), 0) << parameters[i].name;
    }
  });
}

TEST(Experts, EqualThePlainTwin) {
  for (const char* model :
       {"tiny-qwen3-moe", "tiny-qwen2-moe", "tiny-mixtral", "tiny-olmoe", "tiny-granitemoe"}) {
    compare({.model = model});
    compare({.model = model, .balance = 0.7});
    compare({.model = model, .tokens = 1});  // most experts have no token
  }
}

/// Sigmoids, a correction that chooses and does not weigh, groups, one more expert for every token.
TEST(Experts, ChosenByCorrectedSigmoidsEqualThePlainTwin) {
  for (const char* model : {"tiny-solar-open", "tiny-minimax-m2", "tiny-hunyuan-moe"})
    compare({.model = model});
  for (const int64_t taken : {1, 2, 4})
    compare({.model = "tiny-solar-open", .groups = 4, .groups_taken = taken});
}

/// Weights that add up to nearly nothing are divided by the least sum, which has no gradient.
TEST(Routing, TheLeastSumBoundsTheWeights) {
  const ExpertsConfig config{
      .count = 3, .per_token = 1, .sigmoid = true, .normalized = true, .least_sum = 1e-4};
  const at::Tensor logits = at::full({1, 3}, -20.0f);
  const Routing r = route(config, logits, at::kFloat);
  EXPECT_NEAR(r.weights.item<float>(), 2.0612e-9 / 1e-4, 1e-9);
  const at::Tensor d = route_backward(config, r, at::ones({1, 1}), {});
  EXPECT_NEAR(d.sum().item<double>(), 2.0612e-9 / 1e-4, 1e-9);
}

TEST(Experts, InSixteenBitsTheyAreAsFarAsRounding) {
  for (const char* model : {"tiny-qwen3-moe", "tiny-qwen2-moe", "tiny-granitemoe"})
    compare({.model = model, .precision = dsconfig::Precision::Bf16, .tolerance = 0.03});
}

TEST(Routing, SortsTokensByExpertAndFindsThemAgain) {
  at::manual_seed(1);
  for (const auto& [experts, chosen, tokens] :
       {std::tuple{5, 2, 33}, {3, 3, 8}, {64, 8, 1}, {1, 1, 4}}) {
    const Routing r =
        route({.count = experts, .per_token = chosen}, at::randn({tokens, experts}), at::kFloat);
    ASSERT_EQ(r.starts.size(), static_cast<size_t>(experts) + 1);
    EXPECT_EQ(r.starts.front(), 0);
    EXPECT_EQ(r.starts.back(), tokens * chosen);
    for (int64_t token = 0; token < tokens; ++token) {
      for (int64_t choice = 0; choice < chosen; ++choice) {
        const auto place = r.places[token][choice].item<int64_t>();
        const auto expert = r.experts[token][choice].item<int64_t>();
        EXPECT_EQ(r.tokens[place].item<int64_t>(), token);
        EXPECT_GE(place, r.starts[expert]);
        EXPECT_LT(place, r.starts[expert + 1]);
      }
    }
    for (int64_t expert = 0; expert < experts; ++expert)  // an expert's tokens rise
      for (int64_t i = r.starts[expert] + 1; i < r.starts[expert + 1]; ++i)
        EXPECT_LT(r.tokens[i - 1].item<int64_t>(), r.tokens[i].item<int64_t>());
  }
}

TEST(Routing, WeightsFollowTheFamily) {
  const at::Tensor logits = at::tensor({1.0f, 3.0f, 2.0f, -1.0f}).view({1, 4});
  const at::Tensor p = logits.softmax(-1);
  const auto weights = [&](const ExpertsConfig& config, const at::Tensor& of) {
    return route(config, of, of.scalar_type()).weights;
  };
  const at::Tensor plain = weights({.count = 4, .per_token = 2}, logits);
  EXPECT_FLOAT_EQ(plain[0][0].item<float>(), p[0][1].item<float>());
  EXPECT_FLOAT_EQ(plain[0][1].item<float>(), p[0][2].item<float>());
  const at::Tensor normalized =
      weights({.count = 4, .per_token = 2, .normalized = true, .scale = 2.5}, logits);
  EXPECT_NEAR(normalized.sum().item<float>(), 2.5f, 1e-6f);
  const at::Tensor rounded = weights({.count = 4, .per_token = 2}, logits.to(at::kBFloat16));
  EXPECT_TRUE(rounded.equal(rounded.to(at::kBFloat16).to(at::kFloat)));
  const at::Tensor exact =
      weights({.count = 4, .per_token = 2, .rounds_weights = false}, logits.to(at::kBFloat16));
  EXPECT_FALSE(exact.equal(exact.to(at::kBFloat16).to(at::kFloat)));
}

/// Two layers: the sums are over both before they are multiplied.
TEST(RouterBalance, AddsUpLayersAndTakesNoGradientOfTheShares) {
  at::manual_seed(5);
  const ExpertsConfig config{.count = 4, .per_token = 2};
  const Routing one = route(config, at::randn({10, 4}), at::kFloat),
                two = route(config, at::randn({6, 4}), at::kFloat);
  RouterBalance balance(4, 3.0, at::kCPU);
  balance.add(one), balance.add(two);
  double loss = 0;
  for (int64_t expert = 0; expert < 4; ++expert) {
    const auto share = static_cast<double>(one.starts[expert + 1] - one.starts[expert] +
                                           two.starts[expert + 1] - two.starts[expert]) /
                       16;
    const double mean = (one.probabilities.select(1, expert).sum().item<double>() +
                         two.probabilities.select(1, expert).sum().item<double>()) /
                        16;
    loss += 4 * share * mean;
    EXPECT_NEAR(balance.gradient()[expert].item<double>(), 3 * 4 * share / 16, 1e-6);
  }
  EXPECT_NEAR(balance.loss().item<double>(), loss, 1e-6);
}

}  // namespace
}  // namespace dsj::models
