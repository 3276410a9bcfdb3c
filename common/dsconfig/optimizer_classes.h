// The optimizers of DeepSpeed 0.19 and torch.optim: which are built, which parameters their
// constructors take, their defaults. Internal to dsconfig.
#pragma once

#include <string>
#include <vector>

#include "common/dsconfig/resolved.h"

namespace dsj::dsconfig {

struct OptimizerClass {
  std::string name;  ///< as ds_config writes it
  OptimizerKind kind = OptimizerKind::Adam;
  std::vector<std::string> params;  ///< what `optimizer.params` may hold
  double lr = 1e-3, eps = 1e-8, weight_decay = 0;
  bool zero_tested = false;  ///< on DeepSpeed's list of optimizers for ZeRO
};

/// Null: no such optimizer is built. `torch_adam`: Adam and AdamW mean torch's classes, which take
/// other parameters. `cpu`: the optimizer is offloaded, so DeepSpeed's CPU classes are meant.
const OptimizerClass* optimizer_class(const std::string& type, bool torch_adam, bool cpu);

/// Why a known optimizer is not built; "": it is built, or unknown.
std::string optimizer_refusal(const std::string& type);

/// training.optim: Hugging Face's name → ds_config's type; "": not built.
std::string hugging_face_optimizer(const std::string& optim);
/// Every name of training.optim.
const std::vector<std::string>& hugging_face_optimizers();

}  // namespace dsj::dsconfig
