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

}  // namespace

nlohmann::json to_json(const ResolvedConfig& config) {
  const ZeroConfig& zero = config.zero;
  const OptimizerConfig& optimizer = config.optimizer;
  const SchedulerConfig& scheduler = config.scheduler;
  return {
      {"train_batch_size", config.train_batch_size},
      {"train_micro_batch_size_per_gpu", config.micro_batch_size},
      {"gradient_accumulation_steps", config.gradient_accumulation_steps},
      {"gradient_clipping", config.gradient_clipping},
      {"precision", name_of(config.precision)},
      {"bf16_check_grad_overflow", config.bf16_check_grad_overflow},
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
      {"optimizer",
       {{"type", optimizer.type},
        {"lr", optimizer.lr},
        {"betas", {optimizer.beta1, optimizer.beta2}},
        {"eps", optimizer.eps},
        {"weight_decay", optimizer.weight_decay},
        {"decoupled_weight_decay", optimizer.decoupled_weight_decay},
        {"bias_correction", optimizer.bias_correction}}},
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
