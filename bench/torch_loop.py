#!/usr/bin/env python3
"""A plain PyTorch training loop on one GPU, to compare with: a Qwen2-shaped decoder with random weights, flash attention
through scaled_dot_product_attention, torch.compile, autocast to bf16 over fp32 masters, fused AdamW, clipping.

Usage: torch_loop.py --shape SHAPE.json --micro N [--row 1024] [--steps 8] [--warm-up 3] [--lora RANK] [--device cpu]
The last line is JSON: tokens/s (median after the warm-up), peak bytes, last loss, parameters in all and trained; or
{"skipped": why}. --device cpu is a rehearsal: nothing is compiled, and its speed says nothing.
"""
import argparse
import json
import statistics
import sys
import time


def build(torch, shape, rank):
    """The model as modules. Frozen weights are bf16, as in dsj; trained ones fp32."""
    nn, functional = torch.nn, torch.nn.functional
    hidden, heads, kv_heads = shape["hidden"], shape["heads"], shape["kv-heads"]
    dim = hidden // heads

    class Linear(nn.Module):
        def __init__(self, i, o, bias=False):
            super().__init__()
            self.base = nn.Linear(i, o, bias=bias)
            if rank:
                self.base.requires_grad_(False).to(torch.bfloat16)
                self.a, self.b = nn.Linear(i, rank, bias=False), nn.Linear(rank, o, bias=False)
                nn.init.zeros_(self.b.weight)

        def forward(self, x):
            return self.base(x) + self.b(self.a(x)) if rank else self.base(x)

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = nn.RMSNorm(hidden, eps=1e-6), nn.RMSNorm(hidden, eps=1e-6)
            self.q, self.k, self.v = (Linear(hidden, n * dim, bias=True) for n in (heads, kv_heads, kv_heads))
            self.o = Linear(heads * dim, hidden)
            self.gate, self.up = Linear(hidden, shape["inner"]), Linear(hidden, shape["inner"])
            self.down = Linear(shape["inner"], hidden)

        def forward(self, x, cos, sin):
            n, length, _ = x.shape
            h = self.norm1(x)
            q, k, v = (p(h).view(n, length, -1, dim).transpose(1, 2) for p in (self.q, self.k, self.v))
            q, k = (t * cos + torch.cat((-t[..., dim // 2:], t[..., :dim // 2]), -1) * sin for t in (q, k))
            out = functional.scaled_dot_product_attention(q.to(v.dtype), k.to(v.dtype), v, is_causal=True, enable_gqa=True)
            x = x + self.o(out.transpose(1, 2).reshape(n, length, -1))
            h = self.norm2(x)
            return x + self.down(functional.silu(self.gate(h)) * self.up(h))

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(shape["vocabulary"], hidden)
            self.layers = nn.ModuleList(Layer() for _ in range(shape["layers"]))
            self.norm = nn.RMSNorm(hidden, eps=1e-6)
            self.head = nn.Linear(hidden, shape["vocabulary"], bias=False)
            nn.init.normal_(self.embedding.weight, std=0.02)
            if shape["tied"]:
                self.head.weight = self.embedding.weight
            if rank:
                for module in (self.embedding, self.norm, self.head):
                    module.requires_grad_(False).to(torch.bfloat16)
                for layer in self.layers:
                    layer.norm1.requires_grad_(False)
                    layer.norm2.requires_grad_(False)

        def forward(self, ids):
            angles = torch.arange(ids.shape[1], device=ids.device)[:, None] / 1e6 ** (
                torch.arange(0, dim, 2, device=ids.device) / dim)
            cos, sin = (torch.cat((f(angles), f(angles)), -1) for f in (torch.cos, torch.sin))
            x = self.embedding(ids)
            for layer in self.layers:
                x = layer(x, cos, sin)
            return self.loss(x, ids)

        def loss(self, x, ids):
            logits = self.head(self.norm(x[:, :-1]))
            return functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())

        def compile_parts(self):
            """Each layer, and the loss: layers share their code, so that is compiled once."""
            for layer in self.layers:
                layer.compile()
            self.loss = torch.compile(self.loss)

    return Model()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", required=True)
    for name, default in (("micro", 1), ("row", 1024), ("steps", 8), ("warm-up", 3), ("lora", 0)):
        parser.add_argument("--" + name, type=int, default=default)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    options = parser.parse_args()
    with open(options.shape, encoding="utf-8") as file:
        shape = json.load(file)
    try:
        import torch
    except ImportError as problem:
        print(json.dumps({"skipped": str(problem)}))
        return 0
    on_gpu = options.device == "cuda"
    if on_gpu and not torch.cuda.is_available():
        print(json.dumps({"skipped": "torch shows no GPU"}))
        return 0
    torch.manual_seed(1)
    wait = torch.cuda.synchronize if on_gpu else lambda: None
    with torch.device(options.device):
        model = build(torch, shape, options.lora)
    if on_gpu:
        model.compile_parts()
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-4, weight_decay=0, fused=True)
    speeds, loss = [], None
    for _ in range(options.warm_up + options.steps):
        ids = torch.randint(1, shape["vocabulary"], (options.micro, options.row), device=options.device)
        wait()
        begin = time.perf_counter()
        try:
            with torch.autocast(options.device, dtype=torch.bfloat16):
                loss = model(ids)
            loss.backward()
        except torch.cuda.OutOfMemoryError:
            print(json.dumps({"skipped": "the plain loop has not enough memory"}))
            return 0
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        wait()
        speeds.append(ids.numel() / (time.perf_counter() - begin))
    print(json.dumps({"tokens/s": round(statistics.median(speeds[options.warm_up:])),
                      "peak MiB": torch.cuda.max_memory_allocated() >> 20 if on_gpu else 0, "loss": round(loss.item(), 4),
                      "parameters": sum(p.numel() for p in model.parameters()), "trained": sum(p.numel() for p in trained)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
