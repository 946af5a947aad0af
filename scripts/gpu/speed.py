"""The part speed of scripts/on-gpu: GPU memory and training, each against PyTorch in turn on the same GPU.

The figures do not fail the part. The report has each ratio beside its target.
"""

import json
import re
import statistics

import machine
from steps import Failure

SIZES = [1 << 20, 1 << 24, 1 << 26, 1 << 28]  # bytes
RANKS = 2
COPY_TARGET = 0.8  # of copies: through pinned memory, of a staged all_reduce; within the GPU, of one by CUDA IPC
TRAINING_TARGET = 1.0  # of PyTorch's tokens per second
ALONE_TARGET = 0.98  # of those of PyTorch on one rank
HOST_TIME_TARGET = 50  # microseconds of a step


def lines_of_json(output):
    return [json.loads(line) for line in output.splitlines() if line.startswith("{")]


def by_size(output, value):
    """{bytes: value(line)} of the lines of JSON."""
    return {line["bytes"]: value(line) for line in lines_of_json(output) if "bytes" in line}


def ratio(ours, bound, target):
    return {"ratio": round(ours, 3), "target": target, "met": ours >= target, "bound": bound}


def medians(rounds):
    """The median of each size over the rounds."""
    return {size: statistics.median(one[size] for one in rounds) for size in rounds[0]}


def all_reduce(context):
    """all_reduce between two ranks of one GPU against the copies that it is made of, and against PyTorch's over Gloo."""
    runner = context.runner
    environment = context.environment(CUDA_VISIBLE_DEVICES="0")
    sizes = ",".join(map(str, SIZES))
    ours = [context.program("tutti"), "bench", "all_reduce", "-n", RANKS, "--memory", "cuda", "--sizes", sizes, "--json"]
    peer = context.job(RANKS, context.python, machine.ROOT / "bench/peers/device_copy.py", "--bytes", sizes, "--backend", "gloo")
    by_ipc = context.job(RANKS, context.program("gpu_all_reduce"), *SIZES)
    found = {"all_reduce": [], "by_ipc": [], "torch_all_reduce": [], "there_and_back": [], "within_device": []}

    def by_ipc_seconds(output):
        lines = lines_of_json(output)
        if any(line["wrong"] for line in lines):
            raise Failure("elements of the result were wrong")
        if other := {line["path"] for line in lines} - {"ipc"}:
            raise Failure(f"all_reduce took the path {', '.join(other)}, not ipc")
        found["by_ipc"].append(by_size(output, lambda line: line["seconds"]))

    def wrong_or_seconds(output):
        if any(line.get("wrong") for line in lines_of_json(output)):
            raise Failure("elements of the result were wrong")
        found["all_reduce"].append(by_size(output, lambda line: line["us"] * 1e-6))

    def copies(output):
        found["there_and_back"].append(by_size(output, lambda line: line["there_and_back"]))
        found["within_device"].append(by_size(output, lambda line: line["within_device"]))
        found["torch_all_reduce"].append(by_size(output, lambda line: line["all_reduce"]))

    for number in range(1, context.rounds + 1):
        of = f"round {number} of {context.rounds}"
        if not runner.run(f"all_reduce of tutti, {of}", ours, 300, environment, wrong_or_seconds):
            return
        if not runner.run(f"all_reduce by CUDA IPC, {of}", by_ipc, 300, environment, by_ipc_seconds):
            return
        if not runner.run(f"copies and all_reduce of PyTorch, {of}", peer, 300, environment, copies):
            return
    if runner.dry:
        return
    seconds = {name: medians(rounds) for name, rounds in found.items()}
    runner.report.content["figures"]["all_reduce_on_one_gpu"] = {
        size: {
            "seconds": seconds["all_reduce"][size],
            "to_pinned_copies": ratio(seconds["there_and_back"][size] / seconds["all_reduce"][size],
                                      "both ranks copy the bytes to the host and back at the same time", COPY_TARGET),
            "by_ipc_seconds": seconds["by_ipc"][size],
            "by_ipc_to_copies": ratio(seconds["within_device"][size] / seconds["by_ipc"][size],
                                      "both ranks copy the bytes within the GPU at the same time", COPY_TARGET),
            "to_torch_gloo": ratio(seconds["torch_all_reduce"][size] / seconds["all_reduce"][size], "PyTorch's all_reduce over Gloo",
                                   TRAINING_TARGET),
        }
        for size in SIZES
    }  # fmt: skip


def nccl(context):
    """all_reduce over NCCL against PyTorch's over NCCL, where there are two GPUs."""
    runner = context.runner
    if len(machine.gpus()) < RANKS:
        runner.report.content["figures"]["all_reduce_over_nccl"] = "not measured: NCCL needs a GPU for each of 2 ranks"
        return
    sizes, found = ",".join(map(str, SIZES)), {"ours": [], "theirs": []}
    ours = [context.program("tutti"), "bench", "all_reduce", "-n", RANKS, "--memory", "cuda", "--engine", "nccl", "--sizes", sizes, "--json"]
    peer = context.job(RANKS, context.python, machine.ROOT / "bench/peers/device_copy.py", "--bytes", sizes, "--backend", "nccl")
    for number in range(1, context.rounds + 1):
        of, environment = f"round {number} of {context.rounds}", context.environment()
        mine = lambda output: found["ours"].append(by_size(output, lambda line: line["us"] * 1e-6))  # noqa: E731
        theirs = lambda output: found["theirs"].append(by_size(output, lambda line: line["all_reduce"]))  # noqa: E731
        if not runner.run(f"all_reduce of tutti over NCCL, {of}", ours, 300, environment, mine):
            return
        if not runner.run(f"all_reduce of PyTorch over NCCL, {of}", peer, 300, environment, theirs):
            return
    if not runner.dry:
        mine, theirs = medians(found["ours"]), medians(found["theirs"])
        runner.report.content["figures"]["all_reduce_over_nccl"] = {
            size: {"seconds": mine[size], "to_torch_nccl": ratio(theirs[size] / mine[size], "PyTorch's all_reduce over NCCL", TRAINING_TARGET)}
            for size in SIZES
        }


def training(context, size):
    """Tokens per second of pretrain_gpt and of PyTorch: alone, DDP and FSDP2."""
    runner = context.runner
    command = [context.python, machine.ROOT / "bench/compare_gpt", "--device", "cuda", "--size", size, "--build", context.build, "--python",
               context.python, "--with", "sdpa,bf16", "-n", RANKS, "--rounds", context.rounds, "--json"]  # fmt: skip

    def figures(output):
        found = next(line for line in reversed(lines_of_json(output)) if "tokens_per_s" in line)
        targets = {who: ratio(value, who, ALONE_TARGET if " alone" in who else TRAINING_TARGET) for who, value in found["ours_to_theirs"].items()}
        runner.report.content["figures"][f"gpt_{size}"] = {"tokens_per_s": found["tokens_per_s"], "ours_to_theirs": targets}

    runner.run(f"GPT of {size} parameters", command, None, context.environment(), figures)


def host_time(context):
    """Host time of a DataParallel step outside of LibTorch."""

    def figures(output):
        found = dict(re.findall(r"^(\w+): DataParallel's own work ([-\d.]+) us", output, re.M))
        if not found:
            raise Failure("ddp_overhead printed no figure")
        context.runner.report.content["figures"]["host_time_of_data_parallel_us"] = {
            network: {"us": float(us), "target": HOST_TIME_TARGET, "met": float(us) < HOST_TIME_TARGET} for network, us in found.items()
        }

    command = [context.program("ddp_overhead"), 400, "cuda"]
    context.runner.run("host time of DataParallel", command, 300, context.environment(CUDA_VISIBLE_DEVICES="0"), figures)


def speed(context):
    copy = [context.python, machine.ROOT / "bench/peers/device_copy.py", "--bytes", ",".join(map(str, SIZES))]

    def rates(output):
        names = ("to_host", "to_device", "within_device")
        found = by_size(output, lambda line: {name: round(line["bytes"] / line[name] / 1e9, 2) for name in names})
        context.runner.report.content["figures"]["copies_gb_per_s"] = found

    context.runner.run("copies by one process", copy, 300, context.environment(CUDA_VISIBLE_DEVICES="0"), rates)
    all_reduce(context)
    nccl(context)
    host_time(context)
    for size in ("17m", "350m"):
        training(context, size)
