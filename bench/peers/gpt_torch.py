#!/usr/bin/env python3
"""A GPT in PyTorch under DistributedDataParallel, over Gloo on CPUs: the same model as bench/compare_gpt gives to pretrain_gpt.

  tutti run -n 2 -- python3 bench/peers/gpt_torch.py      or torchrun --nproc-per-node 2

One process per rank, with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT set. The tokens are random. Rank 0 prints a line of JSON: tokens
per second over all ranks. The first two steps are not counted. With --sdpa, --compile and --bf16 it runs as a user of a current PyTorch
would run it. With --device cuda it trains on GPUs, which ranks share where there are fewer; NCCL needs a GPU for each rank.
"""
import argparse
import json
import os
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

UNCOUNTED = 2


class Block(nn.Module):
    def __init__(self, hidden, heads, sdpa):
        super().__init__()
        self.heads, self.sdpa = heads, sdpa
        self.norm1, self.norm2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.qkv, self.projection = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def forward(self, x, mask):
        n, s, h = x.shape
        q, k, v = (t.view(n, s, self.heads, -1).transpose(1, 2) for t in self.qkv(self.norm1(x)).split(h, dim=2))
        if self.sdpa:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            y = F.softmax((q @ k.transpose(2, 3)) * (q.shape[-1] ** -0.5) + mask, dim=-1) @ v
        x = x + self.projection(y.transpose(1, 2).reshape(n, s, h))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Gpt(nn.Module):
    def __init__(self, given):
        super().__init__()
        self.word, self.position = nn.Embedding(given.vocab, given.hidden), nn.Embedding(given.seq, given.hidden)
        self.blocks = nn.ModuleList([Block(given.hidden, given.heads, given.sdpa) for _ in range(given.layers)])
        self.norm = nn.LayerNorm(given.hidden)
        self.register_buffer("mask", torch.full((given.seq, given.seq), float("-inf")).triu(1))
        # A standard deviation of 1 would make denormal numbers, which are five times as slow.
        for weight in self.parameters():
            if weight.dim() > 1:
                nn.init.normal_(weight, std=0.02)

    def forward(self, tokens):
        x = self.word(tokens) + self.position.weight[:tokens.shape[1]]
        for block in self.blocks:
            x = block(x, self.mask)
        return self.norm(x) @ self.word.weight.t()


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vocab", type=int, default=8192, help="tokens of the vocabulary")
    parser.add_argument("--seq", type=int, default=256, help="tokens of a sample")
    parser.add_argument("--hidden", type=int, default=512, help="hidden dimension")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--batch", type=int, default=4, help="samples per rank and step")
    parser.add_argument("--steps", type=int, default=10, help="steps that are counted")
    parser.add_argument("--sdpa", action="store_true", help="fused attention: scaled_dot_product_attention (PyTorch 2.0)")
    parser.add_argument("--compile", action="store_true", help="torch.compile (PyTorch 2.0, a C++ compiler and Python's headers)")
    parser.add_argument("--bf16", action="store_true", help="autocast to bf16")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--backend", choices=["gloo", "nccl"], default="gloo", help="of torch.distributed")
    parser.add_argument("--parallel", choices=["auto", "none", "ddp", "fsdp2"], default="auto",
                        help="auto: DistributedDataParallel where there are several ranks; fsdp2: fully_shard() of each block (PyTorch 2.6)")  # fmt: skip
    given = parser.parse_args()
    if (given.sdpa and not hasattr(F, "scaled_dot_product_attention")) or (given.compile and not hasattr(torch, "compile")):
        parser.error(f"--sdpa and --compile need PyTorch 2.0 or later, and this is {torch.__version__}")
    return given


def device_of_rank(given):
    if given.device == "cpu":
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())
    torch.cuda.set_device(device)
    return device


def parallelize(given, model, world):
    if given.parallel == "fsdp2":
        from torch.distributed.fsdp import fully_shard

        for block in model.blocks:
            fully_shard(block)
        return fully_shard(model)
    if given.parallel == "ddp" or (given.parallel == "auto" and world > 1):
        return nn.parallel.DistributedDataParallel(model)
    return model


def main():
    given = arguments()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    world, rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
    device = device_of_rank(given)
    wait = torch.cuda.synchronize if given.device == "cuda" else lambda: None
    torch.manual_seed(0)
    model = Gpt(given).to(device)
    parameters = sum(weight.numel() for weight in model.parameters())
    is_distributed = world > 1 or given.parallel in ("ddp", "fsdp2")
    if is_distributed:
        dist.init_process_group(given.backend)
    model = parallelize(given, model, world)
    forward = torch.compile(model) if given.compile else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    seconds = 0.0
    for step in range(given.steps + UNCOUNTED):
        tokens = torch.randint(given.vocab, (given.batch, given.seq + 1)).to(device)
        wait()
        begin = time.perf_counter()
        with torch.autocast(given.device, torch.bfloat16, enabled=given.bf16):
            logits = forward(tokens[:, :-1]).reshape(-1, given.vocab).float()
            loss = F.cross_entropy(logits, tokens[:, 1:].reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        wait()
        if step >= UNCOUNTED:
            seconds += time.perf_counter() - begin
    if rank == 0:
        print(json.dumps({
            "peer": "pytorch-gpt" + (f"-{given.parallel.replace('auto', 'ddp')}-{given.backend}" if is_distributed else ""),
            "device": given.device,
            "torch": torch.__version__,
            "world": world,
            "sdpa": given.sdpa,
            "compile": given.compile,
            "bf16": given.bf16,
            "parameters": parameters,
            "batch_per_rank": given.batch,
            "ms_per_step": round(1e3 * seconds / given.steps, 1),
            "tokens_per_s": round(given.steps * given.batch * given.seq * world / seconds, 1),
        }))  # fmt: skip
    if is_distributed:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
