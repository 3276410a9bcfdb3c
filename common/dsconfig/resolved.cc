#include "common/dsconfig/resolved.h"

namespace dsj::dsconfig {
namespace {

const char* name_of(Precision precision) {
  switch (precision) {
    case Precision::Fp32:
      return "fp32";
    case Precision::Bf16:
      return "bf16";
    case Precision::Fp16:
      return "fp16";
  }
  return "?";
}

/// Every hyper-parameter that the kind's formula has.
nlohmann::json optimizer_json(const OptimizerConfig& o) {
  using enum OptimizerKind;
  nlohmann::json out = {{"type", name_of(o)}, {"lr", o.lr}, {"weight_decay", o.weight_decay}};
  const auto betas = [&] { out["betas"] = {o.beta1, o.beta2}; };
  if (o.kind != Sgd && o.kind != Lion && o.kind != Asgd && o.kind != Rprop) out["eps"] = o.eps;
  if (o.maximize) out["maximize"] = true;
  switch (o.kind) {
    case Adam:
      betas();
      out["decoupled_weight_decay"] = o.decoupled_weight_decay;
      out["bias_correction"] = o.bias_correction;
      break;
    case Lamb:
      betas();
      out.update({{"bias_correction", o.bias_correction},
                  {"min_coeff", o.min_coeff},
                  {"max_coeff", o.max_coeff},
                  {"eps_inside_sqrt", o.eps_inside_sqrt}});
      break;
    case NAdam:
      out["momentum_decay"] = o.momentum_decay;
      [[fallthrough]];
    case RAdam:
      out["decoupled_weight_decay"] = o.decoupled_weight_decay;
      [[fallthrough]];
    case Adamax:
    case Lion:
      betas();
      break;
    case Sgd:
      out.update({{"momentum", o.momentum}, {"dampening", o.dampening}, {"nesterov", o.nesterov}});
      break;
    case RMSprop:
      out.update({{"momentum", o.momentum}, {"alpha", o.alpha}, {"centered", o.centered}});
      break;
    case Adagrad:
      out.update({{"lr_decay", o.lr_decay}, {"initial_accumulator_value", o.initial_accumulator}});
      break;
    case Adadelta:
      out["rho"] = o.rho;
      break;
    case Asgd:
      out.update({{"lambd", o.lambd}, {"alpha", o.alpha}, {"t0", o.t0}});
      break;
    case Rprop:
      out.update({{"etas", {o.eta_minus, o.eta_plus}}, {"step_sizes", {o.step_min, o.step_max}}});
      break;
  }
  return out;
}

}  // namespace

std::string name_of(const OptimizerConfig& optimizer) {
  using enum OptimizerKind;
  switch (optimizer.kind) {
    case Adam:
      return optimizer.decoupled_weight_decay ? "AdamW" : "Adam";
    case Sgd:
      return "SGD";
    case Adagrad:
      return "Adagrad";
    case RMSprop:
      return "RMSprop";
    case Lion:
      return "Lion";
    case Lamb:
      return "Lamb";
    case Adadelta:
      return "Adadelta";
    case Adamax:
      return "Adamax";
    case NAdam:
      return "NAdam";
    case RAdam:
      return "RAdam";
    case Asgd:
      return "ASGD";
    case Rprop:
      return "Rprop";
  }
  return "?";
}

nlohmann::json to_json(const ResolvedConfig& config) {
  const ZeroConfig& zero = config.zero;
  const SchedulerConfig& scheduler = config.scheduler;
  const LossScaleConfig& scale = config.loss_scale;
  return {
      {"train_batch_size", config.train_batch_size},
      {"train_micro_batch_size_per_gpu", config.micro_batch_size},
      {"gradient_accumulation_steps", config.gradient_accumulation_steps},
      {"gradient_clipping", config.gradient_clipping},
      {"precision", name_of(config.precision)},
      {"bf16_check_grad_overflow", config.bf16_check_grad_overflow},
      {"fp16",
       {{"loss_scale", scale.fixed},
        {"initial_scale", scale.initial},
        {"loss_scale_window", scale.window},
        {"hysteresis", scale.hysteresis},
        {"consecutive_hysteresis", scale.consecutive_hysteresis},
        {"min_loss_scale", scale.minimum}}},
      {"gradient_allreduce_op", config.averaging.mean ? "mean" : "sum"},
      {"prescale_gradients", config.averaging.prescale},
      {"gradient_predivide_factor", config.averaging.predivide},
      {"communication_data_type", name_of(config.communication_dtype)},
      {"grad_accum_dtype", name_of(config.grad_accum_dtype)},
      {"zero_optimization",
       {{"stage", zero.stage},
        {"reduce_bucket_size", zero.reduce_bucket_size},
        {"allgather_bucket_size", zero.allgather_bucket_size},
        {"stage3_prefetch_bucket_size", zero.prefetch_bucket_size},
        {"stage3_param_persistence_threshold", zero.param_persistence_threshold},
        {"stage3_model_persistence_threshold", zero.model_persistence_threshold},
        {"stage3_max_live_parameters", zero.max_live_parameters},
        {"stage3_max_reuse_distance", zero.max_reuse_distance},
        {"overlap_comm", zero.overlap_comm}}},
      {"optimizer", optimizer_json(config.optimizer)},
      {"scheduler",
       {{"type", scheduler.type},
        {"min_lr", scheduler.min_lr},
        {"max_lr", scheduler.max_lr},
        {"warmup_steps", scheduler.warmup_steps},
        {"total_steps", scheduler.total_steps},
        {"warmup_type", scheduler.log_warmup ? "log" : "linear"}}},
      {"total_steps", config.total_steps},
      {"steps_per_print", config.steps_per_print},
      {"dataloader_drop_last", config.dataloader_drop_last},
  };
}

}  // namespace dsj::dsconfig
