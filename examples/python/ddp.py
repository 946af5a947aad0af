"""DistributedDataParallel on the backend of Tutti: what a program for Gloo becomes by one word.

    tutti run -n 2 examples/python/ddp.py
"""

import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

STEPS, BATCH, FEATURES = 200, 64, 32

dist.init_process_group("tutti")  # was: "gloo"
rank, ranks = dist.get_rank(), dist.get_world_size()

torch.manual_seed(0)  # the same model and the same data on every rank
model = torch.nn.Sequential(
    torch.nn.Linear(FEATURES, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1)
)
target = torch.randn(FEATURES)
samples = torch.randn(STEPS, BATCH * ranks, FEATURES)

model = DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
began = time.perf_counter()
for step, batch in enumerate(samples, 1):
    mine = batch[rank::ranks]  # this rank's part of the batch
    loss = torch.nn.functional.mse_loss(model(mine).squeeze(1), (mine @ target).sin())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        mean = loss.detach().clone()
        dist.all_reduce(mean, dist.ReduceOp.AVG)
        if rank == 0:
            per_step = (time.perf_counter() - began) / step
            print(f"step {step}: loss {mean.item():.4f}, {1e3 * per_step:.2f} ms a step")
dist.destroy_process_group()
