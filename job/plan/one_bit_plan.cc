#include "job/plan/one_bit_plan.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <span>
#include <string_view>

#include "job/dsconfig/config/optimizers.h"

namespace dsj::plan {
namespace {

/// DeepSpeed's padding: to a multiple of world * 8 world / gcd(world, 8).
int64_t chunk_of(int64_t numel, int world) {
  const int64_t divider = 8 * static_cast<int64_t>(world) / std::gcd(world, 8);
  const int64_t multiple = world * divider;
  return (numel + multiple - 1) / multiple * divider;
}

using Modules = std::span<const std::string_view>;

/// The modules of a decoder layer in the order in which transformers' classes create them: usually
/// attention, MLP, norms.
constexpr std::string_view kModules[] = {
    ".dt_bias",  // parameters of a module come before its modules
    ".A_log",
    ".conv1d.",
    ".linear_attn.norm.",
    ".linear_attn.out_proj.",
    ".in_proj_qkv.",
    ".in_proj_z.",
    ".in_proj_b.",
    ".in_proj_a.",
    ".q_proj.",
    ".k_proj.",
    ".v_proj.",
    ".o_proj.",
    ".qkv_proj.",
    ".self_attn.dense.",
    ".q_norm.",
    ".k_norm.",
    ".query_layernorm.",
    ".key_layernorm.",
    ".gate_proj.",
    ".gate_up_proj.",
    ".up_proj.",
    ".c_fc.",
    ".down_proj.",
    ".act_fn.alpha_p",
    ".act_fn.alpha_n",
    ".c_proj.",
    ".fc1.",
    ".fc2.",
    ".input_layernorm.",
    ".attention_layernorm.",
    ".feedforward_layernorm.",
    ".post_attention_layernorm.",
    ".post_self_attn_layernorm.",
    ".pre_feedforward_layernorm.",
    ".post_feedforward_layernorm.",
    ".post_mlp_layernorm.",
    ".post_norm1.",
    ".post_norm2.",
};
/// OPT's order.
constexpr std::string_view kOptModules[] = {
    ".k_proj.", ".v_proj.", ".q_proj.",           ".out_proj.", ".self_attn_layer_norm.",
    ".fc1.",    ".fc2.",    ".final_layer_norm.",
};
/// GPT-NeoX's order.
constexpr std::string_view kNeoXModules[] = {
    ".input_layernorm.", ".post_attention_layernorm.",
    ".query_key_value.", ".dense.",
    ".dense_h_to_4h.",   ".dense_4h_to_h.",
};
/// The orders of GPT-2, GPT-J and Falcon.
constexpr std::string_view kTransformerModules[] = {
    ".ln_1.",
    ".c_attn.",
    ".attn.c_proj.",
    ".k_proj.",
    ".v_proj.",
    ".q_proj.",
    ".out_proj.",
    ".ln_2.",
    ".c_fc.",
    ".mlp.c_proj.",
    ".fc_in.",
    ".fc_out.",
    ".query_key_value.",
    ".dense.",
    ".dense_h_to_4h.",
    ".dense_4h_to_h.",
    ".post_attention_layernorm.",
    ".input_layernorm.",
    ".ln_attn.",
    ".ln_mlp.",
};

/// The order of Granite 4.0.
constexpr std::string_view kSharedMlpModules[] = {
    ".input_layernorm.", ".post_attention_layernorm.",
    ".input_linear.",    ".output_linear.",
    ".mamba.dt_bias",    ".mamba.A_log",
    ".mamba.D",          ".mamba.conv1d.",
    ".mamba.in_proj.",   ".mamba.norm.",
    ".mamba.out_proj.",  ".q_proj.",
    ".k_proj.",          ".v_proj.",
    ".o_proj.",
};

/// The order of LFM2. Names that contain others come first.
constexpr std::string_view kLfm2Modules[] = {
    ".q_proj.",      ".k_proj.",    ".v_proj.",        ".self_attn.out_proj.", ".q_layernorm.",
    ".k_layernorm.", ".conv.conv.", ".conv.in_proj.",  ".conv.out_proj.",      ".w1.",
    ".w3.",          ".w2.",        ".operator_norm.", ".ffn_norm.",
};

/// The order of Gemma 4.
constexpr std::string_view kScaledModules[] = {
    ".q_proj.",
    ".q_norm.",
    ".k_norm.",
    ".k_proj.",
    ".v_proj.",
    ".o_proj.",
    ".gate_proj.",
    ".up_proj.",
    ".down_proj.",
    ".input_layernorm.",
    ".post_attention_layernorm.",
    ".pre_feedforward_layernorm.",
    ".post_feedforward_layernorm.",
    ".per_layer_input_gate.",
    ".per_layer_projection.",
    ".post_per_layer_input_norm.",
};

/// Distinguishing names of parameters and buffers that the model's layers have.
struct Marks {
  bool shared_mlp = false, layer_scalar = false, operator_norm = false;
  explicit Marks(const std::vector<layout::UnitSpec>& units) {
    for (const layout::UnitSpec& unit : units) {
      for (const layout::Parameter& one : unit.parameters) {
        shared_mlp = shared_mlp || one.name.contains(".shared_mlp.");
        operator_norm = operator_norm || one.name.contains(".operator_norm.");
      }
      for (const layout::Parameter& one : unit.buffers)
        layer_scalar = layer_scalar || one.name.ends_with(".layer_scalar");
    }
  }
};

Modules modules_of(const std::string& name, const Marks& marks) {
  if (marks.shared_mlp) return kSharedMlpModules;
  if (marks.layer_scalar) return kScaledModules;
  if (marks.operator_norm) return kLfm2Modules;
  if (name.starts_with("transformer.")) return kTransformerModules;
  if (name.starts_with("gpt_neox.")) return kNeoXModules;
  if (name.starts_with("model.decoder.")) return kOptModules;
  return kModules;
}

/// The position of a module in its layer; first if it belongs to no layer.
int module_rank(const std::string& name, const Marks& marks) {
  const Modules modules = modules_of(name, marks);
  const auto found =
      std::ranges::find_if(modules, [&](std::string_view module) { return name.contains(module); });
  return found == modules.end() ? -1 : static_cast<int>(found - modules.begin());
}

}  // namespace

std::vector<std::pair<size_t, size_t>> registration_order(
    const std::vector<layout::UnitSpec>& units) {
  std::vector<std::pair<size_t, size_t>> order;
  for (size_t unit = 0; unit < units.size(); ++unit)
    for (size_t i = 0; i < units[unit].parameters.size(); ++i) order.emplace_back(unit, i);
  const Marks marks(units);
  std::ranges::stable_sort(order, {}, [&](const auto& place) {
    const std::string& name = units[place.first].parameters[place.second].name;
    // OPT's class creates the last norm before the layers.
    if (name.starts_with("model.decoder.final_layer_norm.")) return std::pair(size_t{0}, 0);
    return std::pair(place.first, module_rank(name, marks));
  });
  return order;
}

int64_t OneBitPlan::worker_elements(int world) const {
  return server_elements() * world;
}

int64_t OneBitPlan::server_elements() const {
  int64_t sum = 0;
  for (const CompressedVector& vector : vectors) sum += vector.chunk;
  return sum;
}

int64_t OneBitPlan::wire_bytes(int world) const {
  const int64_t message = 4 * static_cast<int64_t>(vectors.size()) + server_elements() / 8;
  return 2 * (world - 1) * ((message + 7) / 8 * 8);
}

bool keeps_gradients_local(const dsconfig::ResolvedConfig& config, int world) {
  const auto kind = config.optimizer.kind;
  return kind == dsconfig::OptimizerKind::ZeroOneAdam ||
         kind == dsconfig::OptimizerKind::OneBitLamb ||
         (world > 1 && dsconfig::descriptor_of(kind).communicates);
}

Status check_one_bit(const std::vector<layout::UnitSpec>& units,
                     const dsconfig::ResolvedConfig& config) {
  const auto& optimizer = dsconfig::descriptor_of(config.optimizer.kind);
  if (!optimizer.communicates) return {};
  for (const auto& unit : units) {
    for (const auto& parameter : unit.parameters)
      if (!parameter.frozen && (parameter.name.find(".experts.") != std::string::npos ||
                                parameter.name.find(".block_sparse_moe.") != std::string::npos))
        return bad_input("1-bit optimizers are not built for experts (" + parameter.name + ")",
                         "optimizer.type", "AdamW, or another optimizer of docs/optimizers.md");
  }
  return {};
}

OneBitPlan one_bit_plan(const std::vector<layout::UnitSpec>& units, const layout::FlatPlan& plan,
                        const dsconfig::ResolvedConfig& config, int world) {
  OneBitPlan out;
  for (const auto& flat : plan.flats) out.places.emplace_back(flat.slots().size());
  const bool one_vector = config.precision != dsconfig::Precision::Fp32 ||
                          config.optimizer.kind == dsconfig::OptimizerKind::OneBitLamb;
  if (one_vector) out.vectors.push_back({.name = "all"});
  for (const auto& [unit, index] : registration_order(units)) {
    const auto& parameter = units[unit].parameters[index];
    if (parameter.frozen) continue;
    if (!one_vector) out.vectors.push_back({.name = parameter.name});
    CompressedVector& vector = out.vectors.back();
    const auto place = plan.places[unit][index];
    out.places[static_cast<size_t>(place.flat)][static_cast<size_t>(place.slot)] = {
        static_cast<int64_t>(out.vectors.size()) - 1, vector.numel};
    vector.numel += parameter.numel();
  }
  for (CompressedVector& vector : out.vectors) vector.chunk = chunk_of(vector.numel, world);
  return out;
}

int64_t one_bit_elements(const OneBitPlan& one_bit, const layout::FlatPlan& plan,
                         const dsconfig::ResolvedConfig& config, int world) {
  int64_t elements = 0;
  if (world > 1) elements += one_bit.worker_elements(world) + one_bit.server_elements();
  for (const auto& flat : plan.flats) {
    if (flat.frozen()) continue;
    if (config.optimizer.kind == dsconfig::OptimizerKind::OneBitLamb)
      elements += kLambCoefficients * static_cast<int64_t>(flat.slots().size());
  }
  if (config.optimizer.kind == dsconfig::OptimizerKind::OneBitLamb && world > 1)
    elements += one_bit.vectors.front().padding(world);
  return elements;
}

int64_t local_elements(const layout::FlatPlan& plan) {
  int64_t elements = 0;
  for (const auto& flat : plan.flats)
    if (!flat.frozen()) elements += 2 * flat.numel();
  return elements;
}

int64_t one_bit_scratch(const OneBitPlan& one_bit, const layout::FlatPlan& plan, int world) {
  int64_t flat = 0, parameter = 0, compress = 0;
  for (const auto& layout : plan.flats) {
    if (layout.frozen()) continue;
    flat = std::max(flat, layout.numel());
    for (const auto& slot : layout.slots()) parameter = std::max(parameter, slot.numel);
  }
  for (const auto& vector : one_bit.vectors)
    compress = std::max({compress, 4 * vector.chunk, world * vector.chunk / 8});
  const int64_t temporary = 16 * parameter;
  if (world == 1) return temporary;
  const int64_t messages = one_bit.wire_bytes(world) / 2 / (world - 1) * world;
  return std::max({4 * flat + temporary, messages + temporary, 4 * messages + compress});
}

}  // namespace dsj::plan
