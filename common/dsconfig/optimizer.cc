// Which optimizer a run has, and its hyper-parameters: from ds_config's section, else from
// training.optim as Hugging Face reads it.
#include <algorithm>

#include "common/dsconfig/keys.h"
#include "common/dsconfig/optimizer_classes.h"
#include "common/dsconfig/resolver.h"
#include "common/text.h"

namespace dsj::dsconfig {

using nlohmann::json;
using Severity = Finding::Severity;

namespace {

std::string at(const std::string& name) {
  return "optimizer.params." + name;
}

bool has(const OptimizerClass& found, const std::string& param) {
  return std::ranges::find(found.params, param) != found.params.end();
}

}  // namespace

std::optional<std::pair<double, double>> Resolver::pair(const std::string& path) const {
  const json* value = literal(path);
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

void Resolver::betas(OptimizerConfig& optimizer) {
  const char* path = "optimizer.params.betas";
  const json* value = literal(path);
  if (value == nullptr) {
    optimizer.beta1 = args_.adam_beta1.value_or(0.9);
    optimizer.beta2 = args_.adam_beta2.value_or(0.999);
    const bool given = args_.adam_beta1 || args_.adam_beta2;
    if (given || is_auto(path))
      origin(path, text::number(optimizer.beta1) + ", " + text::number(optimizer.beta2),
             given ? "training.adamBeta1, training.adamBeta2" : "default (Hugging Face)");
    return;
  }
  const auto [first, second] = pair(path).value_or(std::pair{-1.0, -1.0});
  if (!(first >= 0 && first < 1 && second >= 0 && second < 1)) {
    report(Severity::Error, path,
           "found " + value->dump() + ", expected two numbers from 0 to below 1",
           "for example [0.9, 0.999]");
    return;
  }
  optimizer.beta1 = first;
  optimizer.beta2 = second;
  if (args_.adam_beta1 && *args_.adam_beta1 != first)
    mismatch(path, text::number(first), "training.adamBeta1", text::number(*args_.adam_beta1));
  if (args_.adam_beta2 && *args_.adam_beta2 != second)
    mismatch(path, text::number(second), "training.adamBeta2", text::number(*args_.adam_beta2));
}

/// What would be a TypeError in Python, and the classes' own checks of values.
void Resolver::optimizer_params(const OptimizerClass& found) {
  const json* params = checked_.find("optimizer.params");
  if (params == nullptr) return;
  for (const auto& [name, value] : params->items()) {
    if (has(found, name) || name == "max_grad_norm") continue;
    const std::string hint = text::did_you_mean(name, found.params);
    report(Severity::Error, at(name), found.name + " has no parameter \"" + name + "\"",
           hint.empty() ? "remove it" : hint);
  }
  if (boolean(at("amsgrad"), false))
    report(Severity::Unsupported, at("amsgrad"), "AMSGrad is not built",
           "DeepSpeed's own classes refuse it too; remove it");
}

void Resolver::optimizer_numbers(OptimizerConfig& optimizer) {
  const auto real = [&](const char* name, double& value) {
    if (const json* found = literal(at(name))) value = found->get<double>();
  };
  real("momentum", optimizer.momentum);
  real("dampening", optimizer.dampening);
  real("alpha", optimizer.alpha);
  real("rho", optimizer.rho);
  real("lr_decay", optimizer.lr_decay);
  real("initial_accumulator_value", optimizer.initial_accumulator);
  real("momentum_decay", optimizer.momentum_decay);
  real("lambd", optimizer.lambd);
  real("t0", optimizer.t0);
  real("min_coeff", optimizer.min_coeff);
  real("max_coeff", optimizer.max_coeff);
  optimizer.bias_correction = boolean(at("bias_correction"), true);
  optimizer.maximize = boolean(at("maximize"), false);
  optimizer.nesterov = boolean(at("nesterov"), false);
  optimizer.centered = boolean(at("centered"), false);
  optimizer.eps_inside_sqrt = boolean(at("eps_inside_sqrt"), false);
  if (optimizer.nesterov && (optimizer.momentum <= 0 || optimizer.dampening != 0))
    report(Severity::Error, at("nesterov"), "Nesterov's form needs momentum and no dampening",
           "set momentum above 0 and dampening to 0");
  if (optimizer.min_coeff > optimizer.max_coeff)
    report(Severity::Error, at("min_coeff"), "min_coeff is above max_coeff");
  const auto two = [&](const char* name, double& first, double& second, const char* expected,
                       bool (*holds)(double, double)) {
    if (literal(at(name)) == nullptr) return;
    const auto found = pair(at(name));
    if (found && holds(found->first, found->second)) {
      first = found->first;
      second = found->second;
      return;
    }
    report(Severity::Error, at(name),
           "found " + literal(at(name))->dump() + ", expected " + expected);
  };
  two("etas", optimizer.eta_minus, optimizer.eta_plus, "a number between 0 and 1, and one above 1",
      [](double minus, double plus) { return 0 < minus && minus < 1 && 1 < plus; });
  two("step_sizes", optimizer.step_min, optimizer.step_max, "the smallest and the largest step",
      [](double least, double most) { return 0 <= least && least <= most; });
}

/// DeepSpeed's own rules about which optimizers go with what.
void Resolver::optimizer_rules(const OptimizerClass& found) {
  if (out_.config.zero.stage > 0 && !found.zero_tested &&
      !boolean("zero_allow_untested_optimizer", false))
    report(Severity::Error, "optimizer.type",
           found.name + " is not on DeepSpeed's list of optimizers tested with ZeRO",
           "add \"zero_allow_untested_optimizer\": true");
  const json* scale = literal("fp16.loss_scale");
  if (found.kind == OptimizerKind::Lamb && scale != nullptr && *scale != 0)
    report(Severity::Error, "fp16.loss_scale", "Lamb needs the dynamic loss scale",
           "set loss_scale to 0, or remove it");
}

/// Without a section: the optimizer that Hugging Face's Trainer makes from training.optim.
void Resolver::hugging_face_optimizer() {
  OptimizerConfig& optimizer = out_.config.optimizer;
  const std::string optim = args_.optim.value_or("adamw_torch");
  const char* path = "training.optim";
  std::string type = dsconfig::hugging_face_optimizer(optim);
  if (type.empty()) {
    const auto& names = hugging_face_optimizers();
    const bool known = std::ranges::find(names, optim) != names.end();
    report(known ? Severity::Unsupported : Severity::Error, path,
           "\"" + optim + "\" is not " + (known ? "built" : "an optimizer of Hugging Face's"),
           known ? "adamw_torch, sgd, adagrad, rmsprop and lion_32bit are"
                 : text::did_you_mean(optim, names));
    type = "AdamW";
  }
  if (optim == "adamw_hf")
    report(Severity::Warning, path, "transformers has removed \"adamw_hf\": torch's AdamW is used",
           "write adamw_torch");
  else if (optim.starts_with("paged_"))
    report(Severity::Warning, path, "no paging: \"" + optim + "\" is read as the plain optimizer");
  const OptimizerClass& found = *optimizer_class(type, false, false);
  optimizer.kind = found.kind;
  optimizer.lr = matched(at("lr"), args_.learning_rate, "learningRate", 5e-5, 5e-5);
  optimizer.eps = found.kind == OptimizerKind::Adam
                      ? matched(at("eps"), args_.adam_epsilon, "adamEpsilon", 1e-8, 1e-8)
                      : found.eps;
  optimizer.weight_decay = matched(at("weight_decay"), args_.weight_decay, "weightDecay", 0, 0);
  if (optimizer.weight_decay != 0)
    report(Severity::Warning, "training.weightDecay",
           "acts on every parameter, as an optimizer of ds_config does; Hugging Face's own leaves "
           "biases and norms out",
           "add an \"optimizer\" section, which means the same here and there");
  if (has(found, "betas")) betas(optimizer);
  origin("optimizer.type", found.name, args_.optim ? path : "default (Hugging Face)");
}

void Resolver::optimizer() {
  OptimizerConfig& optimizer = out_.config.optimizer;
  out_.config.gradient_clipping =
      std::max(0.0, matched("gradient_clipping", args_.max_grad_norm, "maxGradNorm", 1.0, 1.0));
  if (checked_.find("optimizer") == nullptr) return hugging_face_optimizer();
  if (args_.optim)
    report(Severity::Warning, "training.optim", "no effect: ds_config's optimizer is used",
           "remove one of the two");
  const json* name = literal("optimizer.type");
  if (name == nullptr) {
    report(Severity::Error, "optimizer.type", "the section names no optimizer",
           "add \"type\": \"AdamW\", or remove the section");
    return;
  }
  const std::string type = name->get<std::string>();
  const json* device = literal("zero_optimization.offload_optimizer.device");
  const bool cpu = device != nullptr && *device != "none";
  const OptimizerClass* found = optimizer_class(type, boolean(at("torch_adam"), false), cpu);
  if (found == nullptr) {
    const std::string refusal = optimizer_refusal(type);
    if (refusal.empty())
      report(Severity::Error, "optimizer.type", "\"" + type + "\" is not an optimizer",
             text::did_you_mean(type, optimizer_names()));
    else
      report(Severity::Unsupported, "optimizer.type", "\"" + type + "\" is not built", refusal);
    return;
  }
  optimizer.kind = found->kind;
  optimizer.lr = matched(at("lr"), args_.learning_rate, "learningRate", 5e-5, found->lr);
  // Hugging Face's adam_* arguments are for the optimizers with two moments.
  if (has(*found, "eps")) {
    const bool adam = has(*found, "betas") || is_auto(at("eps"));
    optimizer.eps = matched(at("eps"), adam ? args_.adam_epsilon : std::nullopt, "adamEpsilon",
                            1e-8, found->eps);
  }
  if (has(*found, "weight_decay"))
    optimizer.weight_decay =
        matched(at("weight_decay"), args_.weight_decay, "weightDecay", 0, found->weight_decay);
  if (has(*found, "betas")) betas(optimizer);
  if (found->kind == OptimizerKind::Asgd) optimizer.alpha = 0.75;
  optimizer_numbers(optimizer);
  // "Adam" is AdamW unless adam_w_mode is false. "AdamW" is always decoupled.
  optimizer.decoupled_weight_decay =
      found->kind == OptimizerKind::Adam
          ? found->name == "AdamW" || boolean(at("adam_w_mode"), true)
          : boolean(at("decoupled_weight_decay"), false);
  optimizer_params(*found);
  optimizer_rules(*found);
}

}  // namespace dsj::dsconfig
