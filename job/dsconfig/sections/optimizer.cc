// Resolves the optimizer and its hyper-parameters from ds_config's section, or without one from
// training.optim, as Hugging Face does.
#include <algorithm>

#include "common/text.h"
#include "job/dsconfig/config/one_bit_steps.h"
#include "job/dsconfig/config/optimizers.h"
#include "job/dsconfig/sections/parts.h"

namespace dsj::dsconfig {

using nlohmann::json;
using Severity = Finding::Severity;

namespace {

std::string optimizer_key(const std::string& name) {
  return "optimizer.params." + name;
}

const OptimizerParameter& parameter(std::string_view name) {
  return *std::ranges::find(kOptimizerParameters, name, &OptimizerParameter::name);
}

const std::vector<std::string>& optimizer_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> list;
    for (const Optimizer& one : kOptimizers) list.emplace_back(one.name);
    return list;
  }();
  return names;
}

bool has(const std::vector<std::string>& params, std::string_view name) {
  return std::ranges::find(params, name) != params.end();
}

std::optional<std::pair<double, double>> pair(const Source& in, const std::string& path) {
  const json* value = in.literal(path);
  if (value == nullptr || value->size() != 2) return std::nullopt;
  double numbers[2];
  for (size_t i = 0; i < 2; ++i) {
    const json& entry = (*value)[i];
    const auto read = entry.is_number()   ? std::optional(entry.get<double>())
                      : entry.is_string() ? text::parse_double(entry.get<std::string>())
                                          : std::nullopt;
    if (!read) return std::nullopt;
    numbers[i] = *read;
  }
  return std::pair{numbers[0], numbers[1]};
}

/// Reads a pair of numbers. False if ds_config has none or it is invalid, which is reported.
bool read_pair(const OptimizerParameter& parameter, OptimizerConfig& optimizer, const Source& in,
               Report& out) {
  const std::string path = optimizer_key(std::string(parameter.name));
  const json* value = in.literal(path);
  if (value == nullptr) return false;
  const PairField& field = std::get<PairField>(parameter.field);
  const auto found = pair(in, path);
  if (!found || !field.holds(found->first, found->second)) {
    out.error(path, "found " + value->dump() + ", expected " + field.expected, field.hint);
    return false;
  }
  optimizer.*field.first = found->first;
  optimizer.*field.second = found->second;
  return true;
}

void betas(OptimizerConfig& optimizer, const Source& in, Report& out) {
  const char* path = "optimizer.params.betas";
  const json* value = in.literal(path);
  if (value == nullptr) {
    optimizer.beta1 = in.args.adam_beta1.value_or(optimizer.beta1);
    optimizer.beta2 = in.args.adam_beta2.value_or(optimizer.beta2);
    const bool given = in.args.adam_beta1 || in.args.adam_beta2;
    if (given || in.is_auto(path))
      out.origin(path, text::number(optimizer.beta1) + ", " + text::number(optimizer.beta2),
                 given ? "training.adamBeta1, training.adamBeta2" : kHuggingFaceDefault);
    return;
  }
  if (!read_pair(parameter("betas"), optimizer, in, out)) return;
  const auto same = [&](double here, const char* name, const std::optional<double>& argument) {
    if (argument && *argument != here)
      out.mismatch(path, text::number(here), name, text::number(*argument));
  };
  same(optimizer.beta1, "training.adamBeta1", in.args.adam_beta1);
  same(optimizer.beta2, "training.adamBeta2", in.args.adam_beta2);
}

/// Reports parameters that would be a TypeError in Python, and values that the classes refuse.
void check_names(const Optimizer& found, const std::vector<std::string>& taken, const Source& in,
                 Report& out) {
  const json* params = in.checked.find("optimizer.params");
  if (params == nullptr) return;
  for (const auto& [name, value] : params->items()) {
    if (has(taken, name) || name == "max_grad_norm") continue;
    const std::string hint = text::did_you_mean(name, taken);
    out.error(optimizer_key(name), std::string(found.name) + " has no parameter \"" + name + "\"",
              hint.empty() ? "remove it" : hint);
  }
  if (in.value<bool>(optimizer_key("amsgrad")))
    out.unsupported(optimizer_key("amsgrad"), "AMSGrad is not built",
                    "DeepSpeed's own classes refuse it too; remove it");
}

/// Parameters without a rule for "auto". One that the class does not take is an error already; it
/// is read so that later checks cover it. Those that it takes are read last.
void read_parameters(OptimizerConfig& optimizer, const std::vector<std::string>& taken,
                     const Source& in, Report& out) {
  const OptimizerConfig defaults = optimizer;
  for (const bool own : {false, true}) {
    for (const OptimizerParameter& one : kOptimizerParameters) {
      if (!one.auto_rule.empty() || has(taken, one.name) != own) continue;
      const std::string path = optimizer_key(std::string(one.name));
      if (const auto* real = std::get_if<double OptimizerConfig::*>(&one.field))
        optimizer.*(*real) = in.value(path, own ? defaults.*(*real) : optimizer.*(*real));
      if (const auto* flag = std::get_if<bool OptimizerConfig::*>(&one.field))
        optimizer.*(*flag) = in.value(path, own ? defaults.*(*flag) : optimizer.*(*flag));
    }
  }
  if (optimizer.nesterov && (optimizer.momentum <= 0 || optimizer.dampening != 0))
    out.error(optimizer_key("nesterov"), "Nesterov's form needs momentum and no dampening",
              "set momentum above 0 and dampening to 0");
  if (optimizer.min_coeff > optimizer.max_coeff)
    out.error(optimizer_key("min_coeff"), "min_coeff is above max_coeff");
  if (optimizer.factor_min > optimizer.factor_max)
    out.error(optimizer_key("factor_min"), "factor_min is above factor_max");
  for (const OptimizerParameter& one : kOptimizerParameters)
    if (one.auto_rule.empty() && std::holds_alternative<PairField>(one.field))
      read_pair(one, optimizer, in, out);
}

/// Muon's two rates and its iteration. As in DeepSpeed, a shared "lr" is the default of both
/// rates.
void read_muon(ResolvedConfig& config, const Source& in, Report& out) {
  OptimizerConfig& optimizer = config.optimizer;
  const bool shared = in.literal(optimizer_key("lr")) != nullptr ||
                      in.is_auto(optimizer_key("lr")) || in.args.learning_rate;
  const double others = shared ? optimizer.lr : MuonConfig{}.adam_lr;
  optimizer.lr = in.value(optimizer_key("muon_lr"), optimizer.lr);
  config.muon = {.adam_lr = in.value(optimizer_key("adam_lr"), others),
                 .ns_method = in.value<std::string>(optimizer_key("ns_method")) == "gram"
                                  ? NewtonSchulz::Gram
                                  : NewtonSchulz::Standard,
                 .ns_steps = in.value<int64_t>(optimizer_key("ns_steps"))};
  if (config.muon.ns_steps != 5)
    out.warning(optimizer_key("ns_steps"),
                "DeepSpeed 0.19.8 does not read it and always takes 5 steps; here it takes effect",
                "remove it for DeepSpeed's numbers");
}

/// Conflicts of compressed momenta, and parameters that the 1-bit optimizers take but never use.
void check_one_bit(const Optimizer& found, const Source& in, const ResolvedConfig& config,
                   Report& out) {
  const std::string name(found.name);
  if (config.zero.stage > found.highest_stage)
    out.unsupported("optimizer.type",
                    name + " does not work with stage " + std::to_string(config.zero.stage) + ": " +
                        std::string(found.stage_reason),
                    "use stage 0 or 1");
  for (const char* path :
       {"zero_optimization.offload_optimizer.device", "zero_optimization.offload_param.device"}) {
    const json* device = in.literal(path);
    if (device != nullptr && *device != "none")
      out.unsupported(path,
                      name +
                          " does not work with offload: its errors and momenta meet the "
                          "gradient on the device",
                      "remove the section, or use AdamW");
  }
  const json* sum = in.literal("gradient_allreduce_op");
  if (sum != nullptr && *sum == "sum")
    out.unsupported("gradient_allreduce_op", name + " sends a mean once it compresses",
                    "use \"mean\"");
  for (const char* unused : {"bias_correction", "eps_inside_sqrt"})
    if (in.literal(optimizer_key(unused)) != nullptr)
      out.warning(
          optimizer_key(unused),
          "DeepSpeed's " + name + " accepts it and never uses it; this engine does the same",
          "remove it");
}

/// DeepSpeed's own rules about combinations with optimizers.
void check_rules(const Optimizer& found, const Source& in, const ResolvedConfig& config,
                 Report& out) {
  if (config.zero.stage > 0 && !found.zero_tested &&
      !in.value<bool>("zero_allow_untested_optimizer"))
    out.error(
        "optimizer.type",
        std::string(found.name) + " is not on DeepSpeed's list of optimizers tested with ZeRO",
        "add \"zero_allow_untested_optimizer\": true");
  if (found.communicates) check_one_bit(found, in, config, out);
  const json* scale = in.literal("fp16.loss_scale");
  if (found.dynamic_loss_scale && scale != nullptr && *scale != 0)
    out.error("fp16.loss_scale", std::string(found.name) + " needs the dynamic loss scale",
              "set loss_scale to 0, or remove it");
}

/// Without a section: the optimizer that Hugging Face's Trainer creates from training.optim.
void trainers_optimizer(OptimizerConfig& optimizer, const Source& in, Report& out) {
  const std::string optim = in.args.optim.value_or("adamw_torch");
  const char* path = "training.optim";
  const bool apex = optim == "adamw_apex_fused";  // apex's fused form of the same rule
  const Optimizer* found = find_trainer_optimizer(apex ? "adamw_torch_fused" : optim);
  if (found == nullptr) {
    const auto& names = trainer_optimizers();
    const bool known = has(names, optim);
    out.finding(known ? Severity::Unsupported : Severity::Error, path,
                "\"" + optim + "\" is not " + (known ? "built" : "an optimizer of Hugging Face's"),
                known ? "adamw_torch, adamw_bnb_8bit, sgd, adagrad, rmsprop and lion_32bit are"
                      : text::did_you_mean(optim, names));
    found = find_optimizer("AdamW");
  }
  if (optim == "adamw_hf")
    out.warning(path, "transformers has removed \"adamw_hf\": torch's AdamW is used",
                "write adamw_torch");
  else if (apex)
    out.warning(path, "apex is not used: \"adamw_apex_fused\" is read as adamw_torch_fused");
  else if (optim.starts_with("paged_"))
    out.warning(
        path, "no paging: the states of \"" + optim + "\" are on the same device as the gradients");
  optimizer = found->defaults;
  optimizer.eight_bit = optimizer.kind == OptimizerKind::Adam && optim.ends_with("_8bit");
  const bool betas_too = takes(optimizer.kind, "betas");
  optimizer.lr =
      matched(in, out, optimizer_key("lr"), {in.args.learning_rate, "learningRate", 5e-5}, 5e-5);
  if (betas_too && takes(optimizer.kind, "eps"))
    optimizer.eps =
        matched(in, out, optimizer_key("eps"), {in.args.adam_epsilon, "adamEpsilon", 1e-8}, 1e-8);
  optimizer.weight_decay =
      matched(in, out, optimizer_key("weight_decay"), {in.args.weight_decay, "weightDecay", 0}, 0);
  optimizer.decays_all = false;
  if (betas_too) betas(optimizer, in, out);
  out.origin("optimizer.type", std::string(found->name),
             in.args.optim ? path : kHuggingFaceDefault);
}

}  // namespace

void resolve_optimizer(const Source& in, ResolvedConfig& config, Report& out) {
  OptimizerConfig& optimizer = config.optimizer;
  config.gradient_clipping = std::max(
      0.0, matched(in, out, "gradient_clipping", {in.args.max_grad_norm, "maxGradNorm", 1.0}));
  if (in.checked.find("optimizer") == nullptr) return trainers_optimizer(optimizer, in, out);
  if (in.args.optim)
    out.warning("training.optim", "no effect: ds_config's optimizer is used",
                "remove one of the two");
  const json* name = in.literal("optimizer.type");
  if (name == nullptr) {
    out.error("optimizer.type", "the section names no optimizer",
              "add \"type\": \"AdamW\", or remove the section");
    return;
  }
  const std::string type = name->get<std::string>();
  const json* device = in.literal("zero_optimization.offload_optimizer.device");
  const bool cpu = device != nullptr && *device != "none";
  const Optimizer* found = find_optimizer(type);
  if (found == nullptr || !found->refusal.empty()) {
    if (found == nullptr)
      out.error("optimizer.type", "\"" + type + "\" is not an optimizer",
                text::did_you_mean(type, optimizer_names()));
    else
      out.unsupported("optimizer.type", "\"" + type + "\" is not built",
                      std::string(found->refusal));
    return;
  }
  optimizer = found->defaults;
  const bool torch = in.value<bool>(optimizer_key("torch_adam")) && !found->torch_takes.empty();
  if (torch) optimizer.weight_decay = found->torch_weight_decay;
  const auto taken = words_of(torch                              ? found->torch_takes
                              : cpu && !found->cpu_takes.empty() ? found->cpu_takes
                                                                 : found->takes);
  optimizer.lr = matched(in, out, optimizer_key("lr"),
                         {in.args.learning_rate, "learningRate", 5e-5}, optimizer.lr);
  // Hugging Face's adam_* arguments apply to the optimizers with two moments.
  if (has(taken, "eps")) {
    const bool adam = has(taken, "betas") || in.is_auto(optimizer_key("eps"));
    optimizer.eps =
        matched(in, out, optimizer_key("eps"),
                {adam ? in.args.adam_epsilon : std::nullopt, "adamEpsilon", 1e-8}, optimizer.eps);
  }
  if (has(taken, "weight_decay"))
    optimizer.weight_decay =
        matched(in, out, optimizer_key("weight_decay"), {in.args.weight_decay, "weightDecay", 0},
                optimizer.weight_decay);
  if (has(taken, "betas")) betas(optimizer, in, out);
  read_parameters(optimizer, taken, in, out);
  if (optimizer.kind == OptimizerKind::Muon) read_muon(config, in, out);
  // "Adam" is AdamW unless adam_w_mode is false. "AdamW" is always decoupled.
  if (found->name == "AdamW") optimizer.decoupled_weight_decay = true;
  check_names(*found, taken, in, out);
  check_rules(*found, in, config, out);
}

void check_local_steps(const ResolvedConfig& config, Report& out) {
  if (config.zero.stage == 0 || config.total_steps <= 0 || !has_local_steps(config)) return;
  out.warning("zero_optimization.stage",
              "after var_freeze_step each rank of ZeroOneAdam updates every parameter itself "
              "and keeps all moments: the run takes as much memory as at stage 0",
              "use stage 0, which sends less, or a var_freeze_step that the run does not reach");
}

}  // namespace dsj::dsconfig
