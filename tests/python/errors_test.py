"""What the backend tutti of torch.distributed says when something goes wrong.

    python tests/python/errors_test.py [NAME...]      with the package tutti in PYTHONPATH
"""

import datetime
import os
import threading
import time

import torch
import torch.distributed as dist
from ranks import Planned, fails, main, place_of, test

import tutti


@test(3, exit_codes={1: 1})
def a_rank_that_ends_by_an_exception_is_named(rank, ranks):
    dist.barrier()
    if rank == 1:
        raise Planned("no such sample: 17")
    begin = time.monotonic()
    try:
        dist.all_reduce(torch.ones(3))
        raise AssertionError("the call succeeded")
    except dist.DistBackendError as error:
        assert "PeerLost" in str(error) and "rank 1" in str(error), error
    assert time.monotonic() - begin < 10


@test(2)
def buffers_of_wrong_sizes_are_rejected(rank, ranks):
    try:
        dist.reduce_scatter(torch.zeros(2_000_000), [torch.ones(5), torch.ones(5)])
        raise AssertionError("it read beyond its input")
    except RuntimeError as error:
        assert "the output has 2000000 elements, and this rank's input 5" in str(error), error


@test(2)
def different_calls_are_shown(rank, ranks):
    try:
        dist.all_reduce(torch.ones(1000 + rank))
        raise AssertionError("the call succeeded")
    except dist.DistBackendError as error:
        assert "Mismatch" in str(error) and "1000" in str(error) and "1001" in str(error), error


@test(2)
def a_rank_that_does_not_come_is_a_timeout(rank, ranks):
    if rank == 1:
        time.sleep(2)
        return
    work = dist.all_reduce(torch.ones(2), async_op=True)
    try:
        work.wait(timeout=datetime.timedelta(milliseconds=200))
        raise AssertionError("the wait succeeded")
    except dist.DistBackendError as error:
        assert " Timed out " in str(error) and "200 ms" in str(error), error


@test(3, backend=None)
def a_rank_with_another_backend_is_named_within_seconds(rank, ranks):
    for wrong in 1, 0:
        done = dist.FileStore(place_of(f"mixed-{wrong}-done"), ranks)
        store = "file://" + place_of(f"mixed-{wrong}")

        def join(backend, store=store):
            dist.init_process_group(
                backend, init_method=store, rank=rank, world_size=ranks, timeout=datetime.timedelta(seconds=100)
            )

        if rank == wrong:
            threading.Thread(target=lambda: fails(lambda: join("gloo"), error=Exception), daemon=True).start()
        else:
            fails(lambda: join("tutti"), "Mismatch", f"rank {wrong} uses the backend gloo", error=dist.DistBackendError)
        done.set(str(rank), "")
        done.wait([str(r) for r in range(ranks)], datetime.timedelta(seconds=60))


@test(2, backend=None)
def a_rank_that_never_joins_is_named(rank, ranks):
    if rank == 0:
        return
    begin = time.monotonic()
    try:
        dist.init_process_group(
            "tutti",
            init_method="file://" + place_of("never"),
            rank=rank,
            world_size=ranks,
            timeout=datetime.timedelta(seconds=3),
        )
        raise AssertionError("rank 0 never came")
    except dist.DistBackendError as error:
        for words in "Timed out", "rank 0 of 2 did not join", "does every rank use the backend tutti":
            assert words in str(error), error
        assert "frame #" not in str(error), error
    assert time.monotonic() - begin < 30


@test(2)
def options_of_other_backends_are_rejected(rank, ranks):
    options = dist.ProcessGroupGloo._Options()
    fails(lambda: dist.new_group([0, 1], pg_options=options), "pg_options", "no options", error=ValueError)


def error_of(call):
    """The error of the backend with which a call ends."""
    try:
        call()
    except Exception as exception:
        error = tutti.error_of(exception)
        assert error, repr(exception)
        assert error.text in str(exception)
        return error
    raise AssertionError("the call succeeded")


@test(4)
def late_ranks_are_a_list_on_every_rank(rank, ranks):
    group = dist.new_group([1, 2, 3], timeout=datetime.timedelta(seconds=1))
    if rank == 0:
        return
    store = dist.FileStore(place_of("late"), ranks)
    if rank == 2:
        store.wait(["1 has given up", "3 has given up"], datetime.timedelta(seconds=60))
    error = error_of(lambda: dist.all_reduce(torch.ones(3), group=group))
    store.set(f"{rank} has given up", "")
    assert error.kind in ("Timeout", "Aborted"), error
    assert error.late_ranks == [1] and error.lost_ranks == [], error
    assert error.rank == rank - 1 and error.operation.startswith("all_reduce #1"), error
    if error.kind == "Timeout":
        assert 1 <= error.waited < 30 and error.limit == 1 and "same order" in error.hint, error
    else:
        assert error.peer is not None and "Timeout" in error.cause, error


@test(3, exit_codes={1: 1})
def lost_ranks_are_a_list_on_every_rank(rank, ranks):
    dist.barrier()
    if rank == 1:
        raise Planned("no such sample: 17")

    def call():
        try:
            dist.all_reduce(torch.ones(3))
        except dist.DistBackendError as exception:
            raise KeyError("of the program") from exception

    try:
        call()
        raise AssertionError("the call succeeded")
    except KeyError as exception:
        error = tutti.error_of(exception)
    assert error.lost_ranks == [1] and error.late_ranks == [], error


@test(2)
def an_error_is_found_in_what_torch_makes_of_it(rank, ranks):
    assert tutti.error_of(ValueError("tutti: PeerLost: rank 1")) is None
    future = dist.all_reduce(torch.ones(1000 + rank), async_op=True).get_future()
    error = error_of(lambda: future.then(lambda done: done.value()).wait())
    assert error.kind == "Mismatch" and error.peer == 1 - rank, error
    assert error_of(lambda: dist.broadcast(torch.ones(1), 7)).kind in ("Mismatch", "InvalidArgument")


@test(2)
def a_forked_process_gets_an_error(rank, ranks):
    """Not a crash, and not a wait."""

    def in_fork(call, *words):
        child = os.fork()
        if child == 0:
            try:
                fails(call, *words)
            except BaseException as error:
                print(repr(error), flush=True)
                os._exit(1)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0

    tensor = torch.ones(1)
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    for call in (
        lambda: dist.all_reduce(tensor),
        lambda: dist.all_reduce(tensor, async_op=True),
        dist.monitored_barrier,
        backend.abort,
        lambda: backend.allocate_tensor(3, dtype=torch.float32, device=torch.device("cpu")),
        lambda: dist.new_group([rank], use_local_synchronization=True),
    ):
        in_fork(call, "forked", "DataLoader")
    dist.all_reduce(tensor)
    assert tensor.item() == ranks


@test(3)
def outputs_whose_elements_share_memory_are_rejected(rank, ranks):
    one = torch.full((1,), float(rank))
    several = [torch.zeros(4) for _ in range(ranks)]
    for call in (
        lambda: dist.all_reduce(one.expand(4)),
        lambda: dist.all_reduce(torch.ones(1, dtype=torch.int16).expand(4)),
        lambda: dist.all_gather([*several[1:], one.expand(4)], torch.ones(4)),
        lambda: dist.reduce_scatter(one.expand(4), several),
    ):
        fails(call, "share memory", "clone()")
    to = torch.zeros(4)
    dist.broadcast(one.expand(4) if rank == 1 else to, 1)  # inputs may
    assert rank == 1 or to.tolist() == [1] * 4, to
    dist.reduce(torch.zeros(4) if rank == 2 else one.expand(4), 2)
    dist.all_gather(several, one.expand(4))
    assert [tensor[3].item() for tensor in several] == list(range(ranks)), several


if __name__ == "__main__":
    main()
