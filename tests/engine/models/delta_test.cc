// A layer's delta rule, from its hidden state to what its output projection reads, against a twin that
// is written plainly, row by row and token by token, on autograd.
#include "engine/models/mixers/delta.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "engine/zero/storage/scalar_type.h"
#include "tests/engine/support/fixtures.h"
#include "tests/engine/support/ranks.h"

namespace dsj::models {
namespace {

struct DeltaTwin {
  const layout::ModelConfig& model;
  std::map<std::string, at::Tensor> weights;  ///< by their names in the layer

  at::Tensor w(const std::string& name) const { return weights.at("linear_attn." + name); }
  at::Tensor product(const at::Tensor& h, const std::string& name) const {
    return at::linear(h, w(name + ".weight"));
  }
  /// h [L, H] of one row.
  at::Tensor row(const at::Tensor& h) const {
    const layout::DeltaConfig& c = model.delta;
    const int64_t length = h.size(0), times = c.value_heads / c.key_heads;
    at::Tensor mixed, z, b, a;
    if (c.by_group) {
      const at::Tensor heads = product(h, "in_proj_qkvz").view({length, c.key_heads, -1});
      const auto parts = heads.split_with_sizes(
          {c.key_dim, c.key_dim, times * c.value_dim, times * c.value_dim}, 2);
      mixed = at::cat({parts[0].flatten(1), parts[1].flatten(1), parts[2].flatten(1)}, 1);
      z = parts[3].reshape({length, c.value_heads, c.value_dim});
      const auto pairs = product(h, "in_proj_ba").view({length, c.key_heads, -1}).chunk(2, 2);
      b = pairs[0].flatten(1), a = pairs[1].flatten(1);
    } else {
      mixed = product(h, "in_proj_qkv");
      z = product(h, "in_proj_z").view({length, c.value_heads, c.value_dim});
      b = product(h, "in_proj_b"), a = product(h, "in_proj_a");
    }
    const at::Tensor conv = at::conv1d(mixed.t().unsqueeze(0), w("conv1d.weight"), {}, 1,
                                       c.kernel - 1, 1, mixed.size(1))
                                .squeeze(0)
                                .t()
                                .narrow(0, 0, length);
    const auto parts =
        at::silu(conv).split_with_sizes({c.key_size(), c.key_size(), c.value_size()}, 1);
    const auto unit = [&](const at::Tensor& x) {
      const at::Tensor heads = x.view({length, c.key_heads, c.key_dim});
      return (heads / (heads * heads).sum(-1, true).add(1e-6).sqrt()).repeat_interleave(times, 1);
    };
    const at::Tensor q = unit(parts[0]) / std::sqrt(static_cast<double>(c.key_dim));
    const at::Tensor k = unit(parts[1]);
    const at::Tensor v = parts[2].view({length, c.value_heads, c.value_dim});
    const at::Tensor beta = b.sigmoid();
    const at::Tensor g = -w("A_log").exp() * at::softplus(a + w("dt_bias"));
    at::Tensor state = at::zeros({c.value_heads, c.key_dim, c.value_dim}, h.options());
    std::vector<at::Tensor> out;
    for (int64_t t = 0; t < length; ++t) {
      state = state * g[t].exp().view({-1, 1, 1});
      const at::Tensor known = (state * k[t].unsqueeze(-1)).sum(1);
      const at::Tensor written = (v[t] - known) * beta[t].unsqueeze(-1);
      state = state + k[t].unsqueeze(-1) * written.unsqueeze(1);
      out.push_back((state * q[t].unsqueeze(-1)).sum(1));
    }
    const at::Tensor o = at::stack(out);
    const at::Tensor normed = o / (o * o).mean(-1, true).add(model.norm_eps).sqrt();
    return (normed * w("norm.weight") * at::silu(z)).flatten(1);
  }
};

double delta_apart(const at::Tensor& got, const at::Tensor& want) {
  const double size = want.to(at::kDouble).norm().item<double>();
  const double distance = (got.to(at::kDouble) - want.to(at::kDouble)).norm().item<double>();
  return size > 0 ? distance / size : distance;
}

struct MixerCase {
  const char* model;
  std::vector<int64_t> lengths;
  dsconfig::Precision precision = dsconfig::Precision::Fp32;
  double tolerance = 2e-5;
};

/// The first layer of a fixture, with drawn weights.
template <typename Body>
void with_mixer(const char* name, dsconfig::Precision precision, Body body) {
  testing_support::run_ranks(1, [&](comm::Collectives& collectives, memory::Ledger&) {
    const auto model = layout::read_model_config(testing_support::fixture(name));
    ASSERT_TRUE(model) << model.error().to_string();
    ASSERT_TRUE(model->has_delta(0));
    dsconfig::ResolvedConfig config;
    config.precision = config.grad_accum_dtype = config.communication_dtype = precision;
    zero::ModelState state(*model, config, at::kCPU, collectives);
    const memory::MemoryScope outside(memory::Class::Activations, memory::process_ledger());
    at::manual_seed(7);
    DeltaTwin twin{*model, {}};
    const auto p = state.unit(1);
    const auto& parameters = state.units()[1].parameters;
    const std::string prefix = std::string(model->names.base) + "layers.0.";
    for (size_t i = 0; i < parameters.size(); ++i) {
      const at::Tensor weight = p.weight(static_cast<int>(i));
      weight.copy_(at::randn(weight.sizes()).mul_(0.3));
      twin.weights[parameters[i].name.substr(prefix.size())] =
          weight.to(at::kDouble).clone().set_requires_grad(true);
      p.grad(static_cast<int>(i)).tensor.fill_(1e6);
    }
    state.clear_grad();
    body(*model, p, parameters, twin, prefix);
  });
}

void expect_twin(const MixerCase& c) {
  SCOPED_TRACE(c.model);
  with_mixer(c.model, c.precision,
             [&](const auto& model, const auto& p, const auto& parameters, DeltaTwin& twin,
                 const std::string& prefix) {
               const auto type = zero::scalar_type(c.precision);
               const RowBounds rows(c.lengths, at::kCPU);
               const at::Tensor h = at::randn({rows.tokens(), model.hidden_size}).to(type);
               const at::Tensor dy = at::randn({rows.tokens(), model.delta.value_size()}).to(type);
               const DeltaMixer mixer(model);
               LayerSaved::Delta saved;
               const at::Tensor y = mixer.forward(p, h, rows, {}, &saved);
               EXPECT_TRUE(mixer.forward(p, h, rows, {}, nullptr).equal(y));
               const at::Tensor dh = mixer.backward(p, dy, h, rows, std::move(saved), {});

               const c10::AutoGradMode enabled(true);
               const at::Tensor x = h.to(at::kDouble).clone().set_requires_grad(true);
               std::vector<at::Tensor> outputs;
               for (int64_t row = 0; row < rows.rows(); ++row)
                 outputs.push_back(twin.row(x.narrow(0, rows.starts()[row], rows.length(row))));
               const at::Tensor want = at::cat(outputs);
               (want * dy.to(at::kDouble)).sum().backward();
               const c10::AutoGradMode disabled(false);
               EXPECT_LT(delta_apart(y, want), c.tolerance);
               EXPECT_LT(delta_apart(dh, x.grad()), c.tolerance);
               int compared = 0;
               for (size_t i = 0; i < parameters.size(); ++i) {
                 const std::string name = parameters[i].name.substr(prefix.size());
                 if (!name.starts_with("linear_attn.") || name.contains("out_proj")) continue;
                 // Gradients of decays are small differences of a chunk's large sums: up to 2.4e-5.
                 const bool decays = name.ends_with("A_log") || name.ends_with("dt_bias");
                 EXPECT_LT(
                     delta_apart(p.grad(static_cast<int>(i)).tensor, twin.weights.at(name).grad()),
                     (decays ? 3 : 1) * c.tolerance)
                     << name;
                 ++compared;
               }
               EXPECT_EQ(compared, model.delta.by_group ? 6 : 8);
             });
}

TEST(DeltaMixer, EqualsThePlainTwin) {
  for (const char* model : {"tiny-qwen3.5-text", "tiny-qwen3.5", "tiny-qwen3-next"}) {
    expect_twin({model, {16, 16}});
    expect_twin({model, {1}});
    expect_twin({model, {2, 70, 1, 131, 64}});
    expect_twin({model, {1100, 3}});  // two pieces
  }
}

TEST(DeltaMixer, InSixteenBitsItIsAsFarAsRounding) {
  for (const char* model : {"tiny-qwen3.5-text", "tiny-qwen3-next"})
    expect_twin({model, {2, 70, 1, 131}, dsconfig::Precision::Bf16, 0.03});
}

/// A row's result is its own, whatever lies beside it in the micro-batch.
TEST(DeltaMixer, RowsDoNotSeeEachOther) {
  with_mixer(
      "tiny-qwen3.5-text", dsconfig::Precision::Fp32,
      [&](const auto& model, const auto& p, const auto&, DeltaTwin&, const std::string&) {
        const DeltaMixer mixer(model);
        const std::vector<int64_t> lengths = {5, 90, 2, 64};
        const RowBounds rows(lengths, at::kCPU);
        const at::Tensor h = at::randn({rows.tokens(), model.hidden_size});
        const at::Tensor together = mixer.forward(p, h, rows, {}, nullptr);
        for (int64_t row = 0; row < rows.rows(); ++row) {
          const auto of_row = [&](const at::Tensor& x) {
            return x.narrow(0, rows.starts()[row], rows.length(row));
          };
          const std::vector<int64_t> length = {rows.length(row)};
          const at::Tensor alone =
              mixer.forward(p, of_row(h), RowBounds(length, at::kCPU), {}, nullptr);
          EXPECT_LT(delta_apart(of_row(together), alone), 1e-6) << row;
          // Another neighbour changes no bit.
          const at::Tensor other = h.clone();
          if (row > 0) other.narrow(0, 0, rows.starts()[row]).mul_(-3);
          EXPECT_TRUE(of_row(mixer.forward(p, other, rows, {}, nullptr)).equal(of_row(together)));
        }
      });
}

/// With a cache: a prompt, then tokens one by one, then several at once.
TEST(DeltaMixer, GoesOnFromItsCache) {
  with_mixer("tiny-qwen3-next", dsconfig::Precision::Fp32,
             [&](const auto& model, const auto& p, const auto&, DeltaTwin&, const std::string&) {
               const DeltaMixer mixer(model);
               const std::vector<int64_t> lengths = {90, 75};
               const RowBounds rows(lengths, at::kCPU);
               const at::Tensor h = at::randn({rows.tokens(), model.hidden_size});
               const at::Tensor whole = mixer.forward(p, h, rows, {}, nullptr);
               const LayerCache cache = make_cache(model, 0, 2, 100, at::kCPU);
               cache.keys.fill_(5), cache.values.fill_(5);  // of another conversation
               std::vector<int64_t> done = {0, 0};
               const auto take = [&](std::vector<int64_t> counts) {
                 std::vector<at::Tensor> inputs, wanted;
                 for (size_t row = 0; row < 2; ++row) {
                   const int64_t first = rows.starts()[row] + done[row];
                   inputs.push_back(h.narrow(0, first, counts[row]));
                   wanted.push_back(whole.narrow(0, first, counts[row]));
                 }
                 const RowBounds now(counts, at::kCPU, done);
                 const at::Tensor got = mixer.forward_cached(p, at::cat(inputs), now, cache);
                 EXPECT_LT(delta_apart(got, at::cat(wanted)), 1e-5) << done[0];
                 for (size_t row = 0; row < 2; ++row) done[row] += counts[row];
               };
               take({2, 68});
               take({1, 1});
               take({1, 1});
               take({70, 2});
             });
}

}  // namespace
}  // namespace dsj::models
