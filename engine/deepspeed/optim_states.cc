#include "engine/deepspeed/optim_states.h"

#include <algorithm>

namespace dsj::deepspeed {
namespace {

using weights::PickleKind;

constexpr int64_t kPaddingMax = 1 << 20;

/// The numbers of a param group.
Options options_of(Node group) {
  Options options;
  for (size_t i = 0; i < group.size(); ++i) {
    const std::string name = group.key(i).text();
    const Node value = group.value(i);
    if (value.is(PickleKind::Int) || value.is(PickleKind::Float)) options[name] = *value.number();
    for (size_t k = 0; name != "params" && k < value.size(); ++k)
      if (const auto number = value.item(k).number())
        options[name + "[" + std::to_string(k) + "]"] = *number;
  }
  options.erase("step");  // FusedAdam leaves a meaningless 0 there
  return options;
}

/// A torch optimizer's state_dict: {state: {index: {...}}, param_groups: [{..., params: [index]}]},
/// or elastic_checkpoint's list with one dict of states per group.
class TorchOptimizer {
 public:
  TorchOptimizer(const SavedFile& file, Node dict) : file_(file), dict_(dict) {}

  /// Fills `updated` with `count` entries in the order of the param groups, `groups`, `step`.
  Status read(OptimStates& out) {
    if (dict_.is(PickleKind::List)) return read_elastic(out);
    const Node groups = dict_["param_groups"], states = dict_["state"];
    if (!groups.is(PickleKind::List) || !states.is(PickleKind::Dict))
      return bad_input("the optimizer's state_dict has no \"state\" and \"param_groups\"",
                       file_.path());
    for (size_t g = 0; g < groups.size(); ++g) {
      out.groups.push_back(options_of(groups.item(g)));
      const Node indices = groups.item(g)["params"];
      for (size_t i = 0; i < indices.size(); ++i) {
        const auto index = indices.item(i).integer();
        if (!index) return bad_input("a param group's \"params\" are not numbers", file_.path());
        out.group_of.push_back(g);
        out.updated.emplace_back();
        DSJ_TRY_STATUS(add_states(out, states.with_key(*index), groups.item(g)));
      }
    }
    return {};
  }

 private:
  Status read_elastic(OptimStates& out) {
    for (size_t g = 0; g < dict_.size(); ++g) {
      out.groups.emplace_back();
      out.group_of.push_back(g);
      out.updated.emplace_back();
      DSJ_TRY_STATUS(add_states(out, dict_.item(g), {}));
    }
    return {};
  }

  /// Tensors with elements are states; "step" is the count.
  Status add_states(OptimStates& out, Node states, Node group) {
    for (size_t i = 0; i < states.size(); ++i) {
      const std::string name = states.key(i).text();
      const Node value = states.value(i);
      if (name == "step") {
        DSJ_TRY(const int64_t step, file_.count(value, "step"));
        out.step = std::max(out.step.value_or(0), step);
      } else if (value.is(PickleKind::Tensor)) {
        DSJ_TRY(auto info, file_.tensor(value, name));
        // A zero-dimensional tensor is a number, not a state of the elements.
        if (!info.shape.empty()) out.updated.back().states[name] = std::move(info);
      }
    }
    // Old FusedAdam counts in the group.
    if (const auto step = group["step"].integer(); !out.step && step.value_or(0) > 0)
      out.step = *step;
    return {};
  }

  const SavedFile& file_;
  const Node dict_;
};

std::optional<Scaler> scaler_of(Node root) {
  const Node object = root["loss_scaler"];
  const bool dynamic = root["dynamic_loss_scale"].integer().value_or(0) != 0;
  if (!dynamic) return std::nullopt;
  // Stages 1 to 3 save an object, stage 0 saves the numbers beside the rest.
  const Node from = object ? object : root;
  return Scaler{.scale = from["cur_scale"].number().value_or(1),
                .hysteresis = from["cur_hysteresis"].integer().value_or(1),
                .step = from["cur_iter"].integer().value_or(0),
                .last_overflow = from["last_overflow_iter"].integer().value_or(-1)};
}

int partitions_of(Node count) {
  int64_t most = count.integer().value_or(1);
  for (size_t i = 0; i < count.size(); ++i)
    most = std::max(most, count.item(i).integer().value_or(1));
  return static_cast<int>(std::clamp<int64_t>(most, 1, INT32_MAX));
}

/// Adds fp32 values: one tensor per entry of `updated`.
Status add_masters(const SavedFile& file, Node tensors, const std::string& what, OptimStates& out) {
  if (tensors.size() != out.updated.size())
    return bad_input(what + " has " + std::to_string(tensors.size()) +
                         " tensors, the optimizer updates " + std::to_string(out.updated.size()),
                     file.path());
  for (size_t i = 0; i < tensors.size(); ++i) {
    DSJ_TRY(out.updated[i].states["master"], file.tensor(tensors.item(i), what));
  }
  return {};
}

void add_alignment(Node paddings, OptimStates& out) {
  for (size_t g = 0; g < paddings.size(); ++g) {
    std::vector<int64_t> group;
    for (size_t i = 0; i < paddings.item(g).size(); ++i)
      group.push_back(
          std::clamp<int64_t>(paddings.item(g).item(i).integer().value_or(0), 0, kPaddingMax));
    out.alignment.push_back(std::move(group));
  }
}

}  // namespace

Result<OptimStates> read_optim_states(const SavedFile& file) {
  const Node root = file.root()["optimizer_state_dict"];
  if (!root)
    return bad_input("not DeepSpeed optimizer states: there is no \"optimizer_state_dict\"",
                     file.path());
  OptimStates out;
  out.partitions = partitions_of(root["partition_count"]);
  out.scaler = scaler_of(root);
  if (const Node flat = root["fp32_flat_groups"]) {
    out.stage = 3;
    DSJ_TRY_STATUS(TorchOptimizer(file, root["optimizer_state_dict"]).read(out));
    DSJ_TRY_STATUS(add_masters(file, flat, "fp32_flat_groups", out));
    return out;
  }
  const Node flat = root["single_partition_of_fp32_groups"];
  if (!flat)
    return bad_input("it contains neither single_partition_of_fp32_groups nor fp32_flat_groups",
                     file.path(), "DeepSpeed's ZeRO stages 1 to 3 and BF16_Optimizer are read");
  out.stage = static_cast<int>(root["zero_stage"].integer().value_or(1));
  DSJ_TRY_STATUS(TorchOptimizer(file, root["base_optimizer_state"]).read(out));
  if (const auto step = root["base_optimizer_state_step"]; step && !out.step) {
    DSJ_TRY(out.step, file.count(step, "base_optimizer_state_step"));
  }
  DSJ_TRY_STATUS(add_masters(file, flat, "single_partition_of_fp32_groups", out));
  add_alignment(root["param_alignment_paddings"], out);
  return out;
}

Result<OptimStates> read_plain_optimizer(const SavedFile& file) {
  const Node root = file.root()["optimizer"];
  if (!root)
    return bad_input("it was saved without an optimizer's state", file.path(),
                     "only its weights could be read: consolidate them and start from the model");
  OptimStates out;
  const Node inner = root["optimizer_state_dict"];
  DSJ_TRY_STATUS(TorchOptimizer(file, inner ? inner : root).read(out));
  if (!inner) return out;
  out.scaler = scaler_of(root);
  if (const Node flat = root["fp32_groups_flat"]) {
    DSJ_TRY_STATUS(add_masters(file, flat, "fp32_groups_flat", out));
    return out;
  }
  const Node groups = root["fp32_groups"];
  size_t next = 0;
  for (size_t g = 0; g < groups.size(); ++g)
    for (size_t i = 0; i < groups.item(g).size() && next < out.updated.size(); ++i, ++next) {
      DSJ_TRY(out.updated[next].states["master"],
              file.tensor(groups.item(g).item(i), "fp32_groups"));
    }
  if (next == 0 || next != out.updated.size())
    return bad_input("its fp32 values are in neither fp32_groups_flat nor fp32_groups",
                     file.path());
  return out;
}

Result<OptimStates> read_universal_optimizer(const SavedFile& file) {
  const Node root = file.root();
  OptimStates out;
  out.stage = static_cast<int>(root["zero_stage"].integer().value_or(1));
  out.partitions = partitions_of(root["partition_count"]);
  out.scaler = scaler_of(root);
  const Node own = root["param_groups"];  // stages 1 and 2; one level deeper at stage 3
  const Node groups = own.is(PickleKind::List) ? own : root["optimizer_state_dict"]["param_groups"];
  for (size_t g = 0; g < groups.size(); ++g) out.groups.push_back(options_of(groups.item(g)));
  return out;
}

}  // namespace dsj::deepspeed
