// Rows of optimizer. Only some classes take a parameter: optimizers.h lists which, and creates the
// rows of parameters that a formula reads. See keys.h.
#include "job/dsconfig/config/optimizers.h"
#include "job/dsconfig/keys/keys.h"

namespace dsj::dsconfig {
namespace {

Type type_of(const OptimizerParameter& parameter) {
  if (std::holds_alternative<PairField>(parameter.field)) return Type::List;
  return std::holds_alternative<bool OptimizerConfig::*>(parameter.field) ? Type::Bool
                                                                          : Type::Float;
}

Key row_of(const OptimizerParameter& parameter) {
  Key key{.path = "optimizer.params." + std::string(parameter.name),
          .type = type_of(parameter),
          .fallback = default_of(parameter),
          .min = parameter.min,
          .max = parameter.max,
          .auto_rule = std::string(parameter.auto_rule),
          .test = std::string(parameter.test)};
  if (!parameter.alias.empty()) key.aliases.emplace_back(parameter.alias);
  return key;
}

/// Parameters of constructors that no formula reads or that are not in OptimizerConfig.
std::vector<Key> formless_parameters() {
  using enum Type;
  using enum State;
  return {
      {.path = "optimizer.params.set_grad_none",
       .type = Bool,
       .fallback = true,
       .state = Moot,
       .reason = "the gradient is always cleared after the step"},
      {.path = "optimizer.params.fp32_optimizer_states",
       .type = Bool,
       .fallback = true,
       .test = "dsconfig_tests:MasterTypes.MomentsFollowTheOffloadedMasters"},
      {.path = "optimizer.params.fused",
       .type = Any,
       .state = Moot,
       .reason = "it chooses between implementations of one formula"},
      {.path = "optimizer.params.foreach",
       .type = Any,
       .state = Moot,
       .reason = "it chooses between implementations of one formula"},
      {.path = "optimizer.params.capturable",
       .type = Bool,
       .fallback = false,
       .state = Moot,
       .reason = "it chooses between implementations of one formula"},
      {.path = "optimizer.params.differentiable",
       .type = Bool,
       .fallback = false,
       .state = Moot,
       .reason = "it chooses between implementations of one formula"},
      {.path = "optimizer.params.max_grad_norm",
       .type = Any,
       .state = Rejected,
       .reason = "DeepSpeed takes it from gradient_clipping at the top level, not from here"},
      {.path = "optimizer.params.cuda_aware",
       .type = Bool,
       .fallback = false,
       .state = Moot,
       .reason = "it is about MPI's buffers; compressed momenta use the job's own collectives"},
      {.path = "optimizer.params.comm_backend_name",
       .type = String,
       .fallback = "nccl",
       .state = Moot,
       .reason = "compressed momenta use the job's own collectives, with the same arithmetic",
       .choices = {"nccl", "mpi", "hccl", "compressed"}},
      {.path = "optimizer.params.muon_lr", .type = Float, .min = 0, .test = kMuonTests},
      {.path = "optimizer.params.adam_lr", .type = Float, .min = 0, .test = kMuonTests},
      {.path = "optimizer.params.ns_steps",
       .type = Int,
       .fallback = 5,
       .min = 1,
       .max = 100,
       .test = "dsconfig_tests:OptimizerTest.MuonHasTwoRates "
               "zero_tests:NewtonSchulz.MoreStepsComeCloserToOrthogonal"},
      {.path = "optimizer.params.ns_method",
       .type = String,
       .fallback = "gram",
       .choices = {"gram", "standard"},
       .test = kMuonTests},
      {.path = "optimizer.params.per_head_muon",
       .type = Bool,
       .fallback = false,
       .state = Unsupported,
       .reason = "matrices are orthogonalised whole, not by attention head"},
      {.path = "optimizer.params.torch_adam",
       .type = Bool,
       .fallback = false,
       .test = "dsconfig_tests:OptimizerTest.TorchsAdamWHasItsOwnWeightDecay"},
      {.path = "optimizer.params.amsgrad",
       .type = Bool,
       .fallback = false,
       .state = Unsupported,
       .reason = "AMSGrad is not built; DeepSpeed's own classes refuse it too"},
  };
}

}  // namespace

std::vector<Key> optimizer_keys() {
  using enum Type;
  std::vector<Key> keys = {
      {.path = "optimizer", .type = Section},
      {.path = "optimizer.type",
       .type = String,
       .test = "dsconfig_tests:WorkingKeys.EachValueReachesTheResolvedConfig"},
      {.path = "optimizer.legacy_fusion",
       .type = Bool,
       .fallback = false,
       .state = State::Inert,
       .reason = "there is one update path"},
      {.path = "optimizer.params", .type = Section},
  };
  for (const OptimizerParameter& parameter : kOptimizerParameters) {
    if (parameter.name == "maximize")  // after Adam's own
      for (Key& key : formless_parameters()) keys.push_back(std::move(key));
    keys.push_back(row_of(parameter));
  }
  return keys;
}

}  // namespace dsj::dsconfig
