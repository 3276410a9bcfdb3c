#include "job/dsconfig/keys/resolved_json.h"

#include <algorithm>

#include "job/dsconfig/keys/keys.h"

namespace dsj::dsconfig {

using nlohmann::json;

namespace {

json cadence_json(const Cadence& cadence) {
  switch (cadence.kind) {
    case Cadence::Kind::Never:
      return "no";
    case Cadence::Kind::Steps:
      if (cadence.every == INT64_MAX) return "at the end";
      return {{"steps", cadence.every}};
    case Cadence::Kind::Epoch:
      return "epoch";
  }
  return nullptr;
}

json one_cycle_json(const OneCycleConfig& c) {
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

json torch_json(const TorchScheduleConfig& c) {
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
json scheduler_json(const SchedulerConfig& s) {
  json out = {{"type", s.type},
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

/// Where a field is shown; empty if a function below shows it.
std::string place_of(const std::string& path) {
  for (const char* own : {"zero_optimization.offload_", "zero_optimization.sub_group_size", "aio.",
                          "scheduler.", "bf16."})
    if (path.starts_with(own)) return "";
  std::string pointer = "/" + path;
  std::ranges::replace(pointer, '.', '/');
  for (const char* watcher : {"wall_clock_breakdown", "memory_breakdown", "dump_state",
                              "tensorboard", "csv_monitor", "comms_logger", "flops_profiler"})
    if (path.starts_with(watcher)) return "/watching" + pointer;
  return pointer;
}

json fields_json(ResolvedConfig config) {
  json out = json::object();
  for (const Key& key : all_keys()) {
    if (key.field == nullptr) continue;
    const std::string place = place_of(key.path);
    if (place.empty()) continue;
    std::visit([&](const auto* value) { out[json::json_pointer(place)] = *value; },
               key.field(config));
  }
  return out;
}

json schedule_json(const DifficultySchedule& schedule) {
  json out = {{"min_difficulty", schedule.min},
              {"max_difficulty", schedule.max},
              {"schedule_type", schedule.type}};
  if (schedule.type == "fixed_discrete") {
    out["difficulty"] = schedule.difficulties;
    out["max_step"] = schedule.last_steps;
    return out;
  }
  out["total_curriculum_step"] = schedule.total_steps;
  out["difficulty_step"] = schedule.difficulty_step;
  out["root_degree"] = schedule.root_degree;
  out["may_round_below_min"] = schedule.may_round_below_min;
  return out;
}

}  // namespace

json to_json(const DataEfficiencyConfig& config) {
  json out = json::object();
  if (const auto& length = config.row_length) {
    out["row_length"] = schedule_json(length->schedule);
    out["row_length"]["metric"] = length->metric;
  }
  if (const auto& ltd = config.random_ltd)
    out["random_ltd"] = {{"random_ltd_layer_id", ltd->layers},
                         {"min_value", ltd->min},
                         {"max_value", ltd->max},
                         {"require_steps", ltd->require_steps},
                         {"seq_per_step", ltd->tokens_per_step}};
  return out;
}

json to_json(const ResolvedConfig& config) {
  json out = fields_json(config);
  out["train_batch_size"] = config.train_batch_size;
  out["train_micro_batch_size_per_gpu"] = config.micro_batch_size;
  out["gradient_accumulation_steps"] = config.gradient_accumulation_steps;
  if (!config.elastic_world_sizes.empty())
    out["elasticity"]["world_sizes"] = config.elastic_world_sizes;
  out["gradient_clipping"] = config.gradient_clipping;
  out["precision"] = name_of(config.precision);
  if (config.autocast.on())
    out["torch_autocast"] = {{"dtype", name_of(config.autocast.products)},
                             {"lower_precision_safe_modules", config.autocast.safe_modules}};
  out["bf16_check_grad_overflow"] = config.bf16_check_grad_overflow;
  out["fp16"]["initial_scale"] = config.loss_scale.initial;
  if (config.loss_scale.like_torch)
    out["fp16"].update(
        {{"rule", "torch.amp.GradScaler"}, {"max_loss_scale", config.loss_scale.maximum}});
  out["gradient_allreduce_op"] = config.averaging.mean ? "mean" : "sum";
  out["communication_data_type"] = name_of(config.communication_dtype);
  out["grad_accum_dtype"] = name_of(config.grad_accum_dtype);
  out["master_dtype"] = name_of(config.master_dtype);
  out["optimizer_state_dtype"] = name_of(config.state_dtype);
  out["zero_optimization"]["overlap_comm"] = config.zero.overlap_comm;
  out["offload"] = to_json(config.offload);
  out["optimizer"] = to_json(config.optimizer);
  if (config.optimizer.kind == OptimizerKind::Muon) out["optimizer"].update(to_json(config.muon));
  out["scheduler"] = scheduler_json(config.scheduler);
  if (json data = to_json(config.data_efficiency); !data.empty())
    out["data_efficiency"] = std::move(data);
  out["total_steps"] = config.total_steps;
  out["steps_per_epoch"] = config.steps_per_epoch;
  out["drop_last_micro_batches"] = config.drop_last_micro_batches;
  out["steps_per_print"] = config.steps_per_print;
  json& watching = out["watching"];
  watching["comms_logger"]["prof_ops"] = config.observe.comms.prof_ops;
  watching["flops_profiler"]["output_file"] = config.observe.flops.output_file;
  watching["logging"] = cadence_json(config.logging);
  watching["save"] = cadence_json(config.save);
  watching["evaluate"] = {{"when", cadence_json(config.eval.when)},
                          {"delay", config.eval.delay},
                          {"on_start", config.eval.on_start},
                          {"per_device_eval_batch_size", config.eval.micro_batch_size},
                          {"split_rows", config.eval.split_rows}};
  const BestConfig& best = config.eval.best;
  if (best.on())
    watching["best"] = {{"load_best_model_at_end", best.load},
                        {"saves_the_best", best.save},
                        {"greater_is_better", best.greater},
                        {"early_stopping_patience", best.patience},
                        {"early_stopping_threshold", best.threshold}};
  return out;
}

}  // namespace dsj::dsconfig
