#include "job/plan/safe_modules.h"

#include <algorithm>

namespace dsj::plan {

using dsconfig::ResolvedConfig;

namespace {

bool is_table(const std::string& name) {
  return name.contains("embed_tokens.") || name.contains("wte.") || name.contains("embed_in.") ||
         name.contains("word_embeddings.");
}

}  // namespace

std::string_view module_class(const std::string& name) {
  if (name.contains("lora_")) return "torch.nn.Linear";
  // transformers 5 has routers and experts in classes of each family, which no list names.
  for (const char* part :
       {".mlp.gate.", ".mlp.router.", ".feed_forward.gate.", ".experts.", ".block_sparse_moe."})
    if (name.contains(part)) return "transformers MoE";
  for (const char* table : {"wpe.", "embed_positions.", "embed_tokens_per_layer."})
    if (name.contains(table)) return "torch.nn.Embedding";
  if (is_table(name)) return "torch.nn.Embedding";
  // GPT-2's. In StarCoder2, linear layers have these names.
  for (const char* part : {".c_attn.", ".c_proj.", ".c_fc."})
    if (name.contains(part))
      return name.contains("layers.") ? "torch.nn.Linear" : "transformers.pytorch_utils.Conv1D";
  for (const char* part : {"_proj.",
                           "lm_head.",
                           "score.",
                           "embed_out.",
                           "query_key_value.",
                           ".dense.",
                           ".dense_h_to_4h.",
                           ".dense_4h_to_h.",
                           ".fc1.",
                           ".fc2.",
                           ".fc_in.",
                           ".fc_out.",
                           ".shared_expert_gate.",
                           "_proj_with_mqa.",
                           "put_linear.",
                           ".in_proj_",
                           ".router.proj.",
                           ".feed_forward.w",
                           "_projection.",
                           ".per_layer_input_gate."})
    if (name.contains(part)) return "torch.nn.Linear";
  if (name.contains(".conv1d.") || name.contains(".conv.conv.")) return "torch.nn.Conv1d";
  return {};
}

bool enters_products(const std::string& name) {
  const std::string_view klass = module_class(name);
  return !klass.empty() && klass != "torch.nn.Embedding";
}

bool is_safe(const std::string& parameter, bool tied, const ResolvedConfig& config) {
  if (!config.autocast.on()) return false;
  const auto listed = [&](std::string_view name) {
    return std::ranges::find(config.autocast.safe_modules, name) !=
           config.autocast.safe_modules.end();
  };
  return listed(module_class(parameter)) ||
         (tied && is_table(parameter) && listed("torch.nn.Linear"));
}

bool is_tied(const std::vector<layout::UnitSpec>& units) {
  return std::ranges::any_of(units, &layout::UnitSpec::uses_embedding);
}

}  // namespace dsj::plan
