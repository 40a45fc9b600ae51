#!/usr/bin/env python3
"""The peer: GPT-2 trained by PyTorch on the CPU, as a user of PyTorch would write it (fused attention,
fused AdamW, gelu tanh, tied head, freed memory kept by the allocator).  One JSON line: seconds of each step.

usage: torch_gpt2.py --rows 4 --seq 256 --steps 5 --warmup 2 --threads 2 [--compile]
"""
import argparse
import ctypes
import json
import resource
import time

import torch
from torch import nn
from torch.nn import functional as F

LAYERS, HEADS, HIDDEN, VOCAB, CONTEXT = 12, 12, 768, 50257, 1024


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1 = nn.LayerNorm(HIDDEN)
        self.qkv = nn.Linear(HIDDEN, 3 * HIDDEN)
        self.out = nn.Linear(HIDDEN, HIDDEN)
        self.norm2 = nn.LayerNorm(HIDDEN)
        self.up = nn.Linear(HIDDEN, 4 * HIDDEN)
        self.down = nn.Linear(4 * HIDDEN, HIDDEN)

    def forward(self, x):
        rows, seq, _ = x.shape
        heads = self.qkv(self.norm1(x)).view(rows, seq, 3, HEADS, HIDDEN // HEADS)
        q, k, v = heads.permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(rows, seq, HIDDEN))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(VOCAB, HIDDEN)
        self.positions = nn.Embedding(CONTEXT, HIDDEN)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(HIDDEN)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, ids, labels):
        x = self.tokens(ids) + self.positions.weight[: ids.shape[1]]
        for layer in self.layers:
            x = layer(x)
        logits = F.linear(self.norm(x), self.tokens.weight)
        return F.cross_entropy(logits.view(-1, VOCAB), labels.view(-1))


def keep_freed_memory():
    """glibc would hand large blocks back to the kernel and fault them in again at every step."""
    mallopt = ctypes.CDLL(None).mallopt
    for option, value in ((-4, 0), (-1, -1), (-2, 256 << 20)):  # MMAP_MAX, TRIM_THRESHOLD, TOP_PAD
        mallopt(option, value)


def main():
    parser = argparse.ArgumentParser()
    for name, default in (("rows", 4), ("seq", 256), ("steps", 5), ("warmup", 2), ("threads", 2)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--compile", action="store_true")
    o = parser.parse_args()
    keep_freed_memory()
    torch.manual_seed(1)
    torch.set_num_threads(o.threads)
    model = Model()
    groups = [
        {"params": [p for p in model.parameters() if p.dim() > 1], "weight_decay": 0.1},
        {"params": [p for p in model.parameters() if p.dim() < 2], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=3e-4, betas=(0.9, 0.95), fused=True)
    step = torch.compile(model) if o.compile else model
    seconds = []
    for i in range(o.warmup + o.steps):
        ids = torch.randint(0, VOCAB, (o.rows, o.seq + 1))
        begin = time.perf_counter()
        loss = step(ids[:, :-1].contiguous(), ids[:, 1:].contiguous())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        loss.item()
        if i >= o.warmup:
            seconds.append(time.perf_counter() - begin)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"engine": f"torch {torch.__version__}" + (" compile" if o.compile else ""),
                      "threads": torch.get_num_threads(), "step_s": seconds, "peak_rss_bytes": peak}))


if __name__ == "__main__":
    main()
