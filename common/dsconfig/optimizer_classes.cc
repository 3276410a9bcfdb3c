#include "common/dsconfig/optimizer_classes.h"

#include <algorithm>
#include <map>

#include "common/dsconfig/keys.h"
#include "common/text.h"

namespace dsj::dsconfig {
namespace {

using Names = std::vector<std::string>;

Names operator+(Names left, const Names& right) {
  left.insert(left.end(), right.begin(), right.end());
  return left;
}

/// By the constructors of torch 2.11 and DeepSpeed 0.19.
const std::vector<OptimizerClass>& classes() {
  static const std::vector<OptimizerClass> table = [] {
    using enum OptimizerKind;
    const Names torch = {"lr", "weight_decay", "foreach", "maximize", "differentiable"};
    const Names moments = {"betas", "eps"};
    const Names graph = {"capturable"};
    const Names fused = {"fused"};
    const Names deepspeed_adam = {"lr",         "bias_correction", "betas",
                                  "eps",        "amsgrad",         "weight_decay",
                                  "torch_adam", "adam_w_mode",     "fp32_optimizer_states"};
    return std::vector<OptimizerClass>{
        {"AdamW", Adam, deepspeed_adam + Names{"set_grad_none"}, 1e-3, 1e-8, 0, true},
        {"Adam", Adam, deepspeed_adam + Names{"set_grad_none"}, 1e-3, 1e-8, 0, true},
        {"Lamb",
         Lamb,
         {"lr", "bias_correction", "betas", "eps", "eps_inside_sqrt", "weight_decay", "max_coeff",
          "min_coeff", "amsgrad"}},
        {"Lion", Lion, {"lr", "betas", "weight_decay", "set_grad_none"}, 1e-3, 1e-8, 0, true},
        {"Adagrad", Adagrad, torch + fused + Names{"lr_decay", "initial_accumulator_value", "eps"},
         1e-2, 1e-10, 0, true},
        {"SGD", Sgd, torch + fused + Names{"momentum", "dampening", "nesterov"}},
        {"RMSprop", RMSprop, torch + graph + Names{"alpha", "eps", "momentum", "centered"}, 1e-2},
        {"Adadelta", Adadelta, torch + graph + Names{"rho", "eps"}, 1.0, 1e-6},
        {"Adamax", Adamax, torch + graph + moments, 2e-3},
        {"NAdam", NAdam,
         torch + graph + moments + Names{"momentum_decay", "decoupled_weight_decay"}, 2e-3},
        {"RAdam", RAdam, torch + graph + moments + Names{"decoupled_weight_decay"}, 1e-3},
        {"ASGD", Asgd, torch + graph + Names{"lambd", "alpha", "t0"}, 1e-2},
        {"Rprop",
         Rprop,
         {"lr", "etas", "step_sizes", "capturable", "foreach", "maximize", "differentiable"},
         1e-2},
    };
  }();
  return table;
}

/// The same names, if they mean torch's classes.
const std::vector<OptimizerClass>& torch_adams() {
  static const std::vector<OptimizerClass> table = [] {
    const Names params = {"lr",
                          "betas",
                          "eps",
                          "weight_decay",
                          "amsgrad",
                          "maximize",
                          "foreach",
                          "fused",
                          "capturable",
                          "differentiable",
                          "torch_adam",
                          "adam_w_mode",
                          "fp32_optimizer_states"};
    return std::vector<OptimizerClass>{
        {"AdamW", OptimizerKind::Adam, params, 1e-3, 1e-8, 1e-2, true},
        {"Adam", OptimizerKind::Adam, params, 1e-3, 1e-8, 0, true}};
  }();
  return table;
}
const std::vector<OptimizerClass>& cpu_classes() {
  static const std::vector<OptimizerClass> table = [] {
    using enum OptimizerKind;
    const Names adam = {"lr",         "bias_correction", "betas",
                        "eps",        "amsgrad",         "weight_decay",
                        "torch_adam", "adam_w_mode",     "fp32_optimizer_states"};
    return std::vector<OptimizerClass>{
        {"AdamW", Adam, adam, 1e-3, 1e-8, 0, true},
        {"Adam", Adam, adam, 1e-3, 1e-8, 0, true},
        {"Lion",
         Lion,
         {"lr", "betas", "weight_decay", "fp32_optimizer_states"},
         1e-3,
         1e-8,
         0,
         true},
        {"Adagrad",
         Adagrad,
         {"lr", "eps", "weight_decay", "amsgrad", "fp32_optimizer_states"},
         1e-2,
         1e-10,
         0,
         true}};
  }();
  return table;
}

/// DeepSpeed lower-cases its own names. torch's must be exact.
bool any_case(const std::string& name) {
  static const Names own = {"adam",    "adamw", "lamb", "lion",       "adagrad",     "muadam",
                            "muadamw", "musgd", "muon", "onebitadam", "zerooneadam", "onebitlamb"};
  return std::ranges::find(own, text::normalized(name)) != own.end();
}
bool same(const std::string& known, const std::string& type) {
  if (known == type) return true;
  return any_case(known) && known.size() == type.size() &&
         text::normalized(known) == text::normalized(type);
}

const OptimizerClass* find(const std::vector<OptimizerClass>& table, const std::string& type) {
  const auto found =
      std::ranges::find_if(table, [&](const OptimizerClass& one) { return same(one.name, type); });
  return found == table.end() ? nullptr : &*found;
}

const std::vector<std::pair<std::string, std::string>>& refusals() {
  static const std::string one_bit =
      "DeepSpeed 0.19 has no 1-bit optimizers on this path; AdamW and Lamb are the uncompressed "
      "ones";
  static const std::string mup =
      "it needs the widths of a muP base model, which a ds_config does not have";
  static const std::vector<std::pair<std::string, std::string>> table = {
      {"OneBitAdam", one_bit},
      {"ZeroOneAdam", one_bit},
      {"OneBitLamb", one_bit},
      {"MuAdam", mup},
      {"MuAdamW", mup},
      {"MuSGD", mup},
      {"Muon", "it orthogonalises whole matrices, which no rank has under ZeRO"},
      {"LBFGS", "it evaluates the loss several times per step"},
      {"SparseAdam", "it takes sparse gradients only; ours are dense"},
      {"Adafactor",
       "its row and column statistics need whole matrices, which no rank has under "
       "ZeRO; AdamW is the nearest"},
  };
  return table;
}

}  // namespace

const OptimizerClass* optimizer_class(const std::string& type, bool torch_adam, bool cpu) {
  if (torch_adam)
    if (const auto* found = find(torch_adams(), type)) return found;
  if (cpu)
    if (const auto* found = find(cpu_classes(), type)) return found;
  return find(classes(), type);
}

std::string optimizer_refusal(const std::string& type) {
  for (const auto& [name, reason] : refusals())
    if (same(name, type)) return reason;
  return "";
}

Support optimizer_support(const std::string& type) {
  if (find(classes(), type) != nullptr) return Support::Here;
  return optimizer_refusal(type).empty() ? Support::Unknown : Support::Elsewhere;
}

const std::vector<std::string>& optimizer_names() {
  static const std::vector<std::string> names = [] {
    Names list;
    for (const auto& one : classes()) list.push_back(one.name);
    for (const auto& [name, reason] : refusals()) list.push_back(name);
    return list;
  }();
  return names;
}

std::string hugging_face_optimizer(const std::string& optim) {
  static const std::map<std::string, std::string> types = {
      {"adamw_torch", "AdamW"},
      {"adamw_torch_fused", "AdamW"},
      {"adamw_torch_xla", "AdamW"},
      {"adamw_torch_npu_fused", "AdamW"},
      {"adamw_hf", "AdamW"},
      {"paged_adamw_32bit", "AdamW"},
      {"sgd", "SGD"},
      {"adagrad", "Adagrad"},
      {"rmsprop", "RMSprop"},
      {"lion_32bit", "Lion"},
      {"paged_lion_32bit", "Lion"},
  };
  const auto found = types.find(optim);
  return found == types.end() ? "" : found->second;
}

const std::vector<std::string>& hugging_face_optimizers() {
  static const std::vector<std::string> names = {"adamw_torch",
                                                 "adamw_torch_fused",
                                                 "adamw_torch_xla",
                                                 "adamw_torch_npu_fused",
                                                 "adamw_hf",
                                                 "adafactor",
                                                 "adamw_anyprecision",
                                                 "adamw_torch_4bit",
                                                 "adamw_torch_8bit",
                                                 "ademamix",
                                                 "sgd",
                                                 "adagrad",
                                                 "adamw_bnb_8bit",
                                                 "adamw_8bit",
                                                 "ademamix_8bit",
                                                 "lion_8bit",
                                                 "lion_32bit",
                                                 "paged_adamw_32bit",
                                                 "paged_adamw_8bit",
                                                 "paged_ademamix_32bit",
                                                 "paged_ademamix_8bit",
                                                 "paged_lion_32bit",
                                                 "paged_lion_8bit",
                                                 "rmsprop",
                                                 "rmsprop_bnb",
                                                 "rmsprop_bnb_8bit",
                                                 "rmsprop_bnb_32bit",
                                                 "galore_adamw",
                                                 "galore_adamw_8bit",
                                                 "galore_adafactor",
                                                 "galore_adamw_layerwise",
                                                 "galore_adamw_8bit_layerwise",
                                                 "galore_adafactor_layerwise",
                                                 "lomo",
                                                 "adalomo",
                                                 "grokadamw",
                                                 "schedule_free_radam",
                                                 "schedule_free_adamw",
                                                 "schedule_free_sgd",
                                                 "apollo_adamw",
                                                 "apollo_adamw_layerwise",
                                                 "stable_adamw"};
  return names;
}

}  // namespace dsj::dsconfig
