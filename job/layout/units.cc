#include "job/layout/units.h"

#include <algorithm>
#include <iterator>

#include "common/check.h"

namespace dsj::layout {

int64_t Parameter::numel() const {
  int64_t product = 1;
  for (const int64_t size : shape) product *= size;
  return product;
}

namespace {

/// Name after the layer's number, and shape.
Parameter decoder_parameter(const ModelConfig& c, Role role, Mixer mixer) {
  const int64_t hidden = c.hidden_size, inner = c.intermediate_size;
  const int64_t q = c.query_size(), kv = c.kv_size();
  const auto named = [](const char* module, const char* tensor) {
    return std::string(module) + "." + tensor;
  };
  const auto attention = [&](const char* module, const char* tensor) {
    const char* prefix = mixer == Mixer::Delta  ? c.names.delta
                         : mixer == Mixer::Conv ? c.names.conv
                                                : c.names.attention;
    return named(prefix, module) + "." + tensor;
  };
  switch (role) {
    case Role::Norm1:
      return {named(c.names.norm1, "weight"), {hidden}};
    case Role::Norm1Bias:
      return {named(c.names.norm1, "bias"), {hidden}};
    case Role::Q:
      if (c.fused_qkv) return {attention(c.names.qkv, "weight"), {q + 2 * kv, hidden}};
      if (c.latent.query_rank > 0)
        return {attention("q_b_proj", "weight"), {q, c.latent.query_rank}};
      return {attention("q_proj", "weight"), {c.query_width(), hidden}};
    case Role::K:
      return {attention("k_proj", "weight"), {kv, hidden}};
    case Role::V:
      return {attention("v_proj", "weight"), {kv, hidden}};
    case Role::QBias:
      if (c.fused_qkv) return {attention(c.names.qkv, "bias"), {q + 2 * kv}};
      return {attention("q_proj", "bias"), {c.query_width()}};
    case Role::KBias:
      return {attention("k_proj", "bias"), {kv}};
    case Role::VBias:
      return {attention("v_proj", "bias"), {kv}};
    case Role::QNorm:
      return {attention(c.names.q_norm, "weight"), {c.qk_norm_whole ? q : c.head_dim}};
    case Role::KNorm:
      return {attention(c.names.k_norm, "weight"), {c.qk_norm_whole ? kv : c.head_dim}};
    case Role::O:
      if (mixer != Mixer::Attention)
        return {attention("out_proj", "weight"),
                {hidden, mixer == Mixer::Delta ? c.delta.value_size() : hidden}};
      return {attention(c.names.o, "weight"),
              {hidden, c.latent.rank > 0 ? c.num_heads * c.latent.value : q}};
    case Role::OBias:
      return {attention(c.names.o, "bias"), {hidden}};
    case Role::PostAttentionNorm:
      return {named(c.names.post_attention_norm, "weight"), {hidden}};
    case Role::Norm2:
      return {named(c.names.norm2, "weight"), {hidden}};
    case Role::Norm2Bias:
      return {named(c.names.norm2, "bias"), {hidden}};
    case Role::Gate:
      if (c.fused_gate_up) return {named(c.names.gate_up, "weight"), {2 * inner, hidden}};
      return {named(c.names.gate, "weight"), {inner, hidden}};
    case Role::Up:
      return {named(c.names.up, "weight"), {inner, hidden}};
    case Role::GateBias:
      return {named(c.names.gate, "bias"), {inner}};
    case Role::UpBias:
      return {named(c.names.up, "bias"), {inner}};
    case Role::Down:
      return {named(c.names.down, "weight"), {hidden, inner}};
    case Role::DownBias:
      return {named(c.names.down, "bias"), {hidden}};
    case Role::PostMlpNorm:
      return {named(c.names.post_mlp_norm, "weight"), {hidden}};
    case Role::ActivationPositive:
      return {named(c.names.activation, "alpha_p"), {1}};
    case Role::ActivationNegative:
      return {named(c.names.activation, "alpha_n"), {1}};
    case Role::Sinks:
      return {std::string(c.names.attention) + ".sinks", {c.num_heads}};
    case Role::QueryDown:
      return {attention("q_a_proj", "weight"), {c.latent.query_rank, hidden}};
    case Role::QueryDownBias:
      return {attention("q_a_proj", "bias"), {c.latent.query_rank}};
    case Role::QueryNorm:
      return {attention("q_a_layernorm", "weight"), {c.latent.query_rank}};
    case Role::KeyDown:
      return {attention("kv_a_proj_with_mqa", "weight"),
              {c.latent.rank + c.latent.rotated, hidden}};
    case Role::KeyDownBias:
      return {attention("kv_a_proj_with_mqa", "bias"), {c.latent.rank + c.latent.rotated}};
    case Role::KeyNorm:
      return {attention("kv_a_layernorm", "weight"), {c.latent.rank}};
    case Role::KeyUp:
      return {attention("kv_b_proj", "weight"),
              {c.num_heads * (c.latent.plain + c.latent.value), c.latent.rank}};
    case Role::Router:
      return {named(c.names.router, "weight"), {c.experts.count, hidden}};
    case Role::RouterBias:
      return {named(c.names.router, "bias"), {c.experts.count}};
    case Role::SharedGate:
      if (c.names.shared_gate_up)
        return {named(c.names.shared_gate_up, "weight"), {2 * c.experts.shared_inner, hidden}};
      return {named(c.names.shared, "gate_proj.weight"), {c.experts.shared_inner, hidden}};
    case Role::SharedUp:
      return {named(c.names.shared, "up_proj.weight"), {c.experts.shared_inner, hidden}};
    case Role::SharedDown:
      return {named(c.names.shared, c.names.shared_down) + ".weight",
              {hidden, c.experts.shared_inner}};
    case Role::SharedScale:
      return {named(c.names.shared_scale, "weight"), {1, hidden}};
    case Role::RouterScale:
      return {c.names.router_scale, {hidden}};
    case Role::ExpertScale:
      return {c.names.expert_scale, {c.experts.count}};
    case Role::ExpertsNorm:
      return {named(c.names.experts_norm, "weight"), {hidden}};
    case Role::PostPlainNorm:
      return {named(c.names.post_plain_norm, "weight"), {hidden}};
    case Role::PostExpertsNorm:
      return {named(c.names.post_experts_norm, "weight"), {hidden}};
    case Role::DeltaQkv:
      if (c.delta.mamba) return {attention("in_proj", "weight"), {c.delta.width(), hidden}};
      if (c.delta.by_group)
        return {attention("in_proj_qkvz", "weight"),
                {c.delta.conv_size() + c.delta.value_size(), hidden}};
      return {attention("in_proj_qkv", "weight"), {c.delta.conv_size(), hidden}};
    case Role::DeltaStrengths:
      if (c.delta.by_group)
        return {attention("in_proj_ba", "weight"), {2 * c.delta.value_heads, hidden}};
      return {attention("in_proj_b", "weight"), {c.delta.value_heads, hidden}};
    case Role::DeltaDecays:
      return {attention("in_proj_a", "weight"), {c.delta.value_heads, hidden}};
    case Role::DeltaGates:
      return {attention("in_proj_z", "weight"), {c.delta.value_size(), hidden}};
    case Role::DeltaConv:
      return {attention("conv1d", "weight"), {c.delta.conv_size(), 1, c.delta.kernel}};
    case Role::DeltaRates:
      return {named(c.names.delta, "A_log"), {c.delta.value_heads}};
    case Role::DeltaShifts:
      return {named(c.names.delta, "dt_bias"), {c.delta.value_heads}};
    case Role::DeltaNorm:
      return {attention("norm", "weight"),
              {c.delta.mamba ? c.delta.value_size() : c.delta.value_dim}};
    case Role::DeltaConvBias:
      return {attention("conv1d", "bias"), {c.delta.conv_size()}};
    case Role::DeltaSkips:
      return {named(c.names.delta, "D"), {c.delta.value_heads}};
    case Role::ConvIn:
      return {attention("in_proj", "weight"), {3 * hidden, hidden}};
    case Role::ConvWeight:
      return {attention("conv", "weight"), {hidden, 1, c.conv.kernel}};
    case Role::LayerInputGate:
      return {named(c.names.layer_input_gate, "weight"), {c.layer_input, hidden}};
    case Role::LayerInputOut:
      return {named(c.names.layer_input_out, "weight"), {hidden, c.layer_input}};
    case Role::PostLayerInputNorm:
      return {named(c.names.post_layer_input_norm, "weight"), {hidden}};
  }
  DSJ_CHECK(false);
}

/// The experts' parameters, which follow the roles of their layer.
std::vector<Parameter> expert_parameters(const ModelConfig& c) {
  const int64_t hidden = c.hidden_size, inner = c.experts.inner, count = c.experts.count;
  std::vector<Parameter> parameters;
  const auto add = [&](std::string name, std::vector<int64_t> shape) {
    parameters.push_back({std::move(name), std::move(shape), /*frozen=*/false, /*routed=*/true});
  };
  if (c.experts.alternates) {
    const std::string up = c.names.stacked_up, down = c.names.stacked_down;
    add(up, {count, hidden, 2 * inner});
    add(up + "_bias", {count, 2 * inner});
    add(down, {count, inner, hidden});
    add(down + "_bias", {count, hidden});
    return parameters;
  }
  if (c.experts.stacked && c.experts.turned) {
    add(c.names.stacked_up, {count, hidden, 2 * inner});
    add(c.names.stacked_down, {count, inner, hidden});
    return parameters;
  }
  if (c.experts.stacked) {
    add(c.names.stacked_up, {count, 2 * inner, hidden});
    add(c.names.stacked_down, {count, hidden, inner});
    return parameters;
  }
  for (int64_t expert = 0; expert < count; ++expert) {
    const std::string prefix = std::string(c.names.experts) + "." + std::to_string(expert) + ".";
    add(prefix + c.names.expert_gate + ".weight", {inner, hidden});
    add(prefix + c.names.expert_up + ".weight", {inner, hidden});
    add(prefix + c.names.expert_down + ".weight", {hidden, inner});
  }
  return parameters;
}

std::vector<UnitSpec> llama_units(const ModelConfig& c) {
  const std::string base = c.names.base;
  std::vector<UnitSpec> units;
  units.push_back(
      {"embedding", {{base + c.names.embedding + ".weight", {c.vocab_size, c.hidden_size}}}});
  if (c.learned_positions)
    units[0].parameters.push_back(
        {base + c.names.positions + ".weight", {c.first_position + c.max_position, c.hidden_size}});
  const LayerKinds kinds = c.layer_kinds();
  std::vector<ModelConfig> shapes;
  for (const int64_t first : kinds.first) shapes.push_back(c.of_layer(first));
  for (int64_t layer = 0; layer < c.num_layers; ++layer) {
    UnitSpec unit{"layer " + std::to_string(layer), {}};
    const Mixer mixer = c.mixer(layer);
    const ModelConfig& of_layer = shapes[static_cast<size_t>(kinds.of[layer])];
    for (const Role role : decoder_roles(of_layer, c.has_experts(layer), mixer))
      unit.parameters.push_back(decoder_parameter(of_layer, role, mixer));
    if (c.has_experts(layer))
      std::ranges::move(expert_parameters(c), std::back_inserter(unit.parameters));
    const std::string prefix = base + c.names.layers + "." + std::to_string(layer) + ".";
    for (Parameter& parameter : unit.parameters) parameter.name.insert(0, prefix);
    if (c.layer_scale) unit.buffers.push_back({prefix + c.names.layer_scale, {1}, /*frozen=*/true});
    if (c.experts.corrected && c.has_experts(layer))
      unit.buffers.push_back({prefix + c.names.correction, {c.experts.count}, /*frozen=*/true});
    if (c.activation == Activation::Xielu)
      for (const char* constant : {".beta", ".eps"})
        unit.buffers.push_back({prefix + c.names.activation + constant, {}, /*frozen=*/true});
    units.push_back(std::move(unit));
  }
  UnitSpec head{"head", {}, c.tied};
  const auto add = [&](bool has, const std::string& name, std::vector<int64_t> shape) {
    if (has) head.parameters.push_back({name, std::move(shape)});
  };
  add(c.norm_weight, base + c.names.norm + ".weight", {c.hidden_size});
  add(c.norm_bias, base + c.names.norm + ".bias", {c.hidden_size});
  add(!c.tied, std::string(c.names.head) + ".weight", {c.head_rows(), c.hidden_size});
  add(c.head_bias, std::string(c.names.head) + ".bias", {c.vocab_size});
  units.push_back(std::move(head));
  if (c.layer_input == 0) return units;
  const int64_t columns = c.num_layers * c.layer_input;
  UnitSpec table{"layer table",
                 {{base + c.names.layer_table + ".weight", {c.vocab_size, columns}}}};
  table.before_layers = table.only_rows = true;
  UnitSpec inputs{"layer inputs",
                  {{base + c.names.layer_projection + ".weight", {columns, c.hidden_size}},
                   {base + c.names.layer_projection_norm + ".weight", {c.layer_input}}}};
  inputs.before_layers = true;
  units.push_back(std::move(table));
  units.push_back(std::move(inputs));
  return units;
}

std::vector<UnitSpec> gpt2_units(const ModelConfig& c) {
  const int64_t hidden = c.hidden_size, inner = c.intermediate_size;
  std::vector<UnitSpec> units;
  units.push_back({"embedding",
                   {{"transformer.wte.weight", {c.vocab_size, hidden}},
                    {"transformer.wpe.weight", {c.max_position, hidden}}}});
  for (int64_t layer = 0; layer < c.num_layers; ++layer) {
    UnitSpec unit{"layer " + std::to_string(layer), {}};
    auto add = [&](const char* name, std::vector<int64_t> shape) {
      unit.parameters.push_back(
          {"transformer.h." + std::to_string(layer) + "." + name, std::move(shape)});
    };
    add("ln_1.weight", {hidden});
    add("ln_1.bias", {hidden});
    add("attn.c_attn.weight", {hidden, 3 * hidden});
    add("attn.c_attn.bias", {3 * hidden});
    add("attn.c_proj.weight", {hidden, hidden});
    add("attn.c_proj.bias", {hidden});
    add("ln_2.weight", {hidden});
    add("ln_2.bias", {hidden});
    add("mlp.c_fc.weight", {hidden, inner});
    add("mlp.c_fc.bias", {inner});
    add("mlp.c_proj.weight", {inner, hidden});
    add("mlp.c_proj.bias", {hidden});
    units.push_back(std::move(unit));
  }
  UnitSpec head{
      "head", {{"transformer.ln_f.weight", {hidden}}, {"transformer.ln_f.bias", {hidden}}}, c.tied};
  if (!c.tied)
    head.parameters.push_back({std::string(c.names.head) + ".weight", {c.head_rows(), hidden}});
  units.push_back(std::move(head));
  return units;
}

}  // namespace

std::string name_without_prefix(const std::string& name) {
  for (const std::string_view prefix : {"model.", "transformer.", "gpt_neox."}) {
    if (name.starts_with(prefix)) return name.substr(prefix.size());
  }
  return {};
}

std::vector<Role> decoder_roles(const ModelConfig& c, bool experts, Mixer mixer) {
  const bool delta = mixer == Mixer::Delta, attends = mixer == Mixer::Attention;
  std::vector<Role> roles;
  auto add = [&](bool has, std::initializer_list<Role> more) {
    if (has) roles.insert(roles.end(), more);
  };
  const bool norm2 = c.pre_norms && !c.shared_norm;
  add(c.pre_norms && c.norm_weight, {Role::Norm1});
  add(c.pre_norms && c.norm_bias, {Role::Norm1Bias});
  const bool mamba = delta && c.delta.mamba;
  const bool split = delta && !c.delta.by_group && !mamba;
  add(delta, {Role::DeltaQkv});
  add(delta && !mamba, {Role::DeltaStrengths});
  add(split, {Role::DeltaDecays, Role::DeltaGates});
  add(delta, {Role::DeltaConv});
  add(mamba && c.delta.conv_bias, {Role::DeltaConvBias});
  add(delta, {Role::DeltaRates, Role::DeltaShifts, Role::DeltaNorm});
  add(mamba, {Role::DeltaSkips});
  add(mixer == Mixer::Conv, {Role::ConvIn, Role::ConvWeight});
  const bool latent = c.latent.rank > 0;
  add(latent && c.latent.query_rank > 0, {Role::QueryDown});
  add(latent && c.latent.query_rank > 0 && c.qkv_bias, {Role::QueryDownBias});
  add(latent && c.latent.query_rank > 0, {Role::QueryNorm});
  add(attends, {Role::Q});
  add(latent, {Role::KeyDown});
  add(latent && c.qkv_bias, {Role::KeyDownBias});
  add(latent, {Role::KeyNorm, Role::KeyUp});
  const bool plain = !latent && attends && !c.shares_keys;
  const bool values = !c.keys_are_values;
  add(plain && !c.fused_qkv, {Role::K});
  add(plain && !c.fused_qkv && values, {Role::V});
  add((plain || c.shares_keys) && c.qkv_bias, {Role::QBias});
  add(plain && c.qkv_bias && !c.fused_qkv, {Role::KBias});
  add(plain && c.qkv_bias && !c.fused_qkv && values, {Role::VBias});
  add(c.sinks, {Role::Sinks});
  add(c.qk_norm && attends, {Role::QNorm});
  add(c.qk_norm && attends && !c.shares_keys, {Role::KNorm});
  add(true, {Role::O});
  add(c.o_bias && attends, {Role::OBias});
  add(c.post_norms, {Role::PostAttentionNorm});
  add(norm2 && c.norm_weight, {Role::Norm2});
  add(norm2 && c.norm_bias, {Role::Norm2Bias});
  const auto plain_mlp = [&] {
    add(c.gated, {Role::Gate});
    add(!c.fused_gate_up, {Role::Up});
    add(c.gated && c.mlp_bias, {Role::GateBias});
    add(c.mlp_bias, {Role::UpBias});
    add(true, {Role::Down});
    add(c.mlp_bias, {Role::DownBias});
  };
  if (experts) {
    if (c.experts.beside_mlp) plain_mlp();
    add(c.experts.beside_mlp, {Role::PostPlainNorm, Role::RouterScale, Role::ExpertScale,
                               Role::ExpertsNorm, Role::PostExpertsNorm});
    add(true, {Role::Router});
    add(c.experts.router_bias, {Role::RouterBias});
    const bool shared = c.experts.shared_inner > 0;
    add(shared, {Role::SharedGate});
    add(shared && !c.names.shared_gate_up, {Role::SharedUp});
    add(shared, {Role::SharedDown});
    add(c.experts.shared_scaled, {Role::SharedScale});
    add(c.post_norms, {Role::PostMlpNorm});
    return roles;
  }
  plain_mlp();
  add(c.activation == Activation::Xielu, {Role::ActivationPositive, Role::ActivationNegative});
  add(c.post_norms, {Role::PostMlpNorm});
  add(c.layer_input > 0, {Role::LayerInputGate, Role::LayerInputOut, Role::PostLayerInputNorm});
  return roles;
}

std::vector<UnitSpec> units_of(const ModelConfig& c) {
  auto units = c.block == Block::Gpt2 ? gpt2_units(c) : llama_units(c);
  if (c.scored)
    units[static_cast<size_t>(head_of(units))].parameters.back().drawn = c.score_deviation;
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

int64_t active_numel(const ModelConfig& config, const std::vector<UnitSpec>& units) {
  int64_t total = 0, routed = 0;
  for (const auto& unit : units) {
    for (const auto& parameter : unit.parameters)
      (parameter.routed ? routed : total) += parameter.numel();
  }
  if (routed > 0) total += routed / config.experts.count * config.experts.per_token;
  return total;
}

int head_of(const std::vector<UnitSpec>& units) {
  auto head = static_cast<int>(units.size()) - 1;
  while (head > 0 && units[static_cast<size_t>(head)].before_layers) --head;
  return head;
}

int lowest_trainable(const std::vector<UnitSpec>& units) {
  const int head = head_of(units);
  int lowest = head;
  for (int unit = static_cast<int>(units.size()) - 1; unit >= 0; --unit) {
    const auto& parameters = units[static_cast<size_t>(unit)].parameters;
    if (std::ranges::all_of(parameters, &Parameter::frozen)) continue;
    if (unit > head) return 0;
    lowest = unit;
  }
  return lowest;
}

}  // namespace dsj::layout
