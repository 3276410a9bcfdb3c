#include "job/layout/reward_model.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace dsj::layout {
namespace {

using nlohmann::json;

constexpr std::pair<std::string_view, const char*> kClasses[] = {
    {"arcee", "ArceeForSequenceClassification"},
    {"deepseek_v2", "DeepseekV2ForSequenceClassification"},
    {"deepseek_v3", "DeepseekV3ForSequenceClassification"},
    {"exaone4", "Exaone4ForSequenceClassification"},
    {"falcon", "FalconForSequenceClassification"},
    {"gemma", "GemmaForSequenceClassification"},
    {"gemma2", "Gemma2ForSequenceClassification"},
    {"gemma3_text", "Gemma3TextForSequenceClassification"},
    {"glm", "GlmForSequenceClassification"},
    {"glm4", "Glm4ForSequenceClassification"},
    {"gpt2", "GPT2ForSequenceClassification"},
    {"gpt_bigcode", "GPTBigCodeForSequenceClassification"},
    {"gpt_neo", "GPTNeoForSequenceClassification"},
    {"gpt_neox", "GPTNeoXForSequenceClassification"},
    {"gpt_oss", "GptOssForSequenceClassification"},
    {"gptj", "GPTJForSequenceClassification"},
    {"helium", "HeliumForSequenceClassification"},
    {"hunyuan_v1_dense", "HunYuanDenseV1ForSequenceClassification"},
    {"hunyuan_v1_moe", "HunYuanMoEV1ForSequenceClassification"},
    {"llama", "LlamaForSequenceClassification"},
    {"ministral", "MinistralForSequenceClassification"},
    {"ministral3", "Ministral3ForSequenceClassification"},
    {"mistral", "MistralForSequenceClassification"},
    {"mixtral", "MixtralForSequenceClassification"},
    {"nemotron", "NemotronForSequenceClassification"},
    {"olmo", "OlmoForSequenceClassification"},
    {"olmo2", "Olmo2ForSequenceClassification"},
    {"olmo3", "Olmo3ForSequenceClassification"},
    {"opt", "OPTForSequenceClassification"},
    {"phi", "PhiForSequenceClassification"},
    {"phi3", "Phi3ForSequenceClassification"},
    {"qwen2", "Qwen2ForSequenceClassification"},
    {"qwen2_moe", "Qwen2MoeForSequenceClassification"},
    {"qwen3", "Qwen3ForSequenceClassification"},
    {"qwen3_moe", "Qwen3MoeForSequenceClassification"},
    {"qwen3_next", "Qwen3NextForSequenceClassification"},
    {"seed_oss", "SeedOssForSequenceClassification"},
    {"smollm3", "SmolLM3ForSequenceClassification"},
    {"stablelm", "StableLmForSequenceClassification"},
    {"starcoder2", "Starcoder2ForSequenceClassification"},
};

constexpr std::string_view kSuffix = "ForSequenceClassification";

}  // namespace

const char* reward_class(const std::string& model_type) {
  const auto found =
      std::ranges::find(kClasses, model_type, [](const auto& one) { return one.first; });
  return found == std::end(kClasses) ? nullptr : found->second;
}

Result<bool> is_reward_config(const json& config, const std::string& where) {
  const auto names = config.find("architectures");
  if (names == config.end() || !names->is_array() || names->empty() || !names->front().is_string())
    return false;
  if (!names->front().get_ref<const std::string&>().ends_with(kSuffix)) return false;
  // transformers' default is two.
  size_t labels = 2;
  if (const auto count = config.find("num_labels");
      count != config.end() && count->is_number_integer())
    labels = count->get<size_t>();
  if (const auto named = config.find("id2label"); named != config.end() && named->is_object())
    labels = named->size();
  if (labels == 1) return true;
  return bad_input("id2label has " + std::to_string(labels) +
                       " labels, expected 1: a reward model gives one score",
                   where, "take the model that it was made from");
}

Result<ModelConfig> as_reward_model(ModelConfig model, const std::string& where) {
  if (model.scored) return model;
  if (model.is_text_part || reward_class(model.model_type) == nullptr) {
    std::string known;
    for (const auto& [type, name] : kClasses)
      known += (known.empty() ? "" : ", ") + std::string(type);
    return bad_input("model_type \"" + model.model_type + "\" has no " + std::string(kSuffix) +
                         (model.is_text_part ? " of its text part alone" : " in transformers") +
                         ", which objective reward trains",
                     where, "expected one of " + known);
  }
  model.scored = true;
  model.tied = false;
  model.head_bias = false;
  model.logits_scale = 1;
  model.logits_cap = 0;
  model.experts.balance = 0;  // these classes add no auxiliary loss
  model.experts.can_balance = false;
  model.names.head = "score";
  return model;
}

}  // namespace dsj::layout
