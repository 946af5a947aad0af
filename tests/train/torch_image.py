#!/usr/bin/env python3
"""train_image's cnn, trained by PyTorch, for train_image_import_test.cc.

  torch_image.py DATA FOLDER OPTIMIZER      ten steps on the Fashion-MNIST files of DATA; FOLDER/five.pt and FOLDER/ten.pt

The order of samples is that of seed 0 on one rank, a batch has 16.
"""
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data.distributed import DistributedSampler

data, folder, which = sys.argv[1:4]
torch.set_num_threads(1)


class Cnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 32, 3), nn.Conv2d(32, 64, 3)
        self.fc1, self.fc2 = nn.Linear(9216, 128), nn.Linear(128, 10)

    def forward(self, x):
        x = torch.flatten(F.max_pool2d(F.relu(self.conv2(F.relu(self.conv1(x)))), 2), 1)
        return F.log_softmax(self.fc2(F.relu(self.fc1(x))), 1)


def idx(name, shape):
    raw = open(data + "/train-" + name, "rb").read()
    return torch.tensor(list(raw[4 + 4 * len(shape):]), dtype=torch.uint8).reshape(shape)


pictures = (idx("images-idx3-ubyte", [-1, 28, 28]).float() / 255 - 0.2860) / 0.3530
labels = idx("labels-idx1-ubyte", [-1]).long()
torch.manual_seed(3)
model = Cnn()
optimizer = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.02, momentum=0.9),
    "adam": lambda p: torch.optim.Adam(p, lr=0.001),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.001, weight_decay=0.01),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.01),
}[which](model.parameters())
order = list(DistributedSampler(range(len(labels)), num_replicas=1, rank=0, shuffle=True, seed=0))
for step in range(1, 11):
    batch = order[16 * (step - 1):16 * step]
    optimizer.zero_grad()
    F.nll_loss(model(pictures[batch].unsqueeze(1)), labels[batch]).backward()
    optimizer.step()
    if step in (5, 10):
        name = "five" if step == 5 else "ten"
        torch.save({"epoch": 0, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, f"{folder}/{name}.pt")
