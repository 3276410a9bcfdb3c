"""Small and large jobs of `dsj run`, with generated rows and models."""
import array
import json
import os
import random
import struct

# Qwen2.5's sizes.
SIZES = {
    "0.5B": {"hidden": 896, "inner": 4864, "layers": 24, "heads": 14, "kv-heads": 2, "vocabulary": 151936, "tied": True},
    "1.5B": {"hidden": 1536, "inner": 8960, "layers": 28, "heads": 12, "kv-heads": 2, "vocabulary": 151936, "tied": True},
    "7B": {"hidden": 3584, "inner": 18944, "layers": 28, "heads": 28, "kv-heads": 4, "vocabulary": 152064, "tied": False},
    # Large enough for every kernel's main path, small enough to check on a CPU.
    "small": {"hidden": 256, "inner": 704, "layers": 4, "heads": 4, "kv-heads": 2, "vocabulary": 2048, "tied": False},
}


def make_model(machine, name):
    """The model's folder; created once."""
    folder = os.path.join(machine.work, "model-" + name)
    if not os.path.exists(os.path.join(folder, "config.json")):
        words = [machine.program("dsj-make-model"), "--output", folder]
        for key, value in SIZES[name].items():
            words += (["--tied" if value else "--untied"] if key == "tied" else ["--" + key, str(value)])
        machine.run(*words, "--end-of-text", "0")
    return folder


def tensors_of(shape):
    """{name: sizes} of a Qwen2 model."""
    hidden, inner, dim = shape["hidden"], shape["inner"], shape["hidden"] // shape["heads"]
    tensors = {"model.embed_tokens.weight": [shape["vocabulary"], hidden], "model.norm.weight": [hidden]}
    if not shape["tied"]:
        tensors["lm_head.weight"] = [shape["vocabulary"], hidden]
    for layer in range(shape["layers"]):
        name = f"model.layers.{layer}."
        for one, rows in (("q", hidden), ("k", shape["kv-heads"] * dim), ("v", shape["kv-heads"] * dim)):
            tensors[f"{name}self_attn.{one}_proj.weight"] = [rows, hidden]
            tensors[f"{name}self_attn.{one}_proj.bias"] = [rows]
        tensors[name + "self_attn.o_proj.weight"] = [hidden, hidden]
        for one in ("gate", "up"):
            tensors[f"{name}mlp.{one}_proj.weight"] = [inner, hidden]
        tensors[name + "mlp.down_proj.weight"] = [hidden, inner]
        for one in ("input", "post_attention"):
            tensors[f"{name}{one}_layernorm.weight"] = [hidden]
    return tensors


def make_large_model(machine, name):
    """The model's folder, in bf16. One block of random numbers fills every matrix, so that 7B are written in seconds."""
    folder, shape = os.path.join(machine.work, "model-" + name), SIZES[name]
    if os.path.exists(os.path.join(folder, "config.json")):
        return folder
    os.makedirs(folder)
    draw = random.Random(7)
    block = array.array("H", (struct.unpack("<I", struct.pack("<f", draw.gauss(0, 0.02)))[0] >> 16 for _ in range(1 << 19)))
    random_bytes, one = block.tobytes(), struct.pack("<H", 0x3F80)
    tensors, header, at = tensors_of(shape), {}, 0
    count_of = {}
    for tensor, sizes in tensors.items():
        count_of[tensor] = sizes[0] * (sizes[1] if len(sizes) > 1 else 1)
        header[tensor] = {"dtype": "BF16", "shape": sizes, "data_offsets": [at, at + 2 * count_of[tensor]]}
        at += 2 * count_of[tensor]
    text = json.dumps(header).encode()
    with open(os.path.join(folder, "model.safetensors"), "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for tensor, count in count_of.items():
            left = 2 * count
            if "norm" in tensor:
                file.write(one * count)
                continue
            while left > 0:
                left -= file.write(random_bytes[:left])
    machine.write(os.path.join(folder, "config.json"), {
        "model_type": "qwen2", "hidden_size": shape["hidden"], "intermediate_size": shape["inner"],
        "num_hidden_layers": shape["layers"], "num_attention_heads": shape["heads"],
        "num_key_value_heads": shape["kv-heads"], "vocab_size": shape["vocabulary"], "max_position_embeddings": 32768,
        "hidden_act": "silu", "rms_norm_eps": 1e-6, "rope_theta": 1e6, "tie_word_embeddings": shape["tied"]})
    return folder


def make_rows(machine, count, lengths, vocabulary):
    """A file of pre-tokenized rows, the same for every run."""
    path = os.path.join(machine.work, f"rows-{count}-{lengths[0]}-{lengths[1]}-{vocabulary}.jsonl")
    if not os.path.exists(path):
        draw = random.Random(5)
        with open(path, "w", encoding="utf-8") as file:
            for _ in range(count):
                ids = [draw.randrange(1, vocabulary) for _ in range(draw.randint(*lengths))]
                file.write(json.dumps({"input_ids": ids, "labels": ids}) + "\n")
    return path


def make_texts(machine):
    """A small model with a tokenizer, and files of texts by objective; made once. Returns {objective: (model, file)}."""
    folder = os.path.join(machine.work, "texts")
    if not os.path.exists(folder):
        machine.run(machine.program("dsj-make-quickstart"), "--output", folder, "--size", "tiny", "--rows", "256")
    draw = random.Random(9)
    words = [f"{draw.choice('abcdefgh')}{draw.randrange(100)}" for _ in range(64)]
    pairs, marks = [], []
    for _ in range(64):
        prompt, good, bad = (" ".join(draw.choices(words, k=draw.randint(2, 9))) for _ in range(3))
        pairs.append({"prompt": prompt, "chosen": " " + good, "rejected": " " + bad})
        marks.append({"prompt": prompt, "completion": " " + good, "label": draw.random() < 0.5})
    files = {}
    for name, rows in (("dpo", pairs), ("orpo", pairs), ("reward", pairs), ("kto", marks)):
        files[name] = os.path.join(folder, name + ".jsonl")
        with open(files[name], "w", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
    return {name: (os.path.join(folder, "model"), path) for name, path in files.items()}


def job(model, rows, output, *, device="cuda", slots=1, zero=None, precision="bf16", micro=2, steps=6, accumulation=2,
        training=None):
    config = {"train_micro_batch_size_per_gpu": micro, "gradient_accumulation_steps": accumulation,
              "gradient_clipping": 1.0, "zero_optimization": {"stage": 0, "overlap_comm": True, **(zero or {})},
              "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "weight_decay": 0}}}
    if precision == "bf16":
        config["bf16"] = {"enabled": True}
    return {"apiVersion": "training.dsj.dev/v1alpha1", "kind": "DeepSpeedJob", "metadata": {"name": "gpu-prove"},
            "spec": {"deepspeed": {"config": config}, "workers": {"slotsPerWorker": slots},
                     "training": {"modelNameOrPath": model, "dataPath": rows, "outputDir": output, "maxSteps": steps,
                                  "device": device, "saveStrategy": "no", "shuffle": False, "learningRate": 1e-3,
                                  "lrSchedulerType": "constant", **(training or {})}}}


def run(machine, manifest):
    """Runs a job; returns its steps as in metrics.jsonl."""
    output = manifest["spec"]["training"]["outputDir"]
    machine.run(machine.program("dsj"), "run", machine.write(os.path.join(machine.work, "job.yaml"), manifest))
    with open(os.path.join(output, "metrics.jsonl"), encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def plan(machine, manifest, *more):
    """What dsj plan computes; None if the job does not fit or is refused."""
    path = machine.write(os.path.join(machine.work, "plan.yaml"), manifest)
    text = machine.run(machine.program("dsj"), "plan", path, "-o", "json", *more, check=False)
    begin, end = text.find("{"), text.rfind("}\n")
    if begin < 0 or "DoesNotFit" in text:
        return None
    return json.loads(text[begin:end + 1])


def column(steps, name):
    return [step[name] for step in steps if name in step]


def apart(a, b):
    """The largest relative difference of two lists of losses. AssertionError if lengths differ or a loss is not a number."""
    assert len(a) == len(b) and a, f"{len(a)} and {len(b)} steps"
    assert all(value == value for value in a + b), f"not a number: {a} {b}"
    return max(abs(x - y) / abs(y) for x, y in zip(a, b))
