// A Qwen2-shaped model as anyone would write it with libtorch and autograd, in Hugging Face's order of
// operations.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/result.h"
#include "job/layout/model_config.h"

namespace dsj::bench {

struct ModelOptions {
  bool bf16 = false;  ///< weights and activations in bf16, the loss in fp32
  /// Adapters of rank 8, alpha 16, on every linear layer but the head; all else is frozen.
  bool lora = false;
};

class Model {
 public:
  /// Reads a Hugging Face directory of family qwen2.
  static Result<Model> open(const std::string& directory, const ModelOptions& options);

  /// `ids`, `labels`: [rows, length] int64. The mean over labels that are not -100, a scalar fp32.
  at::Tensor loss(const at::Tensor& ids, const at::Tensor& labels) const;
  /// Leaves with a gradient, in the compute type.
  const std::vector<at::Tensor>& trained() const { return trained_; }

 private:
  Model(layout::ModelConfig shape, const ModelOptions& options);
  const at::Tensor& weight(const std::string& name) const { return weights_.at(name); }
  at::Tensor norm(const std::string& name, const at::Tensor& x) const;
  at::Tensor linear(const std::string& name, const at::Tensor& x) const;
  at::Tensor heads(const std::string& name, const at::Tensor& x) const;
  at::Tensor rotated(const at::Tensor& x) const;
  at::Tensor attention(const std::string& name, const at::Tensor& x) const;

  layout::ModelConfig shape_;
  ModelOptions options_;
  std::map<std::string, at::Tensor> weights_;
  std::vector<at::Tensor> trained_;
  at::Tensor cos_, sin_;  ///< [positions, head_dim]
};

}  // namespace dsj::bench
