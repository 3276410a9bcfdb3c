#!/usr/bin/env python3
"""Trains with JAX what `bench_train_loop run` trains with plain libtorch: the same arguments, the same lines of output.
scripts/bench_train.py --jax starts it.

Usage: jax_loop.py DIR STEPS MICRO [--bf16]     with OMP_NUM_THREADS; one process

A step is one jitted function: forward, backward, clipping to norm 1 and AdamW over donated fp32 weights; --bf16 computes in
bf16. Rows are padded to a multiple of 64 tokens, so that few lengths are compiled. Attention is jax.nn.dot_product_attention.
"""
import argparse
import functools
import json
import os
import resource
import time

RATE, BETAS, EPS, CLIP, MULTIPLE = 1e-3, (0.9, 0.999), 1e-8, 1.0, 64


def padded(numpy, rows):
    longest = -(-max(len(row["input_ids"]) for row in rows) // MULTIPLE) * MULTIPLE

    def rectangle(values, pad):
        return numpy.array([value + [pad] * (longest - len(value)) for value in values], numpy.int32)
    return rectangle([row["input_ids"] for row in rows], 0), rectangle([row["labels"] for row in rows], -100)


def loss_of(jax, shape, parameters, ids, labels):
    """Mean over the targets, of transformers' Qwen2 with these parameters, in their type."""
    jnp = jax.numpy
    heads, groups = shape["num_attention_heads"], shape["num_key_value_heads"]
    width = shape["hidden_size"] // heads

    def norm(x, name):
        wide = x.astype(jnp.float32)
        scale = jax.lax.rsqrt(jnp.mean(wide * wide, -1, keepdims=True) + shape["rms_norm_eps"])
        return parameters[name] * (wide * scale).astype(x.dtype)

    def linear(x, name):
        y = x @ parameters[name + ".weight"].T
        return y + parameters[name + ".bias"] if name + ".bias" in parameters else y

    base = shape.get("rope_theta") or shape["rope_parameters"]["rope_theta"]
    angles = jnp.arange(ids.shape[1])[:, None] / base ** (jnp.arange(0, width, 2) / width)
    cos, sin = (jnp.concatenate((of(angles), of(angles)), -1)[None, :, None, :] for of in (jnp.cos, jnp.sin))

    def turned(x):
        half = jnp.concatenate((-x[..., width // 2:], x[..., :width // 2]), -1)
        return (x * cos + half * sin).astype(x.dtype)

    x = parameters["model.embed_tokens.weight"][ids]
    for layer in range(shape["num_hidden_layers"]):
        at = f"model.layers.{layer}."
        h = norm(x, at + "input_layernorm.weight")
        q, k, v = (linear(h, at + f"self_attn.{name}_proj").reshape(*ids.shape, count, width)
                   for name, count in (("q", heads), ("k", groups), ("v", groups)))
        out = jax.nn.dot_product_attention(turned(q), turned(k), v, is_causal=True)
        x = x + linear(out.reshape(*ids.shape, -1), at + "self_attn.o_proj")
        h = norm(x, at + "post_attention_layernorm.weight")
        x = x + linear(jax.nn.silu(linear(h, at + "mlp.gate_proj")) * linear(h, at + "mlp.up_proj"), at + "mlp.down_proj")
    x = norm(x, "model.norm.weight")
    head = parameters.get("lm_head.weight", parameters["model.embed_tokens.weight"])
    logits = (x[:, :-1] @ head.T).astype(jnp.float32)
    targets = labels[:, 1:]
    chosen = jnp.take_along_axis(logits, jnp.maximum(targets, 0)[..., None], -1)[..., 0]
    losses = jnp.where(targets >= 0, jax.nn.logsumexp(logits, -1) - chosen, 0)
    return losses.sum() / (targets >= 0).sum()


def make_step(jax, shape, bf16):
    jnp = jax.numpy

    def loss_in_type(parameters, ids, labels):
        if bf16:
            parameters = jax.tree.map(lambda value: value.astype(jnp.bfloat16), parameters)
        return loss_of(jax, shape, parameters, ids, labels)

    @functools.partial(jax.jit, donate_argnums=(0, 1, 2))
    def step(parameters, first, second, count, ids, labels):
        loss, gradients = jax.value_and_grad(loss_in_type)(parameters, ids, labels)
        length = jnp.sqrt(sum(jnp.sum(g * g) for g in jax.tree.leaves(gradients)))
        gradients = jax.tree.map(lambda g: g * jnp.minimum(1.0, CLIP / (length + 1e-6)), gradients)
        first = jax.tree.map(lambda m, g: BETAS[0] * m + (1 - BETAS[0]) * g, first, gradients)
        second = jax.tree.map(lambda v, g: BETAS[1] * v + (1 - BETAS[1]) * g * g, second, gradients)
        rate, root = RATE / (1 - BETAS[0] ** count), jnp.sqrt(1 - BETAS[1] ** count)
        parameters = jax.tree.map(lambda p, m, v: p - rate * m / (jnp.sqrt(v) / root + EPS), parameters, first, second)
        return parameters, first, second, loss
    return step


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory")
    parser.add_argument("steps", type=int)
    parser.add_argument("micro", type=int)
    parser.add_argument("--bf16", action="store_true")
    options = parser.parse_args()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:int(os.environ["OMP_NUM_THREADS"])])  # XLA's threads: one per core
    os.environ["JAX_PLATFORMS"] = "cpu"
    import jax
    import numpy
    from safetensors.numpy import load_file
    with open(os.path.join(options.directory, "model/config.json"), encoding="utf-8") as file:
        shape = json.load(file)
    with open(os.path.join(options.directory, "data.json"), encoding="utf-8") as file:
        rows = json.load(file)["samples"]
    weights = load_file(os.path.join(options.directory, "model/model.safetensors"))
    parameters = {name: jax.numpy.asarray(value, jax.numpy.float32) for name, value in weights.items()}
    zeros = lambda: jax.tree.map(jax.numpy.zeros_like, parameters)  # noqa: E731
    first, second = zeros(), zeros()
    step = make_step(jax, shape, options.bf16)
    for count in range(options.steps):
        begin = time.perf_counter()
        chosen = [rows[(count * options.micro + i) % len(rows)] for i in range(options.micro)]
        parameters, first, second, loss = step(parameters, first, second, count + 1.0, *padded(numpy, chosen))
        loss = loss.item()
        seconds = time.perf_counter() - begin
        print(json.dumps({"step": count + 1, "loss": loss, "tokens_per_second": sum(len(row["input_ids"]) for row in chosen) / seconds,
                          "host_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}), flush=True)


if __name__ == "__main__":
    main()
