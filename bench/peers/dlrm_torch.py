#!/usr/bin/env python3
"""DLRM in PyTorch, hybrid parallel over Gloo, on CPUs: the layout of facebookresearch/dlrm in its plainest form.

  tutti run -n 2 -- python3 bench/peers/dlrm_torch.py --tables 8      or torchrun --nproc-per-node 2

The tables are divided by their count, every rank reads the whole batch, an all_to_all exchanges the pooled rows, the MLPs are under
DistributedDataParallel, and SGD is sparse. One process per rank, with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT set. Rank 0 prints a
line of JSON. A batch is drawn before the clock starts: the figures are of forward, backward and update. The first two steps are not
counted.
"""
import argparse
import json
import os
import time

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel

UNCOUNTED = 2


class Exchange(torch.autograd.Function):
    """[tables here, batch, dim] -> [tables, batch here, dim]; the backward is the mirrored exchange."""

    @staticmethod
    def forward(ctx, pooled, tables_of, batch_of, rank):
        ctx.layout = tables_of, batch_of, rank
        dim, world = pooled.shape[-1], len(tables_of)
        send = torch.cat([pooled[:, sum(batch_of[:r]):sum(batch_of[:r + 1])].reshape(-1) for r in range(world)])
        received = exchange(send, [batch_of[rank] * t * dim for t in tables_of], [tables_of[rank] * b * dim for b in batch_of])
        return torch.cat([part.view(t, batch_of[rank], dim) for part, t in zip(received, tables_of)])

    @staticmethod
    def backward(ctx, grad):
        tables_of, batch_of, rank = ctx.layout
        dim = grad.shape[-1]
        send = torch.cat([part.reshape(-1) for part in grad.split(tables_of)])
        received = exchange(send, [tables_of[rank] * b * dim for b in batch_of], [batch_of[rank] * t * dim for t in tables_of])
        return torch.cat([part.view(tables_of[rank], b, dim) for part, b in zip(received, batch_of)], dim=1), None, None, None


def exchange(send, take, give):
    """What each rank sent to this one; `take` and `give` are element counts per rank."""
    out = send.new_empty(sum(take))
    if len(take) > 1:
        dist.all_to_all_single(out, send, take, give)
    else:
        out.copy_(send)
    return out.split(take)


def mlp(sizes, last_sigmoid):
    layers = []
    for i, (inputs, outputs) in enumerate(zip(sizes, sizes[1:])):
        layers += [nn.Linear(inputs, outputs), nn.Sigmoid() if last_sigmoid and i == len(sizes) - 2 else nn.ReLU()]
    return nn.Sequential(*layers)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=int, default=8)
    parser.add_argument("--rows", type=int, default=1_000_000, help="of each table")
    parser.add_argument("--dim", type=int, default=64, help="columns of a table")
    parser.add_argument("--bot", default="128-64", help="bottom MLP")
    parser.add_argument("--top", default="128-1", help="top MLP, without its input")
    parser.add_argument("--batch", type=int, default=2048, help="samples of a step, over all ranks")
    parser.add_argument("--lookups", type=int, default=50, help="rows of a sample and table")
    parser.add_argument("--steps", type=int, default=8, help="steps that are counted")
    return parser.parse_args()


def main():
    given = arguments()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    world, rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
    if world > 1:
        dist.init_process_group("gloo")
    share = lambda n: [n // world + (r < n % world) for r in range(world)]
    tables_of, batch_of = share(given.tables), share(given.batch)
    bottom_sizes, top_sizes = [int(n) for n in given.bot.split("-")], [int(n) for n in given.top.split("-")]
    features = given.tables + 1
    torch.manual_seed(0)
    bottom = mlp(bottom_sizes, last_sigmoid=False)
    top = mlp([features * (features - 1) // 2 + given.dim, *top_sizes], last_sigmoid=True)
    if world > 1:
        bottom, top = DistributedDataParallel(bottom), DistributedDataParallel(top)
    bags = nn.ModuleList([nn.EmbeddingBag(given.rows, given.dim, mode="sum", sparse=True) for _ in range(tables_of[rank])])
    optimizer = torch.optim.SGD([{"params": part.parameters()} for part in (bags, bottom, top)], lr=0.01)
    here = slice(sum(batch_of[:rank]), sum(batch_of[:rank + 1]))
    offsets = torch.arange(0, given.batch * given.lookups, given.lookups)
    lower = torch.tril_indices(features, features, -1)
    seconds = 0.0
    for step in range(given.steps + UNCOUNTED):
        dense, target = torch.rand(given.batch, bottom_sizes[0])[here], torch.rand(given.batch, 1)[here]
        # Sorted, as the reference draws them.
        indices = [torch.randint(given.rows, (given.batch, given.lookups)).sort(1)[0].view(-1) for _ in range(given.tables)]
        indices = indices[sum(tables_of[:rank]):sum(tables_of[:rank + 1])]
        if world > 1:
            dist.barrier()
        begin = time.perf_counter()
        pooled = torch.stack([bag(index, offsets) for bag, index in zip(bags, indices)])
        rows = Exchange.apply(pooled, tables_of, batch_of, rank)
        x = bottom(dense)
        vectors = torch.cat([x.unsqueeze(1), rows.transpose(0, 1)], dim=1)
        products = torch.bmm(vectors, vectors.transpose(1, 2))[:, lower[0], lower[1]]
        loss = nn.functional.mse_loss(top(torch.cat([x, products], dim=1)), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step >= UNCOUNTED:
            seconds += time.perf_counter() - begin
    if rank == 0:
        print(json.dumps({
            "peer": "pytorch-dlrm-gloo",
            "torch": torch.__version__,
            "world": world,
            "ms_per_step": round(1e3 * seconds / given.steps, 2),
            "samples_per_s": round(given.steps * given.batch / seconds, 1),
        }))  # fmt: skip
    if world > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
