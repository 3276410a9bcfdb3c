// A layer's Mamba 2 mixer, from its hidden state to what its output projection reads, against a twin
// that is written plainly, row by row and token by token, on autograd.
#include "engine/models/mixers/mamba.h"

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

struct MambaTwin {
  const layout::ModelConfig& model;
  std::map<std::string, at::Tensor> weights;  ///< by their names in the mixer, in double

  const at::Tensor& w(const std::string& name) const { return weights.at(name); }
  /// h [L, H] of one row.
  at::Tensor row(const at::Tensor& h) const {
    const layout::DeltaConfig& c = model.delta;
    const int64_t length = h.size(0), times = c.value_heads / c.key_heads;
    const auto parts = at::linear(h, w("in_proj.weight"))
                           .split_with_sizes({c.value_size(), c.conv_size(), c.value_heads}, 1);
    const at::Tensor bias = c.conv_bias ? w("conv1d.bias") : at::Tensor();
    const at::Tensor conv = at::conv1d(parts[1].t().unsqueeze(0), w("conv1d.weight"), bias, 1,
                                       c.kernel - 1, 1, c.conv_size())
                                .squeeze(0)
                                .t()
                                .narrow(0, 0, length);
    const auto mixed =
        at::silu(conv).split_with_sizes({c.value_size(), c.key_size(), c.key_size()}, 1);
    const at::Tensor x = mixed[0].view({length, c.value_heads, c.value_dim});
    const auto shared = [&](const at::Tensor& columns) {
      return columns.view({length, c.key_heads, c.key_dim}).repeat_interleave(times, 1);
    };
    const at::Tensor b = shared(mixed[1]), read = shared(mixed[2]);
    const at::Tensor step = at::softplus(parts[2] + w("dt_bias"));
    at::Tensor state = at::zeros({c.value_heads, c.value_dim, c.key_dim}, h.options());
    std::vector<at::Tensor> out;
    for (int64_t t = 0; t < length; ++t) {
      state = state * (-w("A_log").exp() * step[t]).exp().view({-1, 1, 1}) +
              (x[t] * step[t].unsqueeze(-1)).unsqueeze(-1) * b[t].unsqueeze(1);
      out.push_back((state * read[t].unsqueeze(1)).sum(-1) + x[t] * w("D").unsqueeze(-1));
    }
    const at::Tensor gated = at::stack(out).flatten(1) * at::silu(parts[0]);
    const at::Tensor groups = gated.view({length, c.key_heads, -1});
    const at::Tensor normed = groups / groups.square().mean(-1, true).add(model.norm_eps).sqrt();
    return normed.flatten(1) * w("norm.weight");
  }
};

double mamba_apart(const at::Tensor& got, const at::Tensor& want) {
  const double size = want.to(at::kDouble).norm().item<double>();
  const double distance = (got.to(at::kDouble) - want.to(at::kDouble)).norm().item<double>();
  return size > 0 ? distance / size : distance;
}

constexpr char kMixer[] = "model.layers.0.mamba.";

/// The first layer of a fixture, with drawn weights.
template <typename Body>
void with_mamba(const char* name, dsconfig::Precision precision, Body body) {
  testing_support::run_ranks(1, [&](comm::Collectives& collectives, memory::Ledger&) {
    const auto model = layout::read_model_config(testing_support::fixture(name));
    ASSERT_TRUE(model) << model.error().to_string();
    ASSERT_TRUE(model->has_delta(0) && model->delta.mamba);
    dsconfig::ResolvedConfig config;
    config.precision = config.grad_accum_dtype = config.communication_dtype = precision;
    zero::ModelState state(*model, config, at::kCPU, collectives);
    const memory::MemoryScope outside(memory::Class::Activations, memory::process_ledger());
    at::manual_seed(7);
    MambaTwin twin{*model, {}};
    const auto p = state.unit(1);
    const auto& parameters = state.units()[1].parameters;
    for (size_t i = 0; i < parameters.size(); ++i) {
      const at::Tensor weight = p.weight(static_cast<int>(i));
      weight.copy_(at::randn(weight.sizes()).mul_(0.3));
      if (parameters[i].name.starts_with(kMixer))
        twin.weights[parameters[i].name.substr(std::string(kMixer).size())] =
            weight.to(at::kDouble).clone().set_requires_grad(true);
      p.grad(static_cast<int>(i)).tensor.fill_(1e6);
    }
    state.clear_grad();
    body(*model, p, parameters, twin);
  });
}

void expect_mamba_twin(const char* name, const std::vector<int64_t>& lengths,
                       dsconfig::Precision precision = dsconfig::Precision::Fp32,
                       double tolerance = 2e-5) {
  SCOPED_TRACE(name);
  with_mamba(
      name, precision,
      [&](const auto& model, const auto& p, const auto& parameters, MambaTwin& twin) {
        const auto type = zero::scalar_type(precision);
        const RowBounds rows(lengths, at::kCPU);
        const at::Tensor h = at::randn({rows.tokens(), model.hidden_size}).to(type);
        const at::Tensor dy = at::randn({rows.tokens(), model.delta.value_size()}).to(type);
        const MambaMixer mixer(model);
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
        EXPECT_LT(mamba_apart(y, want), tolerance);
        EXPECT_LT(mamba_apart(dh, x.grad()), tolerance);
        int compared = 0;
        for (size_t i = 0; i < parameters.size(); ++i) {
          const std::string& full = parameters[i].name;
          if (!full.starts_with(kMixer) || full.contains("out_proj")) continue;
          const std::string part = full.substr(std::string(kMixer).size());
          EXPECT_LT(mamba_apart(p.grad(static_cast<int>(i)).tensor, twin.w(part).grad()), tolerance)
              << part;
          ++compared;
        }
        EXPECT_EQ(compared, model.delta.conv_bias ? 7 : 6);
      });
}

TEST(MambaMixer, EqualsThePlainTwin) {
  for (const char* name : {"tiny-granite4-h", "tiny-granite4-h-moe"}) {
    expect_mamba_twin(name, {16, 16});
    expect_mamba_twin(name, {1});
    expect_mamba_twin(name, {2, 70, 1, 131, 64});
    expect_mamba_twin(name, {1100, 3});  // two pieces
  }
}

TEST(MambaMixer, InSixteenBitsItIsAsFarAsRounding) {
  for (const char* name : {"tiny-granite4-h", "tiny-granite4-h-moe"})
    expect_mamba_twin(name, {2, 70, 1, 131}, dsconfig::Precision::Bf16, 0.03);
}

/// A row's result is its own, whatever lies beside it in the micro-batch.
TEST(MambaMixer, RowsDoNotSeeEachOther) {
  with_mamba(
      "tiny-granite4-h", dsconfig::Precision::Fp32,
      [&](const auto& model, const auto& p, const auto&, MambaTwin&) {
        const MambaMixer mixer(model);
        const std::vector<int64_t> lengths = {5, 90, 2, 64};
        const RowBounds rows(lengths, at::kCPU);
        const at::Tensor h = at::randn({rows.tokens(), model.hidden_size});
        const at::Tensor together = mixer.forward(p, h, rows, {}, nullptr);
        for (int64_t row = 1; row < rows.rows(); ++row) {
          const at::Tensor other = h.clone();
          other.narrow(0, 0, rows.starts()[row]).mul_(-3);
          const auto of_row = [&](const at::Tensor& x) {
            return x.narrow(0, rows.starts()[row], rows.length(row));
          };
          EXPECT_TRUE(of_row(mixer.forward(p, other, rows, {}, nullptr)).equal(of_row(together)));
        }
      });
}

/// With a cache: a prompt, then tokens one by one, then several at once.
TEST(MambaMixer, GoesOnFromItsCache) {
  with_mamba("tiny-granite4-h", dsconfig::Precision::Fp32,
             [&](const auto& model, const auto& p, const auto&, MambaTwin&) {
               const MambaMixer mixer(model);
               const std::vector<int64_t> lengths = {90, 75};
               const RowBounds rows(lengths, at::kCPU);
               const at::Tensor h = at::randn({rows.tokens(), model.hidden_size});
               const at::Tensor whole = mixer.forward(p, h, rows, {}, nullptr);
               const LayerCache cache = make_cache(model, 0, 2, 100, at::kCPU);
               cache.keys.fill_(5), cache.values.fill_(5);  // of another conversation
               std::vector<int64_t> done = {0, 0};
               const auto take = [&](const std::vector<int64_t>& counts) {
                 std::vector<at::Tensor> inputs, wanted;
                 for (size_t row = 0; row < 2; ++row) {
                   const int64_t first = rows.starts()[row] + done[row];
                   inputs.push_back(h.narrow(0, first, counts[row]));
                   wanted.push_back(whole.narrow(0, first, counts[row]));
                 }
                 const RowBounds now(counts, at::kCPU, done);
                 const at::Tensor got = mixer.forward_cached(p, at::cat(inputs), now, cache);
                 EXPECT_LT(mamba_apart(got, at::cat(wanted)), 1e-5) << done[0];
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
