#include "job/layout/lora.h"

#include <algorithm>
#include <set>

#include "common/check.h"
#include "common/text.h"
#include "job/layout/name_pattern.h"

namespace dsj::layout {
namespace {

constexpr char kTargets[] = "lora.targetModules";
constexpr char kSaved[] = "lora.modulesToSave";
constexpr char kTying[] = "lora.ensureWeightTying";
constexpr char kFourBits[] = "lora.loadIn4bit";
constexpr char kDora[] = "lora.useDora";
constexpr char kParameters[] = "lora.targetParameters";
constexpr char kLayers[] = "lora.layersToTransform";
constexpr char kAllLinear[] = "all-linear";
constexpr std::string_view kTextModel = "model.text_model.";  // files may use this prefix, too

/// A module of the model, with its name in PyTorch.
struct Module {
  enum class Kind { Linear, Embedding, Output, Experts, Router, Other, Container } kind;
  std::string name;
  int unit = -1, weight = -1;  ///< index of its weight; -1: a tied head, which has none
};

std::string last_name(const std::string& module) {
  return module.substr(module.rfind('.') + 1);
}

/// The index of the unit's router, or -1 if it has no experts.
int router_of(const ModelConfig& model, const UnitSpec& unit) {
  if (std::ranges::none_of(unit.parameters, &Parameter::routed)) return -1;
  const std::string end = std::string(".") + model.names.router + ".weight";
  const auto found = std::ranges::find_if(
      unit.parameters, [&](const Parameter& one) { return one.name.ends_with(end); });
  DSJ_CHECK(found != unit.parameters.end(), "no router in %s", unit.name.c_str());
  return static_cast<int>(found - unit.parameters.begin());
}

/// "model.layers.0." of a unit with this router, in transformers' names.
std::string prefix_of(const ModelConfig& model, const Parameter& router) {
  const size_t own = std::string(model.names.router).size() + std::string(".weight").size();
  return module_name(model, router.name.substr(0, router.name.size() - own) + "x") + ".";
}

std::string router_name(const ModelConfig& model, const Parameter& router) {
  const char* own = model.names.router_module;
  return prefix_of(model, router) + (own ? own : model.names.router);
}

/// What targetParameters can name: a router's weight, or the weights of one projection of all experts
/// of a layer, which transformers holds in one parameter.
struct Target {
  std::string name;  ///< as in transformers
  int unit, weight;
  int64_t in, out;
  int64_t experts;  ///< 0: a router
};

/// In unit order: router, gate and up, down.
std::vector<Target> targets_of(const ModelConfig& model, const std::vector<UnitSpec>& units) {
  std::vector<Target> targets;
  const ExpertsConfig& experts = model.experts;
  const int64_t hidden = model.hidden_size, inner = experts.inner, count = experts.count;
  for (size_t i = 0; i < units.size(); ++i) {
    const auto& parameters = units[i].parameters;
    const int unit = static_cast<int>(i), router = router_of(model, units[i]);
    if (router < 0) continue;
    const Parameter& weight = parameters[static_cast<size_t>(router)];
    const auto routed = std::ranges::find(parameters, true, &Parameter::routed);
    const int first = static_cast<int>(routed - parameters.begin());
    const int down = first + (experts.stacked && !experts.alternates ? 1 : 2);
    const std::string name = prefix_of(model, weight) + model.names.experts_module;
    targets.push_back({router_name(model, weight) + ".weight", unit, router, hidden, count, 0});
    targets.push_back({name + ".gate_up_proj", unit, first, hidden, 2 * inner, count});
    targets.push_back({name + ".down_proj", unit, down, inner, hidden, count});
  }
  return targets;
}

/// The kind of the module that has one or more matrices.
Module::Kind kind_of(const ModelConfig& model, const std::vector<UnitSpec>& units, size_t unit,
                     const Parameter& parameter) {
  if (unit == 0 || units[unit].only_rows) return Module::Kind::Embedding;
  if (static_cast<int>(unit) == head_of(units)) return Module::Kind::Output;
  if (parameter.routed) return Module::Kind::Experts;
  if (parameter.shape.size() > 2) return Module::Kind::Other;  // a convolution
  const bool router = model.experts.count > 0 &&
                      parameter.name.ends_with(std::string(".") + model.names.router + ".weight");
  return router ? Module::Kind::Router : Module::Kind::Linear;
}

/// The leaf modules in unit order, then the modules that contain them.
std::vector<Module> modules_of(const ModelConfig& model, const std::vector<UnitSpec>& units) {
  std::vector<Module> modules;
  std::set<std::string> containers, leaves;
  for (size_t unit = 0; unit < units.size(); ++unit) {
    const auto first = static_cast<ptrdiff_t>(modules.size());  // no module belongs to two units
    const int router = router_of(model, units[unit]);
    for (size_t i = 0; i < units[unit].parameters.size(); ++i) {
      const Parameter& parameter = units[unit].parameters[i];
      const std::string name = static_cast<int>(i) == router ? router_name(model, parameter)
                                                             : module_name(model, parameter.name);
      const bool matrix = parameter.shape.size() >= 2;
      auto module = modules.end();
      if (!leaves.insert(name).second)
        module = std::find_if(modules.begin() + first, modules.end(),
                              [&](const Module& one) { return one.name == name; });
      if (module == modules.end()) {
        modules.push_back({Module::Kind::Other, name, static_cast<int>(unit)});
        module = modules.end() - 1;
      }
      if (matrix) {
        module->kind = kind_of(model, units, unit, parameter);
        module->weight = static_cast<int>(i);
      }
      for (size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.', dot + 1))
        containers.insert(name.substr(0, dot));
    }
  }
  if (model.tied) {
    modules.push_back({Module::Kind::Output, model.names.head, head_of(units)});
  }
  for (const std::string& name : containers) {
    if (!leaves.contains(name)) modules.push_back({Module::Kind::Container, name});
  }
  return modules;
}

bool is_output(const Module& module) {
  return module.kind == Module::Kind::Output;
}

bool can_adapt(const Module& module) {
  return module.kind == Module::Kind::Linear;
}

/// Whether the module has the weight that embedding and output layer share. Tables of positions come
/// after it.
bool is_tied(const ModelConfig& model, const Module& module) {
  const bool of_tokens = module.unit == 0 && module.weight == 0;
  return model.tied && (of_tokens || is_output(module));
}

/// PEFT's rule: the full name, or a suffix that follows a dot.
bool ends_with_name(const std::string& module, const std::string& name) {
  return module == name || module.ends_with("." + name);
}

/// PEFT skips a module that modulesToSave names, and the modules in it.
bool excluded(const LoraArgs& lora, const std::string& module) {
  const std::string padded = "." + module + ".";
  return std::ranges::any_of(lora.modules_to_save, [&](const std::string& name) {
    return padded.find("." + name + ".") != std::string::npos;
  });
}

/// The last parts of names of leaves that `keep` accepts, unique, in the model's order.
template <typename Keep>
std::vector<std::string> short_names(const std::vector<Module>& modules, Keep keep) {
  std::vector<std::string> names;
  for (const Module& module : modules) {
    const std::string name = last_name(module.name);
    if (keep(module) && std::ranges::find(names, name) == names.end()) names.push_back(name);
  }
  return names;
}

/// Suffixes that match every module that can have an adapter, and no expert.
std::vector<std::string> adaptable_names(const std::vector<Module>& modules) {
  const auto of_experts =
      short_names(modules, [](const Module& m) { return m.kind == Module::Kind::Experts; });
  std::vector<std::string> names;
  for (const Module& module : modules) {
    if (!can_adapt(module)) continue;
    std::string name = last_name(module.name);
    if (std::ranges::find(of_experts, name) != of_experts.end())
      name = last_name(module.name.substr(0, module.name.rfind('.'))) + "." + name;
    if (std::ranges::find(names, name) == names.end()) names.push_back(name);
  }
  return names;
}

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

Error unknown(const std::string& name, const char* where, const std::vector<std::string>& known) {
  const std::string near = text::did_you_mean(name, known);
  return {ErrorKind::BadInput, "no module of the model ends with \"" + name + "\"", where,
          (near.empty() ? "" : near + " ") + "the model has: " + joined(known)};
}

Status check_target(const Module& module, const std::vector<Module>& modules) {
  if (can_adapt(module)) return {};
  const std::string hint = "adapters go on: " + joined(adaptable_names(modules));
  if (is_output(module)) {
    return bad_input("an adapter on " + module.name + " is not built", kTargets,
                     "train it whole: modulesToSave: [" + module.name + "]; " + hint);
  }
  if (module.kind == Module::Kind::Experts)
    return bad_input("adapters on experts by their modules (" + module.name + ") are not built",
                     kTargets,
                     "name the parameters that hold all experts: targetParameters: "
                     "[experts.gate_up_proj, experts.down_proj]; as modules, " +
                         hint);
  if (module.kind == Module::Kind::Router)
    return bad_input("\"" + module.name + "\" is a router, which PEFT adapts as a parameter",
                     kTargets,
                     "write targetParameters: [" + last_name(module.name) + ".weight]; " + hint);
  const char* what = module.kind == Module::Kind::Embedding   ? "an embedding"
                     : module.kind == Module::Kind::Container ? "not a layer itself"
                                                              : "not a linear layer";
  return bad_input("\"" + module.name + "\" is " + what + "; adapters are built for linear layers",
                   kTargets, hint);
}

/// At least one module must match, and every match must support an adapter.
template <typename Matches>
Status check_targets(const LoraArgs& lora, const std::vector<Module>& modules, Matches matches,
                     bool& any) {
  for (const Module& module : modules) {
    if (excluded(lora, module.name)) continue;
    const Result<bool> match = matches(module.name);
    if (!match) return bad_input(match.error().message, kTargets);
    if (!*match) continue;
    DSJ_TRY_STATUS(check_target(module, modules));
    any = true;
  }
  return {};
}

/// PEFT's: attention's q and v, or the one weight that contains them; for Phi also the MLP.
std::vector<std::string> default_targets(const ModelConfig& model) {
  if (model.model_type == "phi") return {"q_proj", "v_proj", "fc1", "fc2"};
  if (model.block == Block::Gpt2) return {"c_attn"};
  if (model.fused_qkv) return {model.names.qkv};
  return {"q_proj", "v_proj"};
}

bool is_all_linear(std::string pattern) {
  std::ranges::transform(pattern, pattern.begin(), [](unsigned char c) { return std::tolower(c); });
  return pattern == kAllLinear;
}

/// As PEFT does with a name of routers, which are no linear layers in transformers.
void move_routers(const std::vector<Module>& modules, LoraArgs& lora) {
  std::erase_if(lora.target_modules, [&](const std::string& target) {
    bool any = false;
    for (const Module& module : modules) {
      if (!ends_with_name(module.name, target)) continue;
      if (module.kind != Module::Kind::Router) return false;
      any = true;
    }
    const std::string name = target + ".weight";
    if (any && std::ranges::count(lora.target_parameters, name) == 0)
      lora.target_parameters.push_back(name);
    return any;
  });
  if (lora.target_modules.empty() && lora.target_pattern.empty()) lora.no_modules = true;
}

bool adapted(const LoraArgs& lora, const Target& target) {
  return std::ranges::any_of(lora.target_parameters, [&](const std::string& name) {
    return ends_with_name(target.name, name);
  });
}

/// The end of "model.layers.0.", of a name in a layer.
size_t prefix_length(const std::string& name) {
  for (size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.', dot + 1))
    if (dot > 0 && std::isdigit(static_cast<unsigned char>(name[dot - 1]))) return dot + 1;
  return 0;
}

Error no_parameter(const std::vector<Module>& modules, const std::vector<Target>& targets,
                   const std::string& name) {
  const std::string module = module_of(name);
  const bool linear = std::ranges::any_of(modules, [&](const Module& one) {
    return one.kind == Module::Kind::Linear && name.ends_with(".weight") &&
           ends_with_name(one.name, module);
  });
  if (linear)
    return {ErrorKind::BadInput, "\"" + name + "\" is the weight of a linear layer", kParameters,
            "write targetModules: [" + module + "]"};
  if (targets.empty())
    return {ErrorKind::BadInput, "the model has no experts", kParameters,
            "it is for experts and routers; name linear layers in targetModules"};
  std::vector<std::string> known;  // of one layer
  for (size_t i = 0; i < 3; ++i)
    known.push_back(targets[i].name.substr(prefix_length(targets[i].name)));
  const std::string near = text::did_you_mean(name, known);
  return {ErrorKind::BadInput, "no parameter of experts or routers ends with \"" + name + "\"",
          kParameters, (near.empty() ? "" : near + " ") + "the model has: " + joined(known)};
}

Status check_parameters(const ModelConfig& model, const std::vector<UnitSpec>& units,
                        const std::vector<Module>& modules, const LoraArgs& lora) {
  if (lora.target_parameters.empty()) return {};
  const auto targets = targets_of(model, units);
  for (const std::string& name : lora.target_parameters)
    if (std::ranges::none_of(targets,
                             [&](const Target& one) { return ends_with_name(one.name, name); }))
      return std::unexpected(no_parameter(modules, targets, name));
  for (const Target& target : targets) {
    if (!adapted(lora, target)) continue;
    if (is_saved_whole(lora, module_of(target.name)))
      return bad_input("\"" + target.name + "\" would have an adapter and be trained whole", kSaved,
                       "name it in one of targetParameters and modulesToSave");
    const auto own = rank_and_scaling(lora, target.name);
    if (!own) return std::unexpected(own.error());
  }
  if (lora.dropout > 0)
    return bad_input("adapters of parameters have no input to drop elements of, as in PEFT",
                     "lora.dropout", "set it to 0, or leave targetParameters out");
  if (lora.use_dora)
    return bad_input("DoRA of parameters is not built, as in PEFT", kDora,
                     "remove it, or leave targetParameters out");
  if (!lora.layers_to_transform.empty())
    return bad_input("does not choose among targetParameters, as in PEFT", kLayers,
                     "put the layers' numbers into the names: 7.mlp.experts.down_proj");
  return {};
}

Status resolve_targets(const ModelConfig& model, const std::vector<Module>& modules,
                       LoraArgs& lora) {
  if (is_all_linear(lora.target_pattern)) {
    lora.target_pattern.clear();
    lora.target_modules = adaptable_names(modules);
  } else if (lora.target_pattern.empty() && lora.target_modules.empty()) {
    // Of the types with experts, PEFT has a default for one.
    if (!lora.target_parameters.empty() && model.model_type != "mixtral") lora.no_modules = true;
    if (!lora.no_modules) lora.target_modules = default_targets(model);
  }
  move_routers(modules, lora);
  if (!lora.target_pattern.empty()) {
    auto pattern = NamePattern::compile(lora.target_pattern);
    if (!pattern) return bad_input(pattern.error().message, kTargets);
    bool any = false;
    DSJ_TRY_STATUS(check_targets(
        lora, modules, [&](const std::string& name) { return pattern->matches(name); }, any));
    if (any) return {};
    return bad_input("no module's full name matches \"" + lora.target_pattern + "\"", kTargets,
                     "names look like \"" + modules[1].name + "\"; a list takes ends of names");
  }
  const auto known =
      short_names(modules, [](const Module& m) { return m.kind != Module::Kind::Container; });
  for (const std::string& target : lora.target_modules) {
    bool any = false;
    DSJ_TRY_STATUS(check_targets(
        lora, modules,
        [&](const std::string& name) -> Result<bool> { return ends_with_name(name, target); },
        any));
    if (any) continue;
    const bool there = std::ranges::any_of(
        modules, [&](const Module& m) { return ends_with_name(m.name, target); });
    if (!there) return std::unexpected(unknown(target, kTargets, known));
    return bad_input("\"" + target + "\" is trained whole by modulesToSave already", kTargets);
  }
  return {};
}

Status check_saved(const ModelConfig& model, const std::vector<Module>& modules,
                   const LoraArgs& lora) {
  const auto known =
      short_names(modules, [](const Module& m) { return m.kind != Module::Kind::Container; });
  for (const Module& module : modules)
    if (module.kind == Module::Kind::Experts && is_saved_whole(lora, module.name))
      return bad_input(
          "experts (" + module.name + ") that are trained whole beside adapters are not built",
          kSaved, "leave them out, or train the whole model without lora");
  for (const std::string& name : lora.modules_to_save) {
    bool any = false;
    for (const Module& module : modules) {
      if (!module.name.ends_with(name)) continue;
      any = true;
      if (!lora.ensure_weight_tying && is_tied(model, module)) {
        return bad_input(
            "\"" + module.name + "\" is one weight with the " +
                (is_output(module) ? "embedding" : "output layer") +
                " (tie_word_embeddings); PEFT would untie them, which is not built",
            kSaved, "ensureWeightTying: true (--ensure_weight_tying True) trains it as one weight");
      }
    }
    if (!any) return std::unexpected(unknown(name, kSaved, known));
  }
  return {};
}

/// With ensureWeightTying, whoever names one of the two modules of a tied weight names both, by their
/// full names: PEFT finds the pair by the name lm_head, and not by GPT-2's wte.
Status name_tied_pair(const ModelConfig& model, const std::vector<Module>& modules,
                      LoraArgs& lora) {
  if (!lora.ensure_weight_tying) return {};
  std::vector<std::string> pair, others;
  for (const Module& module : modules)
    if (is_tied(model, module)) pair.push_back(module.name);
  for (const std::string& name : lora.modules_to_save) {
    const bool of_pair = std::ranges::any_of(
        pair, [&](const std::string& module) { return module.ends_with(name); });
    if (!of_pair) others.push_back(name);
  }
  lora.ensure_weight_tying = others.size() < lora.modules_to_save.size();
  if (!lora.ensure_weight_tying) return {};
  if (model.head_bias)
    return bad_input("is not built for an output layer with a bias", kTying, "leave it out");
  others.insert(others.end(), pair.begin(), pair.end());
  lora.modules_to_save = std::move(others);
  return {};
}

/// The layer of a module, found as PEFT does: the first part of the name that is a number and has two
/// parts before it. nullopt if there is none.
std::optional<int64_t> layer_of(const std::string& module) {
  int part = 0;
  for (size_t begin = 0; begin < module.size(); ++part) {
    const size_t end = module.find('.', begin);
    if (end == std::string::npos) break;
    const std::string one = module.substr(begin, end - begin);
    if (part >= 2 && !one.empty() && one.find_first_not_of("0123456789") == std::string::npos)
      return text::parse_int(one);
    begin = end + 1;
  }
  return std::nullopt;
}

/// The value of the key that matches the module's name, or a suffix of it after a dot, as PEFT's
/// get_pattern_key does.
template <typename T>
Result<T> by_pattern(const std::vector<std::pair<std::string, T>>& patterns, const char* where,
                     const std::string& module, T otherwise) {
  const std::pair<std::string, T>* found = nullptr;
  for (const auto& one : patterns) {
    const std::string at = std::string(where) + "." + one.first;
    const auto pattern = NamePattern::compile("(.*\\.)?(" + one.first + ")");
    if (!pattern) return bad_input(pattern.error().message, at);
    const auto matches = pattern->matches(module);
    if (!matches) return bad_input(matches.error().message, at);
    if (!*matches) continue;
    if (found && found->second != one.second)
      return bad_input(
          "\"" + found->first + "\" and \"" + one.first + "\" match " + module, at,
          "write keys so that only one matches each module: their order does not count");
    found = &one;
  }
  return found ? found->second : otherwise;
}

/// Whether this module gets an adapter. `lora` is resolved, so its pattern compiles.
bool adapted(const LoraArgs& lora, const std::optional<NamePattern>& pattern,
             const Module& module) {
  if (!can_adapt(module) || excluded(lora, module.name)) return false;
  if (!lora.layers_to_transform.empty()) {
    const auto layer = layer_of(module.name);
    if (!layer || std::ranges::count(lora.layers_to_transform, *layer) == 0) return false;
  }
  if (pattern) return pattern->matches(module.name).value_or(false);
  return std::ranges::any_of(lora.target_modules, [&](const std::string& target) {
    return ends_with_name(module.name, target);
  });
}

std::optional<NamePattern> pattern_of(const LoraArgs& lora) {
  if (lora.target_pattern.empty()) return std::nullopt;
  auto pattern = NamePattern::compile(lora.target_pattern);
  DSJ_CHECK(pattern.has_value(), "not resolved: %s", lora.target_pattern.c_str());
  return std::move(*pattern);
}

}  // namespace

Result<RankAndScaling> rank_and_scaling(const LoraArgs& lora, const std::string& module) {
  DSJ_TRY(const int64_t rank, by_pattern(lora.rank_pattern, "lora.rankPattern", module, lora.r));
  DSJ_TRY(const double alpha,
          by_pattern(lora.alpha_pattern, "lora.alphaPattern", module, lora.alpha));
  return RankAndScaling{rank, lora.scaling_of(rank, alpha)};
}

bool stored_in_out(const ModelConfig& model) {
  return model.block == Block::Gpt2;
}

std::string module_of(const std::string& parameter) {
  return parameter.substr(0, parameter.rfind('.'));
}

std::string module_name(const ModelConfig& model, const std::string& parameter) {
  const std::string name = module_of(parameter);
  const std::string_view base = model.names.base;
  if (!model.is_text_part || !name.starts_with(base)) return name;
  return (base == kTextModel ? std::string(base) : "model.language_model.") +
         name.substr(base.size());
}

bool is_saved_whole(const LoraArgs& lora, const std::string& module) {
  for (size_t end = module.size(); end != std::string::npos;
       end = end == 0 ? std::string::npos : module.rfind('.', end - 1)) {
    const std::string_view holder = std::string_view(module).substr(0, end);
    for (const std::string& name : lora.modules_to_save)
      if (holder.ends_with(name)) return true;
  }
  return false;
}

std::optional<TiedPair> tied_pair(const ModelConfig& model, const LoraArgs& lora) {
  if (!lora.ensure_weight_tying) return std::nullopt;
  return TiedPair{units_of(model).front().parameters.front().name,
                  std::string(model.names.head) + ".weight"};
}

namespace {

Status check_dora(const ModelConfig& model, const LoraArgs& lora) {
  if (!lora.use_dora) return {};
  if (stored_in_out(model))
    return bad_input("DoRA of a \"" + model.model_type +
                         "\" model is not built: its matrices are transposed ([in, out])",
                     kDora, "remove it");
  if (lora.load_in_4bit)
    return bad_input(
        "DoRA on a base in 4 bits is not built: each step would unpack every weight once "
        "more for its norms",
        kDora, "remove useDora or loadIn4bit");
  if (lora.init == AdapterInit::Random)
    return bad_input(
        "cannot be combined with initLoraWeights: false: the initial magnitudes are the lengths "
        "of the base's rows, which needs B = 0",
        kDora, "remove initLoraWeights, or set it to gaussian");
  return {};
}

/// A vision part has modules of the same names, which PEFT would adapt too: only those of the text.
void name_text_part(const ModelConfig& model, LoraArgs& lora) {
  if (!model.is_text_part || !lora.target_pattern.empty() || lora.no_modules) return;
  std::string names;
  for (const std::string& target : lora.target_modules)
    for (const char c : (names.empty() ? "" : "|") + target)
      names += c == '.' ? std::string("\\.") : std::string(1, c);
  const bool text_model = std::string_view(model.names.base) == kTextModel;
  lora.target_pattern = std::string("(.*") + (text_model ? "text_model" : "language_model") +
                        "\\..*\\.)?(" + names + ")";
  lora.target_modules.clear();
}

}  // namespace

Result<LoraArgs> resolve_lora(const ModelConfig& model, const LoraArgs& lora) {
  if (model.is_text_part && !lora.modules_to_save.empty())
    return bad_input("the text part of a \"" + model.model_type +
                         "\" model has no modules that are saved whole beside adapters",
                     kSaved, "leave it out");
  if (lora.load_in_4bit && stored_in_out(model))
    return bad_input("a \"" + model.model_type +
                         "\" model in 4 bits is not built: its matrices are transposed "
                         "([in, out]), and bitsandbytes' blocks run along [out, in]",
                     kFourBits, "leave it out: the base stays in 16 bits");
  DSJ_TRY_STATUS(check_dora(model, lora));
  if (model.is_text_part && !lora.layers_to_transform.empty())
    return bad_input("is not built for the text part of a \"" + model.model_type + "\" model",
                     kLayers,
                     "write targetModules as a regular expression with the layers' numbers");
  if (!lora.target_pattern.empty() && !lora.layers_to_transform.empty() &&
      !is_all_linear(lora.target_pattern))
    return bad_input("does not go with a regular expression in targetModules", kLayers,
                     "name modules in targetModules, or put the layers into the expression");
  const auto units = units_of(model);
  const auto modules = modules_of(model, units);
  LoraArgs out = lora;
  // As PEFT does for its task type SEQ_CLS.
  if (model.scored && std::ranges::count(out.modules_to_save, "score") == 0)
    out.modules_to_save.push_back("score");
  out.double_quant = lora.load_in_4bit && lora.double_quant;
  out.compute_dtype.clear();
  out.lr_ratio = 1;
  out.adapter.clear();
  out.said.clear();
  DSJ_TRY_STATUS(check_saved(model, modules, out));
  DSJ_TRY_STATUS(name_tied_pair(model, modules, out));
  DSJ_TRY_STATUS(resolve_targets(model, modules, out));
  DSJ_TRY_STATUS(check_parameters(model, units, modules, out));
  std::ranges::sort(out.target_parameters);
  std::ranges::sort(out.target_modules);  // a set: the order has no meaning
  std::ranges::sort(out.modules_to_save);
  name_text_part(model, out);
  const auto pattern = pattern_of(out);
  bool any = !out.target_parameters.empty();
  for (const Module& module : modules) {
    if (!adapted(out, pattern, module)) continue;
    if (is_saved_whole(out, module.name))
      return bad_input("\"" + module.name + "\" would have an adapter and be trained whole", kSaved,
                       "name it in one of targetModules and modulesToSave");
    any = true;
    const auto own = rank_and_scaling(out, module.name);
    if (!own) return std::unexpected(own.error());
  }
  if (!any)
    return bad_input("no layer of these numbers has a module of targetModules", kLayers,
                     "the model has " + std::to_string(model.num_layers) + " layers, from 0");
  return out;
}

std::vector<UnitSpec> units_of(const ModelConfig& model, const std::optional<LoraArgs>& lora) {
  std::vector<UnitSpec> units = units_of(model);
  if (!lora) return units;
  const auto modules = modules_of(model, units);
  const auto targets =
      lora->target_parameters.empty() ? std::vector<Target>() : targets_of(model, units);
  const auto pattern = pattern_of(*lora);
  for (UnitSpec& unit : units) {
    for (Parameter& parameter : unit.parameters)
      parameter.frozen = !is_saved_whole(*lora, module_name(model, parameter.name));
  }
  for (const Module& module : modules) {
    if (!lora->load_in_4bit || module.kind != Module::Kind::Linear) continue;
    Parameter& weight = units[module.unit].parameters[module.weight];
    if (weight.frozen) weight.packing = lora->double_quant ? Packing::Nf4TwoLevels : Packing::Nf4;
  }
  struct Added {
    std::string module;
    int64_t out;
  };
  std::vector<std::vector<Added>> added(units.size());
  const auto add = [&](const Target& target, const std::string& module) {
    UnitSpec& unit = units[target.unit];
    const auto own = rank_and_scaling(*lora, target.name);
    DSJ_CHECK(own.has_value(), "not resolved: %s", target.name.c_str());
    unit.adapters.push_back({.weight = target.weight,
                             .a = static_cast<int>(unit.parameters.size()),
                             .rank = own->rank,
                             .scaling = own->scaling,
                             .experts = target.experts});
    const int64_t rows = own->rank * std::max<int64_t>(1, target.experts);
    unit.parameters.push_back({.name = module + ".lora_A.weight",
                               .shape = {rows, target.in},
                               .routed = target.experts > 0});
    added[target.unit].push_back({module, target.out});
  };
  // All A before all B: adapters with the same input (q, k, v; gate, up) are neighbours.
  for (const Module& module : modules) {
    if (!adapted(*lora, pattern, module)) continue;
    const auto& shape = units[module.unit].parameters[module.weight].shape;
    const bool turned = stored_in_out(model);
    add({module.name, module.unit, module.weight, shape[turned ? 0 : 1], shape[turned ? 1 : 0], 0},
        module.name);
  }
  for (size_t i = 0; i < targets.size(); ++i) {
    if (!adapted(*lora, targets[i])) continue;
    // PEFT wraps the experts' module once for each parameter; the last one is the outermost.
    const bool inner = targets[i].experts > 0 && targets[i].name.ends_with("gate_up_proj") &&
                       adapted(*lora, targets[i + 1]);
    add(targets[i], module_of(targets[i].name) + (inner ? ".base_layer" : ""));
  }
  for (UnitSpec& unit : units) {
    const auto& of_unit = added[static_cast<size_t>(&unit - units.data())];
    for (size_t i = 0; i < unit.adapters.size(); ++i) {
      Adapter& adapter = unit.adapters[i];
      adapter.b = static_cast<int>(unit.parameters.size());
      unit.parameters.push_back({.name = of_unit[i].module + ".lora_B.weight",
                                 .shape = {of_unit[i].out, unit.parameters[adapter.a].shape[0]},
                                 .routed = adapter.experts > 0});
    }
    for (Adapter& adapter : unit.adapters) {
      if (!lora->use_dora) break;
      const Parameter& weight = unit.parameters[adapter.weight];
      adapter.magnitude = static_cast<int>(unit.parameters.size());
      unit.parameters.push_back(
          {module_name(model, weight.name) + ".lora_magnitude_vector", {weight.shape[0]}});
    }
  }
  return units;
}

std::vector<AdaptedPart> adapted_parts(const UnitSpec& unit, const Adapter& adapter) {
  const auto& weight = unit.parameters[adapter.weight].shape;
  if (adapter.experts == 0 || weight.size() > 2) return {{.weight = adapter.weight}};
  // Gate, up and down of each expert: an adapter of gate and up, or of down.
  std::vector<AdaptedPart> parts;
  const int64_t out = unit.parameters[adapter.b].shape[0];
  for (int64_t expert = 0; expert < adapter.experts; ++expert)
    for (int64_t first = 0; first < out; first += weight[0]) {
      const int index = adapter.weight + 3 * static_cast<int>(expert) + (first > 0 ? 1 : 0);
      parts.push_back({.weight = index, .expert = expert, .first = first});
    }
  return parts;
}

}  // namespace dsj::layout
