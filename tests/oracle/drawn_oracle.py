#!/usr/bin/env python3
"""Draws models and records transformers' loss and gradient norm of them, in fp32: drawn_models.oracle.json.

Each begins with a fixture of family_oracle.py and changes some fields of its config.json to other values, to null, or
leaves them out; old and new spellings of the rope. Rows are longer than windows and than the pretraining length. What
transformers refuses is drawn again. Weights and tokens follow from their names and a hash that the test has, too, so
that the file has only shapes. tests/engine/train/drawn_models_test.cc reads it.

drawn_oracle.py [SEED COUNT FILE] writes COUNT models for each type into FILE, for a search beyond the fixture:
DSJ_DRAWN_MODELS=FILE build/bin/train_tests --gtest_filter='*DrawnModels*'
"""
# python: tests/oracle/model_venv.sh
import copy
import json
import os
import random
import sys
import tempfile

import numpy
import torch
import transformers
from safetensors import safe_open
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText

from family_oracle import CORRECTION, MODELS, PLUS_ONE, XIELU
from qwen2_oracle import MODELS as QWEN2
from qwen2_oracle import load, write_json

FLAGS = (
    "attention_bias attention_out_bias attention_k_eq_v bias enable_bias layer_norm_elementwise_affine mlp_bias "
    "multi_query norm_topk_prob output_router_logits parallel_attn qkv_bias rope_interleave scale_attn_by_inverse_layer_idx "
    "scale_attn_weights tie_word_embeddings use_bias use_parallel_residual use_post_norm use_qkv_bias use_sliding_window "
    "block_auto_adjust_ff_dim use_expert_bias mamba_conv_bias").split()
EPS = [1e-6, 1e-5, 1e-2, 0.1]
ACTIVATIONS = ["gelu", "gelu_new", "gelu_pytorch_tanh", "gelu_fast", "relu", "silu", "swish", "relu2"]
# Values of fields that a base has. A base's own value stays in most draws.
FIELDS = {
    "hidden_size": [32, 64], "num_attention_heads": [2, 4, 8], "num_hidden_layers": [1, 2, 3, 5],
    "vocab_size": [99, 128, 200], "max_position_embeddings": [16, 32, 64, 128],
    "hidden_act": ACTIVATIONS, "hidden_activation": ACTIVATIONS, "activation_function": ACTIVATIONS,
    "activation": ACTIVATIONS,
    "rms_norm_eps": EPS, "layer_norm_eps": EPS, "layer_norm_epsilon": EPS, "norm_eps": EPS, "norm_epsilon": EPS,
    "rope_theta": [10000, 1e6, 500.0], "rotary_emb_base": [10000, 500.0], "rotary_pct": [0.25, 0.5, 1.0],
    "partial_rotary_factor": [0.25, 0.5, 1.0], "rotary_dim": [2, 4, 8], "rope_local_base_freq": [10000.0, 500.0],
    "sliding_window": [1, 3, 6, 16, None], "max_window_layers": [0, 1, 28], "sliding_window_pattern": [1, 2, 3],
    "no_rope_layer_interval": [1, 2, 3], "window_size": [3, 64], "full_attention_interval": [2, 4],
    "query_pre_attn_scalar": [7, 24, 256], "final_logit_softcapping": [4.0, None], "attn_logit_softcapping": [3.0, None],
    "attention_multiplier": [0.2, 1.0], "embedding_multiplier": [3.0, 12.0], "logits_scaling": [2.5, 0.4],
    "residual_multiplier": [0.4, 1.0], "logit_scale": [0.25, 1.0],
    "scale_emb": [3, 12], "scale_depth": [0.8, None], "dim_model_base": [16, None],
    "num_experts_per_tok": [1, 2, 3], "moe_k": [1, 3], "routed_scaling_factor": [0.5, 2.5],
    "first_k_dense_replace": [0, 1, 2], "n_shared_experts": [1, 2], "num_shared_experts": [1, 2],
    "shared_expert_intermediate_size": [16, 8], "shared_intermediate_size": [16, 24], "moe_intermediate_size": [16, 24],
    "decoder_sparse_step": [1, 2], "mlp_only_layers": [[], [0], [0, 1]], "router_aux_loss_coef": [0.01, 0.2],
    "moe_num_shared_experts": [0, 1, 2], "moe_layer_start_index": [0, 1], "moe_layer_end_index": [-1, 1],
    "moe_layer_interval": [1, 2], "moe_norm_min": [1e-12, 0.3], "swiglu_limit": [0.5, 7.0], "n_group": [1, 2, 4],
    "topk_group": [1, 2], "linear_num_key_heads": [1, 2], "linear_conv_kernel_dim": [2, 4],
    "kv_lora_rank": [16, 8],
    "q_lora_rank": [12, None], "n_inner": [None, 48], "ffn_dim": [48, 40], "num_kv_heads": [1, 2, 4],
    "mamba_n_groups": [1, 2], "mamba_d_state": [8, 16], "mamba_d_conv": [2, 4], "mamba_expand": [1, 2],
    "conv_L_cache": [1, 2, 3, 5], "full_attn_idxs": [[0], [1, 2], None], "block_multiple_of": [8, 16],
    "block_ffn_dim_multiplier": [1.0, 1.3, None], "num_dense_layers": [0, 1, 2],
    "attention_types": [[[["global"], 2]], [[["local"], 1], [["global"], 1]]],
}
# Fields that every type may have, whether its class reads them or not.
ANYWHERE = {"pad_token_id": [None, 0, 5], "torch_dtype": ["bfloat16"], "original_max_position_embeddings": [8, 16],
            "sliding_window": [3, 6, None]}
LEARNED_POSITIONS = ("gpt2", "gpt_bigcode", "gpt_neo", "opt", "gptj")
# transformers zeroes the padding token's row of these after it has read it.
NO_PADDING = ("youtu",)
# transformers 5 saves their experts turned, which the engine refuses.
NOT_DRAWN = ("qwen3_vl_moe",)
# transformers gives layers with a window another base; biases of these experts are not built.
NOT_THERE = (("olmo3", "rope_theta"), ("ernie4_5_moe", "use_bias"))
# Most of their classes ignore layer_types.
ONE_WINDOW = ("mistral", "ministral3", "mixtral", "phi3", "starcoder2", "qwen3_moe")
# transformers ignores head_dim.
NO_HEAD_DIM = ("opt", "gpt_neo", "gpt_neox", "falcon")
# Without these a model is none.
ALWAYS = ("vocab_size", "hidden_size", "num_attention_heads", "num_hidden_layers", "ffn_dim", "linear_num_key_heads")
# It ignores an object for all layers, or its type, where older versions read it.
ROPE_BY_TYPE = ("olmo3", "gemma3_text", "gemma4_text", "gemma4_unified_text", "mellum")
# Their rope objects have more fields than those that are drawn.
OWN_ROPE = ("ministral3", "hunyuan_v1_dense", "hunyuan_v1_moe")


# Tensors that no row of text passes.
VISION = ("vision", "visual", "multi_modal", "connector", "embed_audio", "image_newline")


def draw(name, count):
    """splitmix64 of 0, 1, ... after FNV-1a of the name."""
    z = 0xCBF29CE484222325
    for c in name.encode():
        z = (z ^ c) * 0x100000001B3 % 2**64
    with numpy.errstate(over="ignore"):
        z = numpy.uint64(z) + numpy.arange(1, count + 1, dtype=numpy.uint64) * numpy.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> numpy.uint64(30))) * numpy.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> numpy.uint64(27))) * numpy.uint64(0x94D049BB133111EB)
    return z ^ (z >> numpy.uint64(31))


def values(name, shape, mean, scale):
    unit = (draw(name, int(numpy.prod(shape))) >> numpy.uint64(40)).astype(numpy.float64) / 2**23 - 1
    return torch.from_numpy((mean + scale * unit).astype(numpy.float32).reshape(shape))


def mean_and_scale(name, shape, model_type):
    """Large enough that every bias, norm and head shows in the loss."""
    if name.endswith(tuple(XIELU)):
        return XIELU[name[name.rindex(".act_fn"):]], 0.0
    if name.endswith((".layer_scalar", ".router.scale", ".per_expert_scale")):
        return 0.8, 0.2
    if name.endswith((*CORRECTION, "bias")):
        return 0.0, 0.35
    if name.endswith(".A_log") or ".act_fn." in name or "sinks" in name:
        return 0.0, 1.2
    if name.endswith((".conv1d.weight", ".conv.conv.weight")):
        return 0.0, 0.9
    if "norm" in name or ".ln_" in name:
        return (0.0 if model_type in PLUS_ONE and ".linear_attn." not in name else 1.0), 0.2
    if any(part in name for part in ("embed_", ".wte.", ".wpe.", "word_embeddings")):
        return 0.0, 0.7
    return 0.0, round(1.7 * min(shape[-2:]) ** -0.5, 4) if len(shape) > 1 else 0.5


def rope(r, text):
    kind = r.choice(["default", "linear", "dynamic", "yarn", "llama3", "longrope"])
    given = {"linear": {"factor": 2.5}, "dynamic": {"factor": 2.0},
             "yarn": {"factor": r.choice([4.0, 40])},
             "llama3": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": r.choice([4.0, 2.0])}}.get(kind, {})
    if kind == "yarn":
        for key, some in {"beta_fast": [16, 32], "beta_slow": [1, 2.0], "mscale": [1.0, 0.707], "mscale_all_dim": [1.0, 0.5],
                          "attention_factor": [1.2, None], "truncate": [False], "finetuned": [True]}.items():
            if r.random() < 0.3:
                given[key] = r.choice(some)
    if kind == "longrope":
        head = text.get("qk_rope_head_dim") or text.get("head_dim") or text["hidden_size"] // text["num_attention_heads"]
        pairs = int(head * text.get("partial_rotary_factor", 1)) // 2
        given = {"short_factor": [1 + 0.1 * i for i in range(pairs)], "long_factor": [1.5**i for i in range(pairs)]}
    if kind not in ("default", "linear", "dynamic"):
        given["original_max_position_embeddings"] = r.choice([8, 16])
    return given | {r.choice(["type", "rope_type"]): kind}


def drawn(r, base):
    config = copy.deepcopy(base)
    text = config.get("text_config", config)
    kind = text.get("model_type", config["model_type"])
    for key in [*FLAGS, *FIELDS]:
        if key not in text or r.random() < 0.75 or (kind, key) in NOT_THERE:
            continue
        if key == "hidden_act" and "linear_key_head_dim" in text:  # only silu is built beside the delta rule
            continue
        text[key] = copy.deepcopy(r.choice(FIELDS.get(key, [True, False])))
        if r.random() < 0.2 and key not in ALWAYS:
            del text[key]
    for key, some in ANYWHERE.items():
        if r.random() < 0.12 and not (key == "pad_token_id" and kind in NO_PADDING):
            text[key] = r.choice(some)
    heads = text.get("num_attention_heads", 4)
    if "num_key_value_heads" in text and "kv_lora_rank" not in text and r.random() < 0.5:
        text["num_key_value_heads"] = r.choice([count for count in (1, 2, 4, 8) if heads % count == 0] + [None])
    if "hidden_size" in text and "kv_lora_rank" not in text and kind not in NO_HEAD_DIM and r.random() < 0.3:
        text["head_dim"] = r.choice([8, 16, None])
    for key in ("layer_types", "mlp_layer_types"):
        layers = text.get("num_hidden_layers", 2)
        if key in text and (len(text[key]) != layers or r.random() < 0.3):
            text[key] = [r.choice(sorted(set(text[key]))) for _ in range(layers)]
            if r.random() < 0.3:
                del text[key]
    if kind in ONE_WINDOW and r.random() < 0.3:
        text["layer_types"] = [r.choice(["full_attention", "sliding_attention"]) for _ in range(layers)]
    rotates = "rope_theta" in base.get("text_config", base) or "rope_scaling" in text
    if rotates and "mrope_section" not in str(text) and kind not in (*ROPE_BY_TYPE, *OWN_ROPE) and r.random() < 0.5:
        for key in ("rope_scaling", "rope_parameters"):
            text.pop(key, None)
        key = r.choice(["rope_scaling", "rope_parameters", None])
        if key:
            text[key] = rope(r, text)
        if key == "rope_parameters" and r.random() < 0.7:
            text[key]["rope_theta"] = text.pop("rope_theta", 500.0)
    if "text_config" in config:  # ties are the whole model's
        text.pop("tie_word_embeddings", None)
        config["tie_word_embeddings"] = r.random() < 0.5
    for key in ("attention_dropout", "dropout", "embd_pdrop", "attn_pdrop", "resid_pdrop", "residual_dropout", "hidden_dropout",
                "embed_dropout", "resid_dropout", "embedding_dropout"):
        if key in base.get("text_config", base):
            text[key] = 0.0
    return config


def record(r, config, directory):
    """Writes the model; its record. Throws what transformers throws."""
    write_json(os.path.join(directory, "config.json"), config)
    auto = AutoModelForImageTextToText if "vision_config" in config else AutoModelForCausalLM
    model = auto.from_config(AutoConfig.from_pretrained(directory), dtype=torch.float32)
    model.save_pretrained(directory)
    write_json(os.path.join(directory, "config.json"), config)
    path = os.path.join(directory, "model.safetensors")
    with safe_open(path, "pt") as file:
        shapes = {name: list(file.get_slice(name).get_shape()) for name in file.keys()}
    tensors = [[name, shape, *mean_and_scale(name, shape, model.config.model_type)] for name, shape in shapes.items()]
    save_file({tensor[0]: values(*tensor) for tensor in tensors}, path, metadata={"format": "pt"})
    model = load(directory)
    text = model.config.get_text_config()
    most = text.max_position_embeddings if text.model_type in LEARNED_POSITIONS else 1000
    rows = [min(most, length) for length in (r.choice([5, 12]), r.choice([24, 40]))]
    losses, norms = [], []
    for length in rows:  # the shorter first: a dynamic rope never shrinks
        ids = torch.tensor((draw("row", length) % numpy.uint64(text.vocab_size)).astype(numpy.int64))[None]
        model.zero_grad()
        loss = model(input_ids=ids, labels=ids, use_cache=False).loss
        loss.backward()
        losses.append(loss.item())
        norms.append(sum(p.grad.double().pow(2).sum() for p in model.parameters() if p.grad is not None).sqrt().item())
    if not numpy.isfinite(losses + norms).all():
        raise ValueError("not finite")
    tensors = [tensor for tensor in tensors if not any(part in tensor[0] for part in VISION)]
    return tensors, {"config": config, "rows": rows, "loss": losses, "grad_norm": norms}


def main(seed, count, path):
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    bases = {}
    for config in [*MODELS.values(), *QWEN2.values()]:
        if "quantization_config" not in config and config["model_type"] not in NOT_DRAWN:
            mamba = " with mamba" if "mamba" in config.get("layer_types", []) else ""
            bases.setdefault(config["model_type"] + mamba, []).append(config)
    layouts, models = [], []
    for model_type in sorted(bases):
        r, taken = random.Random(f"{seed} {model_type}"), 0
        for _ in range(20 * count):
            if taken == count:
                break
            config = drawn(r, r.choice(bases[model_type]))
            with tempfile.TemporaryDirectory() as directory:
                try:
                    tensors, model = record(r, config, directory)
                except Exception as error:  # of any class: what is drawn need not be a model
                    print(f"{model_type}: {type(error).__name__}: {str(error)[:100]}", file=sys.stderr)
                    continue
            if tensors not in layouts:
                layouts.append(tensors)
            models.append(model | {"tensors": layouts.index(tensors)})
            taken += 1
    write_json(path, {"versions": {"torch": torch.__version__, "transformers": transformers.__version__},
                      "tensors": layouts, "models": models})


if __name__ == "__main__":
    fixtures = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "fixtures")
    main(*(sys.argv[1:2] or [7]), int((sys.argv[2:3] or [2])[0]),
         (sys.argv[3:4] or [os.path.join(fixtures, "drawn_models.oracle.json")])[0])
