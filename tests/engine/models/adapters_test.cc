// The adapters' backward against their own forward: y = sum_i s (mask_i x) A_i^T B_i^T is linear in
// x, in all A and in all B, so <y, dy> is <x, dx> and the sums of <A, dA> and of <B, dB>.
#include "engine/models/unit/adapters.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "engine/zero/storage/scalar_type.h"
#include "test_paths.h"
#include "tests/engine/support/ranks.h"

namespace dsj::models {
namespace {

layout::ModelConfig model() {
  const auto read =
      layout::read_model_config(std::string(DSJ_SOURCE_DIR) + "/tests/fixtures/tiny-qwen2");
  EXPECT_TRUE(read);
  return *read;
}

double dot_of(const at::Tensor& a, const at::Tensor& b) {
  return (a.to(at::kDouble) * b.to(at::kDouble)).sum().item<double>();
}

/// q, k and v of the first layer: weights 1 to 3 of its unit.
Projection qkv(const layout::ModelConfig& config) {
  return {.weight = 1, .sizes = {config.query_size(), config.kv_size(), config.kv_size()}};
}

struct Products {
  double y, x, a, b;
  at::Tensor out, dx;
};

Products products(const LoraArgs& args, std::optional<uint64_t> key,
                  dsconfig::Precision precision = dsconfig::Precision::Fp32) {
  Products result{};
  testing_support::run_ranks(1, [&](comm::Collectives& collectives, memory::Ledger&) {
    const auto config = model();
    const auto lora = layout::resolve_lora(config, args);
    ASSERT_TRUE(lora) << lora.error().to_string();
    dsconfig::ResolvedConfig resolved;
    resolved.precision = precision;
    zero::ModelState state(config, resolved, at::kCPU, collectives, *lora);
    const auto p = state.unit(1);
    memory::MemoryScope outside(memory::Class::Activations, memory::process_ledger());
    at::manual_seed(3);
    const auto type = at::TensorOptions().dtype(zero::scalar_type(precision));
    for (const auto& adapter : state.units()[1].adapters)
      for (const int i : {adapter.a, adapter.b}) p.weight(i).copy_(at::randn(p.weight(i).sizes()));
    const Projection projection = qkv(config);
    const at::Tensor x = at::randn({20, config.hidden_size}).to(type.dtype());
    const at::Tensor dy = at::randn({20, projection.width()}).to(type.dtype());
    result.out = at::zeros_like(dy);
    result.dx = at::zeros_like(x);
    adapters_forward(p, projection, x, key, result.out);
    adapters_backward(p, projection, dy, x, key, {}, result.dx);
    result.y = dot_of(result.out, dy);
    result.x = dot_of(x, result.dx);
    for (const auto& adapter : state.units()[1].adapters) {
      // A second call says where the gradient lies, and that it was written.
      const auto a = p.grad(adapter.a), b = p.grad(adapter.b);
      EXPECT_TRUE(a.accumulate && b.accumulate);
      result.a += dot_of(p.weight(adapter.a), a.tensor);
      result.b += dot_of(p.weight(adapter.b), b.tensor);
    }
  });
  return result;
}

const LoraArgs kLora{
    .r = 4, .alpha = 12, .dropout = 0.4, .target_modules = {"q_proj", "k_proj", "v_proj"}};

TEST(Adapters, BackwardIsTheAdjointOfForward) {
  for (const double dropout : {0.0, 0.4}) {
    LoraArgs lora = kLora;
    lora.dropout = dropout;
    const Products got = products(lora, 77);
    ASSERT_NE(got.y, 0);
    const double tolerance = 1e-5 * std::abs(got.y) + 1e-3;
    EXPECT_NEAR(got.x, got.y, tolerance);
    EXPECT_NEAR(got.a, got.y, tolerance);
    EXPECT_NEAR(got.b, got.y, tolerance);
  }
}

TEST(Adapters, SomeOfAProjectionsWeights) {
  LoraArgs lora = kLora;
  lora.target_modules = {"q_proj", "v_proj"};
  const Products got = products(lora, 77);
  const auto config = model();
  EXPECT_EQ(got.out.narrow(1, config.query_size(), config.kv_size()).abs().max().item<float>(), 0)
      << "k has no adapter";
  EXPECT_NEAR(got.x, got.y, 1e-5 * std::abs(got.y) + 1e-3);
}

TEST(Adapters, TheKeyDecidesWhatIsDropped) {
  const auto a = products(kLora, 77), b = products(kLora, 77), c = products(kLora, 78),
             none = products(kLora, std::nullopt);
  EXPECT_TRUE(a.out.equal(b.out));
  EXPECT_FALSE(a.out.equal(c.out));
  LoraArgs off = kLora;
  off.dropout = 0;
  EXPECT_TRUE(none.out.equal(products(off, 77).out)) << "nothing is dropped in inference";
}

TEST(Adapters, SixteenBitsFollowFp32) {
  LoraArgs lora = kLora;
  lora.dropout = 0;
  const auto wide = products(lora, 77);
  const auto narrow = products(lora, 77, dsconfig::Precision::Bf16);
  EXPECT_LT((narrow.out.to(at::kFloat) - wide.out).norm().item<double>(),
            0.02 * wide.out.norm().item<double>());
  EXPECT_LT((narrow.dx.to(at::kFloat) - wide.dx).norm().item<double>(),
            0.02 * wide.dx.norm().item<double>());
}

}  // namespace
}  // namespace dsj::models
