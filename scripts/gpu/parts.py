"""The parts of scripts/on-gpu other than speed: build, training, programs, faults, conformance.

Each is a function of a Context. It runs steps by `context.runner`, so a dry run prints what a run would do.
"""

import contextlib
import dataclasses
import gzip
import os
import pathlib
import re
import signal
import time

import machine
import steps
from steps import Failure, Skip

TRAINERS = ["train_image", "train_dlrm", "pretrain_gpt"]
TESTS = ["cuda_tensor_test", "gpu_layers_test", "gpu_training_test", "gpu_sums_test", "gpu_gpt_test", "gpu_trainers_test"]
RANKS_ON_ONE_GPU = [1, 2, 4]
# Variables that another launcher may have left here. Ranks that are started would take them for theirs.
STALE = re.compile(r"^(RANK|WORLD_SIZE|LOCAL_RANK|LOCAL_WORLD_SIZE|NODE_RANK|MASTER_ADDR|MASTER_PORT|GTEST_FILTER|TUTTI_.*|"
                   r"(GROUP|ROLE|TORCHELASTIC|OMPI|PMIX?|MPI|SLURMD?|PBS)_.*)$")  # fmt: skip


@dataclasses.dataclass
class Context:
    runner: steps.Runner
    python: str  # with a torch for CUDA
    site: pathlib.Path  # its site-packages
    build: pathlib.Path
    folder: pathlib.Path  # for files of this run
    packages: pathlib.Path
    compiler: str
    chosen: list  # names of parts
    rounds: int

    def program(self, name):
        return self.build / "bin" / name

    def environment(self, **more):
        """That of ranks on the GPUs of this machine. None removes a variable."""
        mine = {name: value for name, value in os.environ.items() if not STALE.match(name)}
        mine["TUTTI_CUDA_PATH"] = machine.cuda_paths(self.site)
        mine.update(more)
        return {name: value for name, value in mine.items() if value is not None}

    def job(self, ranks, *program, options=()):
        return [self.program("tutti"), "run", "-n", ranks, "-q", "--no-prefix", *options, "--", *program]


def has_python_headers(context):
    ask = "import sysconfig; print(sysconfig.get_paths()['include'])"
    return (pathlib.Path(machine.output_of(context.python, "-c", ask) or "/nowhere") / "Python.h").exists()


def lacks_for_pytorch(context):
    """Why PyTorch's own tests cannot run here; empty if they can."""
    if not has_python_headers(context):
        return f"the headers of {context.python} (Python.h) are missing, which the Python package is built with"
    lacking = [name for name in ("numpy", "expecttest", "pytest") if not machine.output_of(context.python, "-c", f"import {name}; print(1)")]
    return f"{context.python} lacks {', '.join(lacking)}, which PyTorch's tests import" if lacking else ""


# ---- build


def configure_command(context):
    options, variables = [], {}
    if machine.missing_libraries(context.compiler):
        root = context.folder / "packages"
        if not context.runner.dry:
            machine.unpack_packages(context.packages, root)
        options, variables = machine.use_packages(root, context.compiler, context.folder / "bin")
    if "conformance" in context.chosen and not lacks_for_pytorch(context):
        options += ["-DTUTTI_PYTHON=ON", f"-DPython_EXECUTABLE={context.python}"]
    generator = ["-G", "Ninja"] if machine.shutil.which("ninja") else []
    command = ["cmake", "-S", machine.ROOT, "-B", context.build, *generator, "-DCMAKE_BUILD_TYPE=Release", "-DTUTTI_WERROR=OFF",
               f"-DCMAKE_CXX_COMPILER={context.compiler}", f"-DTUTTI_TORCH_WHEEL={context.site}", *options]  # fmt: skip
    return command, context.environment(**variables)


def build(context):
    runner = context.runner
    command, environment = configure_command(context)
    targets = ["tutti", *TRAINERS, *TESTS, "gpu_conformance", "gpu_all_reduce", "ddp_overhead"]
    if list(context.site.glob("nvidia/nccl/include/nccl.h")):
        targets.append("tutti_nccl")
    if "-DTUTTI_PYTHON=ON" in command:
        targets.append("tutti_package")
    compile_all = ["cmake", "--build", context.build, "-j", machine.jobs(), "--target", *targets]
    if not runner.run("configure", command, 300, environment):
        return False
    return runner.run("compile", compile_all, environment=environment)


# ---- training: tests/cuda


def counts_of(output):
    """What a program of GoogleTest printed, as figures."""
    passed = re.search(r"^\[  PASSED  \] (\d+) tests?", output, re.M)
    skipped = dict.fromkeys(re.findall(r"^\[  SKIPPED \] (\S+) \(", output, re.M))
    return {"tests_passed": int(passed[1]) if passed else 0, "tests_not_run": list(skipped)}


def training(context):
    for test in TESTS:
        context.runner.run(test, [context.program(test)], environment=context.environment(), result=counts_of, skip_code=77)


# ---- programs: the trainers


def write_pictures(folder, seed=1):
    """Files like those of Fashion-MNIST, of a few pictures whose brightness tells the class."""
    folder.mkdir(parents=True, exist_ok=True)
    for split, count in (("train", 1024), ("t10k", 256)):
        labels = bytes((i * 7 + seed) % 10 for i in range(count))
        pixels = bytes((labels[i // 784] * 20 + i * i // 13 % 50) % 256 for i in range(count * 784))
        for name, magic, dimensions, data in (("images-idx3", 0x803, (count, 28, 28), pixels), ("labels-idx1", 0x801, (count,), labels)):
            head = b"".join(number.to_bytes(4, "big") for number in (magic, *dimensions))
            (folder / f"{split}-{name}-ubyte.gz").write_bytes(gzip.compress(head + data, mtime=0))


@dataclasses.dataclass
class Trained:
    """How a trainer is started, which keys of its JSON are compared, and how far they may differ."""

    program: str
    options: list
    per_rank: callable  # options that depend on the number of ranks
    keys: list
    tolerance: float


def trained_programs(data):
    return [
        Trained("train_image", ["--data", str(data), "--max-steps", "20", "--log-every", "-1", "--check-replicas", "10"],
                lambda ranks: ["--batch-size", str(32 // ranks)], ["test_loss"], 1e-3),
        Trained("train_dlrm",
                "--arch-embedding-size 400-3000-70 --arch-sparse-feature-size 16 --arch-mlp-bot 13-64-16 --arch-mlp-top 64-1 "
                "--mini-batch-size 64 --num-batches 20 --learning-rate 0.1 --print-freq 20 --round-targets true".split(),
                lambda ranks: [], ["loss"], 1e-4),
        Trained("pretrain_gpt",
                "--num-layers 4 --hidden-size 128 --num-attention-heads 4 --seq-length 64 --max-position-embeddings 64 --mock-data "
                "--vocab-size 511 --train-iters 20 --lr 1e-3 --eval-iters 2 --log-interval 10 --attention-dropout 0 --hidden-dropout 0 "
                "--micro-batch-size 2 --global-batch-size 8".split(),
                lambda ranks: [], ["last_loss", "validation_loss"], 1e-4),
    ]  # fmt: skip


def programs(context):
    runner, data = context.runner, context.folder / "pictures"
    if not runner.dry:
        write_pictures(data)
    for trained in trained_programs(data):
        expected = {}

        def figures(output, trained=trained, expected=expected):
            found = steps.last_json(output)
            return {key: found[key] for key in trained.keys}

        def compared(output, trained=trained, expected=expected):
            found = figures(output, trained, expected)
            for key, value in found.items():
                off = abs(value / expected[key] - 1)
                if not off <= trained.tolerance:
                    raise Failure(f"{key} is {value}, on the CPU {expected[key]}: they differ by {off:.1e}, more than {trained.tolerance:.0e}")
            return {**found, "on_cpu": dict(expected)}

        def command(ranks, *more, trained=trained):
            words = [*trained.options, *trained.per_rank(ranks), "--json", *more]
            return context.job(ranks, context.program(trained.program), *words)

        on_cpu = lambda output: expected.update(figures(output)) or dict(expected)  # noqa: E731
        name = trained.program
        if not runner.run(f"{name} on the CPU", command(1), 300, context.environment(), on_cpu):
            continue
        on_one_gpu = context.environment(CUDA_VISIBLE_DEVICES="0", NVIDIA_TF32_OVERRIDE="0")
        for ranks in RANKS_ON_ONE_GPU:
            title = f"{name} with {ranks} {'rank' if ranks == 1 else 'ranks'} on one GPU"
            runner.run(title, command(ranks, "--device", "cuda"), 300, on_one_gpu, compared)
        count = len(machine.gpus())
        if count >= 2 and name != "train_image":
            option = "--distributed-backend" if name == "pretrain_gpt" else "--dist-backend"
            on_all = context.environment(NVIDIA_TF32_OVERRIDE="0")
            runner.run(f"{name} with 2 ranks on 2 GPUs over NCCL", command(2, "--device", "cuda", option, "nccl"), 300, on_all, compared)


# ---- faults

GPT_FOR_EVER = (
    "--num-layers 8 --hidden-size 512 --num-attention-heads 8 --seq-length 256 --max-position-embeddings 256 --mock-data "
    "--vocab-size 8191 --train-iters 1000000 --lr 1e-4 --eval-iters 0 --log-interval 1 --micro-batch-size 4 --global-batch-size 8 "
    "--device cuda"
).split()
MARK = "ON_GPU_JOB"  # a variable by which the processes of a job are found
END_LIMIT = 90  # seconds in which a job with a fault ends


def processes_with(mark, rank=None, program=None):
    """Ids of the processes whose environment has the mark, and which have this RANK and run this program if they are given."""
    wanted = {f"{MARK}={mark}".encode()} | ({f"RANK={rank}".encode()} if rank is not None else set())
    found = []
    for folder in pathlib.Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        with contextlib.suppress(OSError):  # it has ended, or belongs to another user
            runs = program is None or (folder / "exe").resolve() == program.resolve()
            if runs and wanted <= set((folder / "environ").read_bytes().split(b"\0")):
                found.append(int(folder.name))
    return sorted(found)


def wait_until(holds, seconds, sentence):
    """Polls, since neither a file nor a process of another session has an event to wait for."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            raise Failure(sentence)
        time.sleep(0.1)


def job_with_fault(context, name, number, expected):
    """Starts two ranks that train on one GPU, sends `number` to rank 1 in the middle of a step, and reads the report."""
    runner, mark = context.runner, f"{os.getpid()}-{name}"
    log = runner.log_of(name)
    environment = context.environment(CUDA_VISIBLE_DEVICES="0", TUTTI_TIMEOUT="10s", **{MARK: mark})
    command = [str(word) for word in context.job(2, context.program("pretrain_gpt"), *GPT_FOR_EVER)]
    with steps.started(command, log, environment) as job:
        trained = lambda: len(re.findall(r"iteration +\d+/", steps.text_of(log))) >= 5 or job.poll() is not None  # noqa: E731
        wait_until(trained, runner.left(180), "the ranks did not train 5 steps within 180 s")
        victims = processes_with(mark, rank=1, program=context.program("pretrain_gpt"))
        if job.poll() is not None or not victims:
            raise Failure("the job ended before the fault" if job.poll() is not None else "no process of rank 1 was found")
        os.kill(victims[0], number)
        began = time.monotonic()
        try:
            wait_until(lambda: job.poll() is not None, runner.left(END_LIMIT), f"the job did not end within {END_LIMIT} s of {number.name}")
            took = time.monotonic() - began
            wait_until(lambda: not processes_with(mark), 10, "processes of the job are left 10 s after its end")
        finally:
            for process in processes_with(mark):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
    text = steps.text_of(log)
    sentence = re.search(expected.format(pid=victims[0]), text)
    if job.returncode == 0 or not sentence:
        raise Failure(f"exit code {job.returncode}, and nothing like '{expected}' in the output")
    return {"exit_code": job.returncode, "seconds_to_end": round(took, 1), "sentence": sentence[0]}


def faults(context):
    runner = context.runner
    cases = [
        ("killed while kernels run", signal.SIGKILL, r"rank 1 \(pid {pid} on [^)]*\) was killed by SIGKILL"),
        ("stopped while kernels run", signal.SIGSTOP, r"rank 1[^\n]*pid {pid}[^\n]* is stopped \(SIGSTOP or a debugger\)"),
    ]
    command = context.job(2, context.program("pretrain_gpt"), *GPT_FOR_EVER)
    for name, number, expected in cases:
        runner.step(name, lambda n=name, s=number, e=expected: job_with_fault(context, n, s, e), command)
        trained = trained_programs(context.folder)[2]
        after = context.job(1, context.program(trained.program), *trained.options, "--json", "--device", "cuda")
        runner.run(f"the GPU trains after a rank was {name.split()[0]}", after, 120, context.environment(CUDA_VISIBLE_DEVICES="0"))


# ---- conformance


def tally_of(output):
    return {"tallies": re.findall(r"^.* ranks: \d+ passed.*$", output, re.M)}


def conformance(context):
    runner = context.runner
    suite = [context.program("gpu_conformance")]
    runner.run("groups on GPU memory", suite, environment=context.environment(), result=counts_of, skip_code=77)
    command = [context.python, machine.ROOT / "scripts/pytorch-conformance", "-n", "2"]
    environment = context.environment(PYTHONPATH=str(context.build / "python"))

    def of_pytorch():
        if lack := lacks_for_pytorch(context):
            raise Skip(lack)
        if not (context.build / "python/tutti").is_dir():
            raise Skip("the Python package was not built: run the part build together with this part")
        return runner.run_logged("tests of PyTorch", command, environment=environment, result=tally_of)

    runner.step("tests of PyTorch", of_pytorch, command)
