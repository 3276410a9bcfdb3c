#include "common/layout/units.h"

namespace dsj::layout {

int64_t Parameter::numel() const {
  int64_t product = 1;
  for (const int64_t size : shape) product *= size;
  return product;
}

std::vector<UnitSpec> units_of(const ModelConfig& c) {
  std::vector<UnitSpec> units;
  units.push_back({"embedding", {{"model.embed_tokens.weight", {c.vocab_size, c.hidden_size}}}});
  for (int64_t layer = 0; layer < c.num_layers; ++layer) {
    const std::string prefix = "model.layers." + std::to_string(layer) + ".";
    const std::string attention = prefix + "self_attn.", mlp = prefix + "mlp.";
    UnitSpec unit{"layer " + std::to_string(layer), {}};
    auto add = [&](std::string name, std::vector<int64_t> shape) {
      unit.parameters.push_back({std::move(name), std::move(shape)});
    };
    add(prefix + "input_layernorm.weight", {c.hidden_size});
    add(attention + "q_proj.weight", {c.query_size(), c.hidden_size});
    add(attention + "k_proj.weight", {c.kv_size(), c.hidden_size});
    add(attention + "v_proj.weight", {c.kv_size(), c.hidden_size});
    if (c.qkv_bias) {
      add(attention + "q_proj.bias", {c.query_size()});
      add(attention + "k_proj.bias", {c.kv_size()});
      add(attention + "v_proj.bias", {c.kv_size()});
    }
    add(attention + "o_proj.weight", {c.hidden_size, c.query_size()});
    add(prefix + "post_attention_layernorm.weight", {c.hidden_size});
    add(mlp + "gate_proj.weight", {c.intermediate_size, c.hidden_size});
    add(mlp + "up_proj.weight", {c.intermediate_size, c.hidden_size});
    add(mlp + "down_proj.weight", {c.hidden_size, c.intermediate_size});
    units.push_back(std::move(unit));
  }
  UnitSpec head{"head", {{"model.norm.weight", {c.hidden_size}}}, c.tied};
  if (!c.tied) head.parameters.push_back({"lm_head.weight", {c.vocab_size, c.hidden_size}});
  units.push_back(std::move(head));
  return units;
}

int64_t total_numel(const std::vector<UnitSpec>& units) {
  int64_t total = 0;
  for (const auto& unit : units) {
    for (const auto& parameter : unit.parameters) total += parameter.numel();
  }
  return total;
}

int64_t trainable_numel(const std::vector<UnitSpec>& units) {
  int64_t total = 0;
  for (const auto& unit : units) {
    for (const auto& parameter : unit.parameters) total += parameter.frozen ? 0 : parameter.numel();
  }
  return total;
}

int lowest_trainable(const std::vector<UnitSpec>& units) {
  for (size_t unit = 0; unit < units.size(); ++unit) {
    for (const auto& parameter : units[unit].parameters)
      if (!parameter.frozen) return static_cast<int>(unit);
  }
  return static_cast<int>(units.size()) - 1;
}

}  // namespace dsj::layout
