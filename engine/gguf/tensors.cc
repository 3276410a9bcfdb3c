#include "engine/gguf/tensors.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "common/check.h"

namespace dsj::gguf {
namespace {

using layout::ModelConfig;
using layout::NormKind;
using layout::Parameter;
using layout::Role;

/// The name after "blk.N.".
const char* name_of(Role role, const ModelConfig& c) {
  switch (role) {
    case Role::Norm1:
      return "attn_norm.weight";
    case Role::Norm1Bias:
      return "attn_norm.bias";
    case Role::Q:
      return c.fused_qkv ? "attn_qkv.weight" : "attn_q.weight";
    case Role::K:
      return "attn_k.weight";
    case Role::V:
      return "attn_v.weight";
    case Role::QBias:
      return c.fused_qkv ? "attn_qkv.bias" : "attn_q.bias";
    case Role::KBias:
      return "attn_k.bias";
    case Role::VBias:
      return "attn_v.bias";
    case Role::QNorm:
      return "attn_q_norm.weight";
    case Role::KNorm:
      return "attn_k_norm.weight";
    case Role::O:
      return "attn_output.weight";
    case Role::OBias:
      return "attn_output.bias";
    case Role::PostAttentionNorm:
      return "post_attention_norm.weight";
    case Role::Norm2:
      return "ffn_norm.weight";
    case Role::Norm2Bias:
      return "ffn_norm.bias";
    case Role::Gate:
      return c.fused_gate_up ? "ffn_up.weight" : "ffn_gate.weight";
    case Role::Up:
      return "ffn_up.weight";
    case Role::GateBias:
      return "ffn_gate.bias";
    case Role::UpBias:
      return "ffn_up.bias";
    case Role::Down:
      return "ffn_down.weight";
    case Role::DownBias:
      return "ffn_down.bias";
    case Role::PostMlpNorm:
      return "post_ffw_norm.weight";
    case Role::Router:
      return "ffn_gate_inp.weight";
    case Role::SharedGate:
      return "ffn_gate_shexp.weight";
    case Role::SharedUp:
      return "ffn_up_shexp.weight";
    case Role::SharedDown:
      return "ffn_down_shexp.weight";
    case Role::SharedScale:
      return "ffn_gate_inp_shexp.weight";
    default:
      DSJ_CHECK(false);  // refused by architecture_of()
  }
}

bool is_norm(Role role) {
  return role == Role::Norm1 || role == Role::Norm2 || role == Role::QNorm || role == Role::KNorm ||
         role == Role::PostAttentionNorm || role == Role::PostMlpNorm;
}

class List {
 public:
  List(const ModelConfig& config, const Architecture& of, Type type)
      : c_(config), of_(of), type_(type) {}

  void add(const std::string& name, const Parameter& of) {
    add(name, of.shape, {{of.name, 0, of.shape[0]}});
  }
  void add_norm(const std::string& name, const Parameter& of) {
    add(name, of);
    const bool plus = c_.norm == NormKind::RmsPlusOne || c_.norm == NormKind::LayerPlusOne;
    list_.back().plus = plus && name.ends_with(".weight") ? 1 : 0;
  }
  /// A matrix that the model stores as [in, out].
  void add_transposed(const std::string& name, const Parameter& of) {
    add(name, {of.shape[1], of.shape[0]}, {{of.name, 0, of.shape[0]}});
    list_.back().transposed = true;
  }
  void add(const std::string& name, std::vector<int64_t> shape, std::vector<Rows> rows) {
    const Type type = type_of(name, shape);
    list_.push_back({{name, std::move(shape), type}, std::move(rows)});
  }

  /// Queries or keys of `heads` heads, in the architecture's order of rotation.
  void add_rotated(const std::string& name, const Parameter& of, int64_t heads) {
    add(name, of);
    if (!of_.pairs || c_.rope_in_pairs) return;
    const int64_t dim = of.shape[0] / heads, half = dim / 2;
    for (int64_t row = 0; row < of.shape[0]; ++row) {
      const int64_t in_head = row % dim;
      list_.back().rows[0].order.push_back(row - in_head + in_head / 2 + in_head % 2 * half);
    }
  }
  /// One tensor with all queries, then all keys, then all values.
  void add_fused(const std::string& name, const Parameter& of) {
    add(name, of);
    if (!c_.qkv_by_group) return;
    const int64_t queries = c_.num_heads / c_.num_kv_heads, group = queries + 2;
    std::vector<int64_t>& order = list_.back().rows[0].order;
    const auto head = [&](int64_t at) {
      for (int64_t row = 0; row < c_.head_dim; ++row) order.push_back(at * c_.head_dim + row);
    };
    for (int64_t q = 0; q < c_.num_heads; ++q) head(q / queries * group + q % queries);
    for (int64_t part : {queries, queries + 1})
      for (int64_t kv = 0; kv < c_.num_kv_heads; ++kv) head(kv * group + part);
  }

  void add_experts(const std::string& prefix, std::span<const Parameter> of);

  std::vector<Tensor> take() && { return std::move(list_); }

 private:
  Type type_of(const std::string& name, const std::vector<int64_t>& shape) const {
    const bool exact = shape.size() < 2 || name.ends_with("_norm.weight") ||
                       name.contains("ffn_gate_inp") || name == "position_embd.weight" ||
                       !name.ends_with(".weight");
    if (exact) return Type::F32;
    return type_ == Type::Q8_0 && shape.back() % kBlock != 0 ? Type::F16 : type_;
  }

  const ModelConfig& c_;
  const Architecture& of_;
  const Type type_;
  std::vector<Tensor> list_;
};

void List::add_experts(const std::string& prefix, std::span<const Parameter> of) {
  const int64_t count = c_.experts.count, inner = c_.experts.inner, hidden = c_.hidden_size;
  const auto add_one = [&](const char* name, std::vector<int64_t> shape, size_t which) {
    std::vector<Rows> rows;
    for (int64_t expert = 0; expert < count; ++expert) {
      if (!c_.experts.stacked)
        rows.push_back({of[static_cast<size_t>(expert) * 3 + which].name, 0, shape[1]});
      else if (which == 2)
        rows.push_back({of[1].name, expert * hidden, hidden});
      else
        rows.push_back({of[0].name, (2 * expert + static_cast<int64_t>(which)) * inner, inner});
    }
    add(prefix + name, std::move(shape), std::move(rows));
  };
  add_one("ffn_gate_exps.weight", {count, inner, hidden}, 0);
  add_one("ffn_up_exps.weight", {count, inner, hidden}, 1);
  add_one("ffn_down_exps.weight", {count, hidden, inner}, 2);
}

void add_layer(const ModelConfig& c, const Architecture& arch, int64_t layer,
               const std::vector<Parameter>& parameters, List& list) {
  const std::string prefix = "blk." + std::to_string(layer) + ".";
  const std::vector<Role> roles = layout::decoder_roles(c, c.has_experts(layer));
  for (size_t i = 0; i < roles.size(); ++i) {
    const Role role = roles[i];
    const Parameter& of = parameters[i];
    const bool post_name = role == Role::Norm2 && arch.has(kPostNormName);
    const std::string name = prefix + name_of(post_name ? Role::PostAttentionNorm : role, c);
    if (is_norm(role)) {
      list.add_norm(name, of);
    } else if (c.fused_qkv && (role == Role::Q || role == Role::QBias)) {
      list.add_fused(name, of);
    } else if (role == Role::Q || role == Role::QBias) {
      list.add_rotated(name, of, c.num_heads);
    } else if (role == Role::K || role == Role::KBias) {
      list.add_rotated(name, of, c.num_kv_heads);
    } else {
      list.add(name, of);
    }
  }
  if (c.has_experts(layer)) list.add_experts(prefix, std::span(parameters).subspan(roles.size()));
}

/// GPT-2's layer: weights are stored [in, out].
void add_gpt2_layer(int64_t layer, const std::vector<Parameter>& parameters, List& list) {
  constexpr const char* kNames[] = {"attn_norm",   "attn_norm",   "attn_qkv", "attn_qkv",
                                    "attn_output", "attn_output", "ffn_norm", "ffn_norm",
                                    "ffn_up",      "ffn_up",      "ffn_down", "ffn_down"};
  for (size_t i = 0; i < parameters.size(); ++i) {
    const Parameter& of = parameters[i];
    const std::string name = "blk." + std::to_string(layer) + "." + kNames[i] +
                             (of.name.ends_with(".bias") ? ".bias" : ".weight");
    if (of.shape.size() == 2)
      list.add_transposed(name, of);
    else
      list.add(name, of);
  }
}

}  // namespace

std::vector<Tensor> tensors_of(const ModelConfig& c, const Architecture& of, Type type) {
  List list(c, of, type);
  const std::vector<layout::UnitSpec> units = layout::units_of(c);
  const Parameter& embedding = units.front().parameters[0];
  list.add("token_embd.weight", embedding);
  if (units.front().parameters.size() > 1) {  // learned positions
    const Parameter& positions = units.front().parameters[1];
    list.add("position_embd.weight", {c.max_position, positions.shape[1]},
             {{positions.name, c.first_position, c.max_position}});
  }
  for (int64_t layer = 0; layer < c.num_layers; ++layer) {
    const auto& parameters = units[static_cast<size_t>(layer) + 1].parameters;
    if (c.block == layout::Block::Gpt2)
      add_gpt2_layer(layer, parameters, list);
    else
      add_layer(c, of, layer, parameters, list);
  }
  const std::string head = std::string(c.names.head) + ".";
  for (const Parameter& parameter : units[static_cast<size_t>(layout::head_of(units))].parameters) {
    const char* suffix = parameter.name.ends_with(".bias") ? ".bias" : ".weight";
    const bool is_head = c.block == layout::Block::Gpt2 ? parameter.name.starts_with("lm_head.")
                                                        : parameter.name.starts_with(head);
    if (is_head)
      list.add(std::string("output") + suffix, parameter);
    else
      list.add_norm(std::string("output_norm") + suffix, parameter);
  }
  if (c.tied && of.tie == Tie::Separate) list.add("output.weight", embedding);
  return std::move(list).take();
}

}  // namespace dsj::gguf
