#!/usr/bin/env python3
"""LoRA as PEFT does it, in fp32: tests/fixtures/lora/. tests/fixtures/README.md describes the files.

Per case an adapter before and after some AdamW steps, as save_pretrained writes it, the losses on the way, the logits
with the trained adapter, and the weights that merge_and_unload makes. Run by `make oracle`, after family_oracle.py; with names it makes only
those.
"""
# python: tests/oracle/model_venv.sh
import json
import os
import shutil
import sys

import peft
import peft.optimizers
import torch
import transformers
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file

import family_oracle
import qwen2_oracle

FIXTURES = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "fixtures")
ROOT = os.path.join(FIXTURES, "lora")
ADAMW = {"lr": 0.01, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1, "max_grad_norm": 0.5}
CASES = {
    "plain": ("tiny-qwen2", 30, {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "v_proj", "down_proj"]}),
    "linear": ("tiny-qwen2-tied", 10, {"r": 2, "lora_alpha": 3, "use_rslora": True, "target_modules": "all-linear"}),
    "saved": ("tiny-qwen2", 10, {"r": 3, "lora_alpha": 6, "lora_dropout": 0.0, "modules_to_save": ["lm_head", "model.norm"],
                                 "target_modules": r".*layers\.1\..*(k_proj|up_proj)"}),
    "gpt2": ("lora/gpt2-base", 10, {"r": 2, "lora_alpha": 4, "target_modules": ["c_attn", "c_fc"]}),
    "groups": ("tiny-gpt-neox", 10, {"r": 2, "lora_alpha": 4, "target_modules": ["query_key_value", "dense_4h_to_h"]}),
    "vision": ("tiny-gemma3-vision", 10, {"r": 2, "lora_alpha": 4,
                                          "target_modules": r"(.*language_model\..*\.)?(q_proj|v_proj|down_proj)"}),
    # Some of its layers have no v_proj.
    "shapes": ("tiny-gemma4", 10, {"r": 2, "lora_alpha": 4, "target_modules": "all-linear"}),
    # Inputs of layers, and layers without keys and values of their own.
    "edge": ("tiny-gemma4-e2b", 3, {"r": 2, "lora_alpha": 4, "target_modules": "all-linear"}),
    "plus": ("tiny-qwen2", 12, {"r": 3, "lora_alpha": 6, "modules_to_save": ["model.norm", "lm_head"],
                                "target_modules": ["q_proj", "o_proj", "gate_proj"]}),
    "dora": ("tiny-qwen2", 16, {"r": 4, "lora_alpha": 8, "use_dora": True,
                                "target_modules": ["q_proj", "v_proj", "o_proj", "down_proj"]}),
    "patterns": ("tiny-qwen2-tied", 10, {"r": 3, "lora_alpha": 6, "target_modules": "all-linear",
                                         "rank_pattern": {"down_proj": 5, r"layers\.1\.self_attn\.q_proj": 2},
                                         "alpha_pattern": {"v_proj": 9}}),
    # One weight for embedding and output layer, trained whole.
    "tied": ("tiny-qwen2-tied", 10, {"r": 3, "lora_alpha": 6, "modules_to_save": ["embed_tokens", "lm_head"],
                                     "ensure_weight_tying": True, "target_modules": ["q_proj", "down_proj"]}),
    "layers": ("tiny-qwen2", 10, {"r": 2, "lora_alpha": 4, "use_rslora": True, "init_lora_weights": "gaussian",
                                  "layers_to_transform": [1], "target_modules": ["q_proj", "k_proj", "up_proj"]}),
    # Only merged: a run has no adapters on the embedding and lm_head.
    "embeddings": ("tiny-qwen2", 6, {"r": 2, "lora_alpha": 4, "target_modules": ["q_proj", "embed_tokens", "lm_head"]}),
    "continued": ("tiny-qwen2", 10, {"from": "plain/final"}),
    # Parameters that hold all experts, and routers.
    "experts": ("tiny-qwen3-moe", 20, {"r": 2, "lora_alpha": 4, "target_modules": ["q_proj", "v_proj"],
                                       "target_parameters": ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]}),
    "experts-router": ("tiny-mixtral", 12, {"r": 3, "lora_alpha": 6, "use_rslora": True, "target_modules": [],
                                            "target_parameters": ["experts.down_proj", "gate.weight"]}),
    "experts-turned": ("tiny-gpt-oss", 16, {"r": 2, "lora_alpha": 4, "target_modules": "all-linear",
                                            "rank_pattern": {"down_proj": 3}, "alpha_pattern": {"gate_up_proj": 5},
                                            "target_parameters": ["0.mlp.experts.gate_up_proj",
                                                                  "mlp.experts.down_proj", "router.weight"]}),
}
# Models whose experts' parameters PEFT names and shapes in lora/expert_names.json.
MIXTURES = ["tiny-qwen3-moe", "tiny-qwen2-moe", "tiny-mixtral", "tiny-minimax-m2", "tiny-olmoe", "tiny-granitemoe",
            "tiny-granite4-moe", "tiny-gpt-oss", "tiny-lfm2-moe", "tiny-hunyuan-moe", "tiny-gemma4-moe",
            "tiny-ernie4.5-moe", "tiny-deepseek-v2", "tiny-deepseek-v3", "tiny-glm4-moe", "tiny-qwen3-next",
            "tiny-qwen3.5-moe-text", "tiny-qwen3.5-moe", "tiny-qwen3-vl-moe", "tiny-flex-olmo"]
LORA_PLUS = {"plus": 6.0}


def make_gpt2_base(directory):
    config = transformers.GPT2Config(vocab_size=48, n_positions=32, n_embd=16, n_layer=1, n_head=2, resid_pdrop=0.0,
                                     embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0, eos_token_id=0)
    torch.manual_seed(7)
    model = transformers.GPT2LMHeadModel(config)
    for parameter in model.parameters():
        parameter.data.normal_(std=0.2)
    model.save_pretrained(directory)


def rows_of(base, vocabulary):
    """The rows of tiny-qwen2's oracle, folded into a smaller vocabulary."""
    with open(os.path.join(FIXTURES, "tiny-qwen2.oracle.json"), encoding="utf-8") as file:
        rows = json.load(file)["rows"]
    return [{"input_ids": [i % vocabulary for i in row["input_ids"]],
             "labels": [i if i < 0 else i % vocabulary for i in row["labels"]]} for row in rows]


def save(model, directory):
    """save_pretrained, in a stable form: sorted target modules, a base path that is no one's."""
    model.save_pretrained(directory)
    path = os.path.join(directory, "adapter_config.json")
    with open(path, encoding="utf-8") as file:
        config = json.load(file)
    config["base_model_name_or_path"] = "BASE"
    if isinstance(config["target_modules"], list):
        config["target_modules"].sort()
    if config.get("target_parameters"):
        config["target_parameters"].sort()
    with open(path, "w", encoding="utf-8") as file:
        json.dump(config, file, indent=2, sort_keys=True)
        file.write("\n")
    readme = os.path.join(directory, "README.md")
    if os.path.exists(readme):
        os.remove(readme)
    os.chmod(os.path.join(directory, "adapter_model.safetensors"), 0o644)


def loss_of(model, rows, step):
    """Mean over two rows of each row's mean: two ranks with one row each, or two micro-steps."""
    chosen = [rows[(2 * step + j) % len(rows)] for j in range(2)]
    return sum(model(input_ids=torch.tensor([row["input_ids"]]), labels=torch.tensor([row["labels"]])).loss
               for row in chosen) / 2


def load(base):
    return qwen2_oracle.load(os.path.join(FIXTURES, base))


def train(model, rows, steps, adamw, lora_plus=None):
    """Losses, gradient norms and the number of trained elements of `steps` AdamW steps on what requires a gradient."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    settings = {"lr": adamw["lr"], "betas": tuple(adamw["betas"]), "eps": adamw["eps"], "foreach": False}
    if lora_plus:
        optimizer = peft.optimizers.create_loraplus_optimizer(
            model, torch.optim.AdamW, loraplus_lr_ratio=lora_plus, loraplus_weight_decay=adamw["weight_decay"],
            **settings)
    else:
        optimizer = torch.optim.AdamW(trained, weight_decay=adamw["weight_decay"], **settings)
    losses, norms = [], []
    for step in range(steps):
        optimizer.zero_grad()
        loss = loss_of(model, rows, step)
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(trained, adamw["max_grad_norm"]).item())
        optimizer.step()
        losses.append(loss.item())
    return losses, norms, sum(parameter.numel() for parameter in trained)


def run(name, base, steps, settings):
    directory = os.path.join(ROOT, name)
    shutil.rmtree(directory, ignore_errors=True)
    model = load(base)
    torch.manual_seed(11)
    if "from" in settings:
        model = peft.PeftModel.from_pretrained(model, os.path.join(ROOT, settings["from"]), is_trainable=True).train()
    else:
        model = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", **settings)).train()
    save(model, os.path.join(directory, "initial"))
    rows = rows_of(base, model.config.get_text_config().vocab_size)
    losses, norms, trained = train(model, rows, steps, ADAMW, LORA_PLUS.get(name))
    save(model, os.path.join(directory, "final"))
    model.eval()
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([rows[0]["input_ids"]])).logits[0, -1]
    before = {key: value.clone() for key, value in load(base).state_dict().items()}
    merged = model.merge_and_unload()
    config = {"model_type": merged.config.model_type}
    changed = {key: value.contiguous().clone() for key, value in merged.state_dict().items()
               if not torch.equal(before[key], value)}
    if merged.config.get_text_config().tie_word_embeddings:
        changed.pop("lm_head.weight", None)  # files have it once
    changed = qwen2_oracle.published(merged, family_oracle.released(config, changed))
    save_file(changed, os.path.join(directory, "merged.safetensors"), metadata={"format": "pt"})
    os.chmod(os.path.join(directory, "merged.safetensors"), 0o644)
    with open(os.path.join(directory, "run.json"), "w", encoding="utf-8") as file:
        json.dump({"versions": {"peft": peft.__version__, "torch": torch.__version__,
                                "transformers": transformers.__version__},
                   "base": base, "settings": settings, "rows": rows, "adamw": ADAMW, "loss": losses, "grad_norm": norms,
                   "trainable": trained, **({"loraplus_lr_ratio": LORA_PLUS[name]} if name in LORA_PLUS else {}),
                   "logits": [float(f"{value:.9g}") for value in logits.tolist()]}, file)
        file.write("\n")
    print(f"{name}: loss {losses[0]:.6f} to {losses[-1]:.6f}, {len(changed)} merged tensors")
    print(sorted(load_file(os.path.join(directory, "final", "adapter_model.safetensors")))[:3])


def expert_names():
    """Each model's adapters on the experts' parameters and on the router: PEFT's names and shapes."""
    named = {}
    for base in MIXTURES:
        model = load(base)
        targets = ["experts.gate_up_proj", "experts.down_proj", "gate.weight", "router.weight", "wg.weight",
                   "router.proj.weight"]
        model = get_peft_model(model, LoraConfig(r=2, target_modules=[], target_parameters=targets))
        tensors = peft.get_peft_model_state_dict(model)
        named[base] = {name: list(tensor.shape) for name, tensor in sorted(tensors.items())}
    with open(os.path.join(ROOT, "expert_names.json"), "w", encoding="utf-8") as file:
        json.dump(named, file, indent=1)
        file.write("\n")


def main():
    torch.set_num_threads(1)
    if not sys.argv[1:]:
        make_gpt2_base(os.path.join(ROOT, "gpt2-base"))
    for name, (base, steps, settings) in CASES.items():
        if not sys.argv[1:] or name in sys.argv[1:]:
            run(name, base, steps, settings)
    if not sys.argv[1:] or "expert_names" in sys.argv[1:]:
        expert_names()


if __name__ == "__main__":
    main()
