#include "engine/deepspeed/model_states.h"

#include <algorithm>
#include <set>

namespace dsj::deepspeed {
namespace {

using weights::PickleKind;

/// Keeps sums and products of sizes far from int64's limit.
constexpr int64_t kElementsMax = int64_t{1} << 50;

/// A dict of name → torch.Size.
Result<std::vector<Parameter>> parameters_of(const SavedFile& file, Node shapes, const char* what) {
  std::vector<Parameter> all;
  for (size_t i = 0; i < shapes.size(); ++i) {
    const Node value = shapes.value(i);
    const auto shape = value ? weights::extents_of(*value.pickle(), *value.raw()) : std::nullopt;
    Parameter parameter{.name = shapes.key(i).text(),
                        .shape = shape.value_or(std::vector<int64_t>()),
                        .elements = 1};
    bool valid = shape.has_value() && !parameter.name.empty();
    for (const int64_t extent : parameter.shape)
      valid = valid && !__builtin_mul_overflow(parameter.elements, extent, &parameter.elements) &&
              parameter.elements <= kElementsMax;
    if (!valid)
      return bad_input(std::string(what) + ": a name and its shape are expected", file.path());
    all.push_back(std::move(parameter));
  }
  return all;
}

/// Steps of the LR schedule, from DeepSpeed's last_batch_iteration or torch's last_epoch.
std::optional<int64_t> scheduled_of(Node scheduler) {
  if (const auto last = scheduler["last_batch_iteration"].integer())
    return std::min(*last, kElementsMax) + 1;
  return scheduler["last_epoch"].integer();
}

Result<std::vector<weights::TensorInfo>> module_of(const SavedFile& file,
                                                   std::map<std::string, std::string>& aliases) {
  const Node root = file.root(), module = root["module"];
  std::set<std::string> left_out;
  for (size_t i = 0; i < root["buffer_names"].size(); ++i)
    left_out.insert(root["buffer_names"].item(i).text());
  for (const auto& [alias, kept] : aliases) left_out.insert(alias);
  std::vector<weights::TensorInfo> all;
  std::map<int64_t, std::string> by_byte;
  for (size_t i = 0; i < module.size(); ++i) {
    const std::string name = module.key(i).text();
    if (left_out.contains(name) || !module.value(i).is(PickleKind::Tensor)) continue;
    DSJ_TRY(auto info, file.tensor(module.value(i), name));
    // Tied parameters are one tensor with two names; the first is the parameter's.
    if (info.elements > 0) {
      const auto [first, is_new] = by_byte.emplace(info.begin, name);
      if (!is_new) {
        aliases.emplace(name, first->second);
        continue;
      }
    }
    all.push_back(std::move(info));
  }
  return all;
}

}  // namespace

Result<ModelStates> read_model_states(const SavedFile& file) {
  const Node root = file.root();
  ModelStates states;
  if (!root["module"].is(PickleKind::Dict))
    return bad_input("not DeepSpeed model states: there is no \"module\"", file.path());
  const auto steps = root["global_steps"].integer();
  if (!steps || *steps < 0 || *steps > kElementsMax)
    return bad_input("\"global_steps\" is missing", file.path());
  states.steps = *steps;
  states.skipped = root["skipped_steps"].integer().value_or(0);
  states.samples = root["global_samples"].integer().value_or(0);
  states.world = static_cast<int>(
      std::clamp<int64_t>(root["dp_world_size"].integer().value_or(1), 1, INT32_MAX));
  states.version = root["ds_version"].text();
  states.scheduled = scheduled_of(root["lr_scheduler"]);
  if (root["mp_world_size"].integer().value_or(1) > 1)
    return bad_input("mp_world_size is " + std::to_string(*root["mp_world_size"].integer()) +
                         ": tensor parallelism is not supported",
                     file.path());
  const Node shapes = root["param_shapes"];
  for (size_t i = 0; i < shapes.size(); ++i) {
    DSJ_TRY(auto group, parameters_of(file, shapes.is(PickleKind::List) ? shapes.item(i) : shapes,
                                      "param_shapes"));
    states.groups.push_back(std::move(group));
    if (!shapes.is(PickleKind::List)) break;  // versions before 0.4 had one group
  }
  int64_t total = 0;
  for (const auto& group : states.groups)
    for (const Parameter& parameter : group) {
      total += parameter.elements;
      if (total > kElementsMax) return bad_input("param_shapes are beyond any model", file.path());
    }
  DSJ_TRY(states.frozen, parameters_of(file, root["frozen_param_shapes"], "frozen_param_shapes"));
  const Node shared = root["shared_params"];
  for (size_t i = 0; i < shared.size(); ++i)
    states.aliases[shared.key(i).text()] = shared.value(i).text();
  DSJ_TRY(states.module, module_of(file, states.aliases));
  const Node fragments = root["frozen_param_fragments"];
  for (size_t i = 0; i < fragments.size(); ++i) {
    const std::string name = fragments.key(i).text();
    DSJ_TRY(states.frozen_fragments[name], file.tensor(fragments.value(i), name));
  }
  return states;
}

}  // namespace dsj::deepspeed
