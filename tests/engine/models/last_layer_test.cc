// A layer that gives some tokens' outputs: the same outputs, input gradient and parameter gradients
// as all outputs of which the others have no gradient.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "common/files/posix_files.h"
#include "engine/models/ops/picked_rows.h"
#include "engine/models/unit/unit.h"
#include "test_paths.h"
#include "tests/engine/support/micro_batch.h"
#include "tests/engine/support/ranks.h"

namespace dsj::models {
namespace {

struct LastLayerCase {
  const char* name;
  const char* model;
  std::vector<std::string> lora = {};  ///< modules with adapters
  dsconfig::Precision precision = dsconfig::Precision::Fp32;
  double tolerance = 2e-6;  ///< of a tensor's largest element
};

class LastLayer : public testing::TestWithParam<LastLayerCase> {
 protected:
  /// Rows without a target, of one token, with two targets, and with a masked beginning.
  static MicroBatch batch() {
    const std::vector<int64_t> lengths = {7, 1, 12, 9}, targets = {0, 0, 2, 5};
    std::vector<std::vector<int64_t>> ids, labels;
    for (size_t i = 0; i < lengths.size(); ++i) {
      ids.emplace_back(lengths[i], 3);
      labels.emplace_back(lengths[i], -100);
      std::fill(labels[i].end() - targets[i], labels[i].end(), 4);
    }
    return testing_support::ragged(ids, labels);
  }

  void expect_near(const at::Tensor& got, const at::Tensor& want, const std::string& what) {
    ASSERT_EQ(got.sizes(), want.sizes()) << what;
    const double largest = want.abs().max().item<double>();
    EXPECT_GT(largest, 0) << what;
    // A gradient that is one number is a sum over all tokens and columns, and has no larger element
    // beside it that its rounding is small against.
    const double tolerance = (want.numel() == 1 ? 5 : 1) * GetParam().tolerance;
    EXPECT_LE((got - want).abs().max().item<double>(), tolerance * largest) << what;
  }
};

struct Pass {
  at::Tensor y, dx;
  std::vector<at::Tensor> gradients;  ///< of the unit's trained parameters
};

/// One forward and `times` backwards. The gradients add up over them.
/// `given`: what the layer gets besides x; the gradients of that are the last ones.
Pass pass(zero::ModelState& state, const layout::ModelConfig& model, const at::Tensor& x,
          const at::Tensor& dy, LayerCall call, const Carried& given, int times) {
  const auto layer = make_layer(model);
  const auto p = state.unit(static_cast<int>(model.num_layers));
  Pass result;
  Carried carried;
  call.carried = &carried;
  for (int i = 0; i < times; ++i) {
    LayerSaved saved;
    carried = given;
    if (given.inputs.defined()) carried.inputs = given.inputs.clone();
    result.y = layer->forward(p, x, call, &saved);
    result.dx = layer->backward(p, dy.clone(), call, std::move(saved));
  }
  const auto& parameters = state.units()[model.num_layers].parameters;
  for (size_t i = 0; i < parameters.size(); ++i)
    if (p.trained(static_cast<int>(i)))
      result.gradients.push_back(p.grad(static_cast<int>(i)).tensor.to(at::kFloat).clone());
  state.clear_grad();
  if (model.layer_input > 0)
    result.gradients.push_back(
        carried.inputs.narrow(1, call.layer * model.layer_input, model.layer_input));
  for (const auto& [layer, keys] : carried.keys) result.gradients.push_back(keys.dkv);
  return result;
}

TEST_P(LastLayer, GivesWhatAllOutputsGive) {
  const auto& c = GetParam();
  testing_support::run_ranks(1, [&](comm::Collectives& collectives, memory::Ledger&) {
    const std::string directory = std::string(DSJ_SOURCE_DIR) + "/tests/fixtures/" + c.model;
    const auto model = layout::read_model_config(directory);
    ASSERT_TRUE(model) << model.error().to_string();
    dsconfig::ResolvedConfig config;
    config.precision = config.grad_accum_dtype = config.communication_dtype = c.precision;
    std::optional<LoraArgs> lora;
    if (!c.lora.empty()) {
      auto resolved = layout::resolve_lora(*model, {.r = 4, .alpha = 8, .target_modules = c.lora});
      ASSERT_TRUE(resolved) << resolved.error().to_string();
      lora = std::move(*resolved);
    }
    zero::ModelState state(*model, config, at::kCPU, collectives, lora);
    PosixFiles files;
    const auto source = weights::WeightSource::open(files, directory);
    ASSERT_TRUE(source && state.load(*source));
    memory::MemoryScope outside(memory::Class::Activations, memory::process_ledger());
    at::manual_seed(5);
    const int last = static_cast<int>(model->num_layers);
    const auto p = state.unit(last);
    for (const auto& adapter : state.units()[last].adapters)
      for (const int i : {adapter.a, adapter.b})
        p.weight(i).copy_(at::randn(p.weight(i).sizes()).mul_(0.1));

    const MicroBatch rows = batch();
    const at::Tensor* wanted = rows.last_outputs();
    ASSERT_NE(wanted, nullptr);
    const int64_t tokens = rows.rows().tokens();
    const auto type = p.weight(0).scalar_type();
    const at::Tensor x = at::randn({tokens, model->hidden_size}).to(type);
    const at::Tensor dy = at::randn({wanted->size(0), model->hidden_size}).to(type);
    ops::Ropes ropes(*model, p.weight(0).options());
    LayerCall call{.layer = last - 1, .rows = &rows.rows(), .rope = ropes.of(last - 1, 12)};
    Carried given;
    if (model->layer_input > 0)
      given.inputs = at::randn({tokens, model->num_layers * model->layer_input}).to(type);
    if (const int64_t of = model->key_layer(last - 1); of != last - 1)
      given.keys[of].kv = at::randn({tokens, 2 * model->of_layer(of).kv_size()}).to(type);
    for (const int times : {1, 2}) {
      call.outputs = nullptr;
      const Pass all = pass(state, *model, x, put_back(dy, wanted, tokens), call, given, times);
      call.outputs = wanted;
      const Pass some = pass(state, *model, x, dy, call, given, times);
      expect_near(some.y, picked(all.y, wanted), "output");
      expect_near(some.dx, all.dx, "dx");
      ASSERT_EQ(some.gradients.size(), all.gradients.size());
      for (size_t i = 0; i < all.gradients.size(); ++i)
        expect_near(some.gradients[i], all.gradients[i], "gradient " + std::to_string(i));
    }
  });
}

INSTANTIATE_TEST_SUITE_P(
    Models, LastLayer,
    testing::Values(
        LastLayerCase{"biases", "tiny-qwen2"},
        LastLayerCase{"head_norms_and_windows", "tiny-qwen3"},
        LastLayerCase{"shared_heads", "tiny-mistral"}, LastLayerCase{"plain", "tiny-llama"},
        LastLayerCase{"gpt2", "tiny-gpt2"}, LastLayerCase{"fused", "tiny-phi3"},
        LastLayerCase{"norms_behind", "tiny-olmo2"}, LastLayerCase{"caps", "tiny-gemma2"},
        LastLayerCase{"norms_on_both_sides", "tiny-gemma3"},
        LastLayerCase{"no_rope", "tiny-smollm3"}, LastLayerCase{"plain_mlp", "tiny-starcoder2"},
        LastLayerCase{"parallel", "tiny-gpt-neox"},
        LastLayerCase{"parallel_one_norm", "tiny-cohere2"},
        LastLayerCase{"norms_behind_rope", "tiny-hunyuan"},
        LastLayerCase{"output_gates", "tiny-qwen3.5"},
        LastLayerCase{"delta_rule", "tiny-qwen3.5-text"},
        LastLayerCase{"growing_queries", "tiny-ministral3"},
        LastLayerCase{"trained_activation", "tiny-apertus"},
        LastLayerCase{"norms_behind_experts", "tiny-flex-olmo"},
        LastLayerCase{"keys_are_values", "tiny-gemma4"},
        LastLayerCase{"experts_beside_an_mlp", "tiny-gemma4-moe"},
        LastLayerCase{"keys_of_another_layer", "tiny-gemma4-e2b"},
        LastLayerCase{.name = "lora",
                      .model = "tiny-qwen2",
                      .lora = {"q_proj", "v_proj", "o_proj", "up_proj"}},
        LastLayerCase{
            .name = "lora_gpt2", .model = "tiny-gpt2", .lora = {"c_attn", "c_proj", "c_fc"}},
        // One sum of two products is rounded in between: a few units of 2^-8.
        LastLayerCase{.name = "bf16",
                      .model = "tiny-qwen2",
                      .precision = dsconfig::Precision::Bf16,
                      .tolerance = 0.02}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace dsj::models
