// A layer's short convolution against a twin on autograd, row by row; rows of one micro-batch;
// pieces; the cache of generation.
#include "engine/models/mixers/short_conv.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>

#include "engine/zero/storage/scalar_type.h"
#include "job/layout/row_pieces.h"
#include "tests/engine/support/fixtures.h"
#include "tests/engine/support/ranks.h"

namespace dsj::models {
namespace {

/// The layer's parameters by their names after "conv.", as doubles that collect gradients.
using ConvTwin = std::map<std::string, at::Tensor>;

/// h [L, H] of one row: torch's convolution between two gates.
at::Tensor conv_twin(const ConvTwin& weights, const at::Tensor& h) {
  const auto parts = at::linear(h, weights.at("in_proj.weight")).chunk(3, 1);
  const at::Tensor& filter = weights.at("conv.weight");
  const at::Tensor in = (parts[0] * parts[2]).t().unsqueeze(0);
  const at::Tensor out =
      at::conv1d(in, filter, {}, 1, filter.size(2) - 1, 1, filter.size(0)).squeeze(0).t();
  return parts[1] * out.narrow(0, 0, h.size(0));
}

double conv_apart(const at::Tensor& got, const at::Tensor& want) {
  const double size = want.to(at::kDouble).norm().item<double>();
  const double distance = (got.to(at::kDouble) - want.to(at::kDouble)).norm().item<double>();
  return size > 0 ? distance / size : distance;
}

/// The first layer of tiny-lfm2 with a filter of `kernel` tokens and drawn weights.
template <typename Body>
void with_conv(int64_t kernel, dsconfig::Precision precision, Body body) {
  testing_support::run_ranks(1, [&](comm::Collectives& collectives, memory::Ledger&) {
    auto model = layout::read_model_config(testing_support::fixture("tiny-lfm2"));
    ASSERT_TRUE(model) << model.error().to_string();
    ASSERT_TRUE(model->has_conv(0));
    model->conv.kernel = kernel;
    dsconfig::ResolvedConfig config;
    config.precision = config.grad_accum_dtype = config.communication_dtype = precision;
    zero::ModelState state(*model, config, at::kCPU, collectives);
    const memory::MemoryScope outside(memory::Class::Activations, memory::process_ledger());
    at::manual_seed(7);
    ConvTwin twin;
    const auto p = state.unit(1);
    const auto& parameters = state.units()[1].parameters;
    const std::string prefix = "model.layers.0.conv.";
    for (size_t i = 0; i < parameters.size(); ++i) {
      const at::Tensor weight = p.weight(static_cast<int>(i));
      weight.copy_(at::randn(weight.sizes()).mul_(0.3));
      if (parameters[i].name.starts_with(prefix))
        twin[parameters[i].name.substr(prefix.size())] =
            weight.to(at::kDouble).clone().set_requires_grad(true);
      p.grad(static_cast<int>(i)).tensor.fill_(1e6);
    }
    state.clear_grad();
    body(*model, p, parameters, twin);
  });
}

void expect_conv_twin(int64_t kernel, const std::vector<int64_t>& lengths,
                      dsconfig::Precision precision = dsconfig::Precision::Fp32,
                      double tolerance = 1e-6) {
  SCOPED_TRACE(kernel);
  with_conv(
      kernel, precision,
      [&](const auto& model, const auto& p, const auto& parameters, ConvTwin& twin) {
        const auto type = zero::scalar_type(precision);
        const RowBounds rows(lengths, at::kCPU);
        const at::Tensor h = at::randn({rows.tokens(), model.hidden_size}).to(type);
        const at::Tensor dy = at::randn({rows.tokens(), model.hidden_size}).to(type);
        const ShortConv conv(model);
        at::Tensor products;
        const at::Tensor y = conv.forward(p, h, rows, {}, products);
        const at::Tensor dh = conv.backward(p, dy, h, rows, products, {});

        const c10::AutoGradMode enabled(true);
        const at::Tensor x = h.to(at::kDouble).clone().set_requires_grad(true);
        std::vector<at::Tensor> outputs;
        for (int64_t row = 0; row < rows.rows(); ++row)
          outputs.push_back(conv_twin(twin, x.narrow(0, rows.starts()[row], rows.length(row))));
        const at::Tensor want = at::cat(outputs);
        (want * dy.to(at::kDouble)).sum().backward();
        const c10::AutoGradMode disabled(false);
        EXPECT_LT(conv_apart(y, want), tolerance);
        EXPECT_LT(conv_apart(dh, x.grad()), tolerance);
        int compared = 0;
        for (size_t i = 0; i < parameters.size(); ++i) {
          const std::string name = parameters[i].name.substr(parameters[i].name.find(".conv.") + 6);
          if (!twin.contains(name) || name.starts_with("out_proj")) continue;
          EXPECT_LT(conv_apart(p.grad(static_cast<int>(i)).tensor, twin.at(name).grad()), tolerance)
              << name;
          ++compared;
        }
        EXPECT_EQ(compared, 2);
      });
}

TEST(ShortConv, EqualsTorchsConvolution) {
  for (const int64_t kernel : {1, 2, 3, 5}) {
    expect_conv_twin(kernel, {16, 16});
    expect_conv_twin(kernel, {1});
    expect_conv_twin(kernel, {2, 70, 1, 1, 131, 64});
  }
  const int64_t piece = layout::kConvTokens;
  expect_conv_twin(3, {piece + 1, 2 * piece, piece - 1, 3});
}

/// Rows of any lengths, many of them together.
TEST(ShortConv, EqualsTorchsConvolutionForDrawnRows) {
  std::mt19937 random(11);
  for (int draw = 0; draw < 20; ++draw) {
    std::vector<int64_t> lengths(1 + random() % 40);
    const int64_t longest = draw % 2 == 0 ? 4 : 400;
    for (int64_t& length : lengths) length = 1 + static_cast<int64_t>(random()) % longest;
    if (draw % 3 == 0) lengths.insert(lengths.end(), 9, 300);
    expect_conv_twin(1 + static_cast<int64_t>(random() % 6), lengths);
  }
}

TEST(ShortConv, InSixteenBitsItIsAsFarAsRounding) {
  expect_conv_twin(3, {2, 70, 1, 131}, dsconfig::Precision::Bf16, 0.01);
}

/// With a cache: a prompt, then tokens one by one, then several at once.
TEST(ShortConv, GoesOnFromItsCache) {
  for (const int64_t kernel : {1, 3, 5})
    with_conv(kernel, dsconfig::Precision::Fp32,
              [&](const auto& model, const auto& p, const auto&, ConvTwin&) {
                const ShortConv conv(model);
                const std::vector<int64_t> lengths = {90, 75};
                const RowBounds rows(lengths, at::kCPU);
                const at::Tensor h = at::randn({rows.tokens(), model.hidden_size});
                at::Tensor products;
                const at::Tensor whole = conv.forward(p, h, rows, {}, products);
                const LayerCache cache = make_cache(model, 0, 2, 100, at::kCPU);
                cache.keys.fill_(5);  // of another conversation
                std::vector<int64_t> done = {0, 0};
                const auto take = [&](const std::vector<int64_t>& counts) {
                  std::vector<at::Tensor> inputs, wanted;
                  for (size_t row = 0; row < 2; ++row) {
                    const int64_t first = rows.starts()[row] + done[row];
                    inputs.push_back(h.narrow(0, first, counts[row]));
                    wanted.push_back(whole.narrow(0, first, counts[row]));
                  }
                  const RowBounds now(counts, at::kCPU, done);
                  const at::Tensor got = conv.forward_cached(p, at::cat(inputs), now, cache.keys);
                  EXPECT_LT(conv_apart(got, at::cat(wanted)), 1e-6) << done[0];
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
