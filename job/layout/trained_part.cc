#include "job/layout/trained_part.h"

#include <algorithm>
#include <optional>
#include <set>

#include "job/layout/name_pattern.h"

namespace dsj::layout {
namespace {

constexpr char kParameters[] = "trainableParameters";
constexpr char kLayers[] = "trainableLayers";

/// Whether the unit is a layer: they are between the embedding and the head.
bool is_layer(size_t unit, size_t head) {
  return unit > 0 && unit < head;
}

/// Whether the unit is among the last layers, or among the first if the number is negative.
bool is_chosen(size_t unit, size_t head, int64_t layers) {
  const auto number = static_cast<int64_t>(unit) - 1, count = static_cast<int64_t>(head) - 1;
  return layers > 0 ? number >= count - layers : number < -layers;
}

}  // namespace

Result<std::vector<std::string>> frozen_parameters(const ModelConfig& model,
                                                   const TrainingArgs& training) {
  std::vector<std::string> frozen;
  const auto& expression = training.trainable_parameters;
  const auto& layers = training.trainable_layers;
  if (!expression && !layers) return frozen;
  if (layers == 0)
    return bad_input("found 0, expected a number of layers", kLayers,
                     "2: the last two; -2: the first two");
  std::optional<NamePattern> pattern;
  if (expression) {
    auto compiled = NamePattern::compile(*expression, NamePattern::Part::Start);
    if (!compiled) return bad_input(compiled.error().message, kParameters);
    pattern = std::move(*compiled);
  }
  const auto matches = [&](const std::string& name) -> Result<bool> {
    const std::string theirs = module_name(model, name) + name.substr(module_of(name).size());
    DSJ_TRY(const bool here, pattern->matches(name));
    return here ? here : pattern->matches(theirs);
  };
  const auto units = units_of(model);
  const auto head = static_cast<size_t>(head_of(units));
  bool any = false;
  for (size_t unit = 0; unit < units.size(); ++unit) {
    const bool layer = is_layer(unit, head);
    const bool open = layer ? !layers || is_chosen(unit, head, *layers) : pattern.has_value();
    for (const Parameter& parameter : units[unit].parameters) {
      bool trained = open;
      if (open && pattern) {
        const auto match = matches(parameter.name);
        if (!match) return bad_input(match.error().message, kParameters);
        trained = *match;
      }
      any = any || trained;
      if (trained) continue;
      if (parameter.drawn > 0)
        return bad_input("\"" + parameter.name + "\" is new and would not be trained", kParameters,
                         "name it, too");
      frozen.push_back(parameter.name);
    }
  }
  if (!any)
    return bad_input("no parameter's name begins with a match of \"" + *expression + "\"" +
                         (layers ? " in these layers" : ""),
                     kParameters, "names look like \"" + units[1].parameters[0].name + "\"");
  if (const auto whole = all_but(model, frozen); !frozen.empty() && !whole)
    return bad_input(whole.error().message, kParameters,
                     "a module is trained or frozen as a whole: match its weight and its bias");
  return frozen;
}

Result<LoraArgs> all_but(const ModelConfig& model, const std::vector<std::string>& frozen) {
  std::set<std::string> left(frozen.begin(), frozen.end()), frozen_modules, trained_modules;
  for (const auto& unit : units_of(model)) {
    for (const auto& parameter : unit.parameters) {
      const bool stays = left.erase(parameter.name) > 0;
      (stays ? frozen_modules : trained_modules).insert(module_name(model, parameter.name));
    }
  }
  if (!left.empty())
    return bad_input("\"" + *left.begin() + "\" is frozen, and the model has no such parameter");
  for (const std::string& module : frozen_modules)
    if (trained_modules.contains(module))
      return bad_input("only a part of the module \"" + module + "\" is frozen");
  if (trained_modules.empty()) return bad_input("every parameter is frozen");
  LoraArgs trained;
  trained.modules_to_save.assign(trained_modules.begin(), trained_modules.end());
  return trained;
}

}  // namespace dsj::layout
