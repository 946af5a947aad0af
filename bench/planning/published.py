"""Published measurements and plans, against what the planner predicts. It needs no devices.

Rows of papers are read from the planner's unit tests, so each figure is written down once. Tables of others stay out of this project: --published
FOLDER has those that are there.
"""
import os
import re
import subprocess
import sys
from pathlib import Path

import comparing
from planning.reach import Row, check, percent, read_runs, timed, write_runs

UNIT_TEST = comparing.ROOT / "tutti/planning/training/step_time_test.cc"
PUBLISHED_ROW = re.compile(r'^[^"]*\{"([^"]+)", ([^{}"]+)\}[,}]', re.M)
SEQUENCE, VOCABULARY = 2048, 51200
PYTHON_OF_TESTS = comparing.ROOT / "build/python"
FITTED_RUNS = 100  # of vTrain's on one node

# AWS g4dn.12xlarge: 4 T4 with 16 GB, PCIe, one card of 50 Gbit/s. Published peaks, of which a share is assumed.
T4_CLUSTER = """\
name = "g4dn"
[[nodes]]
count = 4
devices = 4
memory_gib = 14.75
[network]
cards = 1
start_us = 30
inside = { latency_us = 5, bandwidth_gb_s = 6, overhead_us = 2 }
between = { latency_us = 30, bandwidth_gb_s = 5, overhead_us = 5 }
[device]
peak_tflops = 65
share = 0.35
product_start_us = 20
stream_gb_s = 240
launch_us = 8
"""

SC21_FIX = "recompute=full"  # the program of the paper knew neither sequence parallelism nor selective recomputation
SC21_ALLOW = "tp,pp,dp,mbs,schedule,chunks,recompute"


class Planner:
    def __init__(self, program, given):
        self.given = given
        self.tutti = comparing.find_program(program, given.build, "tutti")
        self.build = Path(given.build)

    def question(self, *options):
        return [self.tutti, "plan", "train", *map(str, options)]


def paper_operations(batch, layers, hidden):
    """Of a step with full recomputation: equation 3 of arXiv:2104.04473."""
    return 96 * batch * SEQUENCE * layers * hidden**2 * (1 + SEQUENCE / (6 * hidden) + VOCABULARY / (16 * layers * hidden))


def published_runs():
    """{name: a row for --check} of the unit test."""
    table = UNIT_TEST.read_text().split("kPublished[] = {", 1)[1].split("};", 1)[0]
    runs = {}
    for name, numbers in PUBLISHED_ROW.findall(table + "}"):
        *whole, teraflops, seconds = [float(number) for number in numbers.replace("true", "").rstrip(", ").split(",")]
        heads, hidden, layers, tensor, pipeline, chunks, devices, batch, micro_batch = map(int, whole)
        selective = "true" in numbers
        runs[name] = {"tp": tensor, "pp": pipeline, "dp": devices // tensor // pipeline, "mbs": micro_batch, "sp": int(selective),
                      "schedule": "interleaved" if chunks > 1 else "1f1b", "chunks": chunks, "recompute": "selective" if selective else "full",
                      "gbs": batch, "hidden": hidden, "layers": layers, "heads": heads, "seq": SEQUENCE, "vocab": VOCABULARY,
                      "step_s": seconds or paper_operations(batch, layers, hidden) / (teraflops * 1e12 * devices)}  # fmt: skip
    return runs


def test_row(planner, what, target, test, filters):
    """Whether tests of the build pass."""
    program = planner.build / "bin" / test
    if not program.exists():
        return Row(what, f"{program} is not built", target, None)
    done = subprocess.run([str(program), f"--gtest_filter={filters}"], capture_output=True, text=True, timeout=1200)
    passed = re.search(r"\[  PASSED  \] (\d+) test", done.stdout)
    met = done.returncode == 0 and passed is not None and int(passed[1]) > 0
    return Row(what, f"{passed[1] if passed else 0} tests pass" if met else f"{test} {filters} fails", target, met)


def a100(planner):
    """One set of constants for all the rows; each is checked by itself for the largest error."""
    runs, table = published_runs(), planner.given.folder / "published.csv"
    question = planner.question("--cluster", "a100-sxm", "--runtime", "megatron")
    errors = {}
    for name, run in runs.items():
        write_runs(table, [run])
        errors[name] = check(question, table)["mean_error"]
    write_runs(table, list(runs.values()))
    mean, worst = check(question, table)["mean_error"], max(errors, key=errors.get)
    what = f"A100: {len(runs)} published runs"
    return [Row(f"{what}, mean error", percent(mean), "5 %", mean <= 0.05),
            Row(f"{what}, worst error ({worst})", percent(errors[worst]), "10 %", errors[worst] <= 0.1)]  # fmt: skip


def of_folder(planner, name):
    folder = planner.given.published
    path = folder / name if folder else None
    return path if path and path.exists() else None


def vtrain_single(planner):
    target_error, target_tau = "11 %", "0.88"
    path = of_folder(planner, "vtrain_single_a100.csv")
    if not path:
        return [Row("vTrain, one node: mean error and tau", "--published has no vtrain_single_a100.csv", f"{target_error}, {target_tau}", None)]
    folder, runs = planner.given.folder, read_runs(path)
    taken = set(range(0, len(runs), max(1, len(runs) // FITTED_RUNS))[:FITTED_RUNS])
    write_runs(folder / "vtrain_fitted.csv", [run for i, run in enumerate(runs) if i in taken])
    write_runs(folder / "vtrain_rest.csv", [run for i, run in enumerate(runs) if i not in taken])
    fitted = folder / "vtrain.toml"
    fitted.unlink(missing_ok=True)
    options = ["--runtime", "megatron", "--vocab-size", "50256", "--fix", "recompute=full"]
    comparing.run(planner.question("--cluster", "a100-sxm", *options, "--calibrate", folder / "vtrain_fitted.csv", "--output", fitted))
    answer = check(planner.question("--cluster", fitted, *options), folder / "vtrain_rest.csv")
    what = f"vTrain, one node: {len(runs)} runs, fitted to {len(taken)}"
    return [Row(f"{what}: mean error", percent(answer["mean_error"]), target_error, answer["mean_error"] <= 0.11),
            Row(f"{what}: Kendall's tau", f"{answer['tau']:.2f}", target_tau, answer["tau"] >= 0.88)]  # fmt: skip


def vtrain_multi(planner):
    path = of_folder(planner, "vtrain_multi_a100.csv")
    if not path:
        return [Row("runs of 64 to 512 GPUs: mean error and tau", "--published has no vtrain_multi_a100.csv", "9 %, 0.85", None)]
    question = planner.question("--cluster", "a100-sxm", "--runtime", "megatron", "--vocab-size", "50256", "--fix", "recompute=full")
    answer = check(question, path)
    what = f"{answer['runs']} runs of 64 to 512 GPUs"
    return [Row(f"{what}: mean error", percent(answer["mean_error"]), "9 %", answer["mean_error"] <= 0.09),
            Row(f"{what}: Kendall's tau", f"{answer['tau']:.2f}", "0.85", answer["tau"] >= 0.85),
            Row(f"{what}: worst regret", percent(answer["worst_regret"]), "5 %", answer["worst_regret"] <= 0.05)]  # fmt: skip


def ends_of(run):
    """The layers that AMP gave to the first and the last stage. Bounds count three entries before the 24 layers and three after."""
    if int(run["pp"]) == 1:
        return {"first": "even", "last": "even"}
    bounds = [min(max(int(bound) - 3, 0), 24) for bound in run["stage_bounds"].split("|")]
    return {"first": bounds[1], "last": 24 - bounds[-2]}


def amp(planner):
    """The figures of a T4 and of its network are fitted to every fourth trial; the order is that of the others."""
    path = of_folder(planner, "amp_homogeneous.csv")
    if not path:
        return [Row("AMP's trials on 16 T4: tau, regret, failures", "--published has no amp_homogeneous.csv", "0.8, 5 %, 80 %", None)]
    folder = planner.given.folder
    runs = [{**{part: run[part] for part in ("tp", "pp", "dp", "mbs")}, **ends_of(run), "step_s": run["measured_s"]} for run in read_runs(path)]
    tables = {part: folder / f"amp{part}.csv" for part in ("", "_fitted", "_rest")}
    write_runs(tables[""], runs)
    write_runs(tables["_fitted"], runs[::4])
    write_runs(tables["_rest"], [run for i, run in enumerate(runs) if i % 4])
    (folder / "t4.toml").write_text(T4_CLUSTER)
    fitted = folder / "amp.toml"
    fitted.unlink(missing_ok=True)
    options = ["--runtime", "megatron", "--num-layers", 24, "--hidden-size", 1024, "--num-attention-heads", 16, "--seq-length", 1024,
               "--vocab-size", 52255, "--global-batch", 32]  # fmt: skip
    comparing.run(planner.question("--cluster", folder / "t4.toml", *options, "--calibrate", tables["_fitted"], "--output", fitted))
    question = planner.question("--cluster", fitted, *options)
    answer, rest = check(question, tables[""]), check(question, tables["_rest"])
    foreseen = answer["failed_foreseen"] / max(answer["failed"], 1)
    return [Row(f"AMP's {len(runs)} trials on 16 T4, a fourth fitted: Kendall's tau of the rest", f"{rest['tau']:.2f}", "0.8", rest["tau"] >= 0.8),
            Row("the same, regret of all", percent(answer["worst_regret"]), "5 %", answer["worst_regret"] <= 0.05),
            Row("the same, failures that are foreseen", f"{answer['failed_foreseen']} of {answer['failed']}", "80 %", foreseen >= 0.8)]  # fmt: skip


# Of arXiv:2407.21783, table 4, and NVIDIA's results in MLPerf training v3.1 (mlcommons/training_results_v3.1): the cluster, the model, the batch, the
# plan. Both programs kept no scores of attention: training_runtime.h says where that stands. The programs of SC21 did.
LLAMA = ["--model", "llama3-405b", "--runtime", "megatron-core"]
MLPERF = ["--model", "gpt3-175b", "--runtime", "megatron-core"]
PRODUCTION = {
    "Llama 3 405B on 8,192": [*LLAMA, "--cluster", "h100-sxm:1024", "--seq-length", 8192, "--global-batch", 2048,
                              "tp=8,sp,pp=16,dp=64,mbs=1,schedule=interleaved,chunks=7,zero=1"],
    "Llama 3 405B on 16,384": [*LLAMA, "--cluster", "h100-sxm:2048", "--seq-length", 8192, "--global-batch", 2048,
                               "tp=8,sp,pp=16,dp=128,mbs=1,schedule=interleaved,chunks=7,zero=1"],
    **{f"MLPerf GPT-3 on {devices:,} H100": [*MLPERF, "--cluster", f"h100-sxm:{devices // 8}", "--global-batch", batch,
                                             f"tp=4,sp,pp=8,dp={devices // 32},mbs=1,schedule=interleaved,chunks=12,zero=1"]
       for devices, batch in {512: 2048, 768: 3072, 4096: 2048, 6144: 3072, 8192: 4096, 10240: 2560, 10752: 2688}.items()},
}  # fmt: skip


def sc21_plans():
    """The ten plans of table 1 of arXiv:2104.04473, among those that its program could run."""
    for name, run in list(published_runs().items())[:10]:
        plan = ",".join(f"{key}={run[key]}" for key in ("tp", "pp", "dp", "mbs", "schedule", "chunks", "recompute"))
        yield f"SC21 {name}", ["--num-layers", run["layers"], "--hidden-size", run["hidden"], "--num-attention-heads", run["heads"],
                               "--seq-length", SEQUENCE, "--vocab-size", VOCABULARY - 1, "--runtime", "megatron",
                               "--cluster", f"a100-sxm:{run['tp'] * run['pp'] * run['dp'] // 8}", "--global-batch", run["gbs"],
                               "--fix", SC21_FIX, "--allow", SC21_ALLOW, plan]  # fmt: skip


def production(planner):
    """Plans of others: how far their predicted step is from that of our best plan."""
    rows, behind = [], []
    for name, (*options, plan) in {**PRODUCTION, **dict(sc21_plans())}.items():
        answer = comparing.last_json(comparing.run([*planner.question(*options, "--json"), "--why", plan]))
        more = answer["given"]["step_s"] / answer["best"]["step_s"] - 1
        if more > 0.1 or not answer["fits"]:
            behind.append(name)
        gigabytes = f"{answer['given']['memory_bytes'] / 2**30:.0f} GiB of {answer['limit_bytes'] / 2**30:.0f}" if not answer["fits"] else ""
        rows.append((name, answer["given"]["plan"], answer["best"]["plan"], f"{100 * more:+.1f} %" + (f", needs {gigabytes}" if gigabytes else ""),
                     answer["why"]))
    print(comparing.table(["who", "their plan", "ours", "theirs takes", "because"], rows), flush=True)
    return [Row(f"{len(rows)} published plans within 10 % of our best, or the reason", f"{len(rows) - len(behind)}, and {len(behind)} with the reason",
                "all", all(why for name, *_, why in rows if name in behind))]


def published(planner):
    rows = [test_row(planner, "memory formulas of published tables", "1e-9", "training_planner_test", "TrainingMemory.*-TrainingMemory.IsWithinTenPercentOfMeasuredRanks"),
            test_row(planner, "activations of our layers", "5 %", "activation_memory_test", "*"),
            *a100(planner), *vtrain_single(planner), *vtrain_multi(planner), *amp(planner), *production(planner),
            test_row(planner, "equals brute force on 500 cases, all devices are used", "equal", "training_planner_test",
                     "PlanTraining.EqualsBruteForce*:PlanTraining.UsesAllDevices*:ReplicaPlan.IsTheFastest*:RecommendationPlan.IsTheFastest*")]  # fmt: skip
    return [*rows, highs(planner)]


def pythons_with_highs(planner):
    """Those that are named; else the one of ./run-tests, which is made if it is not there."""
    named = planner.given.python or [python for python in [os.environ.get("TUTTI_PYTHON")] if python]
    if named:
        return named
    comparing.note("making the Python of the tests, with highspy")
    made = subprocess.run([comparing.ROOT / "scripts/python-for-tests", PYTHON_OF_TESTS], capture_output=True, text=True, timeout=600)
    comparing.note("")
    if made.returncode != 0:
        sys.stderr.write("".join(made.stderr.splitlines(keepends=True)[-1:]))
    return [PYTHON_OF_TESTS / "bin/python"]


def highs(planner):
    """The plans of blocks against HiGHS: tests/planning/highs_test.py."""
    what, cases = "equals HiGHS on 50 cases", planner.build / "bin/block_cases"
    if not cases.exists():
        return Row(what, f"{cases} is not built", "equal", None)
    for python in pythons_with_highs(planner):
        try:
            done = subprocess.run([python, comparing.ROOT / "tests/planning/highs_test.py", cases, "50"], capture_output=True, text=True, timeout=1200)
        except OSError as trouble:
            return Row(what, f"{python}: {trouble.strerror}", "equal", None)
        if done.returncode != 77:
            return Row(what, done.stdout.strip().splitlines()[-1] if done.stdout.strip() else "it fails", "equal", done.returncode == 0)
    return Row(what, "highspy is missing: --python names a Python that has it", "equal", None)


EQUAL_NODES = "count = 4\ndevices = 4\nmemory_gib = 14.75\n"
UNEQUAL_NODES = "count = 256\ndevices = 8\nmemory_gib = 80\n[[nodes]]\ncount = 512\ndevices = 4\nmemory_gib = 80\n"
SEARCHES = {  # name: options, seconds
    "GPT-3 175B on 1,024 devices": (["--model", "gpt3-175b", "--cluster", "a100-sxm:128", "--global-batch", "1536"], 1),
    "Llama 405B on 16,384 devices": (["--model", "llama3-405b", "--cluster", "h100-sxm:2048", "--seq-length", "8192", "--global-batch", "2048"], 3),
}
MOST_BYTES = 200e6


def search(planner):
    unequal, rows = planner.given.folder / "unequal.toml", []
    unequal.write_text(T4_CLUSTER.replace(EQUAL_NODES, UNEQUAL_NODES))
    of_unequal = ["--model", "gpt3-175b", "--cluster", unequal, "--runtime", "tutti", "--global-batch", "4096"]
    for name, (options, most) in {**SEARCHES, "GPT-3 175B on 4,096 devices of unequal nodes": (of_unequal, 3)}.items():
        answers = [timed(planner.question(*options)) for _ in range(3)]
        seconds = sorted(answer[1] for answer in answers)[1]
        resident = max(answer[2] for answer in answers)
        same = len({answer[0] for answer in answers}) == 1
        rows += [Row(f"search, {name}", f"{seconds:.2f} s", f"{most} s", seconds <= most),
                 Row(f"search, {name}: peak memory", f"{resident / 1e6:.0f} MB", "200 MB", resident <= MOST_BYTES),
                 Row(f"search, {name}: three answers", "the same bytes" if same else "differ", "the same bytes", same)]  # fmt: skip
    return rows
