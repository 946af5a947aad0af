"""What PyTorch builds on a backend, on tutti against gloo, and what happens to it when ranks fail.

    python tests/python/parallel_test.py [NAME...]     with the package tutti in PYTHONPATH
"""

import functools
import os
import signal
import threading
import time

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from ranks import SECONDS, main, make_world, test
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

STEPS = 3


def as_on_gloo(ranks):
    """A test that returns tensors, by name, which must be the same on both backends."""

    def add(body):
        @functools.wraps(body)
        def on_both(rank, ranks):
            results = []
            for backend in "tutti", "gloo":
                make_world(backend, backend)
                torch.manual_seed(0)
                results.append(body(rank, ranks))
            ours, theirs = results
            assert ours.keys() == theirs.keys()
            for name, tensor in theirs.items():
                assert torch.equal(ours[name], tensor), f"{name}: {ours[name]} against {tensor}"

        return test(ranks)(on_both)

    return add


def network():
    return nn.Sequential(nn.Linear(10, 18), nn.ReLU(), nn.Linear(18, 3))


def step_on(model, optimizer, batch):
    optimizer.zero_grad()
    loss = model(batch).square().mean()
    loss.backward()
    optimizer.step()
    return loss.detach()


def trained(model, optimizer, seed):
    """The losses, on batches that depend on the seed."""
    generator = torch.Generator().manual_seed(seed)
    batches = torch.randn(STEPS, 6, 10, generator=generator)
    return torch.stack([step_on(model, optimizer, batch) for batch in batches])


def parameters(model):
    """Whole ones."""
    return {
        name: getattr(value, "full_tensor", lambda value=value: value)().detach()
        for name, value in model.named_parameters()
    }


@as_on_gloo(2)
def ddp_with_buffers_unused_parameters_and_accumulated_gradients(rank, ranks):
    class Branches(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second, self.norm = nn.Linear(10, 3), nn.Linear(10, 3), nn.BatchNorm1d(3)

        def forward(self, x):
            return self.norm(self.first(x) if rank == 0 else self.second(x))

    model = DistributedDataParallel(Branches(), find_unused_parameters=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with model.no_sync():
        model(torch.full((4, 10), float(rank))).sum().backward()
    losses = trained(model, optimizer, rank)
    return {"losses": losses, **parameters(model), "mean": model.module.norm.running_mean}


@as_on_gloo(2)
def fsdp1(rank, ranks):
    model = FullyShardedDataParallel(network(), device_id=torch.device("cpu"))
    losses = trained(model, torch.optim.AdamW(model.parameters(), lr=0.01), rank)
    return {"losses": losses, **model.state_dict()}


@as_on_gloo(2)
def fsdp2(rank, ranks):
    model = network()
    for layer in model:
        fully_shard(layer)
    fully_shard(model)
    losses = trained(model, torch.optim.AdamW(model.parameters(), lr=0.01), rank)
    return {"losses": losses, **parameters(model)}


@as_on_gloo(2)
def dtensors(rank, ranks):
    mesh = init_device_mesh("cpu", (ranks,))
    whole = torch.randn(7, 5)  # in uneven parts
    rows = distribute_tensor(whole, mesh, [Shard(0)])
    columns = rows.redistribute(placements=[Shard(1)])
    product = rows.t() @ rows  # a partial sum on each rank
    assert product.placements[0].is_partial(), product.placements
    results = {
        "columns": columns.to_local(),
        "back": columns.full_tensor(),
        "replicate": product.redistribute(placements=[Replicate()]).to_local(),
        "scattered": product.redistribute(placements=[Shard(0)]).to_local(),
        "mean": rows.mean().full_tensor(),
    }
    assert torch.equal(results["back"], whole)
    return results


@as_on_gloo(2)
def tensor_parallel(rank, ranks):
    plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
    model = parallelize_module(network(), init_device_mesh("cpu", (ranks,)), plan)
    losses = trained(model, torch.optim.AdamW(model.parameters(), lr=0.01), 0)
    return {"losses": losses, **parameters(model)}


@as_on_gloo(4)
def a_mesh_of_two_dimensions(rank, ranks):
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensor"))
    plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
    model = parallelize_module(network(), mesh["tensor"], plan)
    fully_shard(model, mesh=mesh["data"])
    losses = trained(model, torch.optim.AdamW(model.parameters(), lr=0.01), mesh["data"].get_local_rank())
    hybrid = fully_shard(network(), mesh=mesh)  # copies over "data" of what "tensor" shards
    more = trained(hybrid, torch.optim.AdamW(hybrid.parameters(), lr=0.01), rank)
    return {"losses": losses, **parameters(model), "hybrid": more, **{f"h{n}": t for n, t in parameters(hybrid).items()}}


@as_on_gloo(2)
def functional_collectives(rank, ranks):
    group = dist.group.WORLD
    mine = torch.randn(4, 6) + rank
    leaf = mine.clone().requires_grad_()
    functional.all_gather_tensor_autograd(leaf, 0, group).square().sum().backward()
    several = [mine, 2 * mine]
    results = {
        "all_reduce": functional.all_reduce(mine, "sum", group),
        "max": functional.all_reduce(mine, "max", group),
        "all_gather": functional.all_gather_tensor(mine, 1, group),
        "reduce_scatter": functional.reduce_scatter_tensor(mine, "sum", 1, group),
        "broadcast": functional.broadcast(mine, 1, group),
        "all_to_all": functional.all_to_all_single(mine[:3], [1 + rank] * 2, [1, 2], group),
        "gradient": leaf.grad,
    }
    for name, many in {
        "all_reduce": functional.all_reduce_coalesced(several, "sum", group),
        "all_gather": functional.all_gather_into_tensor_coalesced(several, group),
        "reduce_scatter": functional.reduce_scatter_tensor_coalesced(several, "sum", [0, 1], group),
    }.items():
        results.update({f"{name} of several, {i}": tensor for i, tensor in enumerate(many)})
    return {name: tensor + 0 for name, tensor in results.items()}  # a sum waits


@as_on_gloo(2)
def coalesced_collectives(rank, ranks):
    inputs = [torch.randn(size) + rank for size in (3, 5)]
    gathered = [torch.zeros(ranks * 3), torch.zeros(ranks * 5)]
    with dist._coalescing_manager():
        for output, tensor in zip(gathered, inputs):
            dist.all_gather_into_tensor(output, tensor)
    wide = [torch.randn(ranks * size) + rank for size in (3, 5)]
    scattered = [torch.zeros(3), torch.zeros(5)]
    with dist._coalescing_manager(async_ops=True) as works:
        for output, tensor in zip(scattered, wide):
            dist.reduce_scatter_tensor(output, tensor)
    works.wait()
    lists = [[torch.zeros(3), torch.zeros(5)] for _ in range(ranks)]
    dist.all_gather_coalesced(lists, inputs)
    return {str(i): tensor for i, tensor in enumerate([*gathered, *scattered, *lists[0], *lists[1]])}


@as_on_gloo(2)
def an_optimizer_whose_state_is_sharded(rank, ranks):
    model = DistributedDataParallel(network())
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=0.01)
    losses = trained(model, optimizer, rank)
    optimizer.consolidate_state_dict(to=1)
    if rank == 1:
        state = {f"moment {i}": s["exp_avg"] for i, s in optimizer.state_dict()["state"].items()}
        assert len(state) == 4, state.keys()
    return {"losses": losses, **parameters(model), **(state if rank == 1 else {})}


@as_on_gloo(2)
def ranks_with_uneven_inputs_join(rank, ranks):
    model = DistributedDataParallel(network())
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, lr=0.1)
    with Join([model, optimizer]):
        for batch in torch.randn(2 + 3 * rank, 6, 10):
            step_on(model, optimizer, batch)
    return parameters(model)


@as_on_gloo(2)
def a_data_loader_forks_workers_while_training(rank, ranks):
    model = DistributedDataParallel(network())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    samples = TensorDataset(torch.randn(64, 10))
    losses = []
    for _ in range(2):  # each time other workers
        for (batch,) in DataLoader(samples, batch_size=8, num_workers=2, multiprocessing_context="fork", shuffle=True):
            losses.append(step_on(model, optimizer, batch))
    assert len(losses) == 16
    return {"losses": torch.stack(losses), **parameters(model)}


@test(3)
def lists_of_tensors_change_places(rank, ranks):
    inputs = [torch.full((rank + 1, to + 1), 10.0 * rank + to) for to in range(ranks)]
    outputs = [torch.empty(source + 1, rank + 1) for source in range(ranks)]
    dist.all_to_all(outputs, inputs)
    for source, output in enumerate(outputs):
        assert torch.equal(output, torch.full((source + 1, rank + 1), 10.0 * source + rank)), (source, output)


@test(3)
def a_group_is_split(rank, ranks):
    part = dist.split_group(split_ranks=[[2, 0], [1]])
    assert dist.get_process_group_ranks(part) == ([1] if rank == 1 else [2, 0])
    tensor = torch.tensor([float(rank)])
    dist.broadcast(tensor, group=part, group_src=0)
    assert tensor.item() == (1 if rank == 1 else 2), tensor
    assert type(part._get_backend(torch.device("cpu"))).__name__ == "TuttiBackend"
    dist.destroy_process_group(part)
    dist.barrier()


@test(2)
def three_threads_use_a_group_each(rank, ranks):
    groups = [dist.new_group() for _ in range(3)]
    wrong = []

    def work(number):
        try:
            for turn in range(300):
                tensor = torch.full((1 + 97 * number,), float(turn + rank))
                dist.all_reduce(tensor, group=groups[number])
                assert tensor[0] == tensor[-1] == 2 * turn + 1, (turn, tensor)
                gathered = [torch.empty(1) for _ in range(ranks)]
                dist.all_gather(gathered, torch.tensor([float(number + rank)]), group=groups[number])
                assert gathered[1].item() == number + 1, gathered
        except Exception as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong, wrong


@test(3)
def destroyed_groups_leave_nothing_behind(rank, ranks):
    def held():
        with open("/proc/self/status") as status:
            shared = next(int(line.split()[1]) for line in status if line.startswith("RssShmem:"))
        return {
            "descriptors": len(os.listdir("/proc/self/fd")),
            "threads": len(os.listdir("/proc/self/task")),
            "MiB shared": shared / 1024,
        }

    for turn in range(50):
        members = [r for r in range(ranks) if r != turn % ranks]
        group = dist.new_group(members)
        if rank in members:
            tensor = torch.ones(1000)
            dist.all_reduce(tensor, group=group)
            assert tensor[0] == 2
            dist.destroy_process_group(group)
        if turn == 10:
            before = held()
    after = held()
    assert all(after[name] <= before[name] + 2 for name in after), (before, after)


def fails_with(call, *words):
    """An error of the call that has these words. How long it took."""
    began = time.monotonic()
    try:
        call()
    except dist.DistBackendError as error:
        for word in words:
            assert word in str(error), error
        return time.monotonic() - began
    raise AssertionError("the call succeeded")


@test(3)
def abort_ends_a_call_that_another_thread_waits_for(rank, ranks):
    if rank == 2:  # calls when it is told to
        dist.new_group(backend="gloo").barrier().wait()
        fails_with(lambda: dist.all_reduce(torch.ones(3)), "abort")
        return
    work = dist.all_reduce(torch.ones(3), async_op=True)
    errors = []
    waiting = threading.Event()

    def wait():
        waiting.set()
        try:
            work.wait()
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    gloo = dist.new_group(backend="gloo", timeout=SECONDS)
    if rank == 0:
        assert waiting.wait(30)
        dist.group.WORLD.abort()
    thread.join(10)
    assert not thread.is_alive(), "it still waits 10 s after abort()"
    assert len(errors) == 1 and isinstance(errors[0], dist.DistBackendError), errors
    assert "abort" in str(errors[0]), errors
    gloo.barrier().wait()


def verbs(rank, ranks):
    """One call of each verb, with rank 1 in the middle. Large enough that ranks wait for each other."""
    size = 300_000
    tensor, whole = torch.ones(size), torch.ones(ranks * size)
    parts = list(whole.chunk(ranks))

    def send(source):
        if rank == source:
            dist.send(tensor, 1)
        elif rank == 1:
            dist.recv(tensor, source)

    def recv(to):
        if rank == to:
            dist.recv(tensor, 1)
        elif rank == 1:
            dist.send(tensor, to)

    return {
        "all_reduce": lambda: dist.all_reduce(tensor),
        "broadcast": lambda: dist.broadcast(tensor, 1),
        "reduce": lambda: dist.reduce(tensor, 1),
        "all_gather": lambda: dist.all_gather(parts, tensor),
        "gather": lambda: dist.gather(tensor, parts if rank == 1 else None, 1),
        "scatter": lambda: dist.scatter(tensor, parts if rank == 1 else None, 1),
        "reduce_scatter": lambda: dist.reduce_scatter(tensor, parts),
        "all_to_all": lambda: dist.all_to_all_single(whole, whole.clone()),
        "send": lambda: (send(0), send(2)),
        "recv": lambda: (recv(0), recv(2)),
        "barrier": dist.barrier,
    }


def test_of_a_kill(verb):
    def body(rank, ranks):
        call = verbs(rank, ranks)[verb]
        store = dist.distributed_c10d._get_default_store()
        for _ in range(3):
            call()
        if rank == 1:
            threading.Thread(target=lambda: [call() for _ in range(100)]).start()
            store.set("killed", str(time.monotonic()))
            os.kill(os.getpid(), signal.SIGKILL)
        fails_with(lambda: [call() for _ in range(10_000)], "rank 1", "PeerLost")
        took = time.monotonic() - float(store.get("killed"))
        assert took < 10, f"the error came {took:.1f} s after the rank was killed"

    body.__name__ = f"a_rank_killed_in_{verb}_is_named"
    test(3, exit_codes={1: -signal.SIGKILL})(body)


for name in verbs(0, 3):
    test_of_a_kill(name)


if __name__ == "__main__":
    main(
        preload=[
            "torch._dynamo",
            "torch.distributed.fsdp",
            "torch.distributed.optim",
            "torch.distributed.tensor.parallel",
        ]
    )
