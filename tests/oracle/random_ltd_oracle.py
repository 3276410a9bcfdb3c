#!/usr/bin/env python3
"""Makes tests/fixtures/random_ltd.oracle.json: random-LTD with transformers' own layers and plain torch, in fp32.

`runs`: per run `model`, `world`, `micro`, `accum`, `ds_config`, and per step `loss` and `kept` (tokens of a row). The
model is the fixture tiny-qwen2 with its rows; every step takes all eight. A layer that drops tokens gets those that the
engine draws for it (engine/models/unit/kept_tokens.h: a function of seed, step, layer and row), at the positions that they
have in their rows, and causal among themselves; the others pass around it. AdamW, seed 0.
"""
# python: tests/oracle/model_venv.sh
import json
import os

HERE = os.path.dirname(os.path.abspath(__file__))
FIXTURES = os.path.join(os.path.dirname(HERE), "fixtures")
MODEL, STEPS, WORLD, MICRO, ACCUM = "tiny-qwen2", 12, 2, 2, 2
PARAMS = {"lr": 2e-3, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1}
LEAST, MOST, REQUIRED, ROUND = 4, 16, 10, 2
MASK = (1 << 64) - 1


def ds_config(layers):
    schedule = {"min_value": LEAST, "max_value": MOST, "schedule_type": "fixed_linear",
                "schedule_config": {"require_steps": REQUIRED, "seq_per_step": ROUND}}
    ltd = {"enabled": True, "total_layer_num": 2, "random_ltd_layer_num": len(layers), "random_ltd_layer_id": layers,
           "model_type": "decoder", "hidden_state_order": "batch_seq_dim", "random_ltd_schedule": schedule}
    return {"train_micro_batch_size_per_gpu": MICRO, "gradient_accumulation_steps": ACCUM, "gradient_clipping": 1.0,
            "data_efficiency": {"enabled": True, "data_routing": {"enabled": True, "random_ltd": ltd}},
            "optimizer": {"type": "AdamW", "params": {**PARAMS, "torch_adam": True}}}


def mixed(key, part):
    """splitmix64's finaliser over the sum."""
    z = (key + 0x9E3779B97F4A7C15 * (part + 1)) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def draw(length, kept, key):
    """`kept` of 0 .. length - 1, rising: selection sampling."""
    drawn = []
    for token in range(length):
        if ((length - token) * mixed(key, token)) >> 64 < kept - len(drawn):
            drawn.append(token)
    return drawn


def kept_at(step):
    return min(MOST, int(LEAST + step / REQUIRED * (MOST - LEAST)) // ROUND * ROUND)


class Dropping:
    """A decoder layer that sees the tokens in `kept` [rows, k]; None: all."""

    def __init__(self, layer):
        self.forward, self.kept = layer.forward, None
        layer.forward = self.run

    def run(self, hidden_states, **more):
        import torch
        if self.kept is None:
            return self.forward(hidden_states, **more)
        rows, count = self.kept.shape

        def picked(tensor):
            wide = tensor.expand(rows, *tensor.shape[1:])
            return wide.gather(1, self.kept.unsqueeze(-1).expand(-1, -1, tensor.size(-1)))
        causal = torch.full((count, count), torch.finfo(hidden_states.dtype).min).triu(1).expand(rows, 1, count, count)
        more.update(attention_mask=causal, position_ids=self.kept,
                    position_embeddings=tuple(picked(table) for table in more["position_embeddings"]))
        out = self.forward(picked(hidden_states), **more)
        if isinstance(out, tuple):
            out = out[0]
        return hidden_states.scatter(1, self.kept.unsqueeze(-1).expand_as(out), out)


def run(layers, rows):
    import torch
    from transformers import AutoModelForCausalLM
    torch.set_num_threads(1)
    model = AutoModelForCausalLM.from_pretrained(os.path.join(FIXTURES, MODEL), dtype=torch.float32,
                                                 attn_implementation="eager")
    dropping = {layer: Dropping(model.model.layers[layer]) for layer in layers}
    optimizer, steps, parts = torch.optim.AdamW(model.parameters(), **PARAMS), [], WORLD * ACCUM
    for step in range(STEPS):
        total = 0.0
        for part in range(parts):
            batch = [rows[(part * MICRO + row) % len(rows)] for row in range(MICRO)]
            ids, labels = (torch.tensor([row[key] for row in batch]) for key in ("input_ids", "labels"))
            for layer, one in dropping.items():
                key = mixed(mixed(mixed(0, step), layer), part * MICRO)
                length = ids.size(1)
                draws = [draw(length, kept_at(step), mixed(key, row)) for row in range(MICRO)]
                one.kept = torch.tensor(draws) if kept_at(step) < length else None
            logits = model(input_ids=ids, use_cache=False).logits
            loss = torch.nn.functional.cross_entropy(logits[:, :-1].reshape(-1, logits.size(-1)),
                                                     labels[:, 1:].reshape(-1), ignore_index=-100)
            (loss / parts).backward()
            total += loss.item() / parts
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        steps.append({"loss": total, "kept": kept_at(step)})
    return {"model": MODEL, "world": WORLD, "micro": MICRO, "accum": ACCUM, "ds_config": ds_config(layers),
            "steps": steps}


def main():
    with open(os.path.join(FIXTURES, MODEL + ".oracle.json"), encoding="utf-8") as file:
        rows = json.load(file)["rows"]
    runs = {"both": run([0, 1], rows), "second": run([1], rows)}
    with open(os.path.join(FIXTURES, "random_ltd.oracle.json"), "w", encoding="utf-8") as out:
        json.dump({"runs": runs}, out, separators=(",", ":"))
        out.write("\n")


if __name__ == "__main__":
    main()
