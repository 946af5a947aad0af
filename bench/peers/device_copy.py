#!/usr/bin/env python3
"""Times what calls on GPU memory are made of: copies through pinned memory of the host and within the GPU; and all_reduce of PyTorch.

  python3 bench/peers/device_copy.py --bytes 1048576,67108864
  tutti run -n 2 -- python3 bench/peers/device_copy.py --backend gloo

A line of JSON for each size: seconds of a copy to the host, back to the GPU, and within the GPU; with --backend also those of an
all_reduce of f32. With several ranks all copy at the same time, as in a staged all_reduce, and the slowest rank counts; rank 0 prints.
Each figure is the median of the rounds.
"""
import argparse
import json
import os
import statistics
import time

import torch
import torch.distributed as dist

WARM_UP = 3


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bytes", default="1048576,16777216,67108864", help="sizes with commas (1 MiB, 16 MiB, 64 MiB)")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--backend", choices=["gloo", "nccl"], help="also time all_reduce of torch.distributed over it")
    return parser.parse_args()


def seconds_of(act, rounds, host):
    """The median over the rounds of the slowest rank's seconds. `host`: a group over Gloo, None for one rank."""
    taken = []
    for number in range(WARM_UP + rounds):
        torch.cuda.synchronize()
        if host:
            dist.barrier(group=host)
        begin = time.perf_counter()
        act()
        torch.cuda.synchronize()
        took = torch.tensor(time.perf_counter() - begin)
        if host:
            dist.all_reduce(took, dist.ReduceOp.MAX, group=host)
        if number >= WARM_UP:
            taken.append(float(took))
    return statistics.median(taken)


def main():
    given = arguments()
    world, rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())
    torch.cuda.set_device(device)
    host = None
    if world > 1:
        dist.init_process_group(given.backend or "gloo")
        host = dist.new_group(backend="gloo")
    for size in map(int, given.bytes.split(",")):
        here, there = torch.ones(size // 4, device=device), torch.empty(size // 4, device=device)
        pinned = torch.empty(size // 4, pin_memory=True)
        acts = {
            "to_host": lambda: pinned.copy_(here, non_blocking=True),
            "to_device": lambda: here.copy_(pinned, non_blocking=True),
            "there_and_back": lambda: (pinned.copy_(here, non_blocking=True), here.copy_(pinned, non_blocking=True)),
            "within_device": lambda: there.copy_(here),
        }
        if world > 1 and given.backend:
            acts["all_reduce"] = lambda: dist.all_reduce(here)
        line = {name: seconds_of(act, given.rounds, host) for name, act in acts.items()}
        if rank == 0:
            print(json.dumps({"peer": "pytorch-device-copy", "backend": given.backend, "world": world, "bytes": size, **line}), flush=True)
    if world > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
