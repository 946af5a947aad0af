#!/usr/bin/env python3
"""What PyTorch's DistributedDataParallel computes over gloo, for torch_ddp_parity_test.cc.

  torch_ddp.py RANKS FOLDER      prints {"plain": [[losses of rank 0], ...], ...}

FOLDER holds weights.safetensors and data.safetensors, which the test wrote. Models, batches and options are those of
torch_ddp_parity_test.cc. What this PyTorch cannot do is left out.
"""
import json
import multiprocessing
import os
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, post_localSGD_hook, powerSGD_hook
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP

TYPES = {"F32": torch.float32, "I64": torch.int64}
VERSION = tuple(int(part) for part in torch.__version__.split(".")[:2])
STEPS = 20


def read_safetensors(path):
    raw = bytearray(open(path, "rb").read())
    size = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + size])
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        begin, end = (8 + size + at for at in entry["data_offsets"])
        tensors[name] = torch.frombuffer(raw[begin:end], dtype=TYPES[entry["dtype"]]).reshape(entry["shape"]).clone()
    return tensors


class Net(nn.Module):
    def __init__(self, norm=False, table=None, extra=False, tied=False):
        super().__init__()
        self.table = nn.Embedding(30, 64, sparse=table == "sparse") if table else None
        self.fc1, self.fc2, self.out = nn.Linear(20, 64), nn.Linear(64, 64), nn.Linear(64, 10)
        self.norm = nn.BatchNorm1d(64) if norm else None
        self.extra = nn.Linear(20, 64) if extra else None
        self.tied = tied

    def forward(self, x, rows, use_extra):
        # First, so that its gradient comes last: DDP over gloo divides dense gradients that come after a sparse one twice
        # (seen in 1.13 and 2.15).
        looked_up = self.table(rows) if self.table is not None else None
        h = torch.tanh(self.fc1(x))
        if self.norm is not None:
            h = self.norm(h)
        if looked_up is not None:
            h = h + looked_up
        if use_extra:
            h = h + torch.tanh(self.extra(x))
        h = torch.tanh(self.fc2(h))
        if self.tied:
            h = torch.tanh(self.fc2(h))
        return torch.log_softmax(self.out(h), 1)


def load(net, weights):
    with torch.no_grad():
        for name, parameter in net.named_parameters():
            parameter.copy_(weights[name])
    return net


def power(rank, **options):
    def register(ddp):
        state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=rank, start_powerSGD_iter=3, **options)
        ddp.register_comm_hook(state, powerSGD_hook.powerSGD_hook)

    return register


def local(ddp):
    state = post_localSGD_hook.PostLocalSGDState(None, None, 5, post_local_gradient_allreduce=False)
    ddp.register_comm_hook(state, post_localSGD_hook.post_localSGD_hook)


def f16(ddp):
    ddp.register_comm_hook(None, default_hooks.fp16_compress_hook)


def bf16(ddp):
    ddp.register_comm_hook(None, default_hooks.bf16_compress_hook)


ALWAYS = lambda step, rank: True
NEVER = lambda step, rank: False
SOMETIMES = lambda step, rank: step % 4 != 0 and (step + rank) % 3 == 0

# name: options of the model, options of DDP, and what else is different
CASES = {
    "plain": ({}, {}, {}),
    "views": ({}, {"gradient_as_bucket_view": True}, {}),
    "small_buckets": ({}, {"bucket_cap_mb": 0.001}, {}),
    "find_unused": ({"extra": True}, {"find_unused_parameters": True}, {"use_extra": SOMETIMES}),
    "static_graph": ({"extra": True}, {"static_graph": True}, {"use_extra": NEVER}),
    "static_graph_views": ({"tied": True}, {"static_graph": True, "gradient_as_bucket_view": True}, {}),
    "no_sync": ({}, {}, {"accumulate": 2}),
    "tied": ({"tied": True}, {}, {}),
    "frozen": ({}, {}, {"frozen": "fc2.weight"}),
    "batch_norm": ({"norm": True}, {"broadcast_buffers": True}, {}),
    "batch_norm_own_buffers": ({"norm": True}, {"broadcast_buffers": False}, {}),
    "join": ({}, {}, {"uneven": True}),
    "join_by_active": ({}, {}, {"uneven": True, "divide_by_initial_world_size": False}),
    "join_batch_norm": ({"norm": True}, {}, {"uneven": True}),
    "sparse": ({"table": "sparse"}, {}, {"momentum": 0}),
    "dense_table": ({"table": "dense"}, {}, {"momentum": 0}),
    "ignore": ({}, {}, {"ignore": ["fc2.bias"]}),
    "f16": ({}, {}, {"hook": f16}),
    "bf16": ({}, {}, {"hook": bf16}),
    "power_sgd_1": ({}, {}, {"hook": power(1)}),
    "power_sgd_2": ({}, {}, {"hook": power(2)}),
    "power_sgd_4": ({}, {}, {"hook": power(4, min_compression_rate=1)}),
    "power_sgd_cold": ({}, {}, {"hook": power(2, warm_start=False)}),
    "power_sgd_forgets": ({}, {}, {"hook": power(1, use_error_feedback=False)}),
    "power_sgd_epsilon": ({}, {}, {"hook": power(1, orthogonalization_epsilon=1e-6)}),
    "local_sgd": ({}, {}, {"hook": local, "average_every": 4, "after": 5}),
    "autocast": ({}, {}, {"autocast": torch.bfloat16}),
    "autocast_f16": ({}, {}, {"autocast": torch.float16, "scale": 1024}),
    # So large that the first steps overflow in 16 bits, and are left out.
    "f16_scaled": ({}, {}, {"hook": f16, "scale": 2.0**20}),
    "clip_norm": ({}, {}, {"clip_norm": 0.5}),
    "clip_value": ({}, {}, {"clip_value": 0.02}),
    "zero_sgd": ({}, {}, {"zero": (torch.optim.SGD, {"lr": 0.05, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01})}),
    "zero_adam": ({}, {}, {"zero": (torch.optim.Adam, {"lr": 1e-3, "weight_decay": 0.01})}),
    "zero_adamw": ({}, {}, {"zero": (torch.optim.AdamW, {"lr": 1e-3, "weight_decay": 0.1}), "clip_norm": 0.5}),
    "zero_adagrad": ({}, {}, {"zero": (torch.optim.Adagrad, {"lr": 0.01})}),
}
SINCE = {"bf16": (2, 7), "autocast_f16": (2, 4), "f16_scaled": (2, 3)}


def run_case(name, rank, size, weights, data):
    shape, options, more = CASES[name]
    net = load(Net(**shape), weights)
    if "frozen" in more:
        dict(net.named_parameters())[more["frozen"]].requires_grad_(False)
    if "ignore" in more:
        DDP._set_params_and_buffers_to_ignore_for_model(net, more["ignore"])
    ddp = DDP(net, **options)
    if "hook" in more:
        more["hook"](ddp)
    averager = None
    if "average_every" in more:
        from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager

        averager = PeriodicModelAverager(period=more["average_every"], warmup_steps=more["after"])
    trained = [p for p in net.parameters() if p.requires_grad]
    if "zero" in more:
        kind, rates = more["zero"]
        optimizer = ZeroRedundancyOptimizer(trained, optimizer_class=kind, **rates)
    else:
        optimizer = torch.optim.SGD(trained, lr=0.05, momentum=more.get("momentum", 0.9))
    scaler = None
    if "scale" in more:
        scaler = torch.amp.GradScaler("cpu", init_scale=more["scale"], growth_interval=3)
    use_extra = more.get("use_extra", NEVER)
    accumulate = more.get("accumulate", 1)
    losses = []

    def step(number):
        x, y, rows = (data[what][number, rank] for what in ("x", "y", "rows"))

        def forward_and_backward():
            with torch.autocast("cpu", dtype=more.get("autocast", torch.bfloat16), enabled="autocast" in more):
                loss = nn.functional.nll_loss(ddp(x, rows, use_extra(number, rank)), y)
            (scaler.scale(loss) if scaler else loss).backward()
            losses.append(loss.item())

        if (number + 1) % accumulate:
            with ddp.no_sync():
                forward_and_backward()
            return
        forward_and_backward()
        if "clip_norm" in more:
            nn.utils.clip_grad_norm_(net.parameters(), more["clip_norm"])
        if "clip_value" in more:
            nn.utils.clip_grad_value_(net.parameters(), more["clip_value"])
        if scaler:
            scaler.step(optimizer)
            scaler.update()
        else:
            optimizer.step()
        if averager:  # of parameters that have a gradient
            averager.average_parameters(list(net.parameters()))
        optimizer.zero_grad(set_to_none=True)

    if more.get("uneven"):
        with ddp.join(divide_by_initial_world_size=more.get("divide_by_initial_world_size", True)):
            for number in range(STEPS - 4 * rank):
                step(number)
        with torch.no_grad():  # all have the same now
            x, y, rows = (data[what][0, rank] for what in ("x", "y", "rows"))
            net.eval()
            losses.append(nn.functional.nll_loss(net(x, rows, False), y).item())
    else:
        for number in range(STEPS):
            step(number)
    return losses


def run(rank, size, folder, store, results):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}/store", rank=rank, world_size=size)
    weights = read_safetensors(folder + "/weights.safetensors")
    data = read_safetensors(folder + "/data.safetensors")
    found = {}
    try:
        for name in CASES:
            if VERSION >= SINCE.get(name, (0, 0)):
                found[name] = run_case(name, rank, size, weights, data)
    except Exception as error:
        results.put((rank, f"{name}: {error}"))
        raise
    results.put((rank, found))
    dist.barrier()


def main():
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    size, folder = int(sys.argv[1]), sys.argv[2]
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    with tempfile.TemporaryDirectory() as store:
        ranks = [context.Process(target=run, args=(r, size, folder, store, results)) for r in range(size)]
        for process in ranks:
            process.start()
        found = {}
        for _ in ranks:
            rank, losses = results.get(timeout=100)
            if isinstance(losses, str):
                for process in ranks:
                    process.kill()
                sys.exit(f"rank {rank}: {losses}")
            found[rank] = losses
        for process in ranks:
            process.join()
    print(json.dumps({name: [found[r][name] for r in range(size)] for name in found[0]}))


if __name__ == "__main__":
    main()
