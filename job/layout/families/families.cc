#include "job/layout/families/families.h"

#include <algorithm>

#include "job/layout/families/family_readers.h"

namespace dsj::layout {
namespace {

constexpr Family kFamilies[] = {
    {"llama", "Llama 2, Llama 3, SmolLM2 and models of the same shape",
     "`attention_bias`, `mlp_bias`; `pretraining_tp` must be 1", read_llama},
    {"mistral", "Mistral, Ministral",
     "`sliding_window` a number or null (absent: 4096, as in transformers)", read_mistral},
    {"qwen2", "Qwen1.5, Qwen2, Qwen2.5",
     "`use_sliding_window` with `max_window_layers` or `layer_types`", read_qwen2},
    {"qwen3", "Qwen3, dense", "`head_dim` (absent: 128), `attention_bias`, windows as in qwen2",
     read_qwen3},
    {"gemma", "Gemma, CodeGemma", "`head_dim` (absent: 256)", read_gemma},
    {"gemma2", "Gemma 2",
     "both soft caps, `query_pre_attn_scalar`, `sliding_window`, `layer_types`", read_gemma2},
    {"gemma3_text", "Gemma 3 text: 270M, 1B",
     "a rope for each type of layer, `query_pre_attn_scalar`, `sliding_window_pattern`",
     read_gemma3},
    {"gemma4_text", "Gemma 4 without its vision and audio parts: E2B, E4B, 31B, 26B-A4B",
     "`head_dim`, `global_head_dim`, `num_global_key_value_heads` or `per_layer_config`, "
     "`attention_k_eq_v`, a rope for each type of layer (`proportional`), "
     "`final_logit_softcapping`, `enable_moe_block`, `num_experts`, `top_k_experts`; "
     "`num_kv_shared_layers`, `use_double_wide_mlp`, `hidden_size_per_layer_input` (absent: 256)",
     read_gemma4},
    {"gemma4_unified_text", "Gemma 4 12B without its vision and audio parts",
     "as gemma4_text, without experts", read_gemma4_unified},
    {"phi3", "Phi-3, Phi-3.5, Phi-4, Phi-4-mini", "`partial_rotary_factor`, `sliding_window`",
     read_phi3},
    {"smollm3", "SmolLM3", "`no_rope_layers`, `no_rope_layer_interval`, windows", read_smollm3},
    {"granite", "Granite 3, dense", "the four multipliers, `attention_bias`, `mlp_bias`",
     read_granite},
    {"olmo2", "OLMo 2", "`attention_bias`", read_olmo2},
    {"olmo3", "OLMo 3", "`layer_types`, `sliding_window`; windows keep the unscaled rope",
     read_olmo3},
    {"glm", "GLM-4-9B", "`partial_rotary_factor`, `attention_bias`", read_glm},
    {"glm4", "GLM-4-0414, GLM-Z1", "as glm", read_glm4},
    {"exaone4", "EXAONE 4.0", "`sliding_window_pattern`, `layer_types`; full layers have no rope",
     read_exaone4},
    {"seed_oss", "Seed-OSS", "`attention_bias`, `attention_out_bias`, `residual_dropout`",
     read_seed_oss},
    {"ernie4_5", "ERNIE 4.5, dense", "`use_bias`", read_ernie},
    {"lfm2", "LFM2, LFM2.5: 350M to 2.6B",
     "`layer_types` or `full_attn_idxs`, `conv_L_cache`, `block_ff_dim`, "
     "`block_auto_adjust_ff_dim` "
     "and its factors; `conv_bias` must be false",
     read_lfm2},
    {"lfm2_moe", "LFM2-8B-A1B, LFM2-24B-A2B",
     "`layer_types`, `conv_L_cache`, `num_dense_layers`, `use_expert_bias`, `norm_topk_prob`, "
     "`routed_scaling_factor`; `conv_bias` must be false",
     read_lfm2_moe},
    {"helium", "Helium", "`attention_bias`, `mlp_bias`", read_helium},
    {"arcee", "AFM-4.5B", "`attention_bias`, `mlp_bias`", read_arcee},
    {"cwm", "CWM", "`layer_types`, `sliding_window`", read_cwm},
    {"nemotron", "Nemotron-4, Minitron", "`partial_rotary_factor`, biases", read_nemotron},
    {"starcoder2", "StarCoder2", "`use_bias`, `sliding_window`, its three dropouts",
     read_starcoder2},
    {"stablelm", "StableLM 2, StableLM-3B",
     "`partial_rotary_factor`, `use_qkv_bias`, `use_parallel_residual`", read_stablelm},
    {"jais2", "Jais 2", "`attention_bias`, `mlp_bias`", read_jais2},
    {"hyperclovax", "HyperCLOVA X SEED Think",
     "the four multipliers, `use_post_norm`, `attention_bias`, `mlp_bias`", read_hyperclovax},
    {"vaultgemma", "VaultGemma", "as gemma2", read_vaultgemma},
    {"olmo", "OLMo 1", "`attention_bias`; `clip_qkv` must be null", read_olmo},
    {"cohere", "Command R, Aya 23 and Expanse",
     "`logit_scale`, `attention_bias`; `use_qk_norm` (Command R+) is refused", read_cohere},
    {"cohere2", "Command R7B, Command A",
     "`logit_scale`, `sliding_window`, `layer_types`; full layers have no rope", read_cohere2},
    {"gpt_neox", "GPT-NeoX, Pythia, Dolly 2",
     "`rotary_pct`, `rotary_emb_base`, `use_parallel_residual`, `attention_bias`, `hidden_dropout`",
     read_gpt_neox},
    {"phi", "Phi-1, Phi-1.5, Phi-2",
     "`partial_rotary_factor`, its three dropouts; `qk_layernorm` is refused", read_phi},
    {"opt", "OPT, Galactica",
     "`ffn_dim`, `enable_bias`, `layer_norm_elementwise_affine`, `dropout`; the shape of opt-350m "
     "is refused",
     read_opt},
    {"falcon", "Falcon 7B, 40B, 180B",
     "`new_decoder_architecture`, `multi_query`, `num_kv_heads`, `parallel_attn`, "
     "`num_ln_in_parallel_attn`, `bias`; alibi is refused",
     read_falcon},
    {"gptj", "GPT-J-6B", "`n_embd` and similar fields, `rotary_dim`, its three dropouts",
     read_gptj},
    {"gpt_neo", "GPT-Neo, TinyStories",
     "`num_layers` and similar fields, `attention_types`, `window_size`, its three dropouts",
     read_gpt_neo},
    {"gpt_bigcode", "StarCoder, SantaCoder, StarCoderBase",
     "`n_embd` and similar fields, `multi_query`, `scale_attn_weights`, its three dropouts",
     read_gpt_bigcode},
    {"hunyuan_v1_dense", "Hunyuan 0.5B to 7B, dense",
     "`attention_bias`, `rope_scaling` with `alpha`", read_hunyuan},
    {"ministral", "Ministral 8B", "`sliding_window`, `layer_types`", read_ministral},
    {"iquestcoder", "IQuest-Coder-V1", "`attention_bias`, `mlp_bias`", read_iquestcoder},
    {"ministral3", "Ministral 3, Devstral 2, without a vision part",
     "`rope_parameters` with `llama_4_scaling_beta`, `sliding_window`", read_ministral3},
    {"apertus", "Apertus", "`attention_bias`; `hidden_act` may be xielu", read_apertus},
    {"internlm3", "InternLM3", "`qkv_bias`, `bias`", read_internlm3},
    {"gemma3", "Gemma 3: 4B, 12B, 27B", "the text part: as gemma3_text", read_gemma3_part},
    {"gemma4", "Gemma 4: E2B, E4B, 31B, 26B-A4B", "the text part: as gemma4_text",
     read_gemma4_part},
    {"gemma4_unified", "Gemma 4: 12B", "the text part: as gemma4_text, without experts",
     read_gemma4_unified_part},
    {"mistral3", "Mistral Small 3.1, 3.2, Ministral 3", "the text part: as mistral or ministral3",
     read_mistral3_part},
    {"llava", "LLaVA 1.5 on Llama", "the text part: as llama", read_llava_part},
    {"smolvlm", "SmolVLM, SmolVLM2", "the text part: as llama", read_smolvlm_part},
    {"idefics3", "Idefics3, SmolVLM of 2024", "the text part: as llama", read_smolvlm_part},
    {"qwen2_vl", "Qwen2-VL", "the text part: as qwen2", read_qwen2_vl_part},
    {"qwen2_5_vl", "Qwen2.5-VL", "the text part: as qwen2", read_qwen2_5_vl_part},
    {"qwen3_vl", "Qwen3-VL, dense", "the text part: as qwen3", read_qwen3_vl_part},
    {"qwen3_vl_moe", "Qwen3-VL: 30B-A3B, 235B-A22B", "the text part: as qwen3_moe",
     read_qwen3_vl_moe_part},
    {"internvl", "InternVL3, InternVL3.5, as transformers has them",
     "the text part: as qwen2, qwen3, qwen3_moe or llama", read_internvl_part},
    {"lfm2_vl", "LFM2-VL, LFM2.5-VL", "the text part: as lfm2", read_lfm2_vl_part},
    {"llava_next", "LLaVA-NeXT (1.6)", "the text part: as llama, mistral or qwen2",
     read_llava_next_part},
    {"llava_onevision", "LLaVA-OneVision", "the text part: as qwen2 or qwen3",
     read_llava_onevision_part},
    {"aya_vision", "Aya Vision", "the text part: as cohere2 or cohere, `logit_scale` apart",
     read_aya_vision_part},
    {"qwen3_5", "Qwen3.5: 0.8B to 27B", "the text part: as qwen3_5_text", read_qwen3_5_part},
    {"qwen3_5_text", "Qwen3.5, dense, without its vision part",
     "`layer_types`, `full_attention_interval`, `linear_num_key_heads` and similar fields, "
     "`partial_rotary_factor`, `attention_bias`",
     read_qwen3_5},
    {"qwen3_5_moe", "Qwen3.5: 35B-A3B to 397B-A17B", "the text part: as qwen3_5_moe_text",
     read_qwen3_5_moe_part},
    {"qwen3_5_moe_text", "Qwen3.5 with experts, without its vision part",
     "as qwen3_5_text; `num_experts`, `num_experts_per_tok`, `shared_expert_intermediate_size`, "
     "the "
     "auxiliary loss",
     read_qwen3_5_moe},
    {"qwen3_next", "Qwen3-Next-80B-A3B", "as qwen3_5_text and qwen2_moe", read_qwen3_next},
    {"qwen3_moe", "Qwen3-30B-A3B, Qwen3-235B-A22B, Qwen3-Coder",
     "`num_experts`, `num_experts_per_tok`, `norm_topk_prob`, `decoder_sparse_step`, "
     "`mlp_only_layers`, the auxiliary loss",
     read_qwen3_moe},
    {"qwen2_moe", "Qwen1.5-MoE-A2.7B, Qwen2-57B-A14B",
     "as qwen3_moe; `shared_expert_intermediate_size`, `qkv_bias`", read_qwen2_moe},
    {"mellum", "Mellum 2",
     "as qwen3_moe; a rope for each type of layer, `layer_types`, `sliding_window`, "
     "`mlp_layer_types`",
     read_mellum},
    {"mixtral", "Mixtral 8x7B, 8x22B",
     "`num_local_experts`, `sliding_window`, the auxiliary loss; `router_jitter_noise` must be 0",
     read_mixtral},
    {"olmoe", "OLMoE 1B-7B", "`norm_topk_prob`, the auxiliary loss; `clip_qkv` must be null",
     read_olmoe},
    {"flex_olmo", "FlexOlmo-7x7B", "`attention_bias`; as olmoe, `clip_qkv` apart", read_flex_olmo},
    {"granitemoe", "Granite 3 MoE: 1B-A400M, 3B-A800M",
     "the four multipliers, `num_local_experts`, the auxiliary loss", read_granitemoe},
    {"gpt_oss", "gpt-oss-20b, gpt-oss-120b, in MXFP4 or bf16",
     "`layer_types`, `sliding_window`, `attention_bias`, `swiglu_limit`, the auxiliary loss",
     read_gpt_oss},
    {"deepseek_v2", "DeepSeek-V2-Lite",
     "latent attention, `n_shared_experts`, `first_k_dense_replace`, `routed_scaling_factor`; "
     "`topk_method` must be greedy",
     read_deepseek_v2},
    {"deepseek_v3", "DeepSeek-V3, R1, Moonlight",
     "latent attention, `rope_interleave`; the router's groups, correction, `norm_topk_prob`, "
     "`routed_scaling_factor`; `first_k_dense_replace`",
     read_deepseek_v3},
    {"glm4_moe", "GLM-4.5, 4.6, 4.7 and GLM-4.5-Air",
     "`attention_bias`, `use_qk_norm`, `partial_rotary_factor`; the router as deepseek_v3",
     read_glm4_moe},
    {"glm4_moe_lite", "GLM-4.7-Flash", "as deepseek_v3; `mlp_layer_types`", read_glm4_moe_lite},
    {"dots1", "dots.llm1", "`attention_bias`, windows; the router as deepseek_v3", read_dots1},
    {"solar_open", "Solar Open 100B", "`attention_bias`; the router as deepseek_v3",
     read_solar_open},
    {"exaone_moe", "K-EXAONE", "attention as exaone4; the router as deepseek_v3; `mlp_layer_types`",
     read_exaone_moe},
    {"minimax_m2", "MiniMax-M2, M2.1",
     "`rotary_dim` or `partial_rotary_factor`; a corrected router of sigmoids; the auxiliary loss "
     "is refused",
     read_minimax_m2},
    {"ernie4_5_moe", "ERNIE 4.5: 21B-A3B, 300B-A47B",
     "`moe_k`, `moe_norm_min`, `moe_layer_start_index`, `moe_layer_interval`; a corrected router; "
     "`use_bias` and the auxiliary loss are refused",
     read_ernie_moe},
    {"hunyuan_v1_moe", "Hunyuan-A13B",
     "as hunyuan_v1_dense; `moe_topk`, `num_experts`, one number for all layers", read_hunyuan_moe},
    {"granitemoeshared", "Granite 3.1 MoE with a shared MLP",
     "as granitemoe; `shared_intermediate_size`", read_granitemoeshared},
    {"granitemoehybrid", "Granite 4.0, also H: 350M, 1B, Micro, Tiny, Small",
     "as granitemoeshared; `position_embedding_type`; `layer_types`; `mamba_n_heads` and similar "
     "fields; `mamba_proj_bias` must be false",
     read_granitemoehybrid},
    {"minicpm3", "MiniCPM3-4B",
     "latent attention; `scale_emb`, `scale_depth`, `dim_model_base`, `attention_bias`, `mlp_bias`",
     read_minicpm3},
    {"youtu", "Youtu-LLM", "latent attention, `rope_interleave`", read_youtu},
    {"gpt2", "GPT-2, Cerebras-GPT",
     "`n_embd` and similar fields, `n_inner`, `scale_attn_weights`, "
     "`scale_attn_by_inverse_layer_idx`, `activation_function`",
     read_gpt2},
};

struct Unbuilt {
  const char* model_type;
  const char* needs;
};

constexpr char kMamba[] = "state-space layers of the first Mamba";
constexpr char kOneOfThem[] = "layers that have Mamba 2, attention or an MLP alone";
constexpr char kIndexer[] = "attention to the tokens that an indexer chooses";
constexpr char kEncoder[] = "an encoder; this engine trains causal models";

/// From transformers' classes.
constexpr Unbuilt kUnbuilt[] = {
    {"gemma3n", "embeddings for each layer, several streams of the residual (AltUp)"},
    {"gemma3n_text", "embeddings for each layer, several streams of the residual (AltUp)"},
    {"llama4", "attention in chunks of tokens, experts whose input is weighted"},
    {"llama4_text", "attention in chunks of tokens, experts whose input is weighted"},
    {"phimoe", "a router that draws experts at random in training (SparseMixer)"},
    {"nanochat", "a norm of the embedding's rows, rope in the other direction"},
    {"bloom", "alibi positions, a norm of the embedding's rows"},
    {"mpt", "alibi positions"},
    {"deepseek_v32", kIndexer},
    {"glm_moe_dsa", kIndexer},
    {"mamba", kMamba},
    {"mamba2", "layers of Mamba 2 without an MLP"},
    {"falcon_mamba", kMamba},
    {"falcon_h1", "Mamba 2 and attention side by side in a layer"},
    {"jamba", kMamba},
    {"bamba", "a reader: its layers of Mamba 2 are those of granitemoehybrid"},
    {"nemotron_h", kOneOfThem},
    {"zamba2", "attention that several layers share"},
    {"t5", kEncoder},
    {"mt5", kEncoder},
    {"bart", kEncoder},
    {"bert", kEncoder},
    {"roberta", kEncoder},
    {"modernbert", kEncoder},
};

}  // namespace

std::span<const Family> families() {
  return kFamilies;
}

const Family* family_of(const std::string& model_type) {
  const auto* found = std::ranges::find_if(
      kFamilies, [&](const Family& one) { return model_type == one.model_type; });
  return found == std::end(kFamilies) ? nullptr : found;
}

const char* unbuilt(const std::string& model_type) {
  const auto* found = std::ranges::find_if(
      kUnbuilt, [&](const Unbuilt& one) { return model_type == one.model_type; });
  return found == std::end(kUnbuilt) ? nullptr : found->needs;
}

std::string known_families() {
  std::string text = "known model types: ";
  for (const Family& one : kFamilies)
    text += std::string(one.model_type) + " (" + one.models + ")" +
            (&one == std::end(kFamilies) - 1 ? "" : ", ");
  return text;
}

}  // namespace dsj::layout
