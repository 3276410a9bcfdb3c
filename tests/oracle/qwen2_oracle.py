#!/usr/bin/env python3
"""Makes the tiny Qwen2 directories of tests/fixtures and what transformers computes with them, in fp32.

Run by scripts/oracle.sh. tests/fixtures/README.md describes the files.
Everything follows from the seeds below; a second run gives the same bytes on the same versions.
"""
# python: tests/oracle/model_venv.sh
import json
import os

import torch
import transformers
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText
from transformers.core_model_loading import revert_weight_conversion

TOKENS, BATCH, ROWS, ADAMW_STEPS = 16, 2, 8, 50
ADAMW = {"lr": 0.002, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1, "max_grad_norm": 1.0}

COMMON = {
    "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "attention_dropout": 0.0, "bos_token_id": 1,
    "eos_token_id": 2, "hidden_act": "silu", "initializer_range": 0.02, "max_position_embeddings": 128,
    "max_window_layers": 2, "num_hidden_layers": 2, "num_attention_heads": 4, "use_cache": True,
    "use_sliding_window": False,
}
# Three ways a real config.json is written: Qwen2 before transformers 5, transformers 5, Qwen1.5.
MODELS = {
    "tiny-qwen2": COMMON | {
        "hidden_size": 32, "intermediate_size": 88, "num_key_value_heads": 2, "vocab_size": 256,
        "rms_norm_eps": 1e-6, "rope_theta": 1000000.0, "sliding_window": 128, "tie_word_embeddings": False,
        "torch_dtype": "float32", "transformers_version": "4.41.2"},
    "tiny-qwen2-tied": COMMON | {
        "hidden_size": 32, "intermediate_size": 88, "num_key_value_heads": 1, "vocab_size": 256,
        "rms_norm_eps": 1e-6, "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"},
        "layer_types": ["full_attention", "full_attention"], "sliding_window": None, "pad_token_id": None,
        "tie_word_embeddings": True, "dtype": "float32", "transformers_version": "5.23.0"},
    "tiny-qwen1.5": COMMON | {
        "hidden_size": 16, "intermediate_size": 44, "num_key_value_heads": 4, "vocab_size": 128,
        "rms_norm_eps": 1e-5, "rope_theta": 1000000.0, "sliding_window": 32768, "tie_word_embeddings": False,
        "max_window_layers": 21, "torch_dtype": "float32", "transformers_version": "4.37.0"},
}


def write_json(path, value):
    with open(path, "w", encoding="utf-8") as out:
        json.dump(value, out, indent=2 if path.endswith("config.json") else None)
        out.write("\n")


def weights(config, generator):
    """Random weights large enough that every bias, norm and head shows in the logits."""
    hidden, heads, inner = config["hidden_size"], config["num_attention_heads"], config["intermediate_size"]
    kv = hidden // heads * config["num_key_value_heads"]

    def normal(*shape, std, mean=0.0):
        return mean + std * torch.randn(*shape, generator=generator)

    tensors = {"model.embed_tokens.weight": normal(config["vocab_size"], hidden, std=0.4)}
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        for name, rows, columns, bias in (
                ("self_attn.q_proj", hidden, hidden, True), ("self_attn.k_proj", kv, hidden, True),
                ("self_attn.v_proj", kv, hidden, True), ("self_attn.o_proj", hidden, hidden, False),
                ("mlp.gate_proj", inner, hidden, False), ("mlp.up_proj", inner, hidden, False),
                ("mlp.down_proj", hidden, inner, False)):
            tensors[prefix + name + ".weight"] = normal(rows, columns, std=columns ** -0.5)
            if bias:
                tensors[prefix + name + ".bias"] = normal(rows, std=0.2)
        tensors[prefix + "input_layernorm.weight"] = normal(hidden, std=0.1, mean=1.0)
        tensors[prefix + "post_attention_layernorm.weight"] = normal(hidden, std=0.1, mean=1.0)
    tensors["model.norm.weight"] = normal(hidden, std=0.1, mean=1.0)
    if not config["tie_word_embeddings"]:
        tensors["lm_head.weight"] = normal(config["vocab_size"], hidden, std=hidden ** -0.5)
    return tensors


def load(directory):
    with open(os.path.join(directory, "config.json"), encoding="utf-8") as file:
        vision = "vision_config" in json.load(file)
    auto = AutoModelForImageTextToText if vision else AutoModelForCausalLM
    return auto.from_pretrained(directory, dtype=torch.float32, attn_implementation="eager").train()


def rounded(tensor):
    """fp32 values in the fewest digits that read back as the same fp32."""
    return [float(f"{value:.9g}") for value in tensor.detach().float().flatten().tolist()]


def statistics(tensor):
    flat = tensor.detach().double().flatten()
    every = max(1, flat.numel() // 8)
    return {"shape": list(tensor.shape), "l2": flat.norm().item(), "every": every, "sample": rounded(flat[::every][:8])}


def published(model, tensors):
    """Tensors by the model's own names → by those of published files, where a model has experts: it holds all experts'
    weights as one parameter, files have one tensor for each, but those of Qwen3.5, and of Qwen3-VL, turned."""
    if model.config.model_type == "qwen3_vl_moe":
        return {name: tensor.transpose(1, 2).contiguous() if ".experts." in name else tensor
                for name, tensor in tensors.items()}
    has_experts = any(".experts." in name for name in tensors) and not model.config.model_type.startswith("qwen3_5")
    return revert_weight_conversion(model, tensors) if has_experts else tensors


def loss_of(model, ids, labels):
    return model(input_ids=torch.tensor(ids), labels=torch.tensor(labels), use_cache=False).loss


def data(config, generator):
    """Rows a model can learn from (a repeated segment), with label prefixes of -100 and one row of few targets."""
    rows = []
    for row in range(ROWS):
        ids = torch.randint(3, config["vocab_size"], (TOKENS,), generator=generator).tolist()
        ids[9:14] = ids[3:8]
        masked = (0, 5, 3, 12)[row % 4]
        rows.append({"input_ids": ids, "labels": [-100] * masked + ids[masked:]})
    rows[1]["labels"][10] = -100
    return rows


def batch(rows, step):
    chosen = [rows[(step * BATCH + j) % len(rows)] for j in range(BATCH)]
    return [row["input_ids"] for row in chosen], [row["labels"] for row in chosen]


def adamw(directory, rows, lr):
    model = load(directory)
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, betas=tuple(ADAMW["betas"]), eps=ADAMW["eps"],
                                  weight_decay=ADAMW["weight_decay"], foreach=False)
    losses, norms = [], []
    for step in range(ADAMW_STEPS):
        optimizer.zero_grad()
        ids, labels = batch(rows, step)
        if getattr(model.config, "output_router_logits", False):
            # The auxiliary loss of two rows is not the mean of theirs: each row is a micro-batch.
            loss = sum(loss_of(model, [row], [wanted]) for row, wanted in zip(ids, labels)) / BATCH
        else:
            loss = loss_of(model, ids, labels)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), ADAMW["max_grad_norm"])
        optimizer.step()
        losses.append(loss.item())
        norms.append(norm.item())
    final = {name: statistics(value)
             for name, value in published(model, {n: p.detach() for n, p in model.named_parameters()}).items()}
    return ADAMW | {"lr": lr, "steps": ADAMW_STEPS, "loss": losses, "grad_norm": norms, "final_weights": final}


def greedy(directory, config, generator):
    model, out = load(directory).eval(), []
    for length in (1, 5, 9):
        prompt = torch.randint(3, config["vocab_size"], (length,), generator=generator).tolist()
        ids, gap = list(prompt), float("inf")
        with torch.no_grad():
            for _ in range(12):
                top = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0, -1].topk(2).values
                gap = min(gap, (top[0] - top[1]).item())
                ids.append(model(input_ids=torch.tensor([ids]), use_cache=False).logits[0, -1].argmax().item())
        out.append({"prompt": prompt, "continuation": ids[length:], "smallest_gap": gap})
    return out


def oracle(directory, config, generator, all_positions, rows=data, complete=greedy, lr=ADAMW["lr"]):
    rows = rows(config, generator)
    ids, labels = batch(rows, 0)
    model = load(directory)
    logits = model(input_ids=torch.tensor(ids), use_cache=False).logits
    positions = list(range(TOKENS)) if all_positions else [0, 7, TOKENS - 1]
    loss = loss_of(model, ids, labels)
    loss.backward()
    # A vision part has none: no row has a picture.
    written = {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}
    gradients = {name: statistics(gradient) for name, gradient in published(model, written).items()}
    norm = sum(parameter.grad.double().pow(2).sum() for parameter in model.parameters()
               if parameter.grad is not None).sqrt().item()
    return {
        "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
        "input_ids": ids, "labels": labels,
        "logits_positions": positions, "logits_shape": [BATCH, len(positions), config["vocab_size"]],
        "logits": rounded(logits[:, positions]),
        "loss": loss.item(), "grad_norm": norm, "gradients": gradients,
        "rows": rows, "adamw": adamw(directory, rows, lr), "greedy": complete(directory, config, generator),
    }


def main():
    root = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "fixtures")
    torch.set_num_threads(1)
    for number, (name, config) in enumerate(MODELS.items()):
        generator = torch.Generator().manual_seed(20 + number)
        directory = os.path.join(root, name)
        os.makedirs(directory, exist_ok=True)
        write_json(os.path.join(directory, "config.json"), config)
        write_json(os.path.join(directory, "generation_config.json"),
                   {"_from_model_config": True, "bos_token_id": 1, "eos_token_id": 2,
                    "transformers_version": config["transformers_version"]})
        save_file(weights(config, generator), os.path.join(directory, "model.safetensors"), metadata={"format": "pt"})
        os.chmod(os.path.join(directory, "model.safetensors"), 0o644)
        result = oracle(directory, config, generator, all_positions=number == 0)
        write_json(os.path.join(root, name + ".oracle.json"), result)
        gap = min(row["smallest_gap"] for row in result["greedy"])
        print(f"{name}: loss {result['loss']:.6f}, after {ADAMW_STEPS} AdamW steps {result['adamw']['loss'][-1]:.6f}, "
              f"smallest greedy gap {gap:.4f}")


if __name__ == "__main__":
    main()
