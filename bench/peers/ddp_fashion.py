#!/usr/bin/env python3
"""PyTorch's DistributedDataParallel over Gloo on Fashion-MNIST, on CPUs: the same networks, data and batches as train_image.

  tutti run -n 2 -- python3 bench/peers/ddp_fashion.py --model mlp      or torchrun --nproc-per-node 2

One process per rank, with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT set. Rank 0 prints a line of JSON: samples per second,
milliseconds per step, test accuracy. The first three steps of an epoch are not counted.

  --model cnn   the MNIST network of PyTorch's examples, 1.2 million parameters
  --model mlp   784-4096-4096-10, 20 million parameters: most of a step is the exchange of gradients
"""
import argparse
import gzip
import json
import os
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

UNCOUNTED = 3


class Cnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 32, 3), nn.Conv2d(32, 64, 3)
        self.fc1, self.fc2 = nn.Linear(9216, 128), nn.Linear(128, 10)

    def forward(self, x):
        x = F.relu(self.conv2(F.relu(self.conv1(x))))
        x = torch.flatten(F.max_pool2d(x, 2), 1)
        return F.log_softmax(self.fc2(F.relu(self.fc1(x))), dim=1)


class Mlp(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Flatten(), nn.Linear(784, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU(),
                         nn.Linear(4096, 10), nn.LogSoftmax(dim=1))  # fmt: skip


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="/usr/share/datasets/fashion-mnist", help="folder with the four files of Fashion-MNIST")
    parser.add_argument("--model", default="cnn", choices=["cnn", "mlp"])
    parser.add_argument("--batch-size", type=int, default=64, help="samples per rank and step (64)")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--max-steps", type=int, default=0, help="end each epoch after this many steps; 0: do not (0)")
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def read_idx(path):
    with gzip.open(path, "rb") as file:
        raw = file.read()
    dimensions = raw[3]
    shape = [int.from_bytes(raw[4 + 4 * i:8 + 4 * i], "big") for i in range(dimensions)]
    return torch.frombuffer(bytearray(raw[4 + 4 * dimensions:]), dtype=torch.uint8).reshape(shape)


def load(folder, split):
    images = read_idx(f"{folder}/{split}-images-idx3-ubyte.gz").float().div_(255).sub_(0.2860).div_(0.3530)
    return images.unsqueeze(1), read_idx(f"{folder}/{split}-labels-idx1-ubyte.gz").long()


def train_epoch(given, model, optimizer, images, labels, order):
    """Counted steps, and the seconds that they took."""
    steps, begin = 0, None
    for at in range(0, len(order) - given.batch_size + 1, given.batch_size):
        if given.max_steps and steps >= given.max_steps:
            break
        if steps == UNCOUNTED:
            dist.barrier()
            begin = time.perf_counter()
        batch = order[at:at + given.batch_size]
        optimizer.zero_grad()
        F.nll_loss(model(images[batch]), labels[batch]).backward()
        optimizer.step()
        steps += 1
    dist.barrier()
    return (steps - UNCOUNTED, time.perf_counter() - begin) if begin else (0, 0.0)


def accuracy(model, images, labels):
    model.eval()
    with torch.no_grad():
        hits = sum((model(images[i:i + 500]).argmax(1) == labels[i:i + 500]).sum().item() for i in range(0, len(images), 500))
    return hits / len(labels)


def main():
    given = arguments()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    images, labels = load(given.data, "train")
    torch.manual_seed(given.seed)
    model = nn.parallel.DistributedDataParallel(Cnn() if given.model == "cnn" else Mlp())
    optimizer = torch.optim.SGD(model.parameters(), lr=given.lr, momentum=0.9)
    steps, seconds = 0, 0.0
    for epoch in range(given.epochs):
        order = torch.randperm(len(images), generator=torch.Generator().manual_seed(given.seed + epoch))[rank::world]
        counted, took = train_epoch(given, model, optimizer, images, labels, order)
        steps, seconds = steps + counted, seconds + took
    reached = accuracy(model.module, *load(given.data, "t10k"))
    if rank == 0:
        print(json.dumps({
            "peer": "pytorch-ddp-gloo",
            "torch": torch.__version__,
            "model": given.model,
            "world": world,
            "batch_per_rank": given.batch_size,
            "steps": steps,
            "ms_per_step": round(1e3 * seconds / steps, 3) if steps else 0.0,
            "samples_per_s": round(steps * given.batch_size * world / seconds, 1) if steps else 0.0,
            "test_accuracy": reached,
        }))  # fmt: skip
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
