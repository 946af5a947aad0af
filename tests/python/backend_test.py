"""The backend tutti of torch.distributed against gloo: every verb on the same tensors.

    python tests/python/backend_test.py [NAME...]     with the package tutti in PYTHONPATH
"""

import datetime
import json
import os
import threading
import time
import warnings

import torch
import torch.distributed as dist
from ranks import SECONDS, fails, main, make_world, place_of, test

import tutti


def data(rank, count, dtype, seed=0):
    generator = torch.Generator().manual_seed(100 * seed + rank)
    if dtype == torch.bool:
        return torch.randint(0, 2, (count,), generator=generator).bool()
    return torch.randint(-4, 5, (count,), generator=generator).to(dtype)


DTYPES = [
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int8,
    torch.uint8,
    torch.int32,
    torch.int64,
]


@test(3)
def every_verb_gives_what_gloo_gives(rank, ranks):
    gloo = dist.new_group(backend="gloo", timeout=SECONDS)

    def same(call, what):
        results = []
        for group in (None, gloo):
            result = call(group)
            results.append(result if isinstance(result, list) else [result])
        for ours, theirs in zip(*results, strict=True):
            assert torch.equal(ours, theirs), f"{what}: {ours} against {theirs}"

    def all_reduce(group, dtype, op):
        tensor = data(rank, 1000, dtype)
        dist.all_reduce(tensor, op=op, group=group)
        return tensor

    for dtype in DTYPES:
        for op in (dist.ReduceOp.SUM, dist.ReduceOp.MIN, dist.ReduceOp.MAX, dist.ReduceOp.PRODUCT):
            same(lambda group, d=dtype, o=op: all_reduce(group, d, o), f"all_reduce {dtype} {op}")

    def broadcast(group):
        tensor = data(rank, 777, torch.float32)
        dist.broadcast(tensor, 1, group=group)
        return tensor

    def reduce(group):
        tensor = data(rank, 777, torch.float32)
        dist.reduce(tensor, 2, group=group)
        return tensor if rank == 2 else torch.zeros(1)

    def all_gather(group):
        outputs = [torch.zeros(5, dtype=torch.int32) for _ in range(ranks)]
        dist.all_gather(outputs, data(rank, 5, torch.int32), group=group)
        return outputs

    def all_gather_into_tensor(group):
        output = torch.zeros(ranks * 5)
        dist.all_gather_into_tensor(output, data(rank, 5, torch.float32), group=group)
        return output

    def gather(group):
        outputs = [torch.zeros(5) for _ in range(ranks)] if rank == 1 else None
        dist.gather(data(rank, 5, torch.float32), outputs, dst=1, group=group)
        return outputs or [torch.zeros(1)]

    def scatter(group):
        output = torch.zeros(5)
        inputs = [data(r, 5, torch.float32) for r in range(ranks)] if rank == 1 else None
        dist.scatter(output, inputs, src=1, group=group)
        return output

    def reduce_scatter(group):
        output = torch.zeros(5)
        dist.reduce_scatter(output, [data(rank, 5, torch.float32, seed=r) for r in range(ranks)], group=group)
        return output

    def all_to_all_single(group):
        output = torch.zeros(sum(r + 1 for r in range(ranks)) if rank == 0 else ranks * (rank + 1))
        sizes = [rank + 1] * ranks
        output = torch.zeros(sum(sizes))
        inputs = torch.cat([data(rank, r + 1, torch.float32, seed=r) for r in range(ranks)])
        dist.all_to_all_single(output, inputs, sizes, [r + 1 for r in range(ranks)], group=group)
        return output

    def transposed(group):
        tensor = data(rank, 12, torch.float32).reshape(3, 4).t()
        dist.broadcast(tensor, 0, group=group)
        return tensor

    def sparse(group):
        tensor = torch.sparse_coo_tensor([[rank, 0]], [1.0, 2.0], (ranks + 1,))
        dist.all_reduce(tensor, group=group)
        return tensor.to_dense()

    for verb in (
        broadcast,
        reduce,
        all_gather,
        all_gather_into_tensor,
        gather,
        scatter,
        reduce_scatter,
        all_to_all_single,
        transposed,
        sparse,
    ):
        same(verb, verb.__name__)


@test(2)
def tensors_with_holes_and_other_types(rank, ranks):
    whole = torch.arange(24.0).reshape(4, 6) + rank
    dist.all_reduce(whole[:, ::2])  # gloo adds up what is in the holes instead
    expected = torch.arange(24.0).reshape(4, 6) + rank
    expected[:, ::2] = 2 * torch.arange(24.0).reshape(4, 6)[:, ::2] + 1
    assert torch.equal(whole, expected), whole
    outputs = [torch.zeros(3, dtype=torch.int16) for _ in range(ranks)]
    dist.all_gather(outputs, torch.full((3,), rank, dtype=torch.int16))
    assert outputs[1].tolist() == [1, 1, 1]
    uneven = [torch.zeros(r + 1) for r in range(ranks)]
    dist.all_gather(uneven, torch.full((rank + 1,), float(rank)))
    assert uneven[1].tolist() == [1, 1]
    try:
        dist.all_reduce(torch.ones(3, dtype=torch.uint32))
        raise AssertionError("uint32 was added")
    except RuntimeError as error:
        assert "Invalid scalar type" in str(error), error


@test(3)
def messages_objects_and_groups(rank, ranks):
    if rank == 0:
        dist.send(torch.arange(5.0), 1, tag=7)
    if rank == 1:
        received = torch.zeros(5)
        assert dist.recv(received, tag=7) == 0 and received[4] == 4
    calls = [
        dist.P2POp(dist.isend, torch.full((3,), float(rank)), (rank + 1) % ranks),
        dist.P2POp(dist.irecv, torch.zeros(3), (rank - 1) % ranks),
    ]
    for work in dist.batch_isend_irecv(calls):
        work.wait()
    assert calls[1].tensor[0] == (rank - 1) % ranks
    objects = [None] * ranks
    dist.all_gather_object(objects, {"rank": rank})
    assert objects[2] == {"rank": 2}
    for _ in range(20):
        ends = dist.new_group([0, 2])
        if rank != 1:
            tensor = torch.ones(4)
            dist.all_reduce(tensor, group=ends)
            assert tensor[0] == 2
    assert dist.get_backend(ends if rank != 1 else None) == "tutti"


@test(2)
def futures_coalescing_and_shared_memory(rank, ranks):
    future = dist.all_reduce(torch.ones(3), async_op=True).get_future()
    assert future.then(lambda done: done.value()[0] * 2).wait()[0] == 2 * ranks
    first, second = torch.ones(2), torch.ones(3)
    with dist._coalescing_manager(device=torch.device("cpu"), async_ops=True) as works:
        dist.all_reduce(first)
        dist.all_reduce(second)
    works.wait()
    assert first[0] == ranks and second[0] == ranks
    with tutti.shared_memory():
        shared = torch.ones(1 << 18)
    dist.all_reduce(shared)
    assert shared[0] == ranks and shared[-1] == ranks
    dropped = torch.ones(1000)
    dist.all_reduce(dropped, async_op=True)  # the handle goes at once
    dist.barrier()
    assert dropped[0] == ranks


@test(2)
def a_training_is_that_of_gloo(rank, ranks):
    gloo = dist.new_group(backend="gloo", timeout=SECONDS)
    losses = []
    for group, hook in ((None, None), (gloo, None), (None, tutti.ddp_hook())):
        torch.manual_seed(1)
        model = torch.nn.Sequential(torch.nn.Linear(20, 50), torch.nn.ReLU(), torch.nn.Linear(50, 3))
        ddp = torch.nn.parallel.DistributedDataParallel(model, process_group=group, bucket_cap_mb=0.001)
        if hook:
            ddp.register_comm_hook(None, hook)
        optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
        for step in range(5):
            torch.manual_seed(10 * step + rank)
            optimizer.zero_grad()
            loss = ddp(torch.randn(8, 20)).square().mean()
            loss.backward()
            optimizer.step()
        losses.append(loss.item())
    assert losses[0] == losses[1] == losses[2], losses  # exact: a half of each gradient


@test(2)
def a_world_may_be_made_again(rank, ranks):
    for _ in range(3):
        make_world("tutti", "again")  # in one store, as under torchrun
        tensor = torch.ones(1)
        dist.all_reduce(tensor)
        assert tensor[0] == ranks


@test(2)
def a_group_may_be_ended_twice(rank, ranks):
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    dist.destroy_process_group()
    backend.abort()
    backend.shutdown()
    fails(lambda: backend.allreduce([torch.ones(1)]), "shut down")


@test(2)
def calls_under_way_survive_a_shutdown(rank, ranks):
    if rank == 0:
        dist.isend(torch.full((4_000_000,), 7.0), 1)
    else:
        time.sleep(1)
        tensor = torch.zeros(4_000_000)
        dist.recv(tensor, 0)
        assert torch.equal(tensor, torch.full((4_000_000,), 7.0))
    dist.destroy_process_group()


@test(2)
def a_callback_may_wait_for_another_call(rank, ranks):
    first, second = torch.ones(10), torch.full((1000,), 2.0)

    def then(future):
        return dist.all_reduce(second, async_op=True).get_future().wait()[0]

    result = dist.all_reduce(first, async_op=True).get_future().then(then).wait()
    assert result[0] == 2 * ranks


@test(2)
def ranks_may_have_other_strides_and_modes(rank, ranks):
    tensor = torch.arange(6.0).reshape(2, 3)
    if rank == 1:
        tensor = torch.empty(3, 2).t().copy_(tensor)
    dist.all_reduce(tensor)
    assert torch.equal(tensor, ranks * torch.arange(6.0).reshape(2, 3)), tensor
    with torch.inference_mode():
        tensor = torch.ones(1000, dtype=torch.int16)
        if rank == 1:
            time.sleep(0.2)
        dist.all_reduce(tensor, async_op=True).get_future().wait()
        assert tensor[0] == ranks
    dropped = torch.ones(10, dtype=torch.int16)
    dist.all_reduce(dropped, async_op=True)  # the handle goes at once
    dist.barrier()
    assert dropped[0] == ranks


@test(2)
def shared_memory_is_for_this_process_while_the_group_lives(rank, ranks):
    with tutti.shared_memory():
        child = os.fork()
        if child == 0:
            os._exit(0 if torch.ones(100_000).sum() == 100_000 else 1)
        assert os.waitpid(child, 0)[1] == 0
        dist.destroy_process_group()
        assert torch.ones(100).sum() == 100
    try:
        with tutti.shared_memory():
            raise AssertionError("there is no group")
    except RuntimeError as error:
        assert "init_process_group" in str(error), error


@test(2)
def helpers_know_their_group_under_debugging(rank, ranks):
    dist.set_debug_level(dist.DebugLevel.DETAIL)
    make_world("tutti", "detail")
    with tutti.shared_memory():
        tensor = torch.ones(100)
        dist.all_reduce(tensor)
    assert tensor[0] == ranks


@test(3)
def narrow_types_are_added_as_wide_ones(rank, ranks):
    for dtype in (torch.int16, torch.uint16, torch.float8_e4m3fn, torch.float8_e5m2):
        mine = [data(r, 12, torch.float32).abs().to(dtype) for r in range(ranks)]
        expected = sum(one.float() for one in mine)
        tensor = mine[rank].clone()
        dist.all_reduce(tensor)
        assert torch.equal(tensor.float(), expected.to(dtype).float()), dtype
        tensor = mine[rank].clone()
        dist.reduce(tensor, 1)
        assert torch.equal(tensor.float(), (expected if rank == 1 else mine[rank]).to(dtype).float()), dtype
        output = torch.empty(4, dtype=dtype)
        dist.reduce_scatter_tensor(output, mine[rank])
        assert torch.equal(output.float(), expected.to(dtype).float()[4 * rank : 4 * rank + 4]), dtype
    tensor = torch.full((3,), 30000, dtype=torch.int16)
    dist.all_reduce(tensor)
    assert tensor.tolist() == [90000 - 65536] * 3, "as 16-bit integers overflow"


@test(2, backend="gloo", TUTTI_REPLACE_GLOO="1")
def a_program_that_asks_for_gloo_gets_tutti(rank, ranks):
    for group in dist.group.WORLD, dist.new_group([0, 1]):
        assert "TuttiBackend" in repr(group._get_backend(torch.device("cpu"))), group
        tensor = torch.full((3,), float(rank + 1))
        dist.all_reduce(tensor, group=group)
        assert tensor.tolist() == [3, 3, 3], tensor
    dist.monitored_barrier()  # it checks that the backend is called gloo
    assert dist.get_backend() == "gloo"
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 1))
    model(torch.full((1, 3), float(rank))).sum().backward()
    assert model.module.weight.grad.tolist() == [[0.5, 0.5, 0.5]]


@test(2)
def shared_memory_serves_operators_that_free_by_address(rank, ranks):
    with tutti.shared_memory():
        tensor = torch.randn(64, 64, requires_grad=True)
        torch.nn.functional.gelu(tensor @ tensor).sum().backward()
        inside = torch.nn.functional.gelu(tensor.detach())
    assert torch.equal(inside, torch.nn.functional.gelu(tensor.detach()))
    dist.all_reduce(tensor.grad)
    assert torch.ones(10).sum() == 10


@test(2, TUTTI_HEAP_LIMIT="64M")
def a_full_heap_gives_ordinary_memory(rank, ranks):
    with tutti.shared_memory():
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            tensors = [torch.ones(8_000_000), *(torch.ones(20_000_000) for _ in range(3))]
    assert sum("TUTTI_HEAP_LIMIT" in str(one.message) for one in caught) == 1, caught
    for tensor in tensors:
        dist.all_reduce(tensor)
        assert tensor[0] == tensor[-1] == ranks


@test(2)
def several_threads_use_shared_memory(rank, ranks):
    entered, left = threading.Event(), threading.Event()

    def overlap():
        with tutti.shared_memory():
            entered.set()
            left.wait(60)

    other = threading.Thread(target=overlap)
    with tutti.shared_memory():
        other.start()
        assert entered.wait(60)
    left.set()
    other.join(60)
    assert mapping_of(torch.ones(100).data_ptr()) == "", "torch has its allocator again"
    shared = []
    for _ in range(1000):
        with tutti.shared_memory():
            shared.append(torch.ones(100))
    assert "tutti" in mapping_of(shared[-1].data_ptr())


def mapping_of(address):
    """The name of the memory in /proc/self/maps that has this address, "" for that of malloc()."""
    with open("/proc/self/maps") as maps:
        for line in maps:
            fields = line.split()
            begin, end = (int(part, 16) for part in fields[0].split("-"))
            if begin <= address < end:
                return "" if len(fields) < 6 or fields[5] == "[heap]" else fields[5]
    raise AssertionError(f"nothing is at {address:x}")


@test(2)
def direct_calls_check_their_tensors(rank, ranks):
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    pair = [torch.ones(4), torch.ones(4)]
    narrow = [torch.ones(4, dtype=torch.int8), torch.ones(4, dtype=torch.int8)]
    for outputs, inputs in (narrow, pair), (pair, narrow), (pair, [pair[0], narrow[1]]):
        fails(lambda o=outputs, i=inputs: backend.alltoall(o, i), "all_to_all", "same dtype")
    uneven = [torch.ones(3 + (r == rank)) for r in range(ranks)]
    fails(lambda: backend.alltoall(uneven, [torch.ones(3)] * ranks), f"rank {rank} sends 3 elements to itself")
    fails(
        lambda: dist.all_to_all_single(torch.ones(4), torch.ones(4), [3, 1], [1, 3]),
        f"rank {rank} sends {1 + 2 * rank} elements to itself",
    )
    fails(lambda: backend.reduce_scatter([torch.ones(4)], [narrow]), "reduce_scatter", "same dtype")
    fails(lambda: backend.reduce_scatter([torch.ones(4)], [[pair[0], narrow[1]]]), "reduce_scatter", "same dtype")
    elsewhere = [torch.ones(4), torch.empty(4, device="meta")]
    fails(lambda: backend.allgather([elsewhere], [torch.ones(4)]), "on meta")
    fails(lambda: backend.alltoall(elsewhere, pair), "on meta")
    dist.all_reduce(pair[0])  # the group is as it was
    assert pair[0][0] == ranks


@test(2)
def sparse_all_reduce_is_asynchronous_and_has_a_limit(rank, ranks):
    def sparse():
        return torch.sparse_coo_tensor([[rank, ranks]], [1.0, 2.0], (ranks + 1,), check_invariants=True)

    tensors = [sparse() for _ in range(3)]
    for work in [dist.all_reduce(tensor, async_op=True) for tensor in tensors]:
        work.wait()
    for tensor in tensors:
        assert tensor.to_dense().tolist() == [1.0] * ranks + [2.0 * ranks], tensor
    result = dist.all_reduce(tensors[0], async_op=True).get_future().wait()[0]
    assert result.to_dense()[ranks] == 2.0 * ranks * ranks
    store = dist.FileStore(place_of("sparse"), ranks)
    if rank == 0:
        options = dist.AllreduceOptions()
        options.timeout = datetime.timedelta(seconds=1)
        begin = time.monotonic()
        fails(lambda: dist.group.WORLD.allreduce([sparse()], options).wait(), "Timed out")
        assert time.monotonic() - begin < 20
        store.set("rank 0 has given up", "")
    else:
        store.wait(["rank 0 has given up"], datetime.timedelta(seconds=60))


@test(2)
def coalescing_takes_the_synchronous_calls_of_its_thread(rank, ranks):
    world, cpu, store = dist.group.WORLD, torch.device("cpu"), dist.FileStore(place_of("coalescing"), ranks)
    tensors = [torch.full((2,), float(rank)) for _ in range(2)]
    options = dist.AllreduceOptions()
    options.asyncOp = False
    if rank == 1:
        store.wait(["rank 0 has called"], SECONDS)
    world._start_coalescing(cpu)
    for tensor in tensors:
        world.allreduce([tensor], options)
    other = []

    def end_in_other_thread():
        fails(lambda: world._end_coalescing(cpu), "without startCoalescing()")
        other.append("has failed")

    thread = threading.Thread(target=end_in_other_thread)
    thread.start()
    thread.join(60)
    work = world._end_coalescing(cpu)
    store.set("rank 0 has called", "")
    work.wait()
    assert [tensor.tolist() for tensor in tensors] == [[1.0, 1.0]] * 2, tensors
    assert other == ["has failed"]


@test(2)
def the_backend_is_for_tensors_of_both_devices(rank, ranks):
    assert dist.get_backend_config() == "cpu:tutti,cuda:tutti", dist.get_backend_config()
    objects = [None] * ranks
    dist.all_gather_object(objects, rank)  # on the CPU
    dist.barrier()
    assert objects == list(range(ranks))


def flight_records():
    dump = json.loads(torch._C._distributed_c10d._dump_fr_trace_json(includeCollectives=True, backend="tutti"))
    return {entry["profiling_name"]: entry["state"] for entry in dump["entries"]}


@test(2, TORCH_FR_BUFFER_SIZE="100")
def the_flight_recorder_of_torch_knows_what_has_ended(rank, ranks):
    if not hasattr(torch._C._distributed_c10d, "FlightRecorderHook"):
        return  # torch before 2.15
    dist.all_reduce(torch.ones(3))
    assert flight_records() == {"tutti:all_reduce": "completed"}
    store = dist.FileStore(place_of("flight"), ranks)
    if rank == 1:
        store.wait(["rank 0 has looked"], datetime.timedelta(seconds=60))
    work = dist.broadcast(torch.ones(3), 1, async_op=True)
    if rank == 0:
        assert flight_records()["tutti:broadcast"] == "scheduled"
        store.set("rank 0 has looked", "")
    work.wait()
    assert flight_records()["tutti:broadcast"] == "completed"


@test(2, TORCH_FR_DUMP_TEMP_FILE="{folder}/dump-of-")
def the_flight_recorder_of_torch_is_written_after_a_failure(rank, ranks):
    if not hasattr(torch._C._distributed_c10d, "FlightRecorderHook"):
        return  # torch before 2.15
    fails(lambda: dist.all_reduce(torch.ones(1000 + rank)), "Mismatch")
    os.remove(os.environ["TORCH_FR_DUMP_TEMP_FILE"] + str(rank))


@test(3)
def gather_single_gathers_into_one_tensor(rank, ranks):
    if not hasattr(dist, "gather_single"):
        return  # torch before 2.15
    output = torch.zeros(2 * ranks) if rank == 1 else None
    dist.gather_single(torch.full((2,), float(rank)), output, dst=1)
    if rank == 1:
        assert output.tolist() == [0, 0, 1, 1, 2, 2], output


if __name__ == "__main__":
    main()
