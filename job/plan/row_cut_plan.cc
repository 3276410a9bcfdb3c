#include "job/plan/row_cut_plan.h"

#include <string>

#include "job/dsconfig/config/batch.h"

namespace dsj::plan {

Status check_row_cut(const layout::ModelConfig& model, const dsconfig::ResolvedConfig& config) {
  const int64_t ranks = config.sequence_parallel_size;
  if (ranks == 1) return {};
  const auto refuse = [](const std::string& what) {
    return bad_input(what, dsconfig::kSequenceKey, "leave it out");
  };
  if (model.delta.key_heads > 0)
    return refuse(
        "rows cut over ranks are not built for layers with the gated delta rule or Mamba 2");
  if (model.conv.kernel > 0)
    return refuse("rows cut over ranks are not built for layers with a short convolution");
  if (model.experts.balance > 0)
    return refuse(
        "rows cut over ranks are not built for the auxiliary loss of a mixture of experts, which "
        "this model's config.json asks for");
  if (model.num_heads % ranks != 0)
    return bad_input(
        "it is " + std::to_string(ranks) + ", and the model has " +
            std::to_string(model.num_heads) + " query heads: they cannot be divided evenly",
        dsconfig::kSequenceKey, "set it to a divisor of the query heads (num_attention_heads)");
  return {};
}

Status check_left_out(const layout::ModelConfig& model, const dsconfig::ResolvedConfig& config) {
  if (!config.data_efficiency.random_ltd || !model.carries()) return {};
  return bad_input(
      "leaving tokens out of layers is not built for a model whose layers use the keys and values "
      "of earlier layers (num_kv_shared_layers) or have inputs of their own "
      "(hidden_size_per_layer_input)",
      "data_efficiency.data_routing.random_ltd", "set \"enabled\" to false");
}

}  // namespace dsj::plan
