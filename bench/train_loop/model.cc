#include "bench/train_loop/model.h"

#include <ATen/ATen.h>

#include <cmath>
#include <utility>

#include "common/files/posix_files.h"
#include "engine/weights/weight_source.h"

namespace dsj::bench {
namespace {

using at::Tensor;

constexpr int64_t kLoraRank = 8;
constexpr double kLoraScale = 16.0 / kLoraRank;

}  // namespace

Model::Model(layout::ModelConfig shape, const ModelOptions& options)
    : shape_(std::move(shape)), options_(options) {
  const int64_t dim = shape_.head_dim;
  const Tensor inverse =
      at::pow(shape_.rope.theta, -at::arange(0, dim, 2, at::kFloat) / double(dim));
  const Tensor angles =
      at::outer(at::arange(shape_.max_position, at::kFloat), inverse).repeat({1, 2});
  const auto type = options_.bf16 ? at::kBFloat16 : at::kFloat;
  cos_ = angles.cos().to(type);
  sin_ = angles.sin().to(type);
}

Result<Model> Model::open(const std::string& directory, const ModelOptions& options) {
  DSJ_TRY(auto shape, layout::read_model_config(directory));
  Model model(std::move(shape), options);
  PosixFiles files;
  DSJ_TRY(const auto source, weights::WeightSource::open(files, directory));
  const auto type = options.bf16 ? at::kBFloat16 : at::kFloat;
  for (const auto& info : source.tensors()) {
    Tensor tensor = at::empty(info.shape);
    DSJ_TRY_STATUS(
        source.read(info.name, 0, {tensor.data_ptr<float>(), static_cast<size_t>(info.elements)}));
    tensor = tensor.to(type);
    if (!options.lora) model.trained_.push_back(tensor.requires_grad_());
    model.weights_[info.name] = tensor;
    if (options.lora && info.name.ends_with("_proj.weight")) {
      const std::string name = info.name.substr(0, info.name.rfind('.'));
      Tensor a = at::empty({kLoraRank, info.shape[1]}), b = at::zeros({info.shape[0], kLoraRank});
      const double bound = 1 / std::sqrt(static_cast<double>(info.shape[1]));
      a.uniform_(-bound, bound);
      for (auto& [end, value] : {std::pair{".a", a}, {".b", b}}) {
        const Tensor leaf = value.to(type).requires_grad_();
        model.weights_[name + end] = leaf;
        model.trained_.push_back(leaf);
      }
    }
  }
  return model;
}

Tensor Model::loss(const Tensor& ids, const Tensor& labels) const {
  const int64_t length = ids.size(1);
  Tensor x = at::embedding(weight("model.embed_tokens.weight"), ids);
  for (int64_t i = 0; i < shape_.num_layers; ++i) {
    const std::string layer = "model.layers." + std::to_string(i) + ".";
    x = x + attention(layer + "self_attn.", norm(layer + "input_layernorm", x));
    const Tensor h = norm(layer + "post_attention_layernorm", x);
    const Tensor gate = at::silu(linear(layer + "mlp.gate_proj", h));
    x = x + linear(layer + "mlp.down_proj", gate * linear(layer + "mlp.up_proj", h));
  }
  const Tensor logits = at::linear(norm("model.norm", x), weight("lm_head.weight"));
  return at::cross_entropy_loss(
      logits.narrow(1, 0, length - 1).reshape({-1, shape_.vocab_size}).to(at::kFloat),
      labels.narrow(1, 1, length - 1).reshape({-1}));
}

Tensor Model::norm(const std::string& name, const Tensor& x) const {
  const Tensor wide = x.to(at::kFloat);
  const Tensor scaled = wide * at::rsqrt(wide.pow(2).mean(-1, true) + shape_.norm_eps);
  return scaled.to(x.scalar_type()) * weight(name + ".weight");
}

Tensor Model::linear(const std::string& name, const Tensor& x) const {
  const auto bias = weights_.find(name + ".bias");
  const Tensor y = at::linear(x, weight(name + ".weight"),
                              bias == weights_.end() ? std::optional<Tensor>() : bias->second);
  if (!options_.lora) return y;
  return y + at::linear(at::linear(x, weight(name + ".a")), weight(name + ".b")) * kLoraScale;
}

Tensor Model::heads(const std::string& name, const Tensor& x) const {
  return linear(name, x).view({x.size(0), x.size(1), -1, shape_.head_dim}).transpose(1, 2);
}

Tensor Model::rotated(const Tensor& x) const {
  const auto halves = x.chunk(2, -1);
  const int64_t length = x.size(2);
  return x * cos_.narrow(0, 0, length) +
         at::cat({-halves[1], halves[0]}, -1) * sin_.narrow(0, 0, length);
}

Tensor Model::attention(const std::string& name, const Tensor& x) const {
  const Tensor y = at::scaled_dot_product_attention(
      rotated(heads(name + "q_proj", x)), rotated(heads(name + "k_proj", x)),
      heads(name + "v_proj", x), {}, 0.0, /*is_causal=*/true);
  return linear(name + "o_proj", y.transpose(1, 2).reshape(x.sizes()));
}

}  // namespace dsj::bench
