#!/usr/bin/env python3
"""The saving and loading of checkpoint_bench in plain PyTorch: torch.save, and torch.distributed.checkpoint (DCP).

  tutti run -n 2 -- torch_checkpoint.py FOLDER [MiB a rank] [rounds]      or torchrun --nproc-per-node 2

The same state (f32 tensors of 16 MiB a rank, sharded by rows: DTensors for DCP, what a rank has for torch.save), the same clock (from a
meeting of the ranks to the last of them), and the same plain pwrite and fsync in turn. Prints one line of JSON on rank 0: medians in
seconds, and as ratios to the plain one of the same round.
"""
import json
import os
import shutil
import statistics
import sys
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard

ROWS, COLUMNS = 4096, 1024

folder, mib, rounds = sys.argv[1], int(sys.argv[2] if len(sys.argv) > 2 else 256), int(sys.argv[3] if len(sys.argv) > 3 else 5)
torch.set_num_threads(1)
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
mesh = init_device_mesh("cpu", (world,))
local = {f"layer.{t}.weight": torch.full((ROWS, COLUMNS), float(t + 1)) for t in range(max(1, mib // 16))}
sharded = {name: DTensor.from_local(tensor, mesh, [Shard(0)]) for name, tensor in local.items()}
size = sum(tensor.numel() * 4 for tensor in local.values())
os.makedirs(folder, exist_ok=True)


def path(name):
    return f"{folder}/{name}"


def seconds_of(act):
    dist.barrier()
    begin = time.perf_counter()
    act()
    took = torch.tensor(time.perf_counter() - begin, dtype=torch.float64)
    dist.all_reduce(took, dist.ReduceOp.MAX)
    return took.item()


def flush(name):
    fd = os.open(name, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


def write_plain():
    fd = os.open(path(f"plain-{rank}.new"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    for tensor in local.values():
        view = memoryview(tensor.numpy()).cast("B")
        for at in range(0, len(view), 8 << 20):
            os.write(fd, view[at:at + (8 << 20)])
    os.fsync(fd)
    os.close(fd)
    os.rename(path(f"plain-{rank}.new"), path(f"plain-{rank}"))


def read_plain():
    fd = os.open(path(f"plain-{rank}"), os.O_RDONLY)
    for tensor in local.values():
        view = memoryview(tensor.numpy()).cast("B")
        for at in range(0, len(view), 8 << 20):
            os.readv(fd, [view[at:at + (8 << 20)]])
    os.close(fd)


def torch_save(sync):
    new = path(f"torch-{rank}.new")
    torch.save(local, new)
    if sync:
        flush(new)
    os.rename(new, path(f"torch-{rank}.pt"))


def torch_load():
    for name, tensor in torch.load(path(f"torch-{rank}.pt"), weights_only=True).items():
        local[name].copy_(tensor)


def dcp_save():
    dcp.save(sharded, checkpoint_id=path("dcp.new"))
    replace_dcp()


def replace_dcp():
    dist.barrier()
    if rank == 0:
        shutil.rmtree(path("dcp"), ignore_errors=True)
        os.rename(path("dcp.new"), path("dcp"))
    dist.barrier()


def dcp_load():
    dcp.load(sharded, checkpoint_id=path("dcp"))


def forget_pages():
    for top, _, names in os.walk(folder):
        for name in names:
            fd = os.open(f"{top}/{name}", os.O_RDONLY)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(fd)


def measure(act, plain, before=lambda: None):
    act()
    plain()
    took, ratios = [], []
    for _ in range(rounds):
        before()
        mine = seconds_of(act)
        before()
        ratios.append(seconds_of(plain) / mine)
        took.append(mine)
    return {"seconds": statistics.median(took), "to_plain": statistics.median(ratios)}


def measure_stall():
    stalls, ratios = [], []
    writing = dist.new_group(backend="gloo")  # its thread communicates while the ranks do
    copy = {name: torch.ones_like(tensor) for name, tensor in local.items()}

    def copy_all():
        for name, tensor in local.items():
            copy[name].copy_(tensor)

    for at in range(rounds + 1):
        began = []
        stall = seconds_of(lambda: began.append(dcp.async_save(sharded, checkpoint_id=path("dcp.new"), process_group=writing)))
        began[0].result()
        replace_dcp()
        if at > 0:  # the first fetches memory
            stalls.append(stall)
            ratios.append(stall / seconds_of(copy_all))
    return {"seconds": statistics.median(stalls), "to_memcpy": statistics.median(ratios)}


def bytes_of(name):
    if os.path.isdir(name):
        return sum(os.path.getsize(os.path.join(name, one)) for one in os.listdir(name))
    return os.path.getsize(name)


try:
    result = {
        "peer": "torch", "torch": torch.__version__, "ranks": world, "bytes": size * world,
        "torch.save, not flushed": measure(lambda: torch_save(False), write_plain),
        "torch.save": measure(lambda: torch_save(True), write_plain),
        "torch.load, cache": measure(torch_load, read_plain),
        "torch.load, disk": measure(torch_load, read_plain, forget_pages),
        "dcp.save": measure(dcp_save, write_plain),
        "dcp.load, cache": measure(dcp_load, read_plain),
        "dcp.load, disk": measure(dcp_load, read_plain, forget_pages),
        "dcp.async_save stall": measure_stall(),
        "torch.save bytes": bytes_of(path(f"torch-{rank}.pt")) * world,
        "dcp.save bytes": bytes_of(path("dcp")),
    }
    if rank == 0:
        print(json.dumps(result))
finally:
    dist.barrier()
    if rank == 0:
        shutil.rmtree(folder, ignore_errors=True)
    dist.barrier()
    dist.destroy_process_group()
