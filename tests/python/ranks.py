"""Tests whose ranks are processes: every rank calls the function of the test, in a default group on its backend.

A file of tests marks its functions with @test and ends with main().
"""

import datetime
import multiprocessing
import os
import sys
import tempfile
import time
import traceback

import torch.distributed as dist

import tutti

tutti.register()
SECONDS = datetime.timedelta(seconds=30)
TESTS = {}
_world = None  # of this process: its rank, their number, and the folder of the stores


def test(ranks, backend="tutti", exit_codes=None, **environment):
    """On so many ranks, each in a process with these variables, and the default group on that backend unless it is None.

    exit_codes: by rank, those that are not 0.
    environment: {folder} in a value is the folder of the stores.
    """

    def add(body):
        TESTS[body.__name__] = (body, ranks, backend, exit_codes or {}, environment)
        return body

    return add


class Planned(BaseException):
    """An exception with which a test ends a rank."""


def place_of(name):
    """A path for a file that the ranks of this test share."""
    return f"{_world[2]}/{name}"


def make_world(backend, store):
    """The default group, in place of the one that there is. store: a name; worlds may share one."""
    rank, ranks, _ = _world
    if dist.is_initialized():
        dist.destroy_process_group()
    dist.init_process_group(
        backend, init_method="file://" + place_of(store), rank=rank, world_size=ranks, timeout=SECONDS
    )


def start(rank, name, folder, errors):
    global _world
    body, ranks, backend, _, _ = TESTS[name]
    _world = rank, ranks, folder
    try:
        if backend:
            make_world(backend, "store")
        body(rank, ranks)
        if dist.is_initialized():
            dist.destroy_process_group()
    except Exception:
        errors.put((rank, traceback.format_exc()[-8000:]))  # less than a pipe holds


def run(name, context):
    """What went wrong, by rank; empty: nothing."""
    _, ranks, _, exit_codes, environment = TESTS[name]
    errors = context.SimpleQueue()
    with tempfile.TemporaryDirectory() as folder:
        processes = [context.Process(target=start, args=(rank, name, folder, errors)) for rank in range(ranks)]
        os.environ.update({variable: value.format(folder=folder) for variable, value in environment.items()})
        for process in processes:
            process.start()
        for variable in environment:
            del os.environ[variable]
        wrong = []
        deadline = time.monotonic() + 120
        for rank, process in enumerate(processes):
            process.join(max(0, deadline - time.monotonic()))
            if process.exitcode is None:
                process.kill()
                wrong.append(f"rank {rank} hangs")
            elif process.exitcode != exit_codes.get(rank, 0):
                wrong.append(f"rank {rank} ended with {process.exitcode}")
        while not errors.empty():
            wrong.append("rank %d: %s" % errors.get())
    return wrong


def fails(call, *words, error=RuntimeError):
    """The call raises this error, whose text has these words."""
    try:
        call()
    except error as raised:
        for word in words:
            assert word in str(raised), raised
        return
    raise AssertionError("the call succeeded")


def main(preload=None):
    """Runs the tests that the command line names, else all.

    preload: modules to import once. Ranks are then forked from a process that has done it, so that they start
    in no time; they end without Python's own end.
    """
    context = multiprocessing.get_context("forkserver" if preload else "spawn")
    if preload:
        context.set_forkserver_preload(preload)
    failed = 0
    for name in sys.argv[1:] or TESTS:
        began = time.monotonic()
        wrong = run(name, context)
        failed += bool(wrong)
        print("FAILED" if wrong else "ok", name, f"({time.monotonic() - began:.1f} s)", flush=True)
        for line in wrong:
            print("  " + line.replace("\n", "\n  "), flush=True)
    sys.exit(1 if failed else 0)
