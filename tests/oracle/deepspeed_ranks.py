"""Ranks of a small run of Python DeepSpeed on this machine: what the oracles that save its checkpoints share. Each rank is the
oracle's own script, started with --worker; rank 0 prints what it found as one line that result() made."""
import json
import os
import socket
import subprocess
import sys

MARK = "result "


def make_model(folder, vocabulary, hidden, inner):
    """A Qwen2 in `folder`. Rows for it, without a loss on the first three tokens."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM
    torch.manual_seed(5)
    shape = Qwen2Config(vocab_size=vocabulary, hidden_size=hidden, intermediate_size=inner, num_hidden_layers=2,
                        num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=32, tie_word_embeddings=False,
                        initializer_range=0.3)
    Qwen2ForCausalLM(shape).save_pretrained(folder)
    draw = torch.Generator().manual_seed(6)
    rows = torch.randint(0, vocabulary, (24, 12), generator=draw).tolist()
    return [{"input_ids": row, "labels": [-100] * 3 + row[3:]} for row in rows]


def begin():
    """In a rank, before anything of DeepSpeed's."""
    import torch
    import deepspeed
    sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None  # plain Gloo: no compiler at run time
    torch.set_num_threads(1)
    deepspeed.init_distributed(dist_backend="gloo")


def result(value):
    """The rank's last word."""
    if os.environ["RANK"] == "0":
        print(MARK + json.dumps(value), flush=True)


def backward(engine, rows, step, factor=1.0):
    """Sample of step s, rank r, row j: ((s * world + r) * micro + j) mod rows. The loss, of all ranks; DeepSpeed's backward
    gets `factor` times it."""
    import torch
    import torch.distributed as dist
    micro, world = engine.train_micro_batch_size_per_gpu(), dist.get_world_size()
    first = (step * world + dist.get_rank()) * micro
    batch = [rows[(first + j) % len(rows)] for j in range(micro)]
    ids, labels = (torch.tensor([row[key] for row in batch]) for key in ("input_ids", "labels"))
    logits = engine(input_ids=ids, use_cache=False).logits.float()
    loss = torch.nn.functional.cross_entropy(logits[:, :-1].reshape(-1, logits.size(-1)), labels[:, 1:].reshape(-1),
                                             ignore_index=-100)
    mean = torch.tensor([loss.item() / world], dtype=torch.float64)
    dist.all_reduce(mean)
    engine.backward(loss * factor)
    return mean.item()


def run(script, world, *words):
    """What rank 0 of `script --worker WORDS` gives to result()."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ranks = []
    for rank in range(world):
        environment = dict(os.environ, RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world), OMP_NUM_THREADS="1",
                           MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), DS_ACCELERATOR="cpu")
        ranks.append(subprocess.Popen([sys.executable, script, "--worker", *words], env=environment, stdout=subprocess.PIPE,
                                      stderr=subprocess.STDOUT, text=True))
    outputs = [rank.communicate(timeout=1800)[0] for rank in ranks]
    lines = [line for line in outputs[0].splitlines() if line.startswith(MARK)]
    if any(rank.returncode for rank in ranks) or not lines:
        raise RuntimeError("DeepSpeed failed:\n" + outputs[0][-4000:])
    return json.loads(lines[0][len(MARK):])


def remove_scripts(folder):
    """Those that save_checkpoint copies beside a checkpoint."""
    for script in ("zero_to_fp32.py", "zero_to_torch.py"):
        if os.path.exists(os.path.join(folder, script)):
            os.unlink(os.path.join(folder, script))
