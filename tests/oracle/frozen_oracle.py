#!/usr/bin/env python3
"""Makes tests/fixtures/ds-frozen: checkpoints of Python DeepSpeed 0.19.8 in which some parameters are frozen.

model/: a Qwen2 of 6,000 parameters. z2/, z3/: what save_checkpoint wrote after three steps of two ranks at that stage,
without the scripts that DeepSpeed copies beside. record.json: `ds_config` by stage, `rows`, `frozen` (names),
`losses` by stage, of six steps: three before the checkpoint and three after it, in the same process.
Sample of step s, rank r, row j: ((s * 2 + r) * 2 + j) mod rows.
"""
# python: tests/oracle/deepspeed_venv.sh
import json
import os
import shutil
import socket
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
OUT = os.path.join(os.path.dirname(HERE), "fixtures", "ds-frozen")
STAGES, WORLD, MICRO, STEPS, SAVED = (2, 3), 2, 2, 6, 3
FROZEN = ("model.embed_tokens", "model.layers.0.mlp")


def ds_config(stage):
    return {"train_micro_batch_size_per_gpu": MICRO, "gradient_accumulation_steps": 1, "gradient_clipping": 1.0,
            "zero_optimization": {"stage": stage, **({"stage3_param_persistence_threshold": 0} if stage == 3 else {})},
            "optimizer": {"type": "AdamW", "params": {"lr": 2e-3, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1,
                                                      "torch_adam": True}},
            "scheduler": {"type": "WarmupLR", "params": {"warmup_min_lr": 5e-4, "warmup_max_lr": 2e-3, "warmup_num_steps": 8,
                                                         "warmup_type": "linear"}}}


def make_model():
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM
    torch.manual_seed(5)
    shape = Qwen2Config(vocab_size=64, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2,
                        num_key_value_heads=1, max_position_embeddings=32, tie_word_embeddings=False, initializer_range=0.3)
    Qwen2ForCausalLM(shape).save_pretrained(os.path.join(OUT, "model"))
    draw = torch.Generator().manual_seed(6)
    rows = torch.randint(0, 64, (24, 12), generator=draw).tolist()
    return [{"input_ids": row, "labels": [-100] * 3 + row[3:]} for row in rows]


def train(stage, rows):
    """The losses of six steps; a checkpoint lies between."""
    import torch
    import torch.distributed as dist
    import deepspeed
    from transformers import AutoModelForCausalLM
    model = AutoModelForCausalLM.from_pretrained(os.path.join(OUT, "model"), dtype=torch.float32, attn_implementation="eager")
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(not name.startswith(FROZEN))
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=trained, config=ds_config(stage))
    losses = []
    for step in range(STEPS):
        if step == SAVED:
            engine.save_checkpoint(os.path.join(OUT, f"z{stage}"))
        first = (step * WORLD + dist.get_rank()) * MICRO
        batch = [rows[(first + j) % len(rows)] for j in range(MICRO)]
        ids, labels = (torch.tensor([row[key] for row in batch]) for key in ("input_ids", "labels"))
        logits = engine(input_ids=ids, use_cache=False).logits.float()
        loss = torch.nn.functional.cross_entropy(logits[:, :-1].reshape(-1, logits.size(-1)), labels[:, 1:].reshape(-1),
                                                 ignore_index=-100)
        mean = torch.tensor([loss.item() / WORLD], dtype=torch.float64)
        dist.all_reduce(mean)
        losses.append(mean.item())
        engine.backward(loss)
        engine.step()
    return losses


def worker():
    """One rank; rank 0 prints the losses."""
    import torch
    import deepspeed
    sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None  # plain Gloo: no compiler at run time
    torch.set_num_threads(1)
    deepspeed.init_distributed(dist_backend="gloo")
    with open(os.path.join(OUT, "record.json"), encoding="utf-8") as file:
        rows = json.load(file)["rows"]
    losses = {stage: train(stage, rows) for stage in STAGES}
    if os.environ["RANK"] == "0":
        print("losses " + json.dumps(losses), flush=True)


def run():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ranks = []
    for rank in range(WORLD):
        environment = dict(os.environ, RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(WORLD), OMP_NUM_THREADS="1",
                           MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), DS_ACCELERATOR="cpu")
        ranks.append(subprocess.Popen([sys.executable, __file__, "--worker"], env=environment, stdout=subprocess.PIPE,
                                      stderr=subprocess.STDOUT, text=True))
    outputs = [rank.communicate(timeout=1800)[0] for rank in ranks]
    lines = [line for line in outputs[0].splitlines() if line.startswith("losses ")]
    if any(rank.returncode for rank in ranks) or not lines:
        raise RuntimeError("DeepSpeed failed:\n" + outputs[0][-4000:])
    for stage in STAGES:
        for script in ("zero_to_fp32.py", "zero_to_torch.py"):
            if os.path.exists(os.path.join(OUT, f"z{stage}", script)):
                os.unlink(os.path.join(OUT, f"z{stage}", script))
    return json.loads(lines[0][len("losses "):])


def write(record):
    with open(os.path.join(OUT, "record.json"), "w", encoding="utf-8") as out:
        json.dump(record, out, separators=(",", ":"))
        out.write("\n")


def main():
    shutil.rmtree(OUT, ignore_errors=True)
    os.makedirs(OUT)
    record = {"deepspeed": "0.19.8", "frozen": list(FROZEN), "ds_config": {stage: ds_config(stage) for stage in STAGES},
              "rows": make_model()}
    write(record)
    write({**record, "losses": run()})


if __name__ == "__main__":
    worker() if "--worker" in sys.argv else main()
