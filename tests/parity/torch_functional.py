#!/usr/bin/env python3
"""What PyTorch's torch.distributed.nn.functional computes over gloo, for autograd_parity_test.cc.

  torch_functional.py RANKS      prints {"all_reduce": [{"out": [...], "gradient": [...]} of each rank], ...}

Inputs and losses are those of autograd_parity_test.cc.
"""
import json
import multiprocessing
import os
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.distributed.nn.functional as functional


def numbers(sizes, seed):
    count = torch.Size(sizes).numel()
    return (((torch.arange(count) * 3 + seed * 7) % 11 - 5).double() * 0.25).reshape(sizes)


def loss_of(out, rank):
    return (numbers(out.shape, rank + 3) * torch.sin(out)).sum() + out.sum()


def rows(r, k):
    return (r + 2 * k + 1) % 3


def all_to_all(x, rank, size):
    to = [rows(rank, k) for k in range(size)]
    come = [rows(r, rank) for r in range(size)]
    return functional.all_to_all_single(torch.empty(sum(come), 3, dtype=x.dtype), x, come, to)


CASES = {
    "all_reduce": (lambda r, n: (4, 3), lambda x, r, n: functional.all_reduce(x)),
    "broadcast": (lambda r, n: (4, 3), lambda x, r, n: functional.broadcast(x, n - 1)),
    "reduce": (lambda r, n: (4, 3), lambda x, r, n: functional.reduce(x, n - 1)),
    "all_gather": (lambda r, n: (4, 3), lambda x, r, n: torch.cat(functional.all_gather(x))),
    "uneven all_to_all": (lambda r, n: (sum(rows(r, k) for k in range(n)), 3), all_to_all),
    "gather": (lambda r, n: (4, 3), lambda x, r, n: torch.cat(functional.gather(x, n - 1))),
    "scatter": (lambda r, n: (2 * n, 3), lambda x, r, n: functional.scatter(list(torch.chunk(x, n)), n - 1)),
}
ON_ROOT_ONLY = ("reduce", "gather")


def run(rank, size, folder, results):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=size)
    found = {}
    for name, (sizes, verb) in CASES.items():
        x = numbers(sizes(rank, size), rank).requires_grad_()
        out = verb(x, rank, size)
        if name in ON_ROOT_ONLY and rank != size - 1:
            out = (0 * out).new_zeros(0) + (0 * out).sum()  # nothing, but connected, as every rank has to run backward
        loss_of(out, rank).backward()
        found[name] = {"out": out.flatten().tolist(), "gradient": x.grad.flatten().tolist()}
    results.put((rank, found))
    dist.barrier()


def main():
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    size = int(sys.argv[1])
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    with tempfile.TemporaryDirectory() as folder:
        ranks = [context.Process(target=run, args=(r, size, folder, results)) for r in range(size)]
        for process in ranks:
            process.start()
        found = dict(results.get(timeout=100) for _ in ranks)
        for process in ranks:
            process.join()
    print(json.dumps({name: [found[r][name] for r in range(size)] for name in CASES}))


if __name__ == "__main__":
    main()
