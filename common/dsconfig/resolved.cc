#include "common/dsconfig/resolved.h"

namespace dsj::dsconfig {

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

namespace {

nlohmann::json to_json(const Cadence& cadence) {
  switch (cadence.kind) {
    case Cadence::Kind::Never:
      return "no";
    case Cadence::Kind::Steps:
      return {{"steps", cadence.every}};
    case Cadence::Kind::Epoch:
      return "epoch";
  }
  return nullptr;
}

nlohmann::json to_json(const MonitorConfig& monitor) {
  return {{"enabled", monitor.enabled},
          {"output_path", monitor.output_path},
          {"job_name", monitor.job_name}};
}

nlohmann::json to_json(const ObserveConfig& observe) {
  const CommsLoggerConfig& comms = observe.comms;
  const FlopsProfilerConfig& flops = observe.flops;
  return {{"wall_clock_breakdown", observe.wall_clock_breakdown},
          {"memory_breakdown", observe.memory_breakdown},
          {"dump_state", observe.dump_state},
          {"tensorboard", to_json(observe.tensorboard)},
          {"csv_monitor", to_json(observe.csv)},
          {"comms_logger",
           {{"enabled", comms.enabled},
            {"prof_all", comms.prof_all},
            {"prof_ops", comms.prof_ops},
            {"verbose", comms.verbose},
            {"debug", comms.debug}}},
          {"flops_profiler",
           {{"enabled", flops.enabled},
            {"recompute_fwd_factor", flops.recompute_fwd_factor},
            {"profile_step", flops.profile_step},
            {"module_depth", flops.module_depth},
            {"top_modules", flops.top_modules},
            {"detailed", flops.detailed},
            {"output_file", flops.output_file}}}};
}

nlohmann::json one_cycle_json(const OneCycleConfig& c) {
  return {{"first_step_size", c.first_size},
          {"second_step_size", c.second_size},
          {"first_stair_count", c.first_stairs},
          {"second_stair_count", c.second_stairs},
          {"decay_step_size", c.decay_step_size},
          {"decay_lr_rate", c.decay_lr_rate},
          {"decay_mom_rate", c.decay_momentum_rate},
          {"cycle_momentum", c.momentum},
          {"min_mom", c.min_momentum},
          {"max_mom", c.max_momentum}};
}

nlohmann::json torch_json(const TorchScheduleConfig& c) {
  return {{"gamma", c.gamma},
          {"step_size", c.step_size},
          {"milestones", c.milestones},
          {"start_factor", c.start_factor},
          {"end_factor", c.end_factor},
          {"total_iters", c.total_iters},
          {"power", c.power},
          {"period", c.period},
          {"period_factor", c.period_factor},
          {"eta_min", c.eta_min},
          {"step_size_up", c.step_size_up},
          {"step_size_down", c.step_size_down},
          {"mode", c.mode},
          {"pct_start", c.pct_start},
          {"div_factor", c.div_factor},
          {"final_div_factor", c.final_div_factor},
          {"anneal_strategy", c.linear ? "linear" : "cos"},
          {"three_phase", c.three_phase},
          {"cycle_momentum", c.cycle_momentum},
          {"base_momentum", c.base_momentum},
          {"max_momentum", c.max_momentum}};
}

/// Hugging Face's types are in lower case, DeepSpeed's and torch's are not.
nlohmann::json scheduler_json(const SchedulerConfig& s) {
  nlohmann::json out = {{"type", s.type},
                        {"min_lr", s.min_lr},
                        {"max_lr", s.max_lr},
                        {"warmup_steps", s.warmup_steps},
                        {"total_steps", s.total_steps},
                        {"warmup_type", s.log_warmup ? "log" : "linear"}};
  if (s.type == "OneCycle") {
    out["one_cycle"] = one_cycle_json(s.one_cycle);
  } else if (s.type == "LRRangeTest") {
    out["range_test"] = {{"step_size", s.range_test.step_size},
                         {"step_rate", s.range_test.step_rate},
                         {"staircase", s.range_test.staircase}};
  } else if (s.type == "WarmupCosineLR") {
    out["warmup_min_ratio"] = s.warmup_cosine.warmup_min_ratio;
    out["cos_min_ratio"] = s.warmup_cosine.cos_min_ratio;
  } else if (s.type[0] >= 'a') {
    const HuggingFaceScheduleConfig& hf = s.hugging_face;
    out["kwargs"] = {{"num_cycles", hf.num_cycles},
                     {"power", hf.power},
                     {"lr_end", hf.end_lr},
                     {"timescale", hf.timescale},
                     {"min_lr_rate", hf.min_lr_rate},
                     {"num_stable_steps", hf.stable_steps},
                     {"num_decay_steps", hf.decay_steps}};
  } else if (!s.type.starts_with("Warmup")) {
    out["torch"] = torch_json(s.torch);
  }
  return out;
}

}  // namespace

bool Cadence::due(int64_t step, int64_t steps_per_epoch, int64_t total_steps) const {
  switch (kind) {
    case Kind::Never:
      return false;
    case Kind::Steps:
      return step % every == 0;
    case Kind::Epoch:
      return step == total_steps || (steps_per_epoch > 0 && step % steps_per_epoch == 0);
  }
  return false;
}

nlohmann::json to_json(const ResolvedConfig& config) {
  const ZeroConfig& zero = config.zero;
  const LossScaleConfig& scale = config.loss_scale;
  nlohmann::json watching = to_json(config.observe);
  watching["logging"] = to_json(config.logging);
  watching["save"] = to_json(config.save);
  watching["evaluate"] = {{"when", to_json(config.eval.when)},
                          {"on_start", config.eval.on_start},
                          {"per_device_eval_batch_size", config.eval.micro_batch_size},
                          {"split_rows", config.eval.split_rows}};
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
      {"offload", to_json(config.offload)},
      {"optimizer", to_json(config.optimizer)},
      {"scheduler", scheduler_json(config.scheduler)},
      {"total_steps", config.total_steps},
      {"steps_per_epoch", config.steps_per_epoch},
      {"steps_per_print", config.steps_per_print},
      {"dataloader_drop_last", config.dataloader_drop_last},
      {"watching", watching},
  };
}

}  // namespace dsj::dsconfig
