#!/usr/bin/env python3
"""Makes the tiny model directories of tests/fixtures and what transformers computes with them, in fp32, in the form of
qwen2_oracle.py: one for each family. tests/fixtures/README.md describes the files. With names it makes only those.

The rows have equally many targets, so that the mean over a batch is the mean of its rows' means: one rank with two
rows and two ranks with one row each are held to the same numbers.
"""
# python: tests/oracle/model_venv.sh
import os
import re
import sys

import torch
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText

from qwen2_oracle import ADAMW_STEPS, ROWS, TOKENS, load, oracle, published, write_json

# A quarter of the Qwen2 fixtures': these models learn the rows in fifty steps of that, and near a loss of 0 the
# rounding of fp32 alone grows beyond 1e-5.
LR = 0.0005
LLAMA = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "attention_dropout": 0.0, "bos_token_id": 1,
    "eos_token_id": 2, "hidden_act": "silu", "hidden_size": 32, "intermediate_size": 48, "initializer_range": 0.02,
    "num_attention_heads": 4, "num_hidden_layers": 2, "num_key_value_heads": 2, "pretraining_tp": 1,
    "rms_norm_eps": 1e-5, "tie_word_embeddings": True, "use_cache": True, "vocab_size": 128,
}
# Llama3's scaling keeps one of four frequencies (wavelengths 6, 63, 628, 6283), ramps one, divides two.
MODELS = {
    "tiny-llama": LLAMA | {
        "num_key_value_heads": 1, "max_position_embeddings": 512, "rope_theta": 10000.0, "attention_bias": False,
        "mlp_bias": False, "torch_dtype": "float32", "transformers_version": "4.45.0",
        "rope_scaling": {"factor": 8.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
                         "original_max_position_embeddings": 64, "rope_type": "llama3"}},
    "tiny-llama-linear": LLAMA | {
        "max_position_embeddings": 64, "attention_bias": True, "mlp_bias": True, "tie_word_embeddings": False,
        "rope_scaling": {"type": "linear", "factor": 2.5}, "torch_dtype": "float32", "transformers_version": "4.37.0"},
    "tiny-llama-dynamic": LLAMA | {
        "max_position_embeddings": 8, "head_dim": 8, "dtype": "float32", "transformers_version": "5.23.0",
        "rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0}},
    "tiny-mistral": {key: LLAMA[key] for key in LLAMA if key != "pretraining_tp"} | {
        "architectures": ["MistralForCausalLM"], "model_type": "mistral", "head_dim": 16, "sliding_window": 6,
        "max_position_embeddings": 64, "rope_theta": 1000000.0, "tie_word_embeddings": False,
        "torch_dtype": "float32", "transformers_version": "4.42.0"},
    "tiny-qwen3": {key: LLAMA[key] for key in LLAMA if key != "pretraining_tp"} | {
        "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "head_dim": 16, "attention_bias": False,
        "max_position_embeddings": 64, "max_window_layers": 1, "rms_norm_eps": 1e-6, "rope_scaling": None,
        "rope_theta": 1000000.0, "sliding_window": 5, "use_sliding_window": True, "torch_dtype": "float32",
        "transformers_version": "4.51.0"},
    "tiny-gpt2": {
        "activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"], "attn_pdrop": 0.0, "bos_token_id": 1,
        "embd_pdrop": 0.0, "eos_token_id": 2, "initializer_range": 0.02, "layer_norm_epsilon": 1e-5,
        "model_type": "gpt2", "n_ctx": 24, "n_embd": 32, "n_head": 4, "n_inner": 48, "n_layer": 2, "n_positions": 24,
        "resid_pdrop": 0.0, "scale_attn_by_inverse_layer_idx": True, "vocab_size": 128},
}


def family(architecture, model_type, **more):
    """A small model of one family, of two layers unless `more` says otherwise."""
    return {
        "architectures": [architecture + "ForCausalLM"], "model_type": model_type, "attention_dropout": 0.0,
        "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0, "hidden_size": 32, "intermediate_size": 48,
        "initializer_range": 0.02, "num_attention_heads": 4, "num_hidden_layers": 2, "num_key_value_heads": 2,
        "max_position_embeddings": 64, "vocab_size": 128, "torch_dtype": "float32",
        "transformers_version": "4.57.0"} | more


YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
MODELS |= {
    "tiny-llama-yarn": family("Llama", "llama", rope_scaling=YARN, rope_theta=10000.0, hidden_act="silu",
                              rms_norm_eps=1e-5, tie_word_embeddings=False),
    # Tokens of the rows: their rows of the embedding get a gradient from the tied head alone, or none.
    "tiny-llama-padding": family("Llama", "llama", pad_token_id=34, rope_theta=10000.0, hidden_act="silu",
                                 rms_norm_eps=1e-5, tie_word_embeddings=False),
    "tiny-gemma-padding": family("Gemma", "gemma", pad_token_id=111, head_dim=16, hidden_act="gelu",
                                 hidden_activation=None, rms_norm_eps=1e-6, num_key_value_heads=1),
    "tiny-gemma": family("Gemma", "gemma", head_dim=16, hidden_act="gelu", hidden_activation=None, rms_norm_eps=1e-6,
                         rope_theta=10000.0),
    # Four layers: full attention in the second and the fourth.
    "tiny-gemma2": family("Gemma2", "gemma2", head_dim=16, num_hidden_layers=4, hidden_activation="gelu_pytorch_tanh",
                          query_pre_attn_scalar=24, sliding_window=6, final_logit_softcapping=4.0,
                          attn_logit_softcapping=3.0, rope_theta=10000.0, cache_implementation="hybrid"),
    "tiny-gemma3": family("Gemma3", "gemma3_text", head_dim=16, num_hidden_layers=4,
                          hidden_activation="gelu_pytorch_tanh", query_pre_attn_scalar=24, sliding_window=6,
                          sliding_window_pattern=3, rope_theta=1000000.0, rope_local_base_freq=10000.0,
                          rope_scaling={"factor": 8.0, "rope_type": "linear"}),
    # longrope with lengths on both sides of the original one: prompts are shorter, the rows are longer.
    "tiny-phi3": family("Phi3", "phi3", rms_norm_eps=1e-5, hidden_act="silu", sliding_window=12, rope_theta=10000.0,
                        original_max_position_embeddings=14, tie_word_embeddings=False, resid_pdrop=0.0,
                        embd_pdrop=0.0, rope_scaling={"type": "longrope", "short_factor": [1.0, 1.1, 1.3, 1.5],
                                                      "long_factor": [1.0, 2.0, 4.0, 8.0]}),
    "tiny-phi4-mini": family("Phi3", "phi3", rms_norm_eps=1e-5, hidden_act="silu", sliding_window=None, head_dim=16,
                             hidden_size=64, partial_rotary_factor=0.75, rope_theta=10000.0, rope_scaling=None,
                             tie_word_embeddings=True),
    "tiny-smollm3": family("SmolLM3", "smollm3", num_hidden_layers=4, hidden_act="silu", rms_norm_eps=1e-6,
                           no_rope_layer_interval=2, rope_theta=5000000.0, tie_word_embeddings=True),
    "tiny-granite": family("Granite", "granite", hidden_act="silu", rms_norm_eps=1e-5, attention_multiplier=0.2,
                           embedding_multiplier=3.0, logits_scaling=2.5, residual_multiplier=0.4, rope_theta=10000.0,
                           tie_word_embeddings=True),
    "tiny-olmo2": family("Olmo2", "olmo2", hidden_act="silu", rms_norm_eps=1e-6, rope_theta=500000.0,
                         tie_word_embeddings=False),
    "tiny-olmo3": family("Olmo3", "olmo3", num_hidden_layers=4, hidden_act="silu", rms_norm_eps=1e-6,
                         rope_theta=500000.0, rope_scaling=YARN | {"attention_factor": 1.2, "beta_fast": 32.0,
                                                                   "beta_slow": 1.0},
                         sliding_window=6, tie_word_embeddings=False),
    "tiny-glm": family("Glm", "glm", head_dim=16, hidden_act="silu", rms_norm_eps=1.5625e-7, attention_bias=True,
                       partial_rotary_factor=0.5, rope_theta=10000.0, tie_word_embeddings=False),
    "tiny-glm4": family("Glm4", "glm4", head_dim=8, hidden_act="silu", rms_norm_eps=1e-5, attention_bias=True,
                        partial_rotary_factor=0.5, rope_theta=10000.0, tie_word_embeddings=False),
    "tiny-exaone4": family("Exaone4", "exaone4", num_hidden_layers=4, hidden_act="silu", rms_norm_eps=1e-5,
                           sliding_window=6, sliding_window_pattern="LLG", rope_theta=1000000.0,
                           tie_word_embeddings=False,
                           layer_types=["sliding_attention", "sliding_attention", "full_attention",
                                        "sliding_attention"]),
    "tiny-seed-oss": family("SeedOss", "seed_oss", head_dim=16, hidden_act="silu", rms_norm_eps=1e-6,
                            attention_bias=True, attention_out_bias=False, residual_dropout=0.0,
                            rope_theta=10000000.0, tie_word_embeddings=False),
    "tiny-ernie4.5": family("Ernie4_5", "ernie4_5", head_dim=16, hidden_act="silu", rms_norm_eps=1e-5, use_bias=True,
                            rope_theta=500000.0, tie_word_embeddings=True),
    "tiny-helium": family("Helium", "helium", head_dim=8, hidden_act="silu", rms_norm_eps=1e-8, rope_theta=100000.0,
                          tie_word_embeddings=False),
    "tiny-arcee": family("Arcee", "arcee", hidden_act="relu2", rms_norm_eps=1e-5, rope_theta=10000.0,
                         rope_scaling={"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 32,
                                       "mscale": 1.0, "beta_fast": 32.0, "beta_slow": 1.0},
                         tie_word_embeddings=False),
    "tiny-cwm": family("Cwm", "cwm", head_dim=16, num_hidden_layers=4, hidden_act="silu", rms_norm_eps=1e-5,
                       sliding_window=6, rope_theta=1000000.0, tie_word_embeddings=False),
    "tiny-nemotron": family("Nemotron", "nemotron", hidden_act="relu2", norm_eps=1e-5, partial_rotary_factor=0.5,
                            rope_theta=10000.0, tie_word_embeddings=False),
    "tiny-starcoder2": family("Starcoder2", "starcoder2", hidden_act="gelu_pytorch_tanh", norm_epsilon=1e-5,
                              use_bias=True, sliding_window=6, rope_theta=10000.0, embedding_dropout=0.0,
                              residual_dropout=0.0, tie_word_embeddings=True),
    "tiny-stablelm": family("StableLm", "stablelm", hidden_act="silu", layer_norm_eps=1e-5, use_qkv_bias=True,
                            partial_rotary_factor=0.5, qk_layernorm=False, use_parallel_residual=False,
                            rope_theta=10000.0, hidden_dropout=0.0, tie_word_embeddings=False),
}
LAYER_NORM = {"layer_norm_eps": 1e-5, "rope_theta": 10000.0}
FALCON = {"layer_norm_epsilon": 1e-5, "rope_theta": 10000.0, "activation": "gelu", "ffn_hidden_size": 48,
          "hidden_dropout": 0.0, "alibi": False}
MODELS |= {
    "tiny-stablelm-parallel": family("StableLm", "stablelm", hidden_act="silu", use_qkv_bias=False,
                                     partial_rotary_factor=0.25, qk_layernorm=False, use_parallel_residual=True,
                                     hidden_dropout=0.0, tie_word_embeddings=False, **LAYER_NORM),
    "tiny-cohere": family("Cohere", "cohere", hidden_act="silu", logit_scale=0.25, use_qk_norm=False,
                          attention_bias=False, tie_word_embeddings=True, **LAYER_NORM),
    "tiny-cohere2": family("Cohere2", "cohere2", num_hidden_layers=4, hidden_act="silu", logit_scale=0.5,
                           sliding_window=6, sliding_window_pattern=3, attention_bias=True, tie_word_embeddings=True,
                           **LAYER_NORM),
    "tiny-gpt-neox": family("GPTNeoX", "gpt_neox", hidden_act="gelu", layer_norm_eps=1e-5, rotary_pct=0.5,
                            rotary_emb_base=20000, use_parallel_residual=True, hidden_dropout=0.0,
                            tie_word_embeddings=False),
    "tiny-gpt-neox-sequential": family("GPTNeoX", "gpt_neox", hidden_act="gelu_fast", layer_norm_eps=1e-5,
                                       rotary_pct=1.0, rotary_emb_base=10000, use_parallel_residual=False,
                                       attention_bias=False, hidden_dropout=0.0, tie_word_embeddings=False),
    "tiny-phi": family("Phi", "phi", hidden_act="gelu_new", partial_rotary_factor=0.5, qk_layernorm=False,
                       resid_pdrop=0.0, embd_pdrop=0.0, tie_word_embeddings=False, **LAYER_NORM),
    "tiny-opt": family("OPT", "opt", activation_function="relu", ffn_dim=48, word_embed_proj_dim=32, dropout=0.0,
                       do_layer_norm_before=True, _remove_final_layer_norm=False, layerdrop=0.0,
                       max_position_embeddings=24, pad_token_id=1, bos_token_id=2),
    "tiny-falcon": family("Falcon", "falcon", bias=False, multi_query=True, new_decoder_architecture=False,
                          parallel_attn=True, **FALCON),
    "tiny-falcon-40b": family("Falcon", "falcon", bias=True, num_kv_heads=2, new_decoder_architecture=True,
                              parallel_attn=True, multi_query=True, **FALCON),
    "tiny-falcon-sequential": family("Falcon", "falcon", bias=True, multi_query=False, new_decoder_architecture=False,
                                     parallel_attn=False, tie_word_embeddings=False, **FALCON),
    "tiny-gptj": {"activation_function": "gelu_new", "architectures": ["GPTJForCausalLM"], "attn_pdrop": 0.0,
                  "bos_token_id": 1, "embd_pdrop": 0.0, "eos_token_id": 2, "layer_norm_epsilon": 1e-5,
                  "model_type": "gptj", "n_embd": 32, "n_head": 4, "n_inner": None, "n_layer": 2, "n_positions": 64,
                  "resid_pdrop": 0.0, "rotary_dim": 4, "tie_word_embeddings": False, "vocab_size": 128},
    "tiny-hunyuan": family("HunYuanDenseV1", "hunyuan_v1_dense", hidden_act="silu", head_dim=16, rms_norm_eps=1e-5,
                           attention_bias=False, rope_theta=10000.0, tie_word_embeddings=True,
                           rope_scaling={"alpha": 50.0, "beta_fast": 32, "beta_slow": 1, "factor": 1.0, "mscale": 1.0,
                                         "mscale_all_dim": 1.0, "type": "dynamic"}),
    "tiny-olmo": family("Olmo", "olmo", hidden_act="silu", clip_qkv=None, rope_theta=10000.0,
                        tie_word_embeddings=False),
    "tiny-ministral": family("Ministral", "ministral", head_dim=16, hidden_act="silu", rms_norm_eps=1e-5,
                             sliding_window=6, rope_theta=1000000.0, tie_word_embeddings=False,
                             layer_types=["full_attention", "sliding_attention"]),
    "tiny-internlm3": family("InternLM3", "internlm3", head_dim=16, hidden_act="silu", rms_norm_eps=1e-5,
                             qkv_bias=True, bias=True, rope_theta=50000000, tie_word_embeddings=False),
}
TEXT = {key: value for key, value in family("", "").items() if key not in ("architectures", "transformers_version")}


def vision(architecture, model_type, text_type, vision_config, text, **more):
    """A text part as family() has it, in a model with a small vision part. No row has a token of a picture."""
    return {"architectures": [architecture + "ForConditionalGeneration"], "model_type": model_type,
            "text_config": TEXT | {"model_type": text_type} | text, "vision_config": vision_config,
            "torch_dtype": "float32", "transformers_version": "4.57.0"} | more


MODELS |= {
    "tiny-gemma3-vision": vision(
        "Gemma3", "gemma3", "gemma3_text",
        {"model_type": "siglip_vision_model", "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1,
         "num_attention_heads": 2, "image_size": 28, "patch_size": 14, "num_channels": 3},
        {"head_dim": 16, "query_pre_attn_scalar": 16, "sliding_window": 6, "num_hidden_layers": 2,
         "sliding_window_pattern": 2, "rope_scaling": {"factor": 8.0, "rope_type": "linear"}},
        mm_tokens_per_image=4, image_token_index=503, boi_token_index=502, eoi_token_index=501),
    "tiny-mistral3": vision(
        "Mistral3", "mistral3", "mistral",
        {"model_type": "pixtral", "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1,
         "num_attention_heads": 2, "head_dim": 8, "image_size": 28, "patch_size": 14, "num_channels": 3,
         "rope_theta": 10000.0, "hidden_act": "silu"},
        {"head_dim": 16, "hidden_act": "silu", "rms_norm_eps": 1e-5, "rope_theta": 1000000.0, "sliding_window": None},
        image_token_index=503, spatial_merge_size=2, vision_feature_layer=-1, projector_hidden_act="gelu",
        multimodal_projector_bias=False, tie_word_embeddings=False),
    "tiny-qwen2.5-vl": vision(
        "Qwen2_5_VL", "qwen2_5_vl", "qwen2_5_vl_text",
        {"model_type": "qwen2_5_vl", "depth": 1, "hidden_size": 16, "intermediate_size": 24, "num_heads": 2,
         "out_hidden_size": 32, "patch_size": 14, "spatial_merge_size": 2, "temporal_patch_size": 2,
         "fullatt_block_indexes": [0], "window_size": 28},
        {"hidden_act": "silu", "rms_norm_eps": 1e-6, "rope_theta": 1000000.0, "use_sliding_window": False,
         "rope_scaling": {"type": "mrope", "mrope_section": [1, 1, 2]}},
        image_token_id=503, video_token_id=502, vision_start_token_id=501, vision_end_token_id=500,
        tie_word_embeddings=False),
    "tiny-qwen3-vl": vision(
        "Qwen3VL", "qwen3_vl", "qwen3_vl_text",
        {"model_type": "qwen3_vl", "depth": 1, "hidden_size": 16, "intermediate_size": 24, "num_heads": 2,
         "out_hidden_size": 32, "patch_size": 14, "spatial_merge_size": 2, "temporal_patch_size": 2,
         "num_position_embeddings": 16, "deepstack_visual_indexes": [0]},
        {"head_dim": 16, "hidden_act": "silu", "rms_norm_eps": 1e-6, "rope_theta": 5000000.0,
         "rope_scaling": {"rope_type": "default", "mrope_interleaved": True, "mrope_section": [3, 3, 2]}},
        image_token_id=503, video_token_id=502, vision_start_token_id=501, vision_end_token_id=500,
        tie_word_embeddings=True),
}
MODELS |= {
    "tiny-jais2": family("Jais2", "jais2", hidden_act="relu2", attention_bias=True, mlp_bias=True,
                         tie_word_embeddings=False, **LAYER_NORM),
    "tiny-hyperclovax": family("HyperCLOVAX", "hyperclovax", hidden_act="silu", rms_norm_eps=1e-5,
                               attention_multiplier=0.2, embedding_multiplier=3.0, logits_scaling=0.4,
                               residual_multiplier=0.5, use_post_norm=True, rope_theta=10000.0,
                               tie_word_embeddings=False),
    "tiny-vaultgemma": family("VaultGemma", "vaultgemma", head_dim=16, num_hidden_layers=2,
                              hidden_activation="gelu_pytorch_tanh", query_pre_attn_scalar=24, sliding_window=6,
                              final_logit_softcapping=4.0, attn_logit_softcapping=3.0, rope_theta=10000.0),
    "tiny-llava": vision(
        "Llava", "llava", "llama",
        {"model_type": "clip_vision_model", "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2,
         "num_attention_heads": 2, "image_size": 28, "patch_size": 14, "projection_dim": 16},
        {"hidden_act": "silu", "rms_norm_eps": 1e-5, "rope_theta": 10000.0},
        image_token_index=503, vision_feature_layer=-2, vision_feature_select_strategy="default",
        projector_hidden_act="gelu", image_seq_length=4, tie_word_embeddings=False),
    "tiny-smolvlm": vision(
        "SmolVLM", "smolvlm", "llama",
        {"model_type": "smolvlm_vision", "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1,
         "num_attention_heads": 2, "image_size": 28, "patch_size": 14},
        {"hidden_act": "silu", "rms_norm_eps": 1e-5, "rope_theta": 10000.0},
        image_token_id=503, scale_factor=2, pad_token_id=0, tie_word_embeddings=False),
}
MOE = {"hidden_act": "silu", "num_experts_per_tok": 2, "output_router_logits": False, "router_aux_loss_coef": 0.01,
       "tie_word_embeddings": False, "rms_norm_eps": 1e-5, "rope_theta": 10000.0}
QWEN_MOE = MOE | {"decoder_sparse_step": 1, "moe_intermediate_size": 16, "num_experts": 6, "rms_norm_eps": 1e-6,
                  "sliding_window": None, "use_sliding_window": False}
DEEPSEEK = MOE | {"attention_bias": False, "num_key_value_heads": 4, "kv_lora_rank": 16, "qk_nope_head_dim": 8,
                  "qk_rope_head_dim": 4, "v_head_dim": 8, "first_k_dense_replace": 1, "moe_intermediate_size": 16,
                  "n_routed_experts": 6, "n_shared_experts": 2, "routed_scaling_factor": 1.0, "topk_method": "greedy",
                  "norm_topk_prob": False, "n_group": 1, "topk_group": 1, "output_router_logits": False}
MODELS |= {
    # The layer in the middle has a plain MLP.
    "tiny-qwen3-moe": family("Qwen3Moe", "qwen3_moe", num_hidden_layers=3, head_dim=16, attention_bias=False,
                             mlp_only_layers=[1], norm_topk_prob=True, **QWEN_MOE),
    # With the auxiliary loss, large enough to show.
    "tiny-qwen3-moe-balanced": family("Qwen3Moe", "qwen3_moe", head_dim=16, attention_bias=False, mlp_only_layers=[],
                                      norm_topk_prob=True, **QWEN_MOE | {"output_router_logits": True,
                                                                         "router_aux_loss_coef": 0.2}),
    "tiny-qwen2-moe": family("Qwen2Moe", "qwen2_moe", shared_expert_intermediate_size=24, norm_topk_prob=False,
                             **QWEN_MOE),
    "tiny-mixtral": family("Mixtral", "mixtral", num_local_experts=4, sliding_window=6, router_jitter_noise=0.0,
                           **MOE),
    "tiny-olmoe": family("Olmoe", "olmoe", num_experts=8, clip_qkv=None, norm_topk_prob=False, attention_bias=False,
                         **MOE | {"num_experts_per_tok": 3}),
    "tiny-granitemoe": family("GraniteMoe", "granitemoe", num_local_experts=4, attention_multiplier=0.2,
                              embedding_multiplier=3.0, logits_scaling=2.5, residual_multiplier=0.4, **MOE),
    "tiny-gpt-oss": family("GptOss", "gpt_oss", num_hidden_layers=2, head_dim=16, num_local_experts=4,
                           attention_bias=True, sliding_window=6, swiglu_limit=1.5,
                           layer_types=["sliding_attention", "full_attention"],
                           **MOE | {"output_router_logits": True, "router_aux_loss_coef": 0.9, "rope_theta": 150000.0},
                           rope_scaling={"rope_type": "yarn", "factor": 8.0, "beta_fast": 32.0, "beta_slow": 1.0,
                                         "truncate": False, "original_max_position_embeddings": 16}),
    # A plain MLP in the first layer, queries from the hidden state.
    "tiny-deepseek-v2-lite": family("DeepseekV2", "deepseek_v2", num_hidden_layers=3, q_lora_rank=None, **DEEPSEEK),
    # Queries from a latent, biases, yarn on scores and rotations.
    "tiny-deepseek-v2": family("DeepseekV2", "deepseek_v2", q_lora_rank=12,
                               **DEEPSEEK | {"attention_bias": True, "routed_scaling_factor": 2.5,
                                             "first_k_dense_replace": 0},
                               rope_scaling={"type": "yarn", "factor": 4.0, "beta_fast": 32, "beta_slow": 1,
                                             "mscale": 0.707, "mscale_all_dim": 1.0,
                                             "original_max_position_embeddings": 16}),
}
GPT_BIGCODE = {
    "activation_function": "gelu_pytorch_tanh", "attention_softmax_in_fp32": True, "attn_pdrop": 0.0,
    "bos_token_id": 1, "embd_pdrop": 0.0, "eos_token_id": 2, "initializer_range": 0.02, "layer_norm_epsilon": 1e-5,
    "model_type": "gpt_bigcode", "n_embd": 32, "n_head": 4, "n_inner": 48, "n_layer": 2, "n_positions": 64,
    "resid_pdrop": 0.0, "scale_attention_softmax_in_fp32": True, "scale_attn_weights": True, "vocab_size": 128}
MODELS |= {
    # Local attention in the second layer.
    "tiny-gpt-neo": {"activation_function": "gelu_new", "architectures": ["GPTNeoForCausalLM"],
                     "attention_dropout": 0.0, "attention_types": [[["global", "local"], 1]], "bos_token_id": 1,
                     "embed_dropout": 0.0, "eos_token_id": 2, "hidden_size": 32, "initializer_range": 0.02,
                     "intermediate_size": 48, "layer_norm_epsilon": 1e-5, "max_position_embeddings": 64,
                     "model_type": "gpt_neo", "num_heads": 4, "num_layers": 2, "resid_dropout": 0.0,
                     "vocab_size": 128, "window_size": 6},
    "tiny-gpt-bigcode": {"architectures": ["GPTBigCodeForCausalLM"], "multi_query": True, **GPT_BIGCODE},
    "tiny-gpt-bigcode-heads": {"architectures": ["GPTBigCodeForCausalLM"], "multi_query": False, **GPT_BIGCODE},
}
SIGMOID = {key: value for key, value in DEEPSEEK.items() if key not in ("topk_method", "router_aux_loss_coef")} | {
    "n_routed_experts": 8, "n_shared_experts": 1, "norm_topk_prob": True, "routed_scaling_factor": 2.5}
HEADS = {key: value for key, value in SIGMOID.items() if key not in (
    "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "num_key_value_heads")}
GRANITE = {"attention_multiplier": 0.2, "embedding_multiplier": 3.0, "logits_scaling": 2.5, "residual_multiplier": 0.4}
MODELS |= {
    # Two of four groups of two experts.
    "tiny-deepseek-v3": family("DeepseekV3", "deepseek_v3", num_hidden_layers=3, q_lora_rank=12, rope_interleave=True,
                               **SIGMOID | {"n_group": 4, "topk_group": 2, "topk_method": "noaux_tc",
                                            "scoring_func": "sigmoid"},
                               rope_scaling={"type": "yarn", "factor": 4.0, "beta_fast": 32, "beta_slow": 1,
                                             "mscale": 1.0, "mscale_all_dim": 1.0,
                                             "original_max_position_embeddings": 16}),
    "tiny-glm4-moe": family("Glm4Moe", "glm4_moe", num_hidden_layers=2, head_dim=16, use_qk_norm=True,
                            partial_rotary_factor=0.5, **HEADS | {"attention_bias": True}),
    "tiny-glm4-moe-lite": family("Glm4MoeLite", "glm4_moe_lite", num_hidden_layers=2, q_lora_rank=12, head_dim=4,
                                 mlp_layer_types=["dense", "sparse"], **SIGMOID | {"v_head_dim": 12}),
    "tiny-dots1": family("Dots1", "dots1", num_hidden_layers=2, head_dim=16, sliding_window=6, max_window_layers=1,
                         **HEADS | {"norm_topk_prob": False, "routed_scaling_factor": 1.5}),
    "tiny-solar-open": family("SolarOpen", "solar_open", head_dim=16, **HEADS | {"routed_scaling_factor": 1.0}),
    # The second layer has a window, and so positions.
    "tiny-exaone-moe": family("ExaoneMoe", "exaone_moe", num_hidden_layers=2, head_dim=16, sliding_window=6,
                              sliding_window_pattern="LG", num_experts=8, num_shared_experts=1,
                              layer_types=["full_attention", "sliding_attention"], first_k_dense_replace=1,
                              **{key: value for key, value in HEADS.items() if key not in (
                                  "n_routed_experts", "n_shared_experts", "first_k_dense_replace", "attention_bias")}),
    "tiny-minimax-m2": family("MiniMaxM2", "minimax_m2", head_dim=16, rotary_dim=8, num_local_experts=6,
                              num_experts_per_tok=2, hidden_act="silu", rms_norm_eps=1e-6, rope_theta=5000000.0,
                              tie_word_embeddings=False),
    "tiny-ernie4.5-moe": family("Ernie4_5_Moe", "ernie4_5_moe", num_hidden_layers=3, hidden_act="silu",
                                rms_norm_eps=1e-5, rope_theta=500000.0, use_bias=False, moe_num_experts=6, moe_k=2,
                                moe_intermediate_size=16, moe_num_shared_experts=2, moe_layer_start_index=1,
                                moe_layer_end_index=-1, moe_layer_interval=1, moe_norm_min=1e-12,
                                tie_word_embeddings=True),
    "tiny-hunyuan-moe": family("HunYuanMoEV1", "hunyuan_v1_moe", hidden_act="silu", head_dim=16, rms_norm_eps=1e-5,
                               attention_bias=False, rope_theta=10000.0, tie_word_embeddings=True, num_experts=4,
                               moe_topk=[2, 2], intermediate_size=24,
                               rope_scaling={"alpha": 50.0, "beta_fast": 32, "beta_slow": 1, "factor": 1.0,
                                             "mscale": 1.0, "mscale_all_dim": 1.0, "type": "dynamic"}),
    "tiny-granitemoeshared": family("GraniteMoeShared", "granitemoeshared", num_local_experts=4,
                                    shared_intermediate_size=24, **GRANITE, **MOE),
    # Granite 4.0: dense with positions, and experts without.
    "tiny-granite4": family("GraniteMoeHybrid", "granitemoehybrid", num_local_experts=0, num_experts_per_tok=0,
                            shared_intermediate_size=48, layer_types=["attention", "attention"], mamba_n_heads=4,
                            mamba_d_head=16, position_embedding_type="rope", hidden_act="silu", rms_norm_eps=1e-5,
                            rope_theta=10000.0, tie_word_embeddings=True, **GRANITE),
    "tiny-granite4-moe": family("GraniteMoeHybrid", "granitemoehybrid", num_local_experts=4,
                                shared_intermediate_size=24, layer_types=["attention", "attention"], mamba_n_heads=4,
                                mamba_d_head=16, position_embedding_type="nope", **GRANITE, **MOE),
    # Its class makes the padding token's row 0 after it has read it.
    "tiny-youtu": family("Youtu", "youtu", pad_token_id=None, q_lora_rank=12, rope_interleave=True, attention_bias=False,
                         **{key: DEEPSEEK[key] for key in ("num_key_value_heads", "kv_lora_rank", "qk_nope_head_dim",
                                                           "qk_rope_head_dim", "v_head_dim", "hidden_act")},
                         rms_norm_eps=1e-6, rope_theta=10000.0, tie_word_embeddings=True),
}
# As published: experts in MXFP4, or every linear layer in blocks of 8-bit floats. transformers unpacks both on a CPU.
MODELS |= {
    "tiny-gpt-oss-mxfp4": MODELS["tiny-gpt-oss"] | {
        "intermediate_size": 64, "output_router_logits": False, "swiglu_limit": 7.0,
        "quantization_config": {
            "quant_method": "mxfp4",
            "modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens",
                                       "lm_head"]}},
    "tiny-qwen3-fp8": family("Qwen3", "qwen3", head_dim=16, hidden_act="silu", rms_norm_eps=1e-6, rope_theta=1000000.0,
                             tie_word_embeddings=False, quantization_config={
                                 "quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "e4m3",
                                 "weight_block_size": [16, 16], "modules_to_not_convert": ["lm_head"]}),
}
# Partial rotary, two layers with the delta rule around each with attention, value heads that share key heads.
HYBRID = {"hidden_act": "silu", "rms_norm_eps": 1e-6, "head_dim": 16, "attention_bias": False, "num_hidden_layers": 3,
          "layer_types": ["linear_attention", "full_attention", "linear_attention"], "full_attention_interval": 2,
          "linear_conv_kernel_dim": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 12,
          "linear_num_key_heads": 2, "linear_num_value_heads": 4, "attn_output_gate": True,
          "mamba_ssm_dtype": "float32"}
QWEN3_5_ROPE = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5, "mrope_section": [2, 1, 1],
                "mrope_interleaved": True}
MODELS |= {
    # A row's first result is parallel to its value, and its norm turns over where its length goes through 0: with an
    # eps of 1e-6 such a token parts runs that only rounding sets apart.
    "tiny-qwen3.5-text": family("Qwen3_5", "qwen3_5_text", rope_parameters=QWEN3_5_ROPE, tie_word_embeddings=False,
                                **HYBRID | {"rms_norm_eps": 1e-2}),
    "tiny-qwen3.5": vision(
        "Qwen3_5", "qwen3_5", "qwen3_5_text",
        {"model_type": "qwen3_5", "depth": 1, "hidden_size": 16, "intermediate_size": 24, "num_heads": 2,
         "out_hidden_size": 32, "patch_size": 14, "spatial_merge_size": 2, "temporal_patch_size": 2,
         "num_position_embeddings": 16},
        HYBRID | {"num_hidden_layers": 2, "layer_types": ["linear_attention", "full_attention"],
                  "linear_num_value_heads": 2, "rope_parameters": QWEN3_5_ROPE, "tie_word_embeddings": True},
        image_token_id=503, video_token_id=502, vision_start_token_id=501, vision_end_token_id=500,
        tie_word_embeddings=True),
    "tiny-qwen3-next": family("Qwen3Next", "qwen3_next", partial_rotary_factor=0.5,
                              shared_expert_intermediate_size=24, norm_topk_prob=True, mlp_only_layers=[],
                              **HYBRID | QWEN_MOE | {"rope_theta": 10000.0, "rms_norm_eps": 1e-3}),
}
QWEN3_5_MOE = {key: value for key, value in (HYBRID | QWEN_MOE).items() if key not in (
    "decoder_sparse_step", "sliding_window", "use_sliding_window")} | {
        "shared_expert_intermediate_size": 24, "rms_norm_eps": 1e-2, "rope_parameters": QWEN3_5_ROPE}
# The rows are twice as long as the length behind which queries grow.
MINISTRAL3 = {"head_dim": 16, "hidden_act": "silu", "rms_norm_eps": 1e-5, "sliding_window": None,
              "rope_parameters": {"type": "yarn", "rope_type": "yarn", "rope_theta": 1000000.0, "factor": 4.0,
                                  "original_max_position_embeddings": 6, "max_position_embeddings": 64,
                                  "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0,
                                  "llama_4_scaling_beta": 0.4}}
MODELS |= {
    "tiny-ministral3": family("Ministral3", "ministral3", tie_word_embeddings=False, **MINISTRAL3),
    "tiny-ministral3-vision": vision(
        "Mistral3", "mistral3", "ministral3",
        {"model_type": "pixtral", "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1,
         "num_attention_heads": 2, "head_dim": 8, "image_size": 28, "patch_size": 14, "num_channels": 3,
         "rope_theta": 10000.0, "hidden_act": "silu"},
        MINISTRAL3 | {"tie_word_embeddings": True},
        image_token_index=503, spatial_merge_size=2, vision_feature_layer=-1, projector_hidden_act="gelu",
        multimodal_projector_bias=False, tie_word_embeddings=True),
    "tiny-apertus": family("Apertus", "apertus", hidden_act="xielu", rms_norm_eps=1e-5, attention_bias=False,
                           qk_norm=True, post_norm=False, rope_theta=12000000.0, tie_word_embeddings=False,
                           rope_scaling={"factor": 8.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
                                         "original_max_position_embeddings": 64, "rope_type": "llama3"}),
    "tiny-flex-olmo": family("FlexOlmo", "flex_olmo", num_experts=5, norm_topk_prob=False, attention_bias=False,
                             **MOE | {"num_experts_per_tok": 3, "rms_norm_eps": 1e-6, "rope_theta": 500000.0}),
    "tiny-qwen3.5-moe-text": family("Qwen3_5Moe", "qwen3_5_moe_text", **QWEN3_5_MOE),
    "tiny-qwen3.5-moe": vision(
        "Qwen3_5Moe", "qwen3_5_moe", "qwen3_5_moe_text",
        {"model_type": "qwen3_5_moe", "depth": 1, "hidden_size": 16, "intermediate_size": 24, "num_heads": 2,
         "out_hidden_size": 32, "patch_size": 14, "spatial_merge_size": 2, "temporal_patch_size": 2,
         "num_position_embeddings": 16},
        QWEN3_5_MOE | {"num_hidden_layers": 2, "layer_types": ["linear_attention", "full_attention"]},
        image_token_id=503, video_token_id=502, vision_start_token_id=501, vision_end_token_id=500,
        tie_word_embeddings=False),
}
SIGLIP = {"model_type": "siglip_vision_model", "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2,
          "num_attention_heads": 2, "image_size": 28, "patch_size": 14}
MODELS |= {
    "tiny-qwen3-vl-moe": vision(
        "Qwen3VLMoe", "qwen3_vl_moe", "qwen3_vl_moe_text",
        {"model_type": "qwen3_vl_moe", "depth": 1, "hidden_size": 16, "intermediate_size": 24, "num_heads": 2,
         "out_hidden_size": 32, "patch_size": 14, "spatial_merge_size": 2, "temporal_patch_size": 2,
         "num_position_embeddings": 16, "deepstack_visual_indexes": [0]},
        {key: value for key, value in QWEN_MOE.items() if key not in ("sliding_window", "use_sliding_window")} | {
            "head_dim": 16, "mlp_only_layers": [], "norm_topk_prob": True, "rope_theta": 5000000.0,
            "moe_intermediate_size": 24,  # transformers turns what has other sizes than its parameter
            "rope_scaling": {"rope_type": "default", "mrope_interleaved": True, "mrope_section": [3, 3, 2]}},
        image_token_id=503, video_token_id=502, vision_start_token_id=501, vision_end_token_id=500,
        tie_word_embeddings=False),
    "tiny-internvl": vision(
        "InternVL", "internvl", "qwen3",
        {"model_type": "internvl_vision", "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1,
         "num_attention_heads": 2, "image_size": [28, 28], "patch_size": [14, 14]},
        {"head_dim": 16, "hidden_act": "silu", "rms_norm_eps": 1e-6, "rope_theta": 1000000.0,
         "use_sliding_window": False, "tie_word_embeddings": True},
        image_token_id=503, image_seq_length=4, tie_word_embeddings=True),
    "tiny-llava-next": vision(
        "LlavaNext", "llava_next", "mistral",
        {"model_type": "clip_vision_model", "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2,
         "num_attention_heads": 2, "image_size": 28, "patch_size": 14, "projection_dim": 16},
        {"hidden_act": "silu", "rms_norm_eps": 1e-5, "rope_theta": 1000000.0, "sliding_window": None},
        image_token_index=503, vision_feature_layer=-2, vision_feature_select_strategy="default",
        image_grid_pinpoints=[[28, 28]], tie_word_embeddings=False),
    "tiny-llava-onevision": vision(
        "LlavaOnevision", "llava_onevision", "qwen2", SIGLIP,
        {"hidden_act": "silu", "rms_norm_eps": 1e-6, "rope_theta": 1000000.0, "use_sliding_window": False},
        image_token_index=503, video_token_index=502, vision_feature_layer=-1, image_grid_pinpoints=[[28, 28]],
        tie_word_embeddings=False),
    "tiny-aya-vision": vision(
        "AyaVision", "aya_vision", "cohere2", SIGLIP,
        {"num_hidden_layers": 4, "hidden_act": "silu", "logit_scale": 0.5, "sliding_window": 6,
         "sliding_window_pattern": 3, "attention_bias": False, "layer_norm_eps": 1e-5, "rope_theta": 10000.0},
        image_token_index=503, downsample_factor=1, adapter_layer_norm_eps=1e-6, vision_feature_layer=-1,
        tie_word_embeddings=True),
}
MODELS |= {
    "tiny-iquestcoder": family("IQuestCoder", "iquestcoder", head_dim=16, hidden_act="silu", rms_norm_eps=1e-5,
                               rope_theta=500000.0, attention_bias=False, mlp_bias=False, tie_word_embeddings=False),
    # A plain MLP in the second layer, which has no window.
    "tiny-mellum": family("Mellum", "mellum", num_hidden_layers=3, head_dim=16, sliding_window=6, norm_topk_prob=True,
                          layer_types=["sliding_attention", "full_attention", "sliding_attention"],
                          mlp_layer_types=["sparse", "dense", "sparse"],
                          **{key: value for key, value in QWEN_MOE.items() if key not in (
                              "rope_theta", "decoder_sparse_step", "sliding_window", "use_sliding_window")},
                          rope_parameters={"full_attention": YARN | {"rope_theta": 500000.0},
                                           "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}),
    # longrope as in tiny-phi3.
    "tiny-minicpm3": family("MiniCPM3", "minicpm3", q_lora_rank=12, scale_emb=3, scale_depth=0.8, dim_model_base=16,
                            **{key: DEEPSEEK[key] for key in ("num_key_value_heads", "kv_lora_rank", "qk_nope_head_dim",
                                                              "v_head_dim", "hidden_act")} | {"qk_rope_head_dim": 8},
                            rms_norm_eps=1e-5, rope_theta=10000.0, tie_word_embeddings=True,
                            rope_scaling={"type": "longrope", "original_max_position_embeddings": 14,
                                          "short_factor": [1.0, 1.1, 1.3, 1.5], "long_factor": [1.0, 2.0, 4.0, 8.0]}),
}
# Layers of full attention have heads of another size, keys that are the values, and a rope that turns a part of them.
GEMMA4 = {"head_dim": 8, "global_head_dim": 16, "num_hidden_layers": 3, "hidden_activation": "gelu_pytorch_tanh",
          "rms_norm_eps": 1e-6, "sliding_window": 6, "hidden_size_per_layer_input": 0, "vocab_size_per_layer_input": 128,
          "attention_bias": False, "attention_k_eq_v": True, "num_global_key_value_heads": 1,
          "num_kv_shared_layers": 0, "enable_moe_block": False, "use_double_wide_mlp": False,
          "use_bidirectional_attention": None, "final_logit_softcapping": 4.0, "tie_word_embeddings": True,
          "layer_types": ["sliding_attention", "full_attention", "full_attention"],
          "rope_parameters": {"full_attention": {"rope_type": "proportional", "rope_theta": 1000000.0,
                                                 "partial_rotary_factor": 0.25},
                              "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}}
GEMMA4_VISION = {"model_type": "gemma4_vision", "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1,
                 "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 8, "global_head_dim": 8,
                 "patch_size": 4, "position_embedding_size": 16, "pooling_kernel_size": 2, "default_output_length": 4}
MODELS |= {
    "tiny-gemma4": family("Gemma4", "gemma4_text", **GEMMA4),
    "tiny-gemma4-vision": vision(
        "Gemma4", "gemma4", "gemma4_text", GEMMA4_VISION,
        GEMMA4 | {"num_hidden_layers": 2, "layer_types": ["sliding_attention", "full_attention"],
                  "attention_k_eq_v": False, "num_global_key_value_heads": None,
                  "use_bidirectional_attention": "vision"},
        audio_config=None, boi_token_id=501, eoi_token_id=502, image_token_id=503, video_token_id=504,
        audio_token_id=505, boa_token_id=506, eoa_token_index=507, tie_word_embeddings=True),
    "tiny-gemma4-moe": family("Gemma4", "gemma4_text", **GEMMA4 | {
        "num_hidden_layers": 2, "layer_types": ["sliding_attention", "full_attention"], "enable_moe_block": True,
        "num_experts": 6, "top_k_experts": 2, "moe_intermediate_size": 16}),
    # 12B: the whole model has other parts.
    "tiny-gemma4-unified": vision(
        "Gemma4Unified", "gemma4_unified", "gemma4_unified_text",
        {"model_type": "gemma4_unified_vision", "patch_size": 4, "pooling_kernel_size": 2, "mm_embed_dim": 16,
         "mm_posemb_size": 8, "output_proj_dims": 16},
        {key: value for key, value in GEMMA4.items() if key not in (
            "hidden_size_per_layer_input", "vocab_size_per_layer_input", "enable_moe_block")} | {
                "num_hidden_layers": 2, "layer_types": ["sliding_attention", "full_attention"],
                "use_bidirectional_attention": "vision"},
        audio_config=None, boi_token_id=501, eoi_token_id=502, image_token_id=503, video_token_id=504,
        audio_token_id=505, boa_token_id=506, eoa_token_index=507, tie_word_embeddings=True),
}
# Layers with short convolutions around one with attention; in the larger fixture, old names of keys.
LFM2 = {"num_hidden_layers": 4, "norm_eps": 1e-5, "conv_L_cache": 3, "conv_bias": False, "rope_theta": 1000000.0,
        "layer_types": ["conv", "full_attention", "conv", "conv"], "tie_word_embeddings": True}
LFM2_OLD = {key: value for key, value in LFM2.items() if key not in ("layer_types", "tie_word_embeddings")}
MODELS |= {
    "tiny-lfm2": family("Lfm2", "lfm2", full_attn_idxs=[1, 3], block_dim=32, block_ff_dim=60, block_multiple_of=8,
                        block_ffn_dim_multiplier=1.0, block_auto_adjust_ff_dim=True, tie_embedding=True,
                        num_heads=4, **LFM2_OLD),
    "tiny-lfm2-moe": family("Lfm2Moe", "lfm2_moe", num_dense_layers=1, num_experts=6, num_experts_per_tok=2,
                            moe_intermediate_size=16, use_expert_bias=True, norm_topk_prob=True,
                            routed_scaling_factor=1.5, **LFM2),
    "tiny-lfm2-vl": vision(
        "Lfm2Vl", "lfm2_vl", "lfm2",
        {"model_type": "siglip2_vision_model", "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1,
         "num_attention_heads": 2, "num_patches": 16, "patch_size": 14},
        LFM2 | {"num_hidden_layers": 2, "layer_types": ["conv", "full_attention"], "block_auto_adjust_ff_dim": False,
                "tie_word_embeddings": False},
        image_token_id=503, downsample_factor=2, projector_hidden_size=24, tie_embedding=True),
}
# Granite 4.0 H: two layers of Mamba 2 around one with attention, which has no positions.
MAMBA = {"num_hidden_layers": 3, "layer_types": ["mamba", "attention", "mamba"], "mamba_n_heads": 4, "mamba_d_state": 8,
         "mamba_d_conv": 4, "mamba_expand": 2, "mamba_chunk_size": 8, "position_embedding_type": "nope"}
MODELS |= {
    "tiny-granite4-h": family("GraniteMoeHybrid", "granitemoehybrid", num_local_experts=0, num_experts_per_tok=0,
                              shared_intermediate_size=48, mamba_n_groups=2, mamba_d_head="auto", hidden_act="silu",
                              rms_norm_eps=1e-3, rope_theta=10000.0, tie_word_embeddings=True, **GRANITE, **MAMBA),
    "tiny-granite4-h-moe": family("GraniteMoeHybrid", "granitemoehybrid", num_local_experts=4,
                                  shared_intermediate_size=24, mamba_n_groups=1, mamba_d_head=16,
                                  mamba_conv_bias=False, **GRANITE, **MAMBA, **MOE | {"rms_norm_eps": 1e-3}),
}
# E2B and E4B: inputs of each layer; the last layers, of both types, use the keys and values of earlier ones. In the
# first, they have a wider MLP, and a row's padding token is one that the table of these inputs does not learn.
GEMMA4_EDGE = GEMMA4 | {
    "num_hidden_layers": 6, "num_key_value_heads": 1, "attention_k_eq_v": False, "num_global_key_value_heads": None,
    "hidden_size_per_layer_input": 8, "num_kv_shared_layers": 3, "use_double_wide_mlp": True,
    "layer_types": ["sliding_attention", "full_attention"] * 3}
MODELS |= {
    "tiny-gemma4-e2b": family("Gemma4", "gemma4_text", **GEMMA4_EDGE | {"pad_token_id": 71}),
    "tiny-gemma4-e4b": vision(
        "Gemma4", "gemma4", "gemma4_text", GEMMA4_VISION,
        GEMMA4_EDGE | {"num_hidden_layers": 5, "num_key_value_heads": 2, "num_kv_shared_layers": 3,
                       "use_double_wide_mlp": False,
                       "layer_types": ["full_attention"] + ["sliding_attention"] * 3 + ["full_attention"]},
        audio_config=None, boi_token_id=501, eoi_token_id=502, image_token_id=503, video_token_id=504,
        audio_token_id=505, boa_token_id=506, eoa_token_index=507, tie_word_embeddings=True),
}
# A fixture keeps its seed when others come before it. Of Gemma 4 E2B and E4B, seeds that are far from chaos.
SEEDS = {"tiny-qwen3.5-text": 105, "tiny-qwen3.5": 106, "tiny-qwen3-next": 107, "tiny-gemma4-e2b": 220,
         "tiny-gemma4-e4b": 238}
CORRECTION = ("e_score_correction_bias", ".expert_bias")
# Buffers of an activation; not those that its class begins with.
XIELU = {".act_fn.beta": 0.7, ".act_fn.eps": -1e-3}
LAYER_SCALAR = ".layer_scalar"
# Their norms multiply by 1 + weight.
PLUS_ONE = ("gemma", "gemma2", "gemma3_text", "gemma3", "nemotron", "vaultgemma", "qwen3_5_text", "qwen3_5",
            "qwen3_next", "qwen3_5_moe_text", "qwen3_5_moe")


def weights(config, generator):
    """Random weights large enough that every bias, norm and head shows in the logits; tied ones once."""
    auto = AutoModelForImageTextToText if "vision_config" in config else AutoModelForCausalLM
    config = {key: value for key, value in config.items() if key != "quantization_config"}
    model = auto.from_config(AutoConfig.for_model(**config))
    tensors = {}
    buffers = [(name, value) for name, value in model.named_buffers() if name.endswith((*CORRECTION, LAYER_SCALAR, *XIELU))]
    for name, parameter in [*model.named_parameters(), *buffers]:
        shape = parameter.shape
        if name.endswith(tuple(XIELU)):
            tensors[name] = torch.tensor(XIELU[name[name.rindex(".act_fn"):]])
            continue
        noise = torch.randn(*shape, generator=generator)
        if name.endswith(CORRECTION):  # enough to change many choices
            tensors[name] = noise * 0.2
        elif name.endswith((LAYER_SCALAR, ".router.scale", ".per_expert_scale")):
            tensors[name] = 0.8 + noise * 0.1
        elif ".act_fn." in name:  # a parameter of the activation
            tensors[name] = noise
        elif name.endswith(".A_log"):
            tensors[name] = (torch.rand(*shape, generator=generator) * 4 + 0.05).log()
        elif name.endswith((".conv1d.weight", ".conv.conv.weight")):
            tensors[name] = noise * 0.5
        elif "norm" in name or ".ln_" in name:
            one = name.endswith("weight") and (config["model_type"] not in PLUS_ONE or ".linear_attn." in name)
            tensors[name] = noise * 0.1 + (1.0 if one else 0.0)
        elif name.endswith("bias"):
            tensors[name] = noise * 0.2
        elif any(part in name for part in ("embed_", ".wte.", ".wpe.", "word_embeddings")):
            tensors[name] = noise * 0.4
        else:
            fan_in = shape[0] if config["model_type"] == "gpt2" and len(shape) == 2 else shape[:2][-1]
            if ".experts." in name and config["model_type"] != "gpt_oss":
                fan_in = shape[-1]
            tensors[name] = noise * fan_in ** -0.5
    return published(model, tensors)


VISION_NAMES = {r"^model\.language_model\.": "language_model.model.", r"^lm_head\.": "language_model.lm_head.",
                r"^model\.(vision_tower|multi_modal_projector)\.": r"\1."}


def released(config, named):
    """By the names of released files, which transformers 5 reads and writes but does not use itself."""
    renamed = {
        "gpt_neox": {r"^lm_head\.": "embed_out."},
        "gemma3": VISION_NAMES,
        "mistral3": VISION_NAMES,
        "llava": VISION_NAMES,
        "internvl": VISION_NAMES,
        "aya_vision": VISION_NAMES,
        "llava_next": VISION_NAMES | {r"^model\.image_newline": "image_newline"},
        "llava_onevision": VISION_NAMES | {r"^model\.image_newline": "image_newline"},
        "gemma4_unified": {r"\.embed_vision\.(patch|pos)_": r".vision_embedder.\1_",
                           r"\.embed_vision\.multimodal_embedder\.": ".embed_vision."},
        "qwen2_5_vl": {r"^model\.language_model\.": "model.", r"^model\.visual\.": "visual."},
    }.get(config["model_type"], {})
    for pattern, name in renamed.items():
        named = {re.sub(pattern, name, key): value for key, value in named.items()}
    return named


def mxfp4(weight):
    """[E, in, out] → codes [E, out, in / 32, 16] and exponents [E, out, in / 32]: the format's own rule for the scale,
    the nearest code for each number."""
    values = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
    groups = weight.transpose(1, 2).contiguous().unflatten(-1, (-1, 32))
    exponents = groups.abs().amax(-1).log2().floor() - 2
    scaled = groups / exponents.exp2().unsqueeze(-1)
    codes = (scaled.abs().unsqueeze(-1) - values).abs().argmin(-1) + 8 * (scaled < 0)
    return (codes[..., 0::2] | codes[..., 1::2] << 4).to(torch.uint8), (exponents + 127).to(torch.uint8)


def fp8(weight, size):
    """Codes and the factors of size x size blocks: powers of two, which no rounding of a product shows."""
    blocks = weight.unflatten(1, (-1, size)).unflatten(0, (-1, size))
    factors = (blocks.abs().amax((1, 3)) / 448).log2().ceil().exp2()
    codes = (blocks / factors[:, None, :, None]).to(torch.float8_e4m3fn)
    return codes.reshape(weight.shape), factors


def packed(config, tensors):
    """As a file has the weights that quantization_config packs."""
    method = config.get("quantization_config", {}).get("quant_method")
    out = {}
    for name, tensor in tensors.items():
        if method == "mxfp4" and name.endswith("_proj") and ".experts." in name:
            out[name + "_blocks"], out[name + "_scales"] = mxfp4(tensor)
        elif method == "fp8" and name.endswith("_proj.weight"):
            out[name], out[name + "_scale_inv"] = fp8(tensor, config["quantization_config"]["weight_block_size"][0])
        else:
            out[name] = tensor
    return out


def old_names(name, config, tensors):
    """What older files hold besides: buffers that are no parameters."""
    if name == "tiny-llama-linear":
        half = config["hidden_size"] // config["num_attention_heads"] // 2
        for layer in range(config["num_hidden_layers"]):
            tensors[f"model.layers.{layer}.self_attn.rotary_emb.inv_freq"] = torch.arange(half, dtype=torch.float32)
    if config["model_type"] == "gpt2":
        # As the released files: saved from the bare model, with its causal masks.
        tensors = {key.removeprefix("transformer."): value for key, value in tensors.items()}
        ones = torch.ones(config["n_positions"], config["n_positions"])
        for layer in range(config["n_layer"]):
            tensors[f"h.{layer}.attn.bias"] = torch.tril(ones)[None, None].clone()
    return tensors


def rows(config, generator):
    """Rows a model can learn from (a repeated segment), each with five of its fifteen targets masked."""
    masks = (range(0, 6), (2, 5, 7, 11, 13), (0, 1, 2, 3, 9, 15), range(11, 16))
    made = []
    for row in range(ROWS):
        ids = torch.randint(3, config["vocab_size"], (TOKENS,), generator=generator).tolist()
        ids[9:14] = ids[3:8]
        labels = [-100 if i in masks[row % len(masks)] else token for i, token in enumerate(ids)]
        made.append({"input_ids": ids, "labels": labels})
    return made


def greedy(directory, config, generator):
    """With a cache, as one asks a model: under dynamic scaling cached keys keep the rotation of their time."""
    out = []
    for length in (1, 5, 9):
        model = load(directory).eval()  # a new one: dynamic scaling remembers the longest sequence
        prompt = torch.randint(3, config["vocab_size"], (length,), generator=generator).tolist()
        ids, cache, fresh, gap = list(prompt), None, list(prompt), float("inf")
        with torch.no_grad():
            for _ in range(12):
                result = model(input_ids=torch.tensor([fresh]), past_key_values=cache, use_cache=True)
                cache, top = result.past_key_values, result.logits[0, -1].topk(2)
                gap = min(gap, (top.values[0] - top.values[1]).item())
                fresh = [top.indices[0].item()]
                ids += fresh
        out.append({"prompt": prompt, "continuation": ids[length:], "smallest_gap": gap})
    return out


def main():
    root = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "fixtures")
    torch.set_num_threads(1)
    for number, (name, config) in enumerate(MODELS.items()):
        if sys.argv[1:] and name not in sys.argv[1:]:
            continue
        generator = torch.Generator().manual_seed(SEEDS.get(name, 40 + number))
        directory = os.path.join(root, name)
        os.makedirs(directory, exist_ok=True)
        write_json(os.path.join(directory, "config.json"), config)
        tensors = old_names(name, config, weights(config, generator))
        save_file(packed(config, released(config, tensors)), os.path.join(directory, "model.safetensors"), metadata={"format": "pt"})
        os.chmod(os.path.join(directory, "model.safetensors"), 0o644)
        result = oracle(directory, config.get("text_config", config), generator, all_positions=False, rows=rows, complete=greedy, lr=LR)
        for record in (result, result["adamw"]):  # transformers gives the unpacked tensors the names of their codes
            for key in {"gradients", "final_weights"} & record.keys():
                record[key] = {name.removesuffix("_blocks"): value for name, value in record[key].items()}
        result["gradients"] = released(config, result["gradients"])
        result["adamw"]["final_weights"] = released(config, result["adamw"]["final_weights"])
        write_json(os.path.join(root, name + ".oracle.json"), result)
        gap = min(row["smallest_gap"] for row in result["greedy"])
        print(f"{name}: loss {result['loss']:.6f}, after {ADAMW_STEPS} AdamW steps {result['adamw']['loss'][-1]:.6f}, "
              f"smallest greedy gap {gap:.4f}")


if __name__ == "__main__":
    main()
