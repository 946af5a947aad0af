"""Plans that are run: pretrain_gpt on two ranks and on two hosts, train_dlrm, their start, and their memory."""
import statistics
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import comparing
from planning.reach import COLUMNS, Row, check, medians, options_of, parts_of, percent, regret, write_runs

MODEL = {"--num-layers": 4, "--hidden-size": 256, "--num-attention-heads": 4, "--seq-length": 256, "--max-position-embeddings": 256,
         "--vocab-size": 2047}  # fmt: skip
# Large enough that its tensors are most of a rank's memory, and LibTorch is not.
LARGE_MODEL = {"--num-layers": 8, "--hidden-size": 640, "--num-attention-heads": 8, "--seq-length": 256, "--max-position-embeddings": 256,
               "--vocab-size": 4095}  # fmt: skip
# Many equal tables; and tables that no placement divides evenly.
DLRMS = {
    "equal tables": {"--arch-embedding-size": "-".join(["1000000"] * 8), "--arch-sparse-feature-size": 64, "--arch-mlp-bot": "128-64",
                     "--arch-mlp-top": "128-1", "--num-indices-per-lookup": 50},
    "unequal tables": {"--arch-embedding-size": "2000000-500000-100000-20000-5000-1000-200", "--arch-sparse-feature-size": 64,
                       "--arch-mlp-bot": "128-256-64", "--arch-mlp-top": "256-128-1", "--num-indices-per-lookup": 20},
}  # fmt: skip
DLRM_BATCH, DLRM_STEPS = 2048, 40
LONGEST_RUN = 1800  # seconds
SLOWEST_DLRM = 4  # placements that are predicted to take this many times the best one are not run


def kind_of(plan):
    parts = parts_of(plan)
    return tuple(parts[column] for column in COLUMNS if column not in ("mbs", "recompute"))


def spread(plans, count):
    """`count` plans: in turn of each kind, and within a kind over its whole range of steps."""
    kinds = {}
    for plan in plans:
        kinds.setdefault(kind_of(plan["plan"]), []).append(plan)
    taken, step = [], 0
    while len(taken) < min(count, len(plans)):
        for same in kinds.values():
            if step < len(same) and len(taken) < count:
                # The fastest, the slowest, and then those between.
                taken.append(same[(-(step // 2 + 1)) if step % 2 else step // 2])
        step += 1
    return taken


class Trainers:
    """The programs of a build on this machine, and what the planner answers for them."""

    def __init__(self, program, given):
        self.given = given
        self.tutti, self.gpt, self.dlrm = (comparing.find_program(program, given.build, name) for name in ("tutti", "pretrain_gpt", "train_dlrm"))
        self.ranks = [self.tutti, "run", "-n", str(given.ranks), "-q", "--no-prefix"]
        self.measured_cluster = given.cluster

    def cluster(self):
        """The file of this machine, measured once."""
        if not self.measured_cluster:
            self.measured_cluster = self.given.folder / "cluster.toml"
            comparing.note("measuring the machine")
            comparing.run([self.tutti, "plan", "measure", "-n", str(self.given.ranks), "-o", str(self.measured_cluster)])
        return self.measured_cluster

    def question(self, cluster, model=None):
        return [self.tutti, "plan", "train", "--cluster", str(cluster), "--model", "gpt", *options_of(model or MODEL),
                "--global-batch", str(self.given.global_batch)]  # fmt: skip

    def gpt_options(self, steps, model=None):
        return [*options_of(model or MODEL), "--mock-data", "--lr", "1e-3", "--train-iters", str(steps), "--eval-iters", "0", "--json"]


def plans_of(question):
    return comparing.last_json(comparing.run([*question, "--best", "1000", "--json"]))["best"]


def table_of_plans(taken, measured):
    rows = [(plan["plan"], f"{1e3 * plan['step_s']:.1f}", f"{1e3 * measured[plan['plan']]:.1f}",
             f"{100 * (plan['step_s'] / measured[plan['plan']] - 1):+.0f} %")
            for plan in sorted(taken, key=lambda plan: measured[plan["plan"]])]  # fmt: skip
    return comparing.table(["plan", "predicted ms", "measured ms", ""], rows)


def first_of(taken):
    return min(taken, key=lambda plan: plan["step_s"])["plan"]


def runs_of(taken, measured, batch):
    return [{**parts_of(plan["plan"]), "gbs": batch, "step_s": measured[plan["plan"]]} for plan in taken]


def real(trainers):
    """At least 40 plans of a small GPT on the ranks of this machine."""
    given = trainers.given
    question = trainers.question(trainers.cluster())
    plans = plans_of(question)
    taken = spread(plans, given.plans)
    print(f"{len(plans)} plans of {len({kind_of(plan['plan']) for plan in plans})} kinds, of which {len(taken)} are run", flush=True)

    def seconds_of(plan):
        line = [*trainers.ranks, trainers.gpt, *trainers.gpt_options(given.steps), *plan["options"]]
        return lambda: comparing.last_json(comparing.run(line))["median_ms_per_step"] / 1e3

    measured = medians(comparing.in_turn({plan["plan"]: seconds_of(plan) for plan in taken}, given.rounds))
    write_runs(given.folder / "runs.csv", runs_of(taken, measured, given.global_batch))
    print(table_of_plans(taken, measured))
    answer = check(question, given.folder / "runs.csv")
    what = f"{len(taken)} plans of pretrain_gpt on {given.ranks} ranks"
    lost = regret(measured, first_of(taken))
    return [Row(f"{what}: Kendall's tau", f"{answer['tau']:.2f}", "0.8", answer["tau"] >= 0.8),
            Row(f"{what}: mean error", percent(answer["mean_error"]), "15 %", answer["mean_error"] <= 0.15),
            Row(f"{what}: regret", percent(lost), "5 %", lost <= 0.05)]  # fmt: skip


class Hosts:
    """Two network namespaces with one rank each, reached as tutti run reaches hosts over ssh."""

    def __init__(self, hosts, folder):
        self.hosts = hosts
        self.shell = folder / "enter_host"
        cases = "".join(f"  {hosts.address(host)}) enter='ip netns exec {hosts.names[host]} taskset -c {','.join(map(str, hosts.cores[host]))}' ;;\n"
                        for host in (0, 1))  # fmt: skip
        self.shell.write_text(f'#!/bin/sh\nhost=$1\nshift\ncase $host in\n{cases}esac\nexec $enter env SSH_CONNECTION="{hosts.address(0)} 50022 $host 22" sh -c "cd && $*"\n')
        self.shell.chmod(0o755)

    def options(self):
        return ["--hosts", ",".join(f"{self.hosts.address(host)}:1" for host in (0, 1)), "--ssh", str(self.shell)]

    def run(self, command):
        return comparing.run(self.hosts.on_cores(0, [str(part) for part in command]))


def speed_text(mbit):
    return f"{mbit} Mbit/s" if mbit else "unlimited"


def links(trainers):
    """The planner's choice on two hosts, for links of several speeds, and how other plans do on each."""
    given = trainers.given
    rows, chosen = [], {}
    with comparing.TwoHosts() as namespaces:
        hosts = Hosts(namespaces, given.folder)
        plans = {}
        for mbit in given.speeds:
            namespaces.limit(mbit)
            comparing.note(f"measuring two hosts, {speed_text(mbit)}")
            cluster = given.folder / f"cluster-{mbit}.toml"
            cluster.unlink(missing_ok=True)
            hosts.run([trainers.tutti, "plan", "measure", *hosts.options(), "-o", cluster])
            plans[mbit] = {plan["plan"]: plan for plan in plans_of(trainers.question(cluster))}
            chosen[mbit] = next(iter(plans[mbit]))
        for mbit in given.speeds:
            namespaces.limit(mbit)
            here = plans[mbit]
            # What the planner takes at other speeds runs at this one too.
            names = dict.fromkeys([*chosen.values(), *(plan["plan"] for plan in spread(list(here.values()), given.link_plans))])
            taken = [here[name] for name in names]

            def seconds_of(plan):
                line = [trainers.tutti, "run", *hosts.options(), "-q", "--no-prefix", trainers.gpt, *trainers.gpt_options(given.steps), *plan["options"]]
                return lambda: comparing.last_json(hosts.run(line))["median_ms_per_step"] / 1e3

            measured = medians(comparing.in_turn({plan["plan"]: seconds_of(plan) for plan in taken}, given.rounds))
            write_runs(given.folder / f"runs-{mbit}.csv", runs_of(taken, measured, given.global_batch))
            print(f"\ntwo hosts, {speed_text(mbit)}: the planner takes {chosen[mbit]}\n{table_of_plans(taken, measured)}", flush=True)
            lost = regret(measured, chosen[mbit])
            rows.append(Row(f"two hosts, {speed_text(mbit)}: regret of {chosen[mbit]}", percent(lost), "5 %", lost <= 0.05))
    different = len(set(chosen.values()))
    return [Row("two hosts: choices for links of several speeds", f"{different} of {len(chosen)} differ", "it changes", different > 1), *rows]


def dlrm(trainers):
    """Placements of the tables of two recommendation models."""
    given, rows = trainers.given, []
    for name, model in DLRMS.items():
        plans_file = given.folder / "tables.json"
        question = [trainers.tutti, "plan", "train", "--model", "dlrm", "--cluster", str(trainers.cluster()), *options_of(model),
                    "--num-indices-per-lookup-fixed", "true", "--global-batch", str(DLRM_BATCH)]  # fmt: skip
        plans = plans_of(question)
        taken = [plan for plan in plans if plan["step_s"] <= SLOWEST_DLRM * plans[0]["step_s"]][:given.plans]
        if any(plan["plan"] == "network" for plan in taken):  # its placement is in no option
            plans_file.unlink(missing_ok=True)
            comparing.run([*question, "--fix", "placement=network", "--output", str(plans_file)])

        def seconds_of(plan):
            line = [*trainers.ranks, "--", trainers.dlrm, *options_of(model), "--num-indices-per-lookup-fixed", "true", "--mini-batch-size",
                    str(DLRM_BATCH), "--num-batches", str(DLRM_STEPS + 3), "--print-freq", "1000000", "--json",
                    *(["--plan", str(plans_file)] if plan["plan"] == "network" else ["--placement", plan["plan"]])]  # fmt: skip
            return lambda: comparing.last_json(comparing.run(line))["ms_per_step"] / 1e3

        measured = medians(comparing.in_turn({plan["plan"]: seconds_of(plan) for plan in taken}, given.rounds))
        print(f"\ntrain_dlrm, {name}\n{table_of_plans(taken, measured)}", flush=True)
        runs = given.folder / f"runs-{name.replace(' ', '-')}.csv"
        write_runs(runs, [{"placement": plan["plan"], "gbs": DLRM_BATCH, "step_s": measured[plan["plan"]]} for plan in taken])
        answer = check(question, runs)
        print(f"mean error {percent(answer['mean_error'])}, Kendall's tau {answer['tau']:.2f}", flush=True)
        lost = answer["worst_regret"]
        rows.append(Row(f"train_dlrm on {given.ranks} ranks, {name}: regret of {len(taken)} placements", percent(lost), "5 %", lost <= 0.05))
    return rows


def startup(trainers):
    """One step with --parallel auto, and one with the options that it chose."""
    given, rows = trainers.given, []
    dlrm_line = ["--", trainers.dlrm, *options_of(DLRMS["unequal tables"]), "--mini-batch-size", str(DLRM_BATCH), "--num-batches", "1"]
    for name, line in {"pretrain_gpt": [trainers.gpt, *trainers.gpt_options(1), "--global-batch-size", str(given.global_batch)],
                       "train_dlrm": dlrm_line}.items():  # fmt: skip
        automatic = [*trainers.ranks, *line, "--parallel", "auto"]
        chosen = comparing.run(automatic).split("the same by hand: ")[1].splitlines()[0].split()

        def seconds_of(command):
            def run():
                begin = time.monotonic()
                comparing.run(command)
                return time.monotonic() - begin

            return run

        entrants = {"auto": seconds_of(automatic), "by hand": seconds_of([*trainers.ranks, *line, *chosen])}
        rounds = comparing.in_turn(entrants, max(given.rounds, 3))
        more = statistics.median(results["auto"] - results["by hand"] for results in rounds)
        print(f"{name}: a job of one step takes {medians(rounds)['by hand']:.2f} s by hand, and {more:.2f} s more with --parallel auto", flush=True)
        rows.append(Row(f"{name} --parallel auto: more before the first step", f"{more:.2f} s", "1.5 s", more <= 1.5))
    return rows


@dataclass
class Resident:
    """Bytes of a process: all that it has mapped, and of pages that several processes have in use, such as those of the shared heap, equal parts."""
    whole: int = 0
    parts: int = 0


def resident(process):
    """Of a process now, 0 if it is gone."""
    found = Resident()
    try:
        for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines():
            if line.startswith("Rss:"):
                found.whole = 1024 * int(line.split()[1])
            elif line.startswith("Pss:"):
                found.parts = 1024 * int(line.split()[1])
    except (OSError, ValueError):
        pass
    return found


class Peak:
    """The most that a rank had resident while all ranks were training. A rank that ends leaves the pages that it shared to the others, where
    they count whole; so nothing counts after the first one has unmapped half of what it had."""

    def __init__(self):
        self.bytes, self.most, self.is_over = 0, {}, False

    def look(self, ranks):
        seen = [resident(rank).parts for rank in ranks]
        for rank in ranks:
            self.most.setdefault(rank, 0)
        for rank, most in self.most.items():  # after `seen` was read: what has ended by now may have ended before
            whole = resident(rank).whole
            self.is_over |= whole < most / 2
            self.most[rank] = max(most, whole)
        if not self.is_over:
            self.bytes = max([self.bytes, *seen])


def ranks_of(job):
    """The processes that a job of tutti run has started."""
    found, open_ones = [], [job]
    while open_ones:
        parent = open_ones.pop()
        try:
            children = [int(child) for task in Path(f"/proc/{parent}/task").iterdir() for child in (task / "children").read_text().split()]
        except OSError:
            continue
        found += children
        open_ones += children
    return [process for process in found if command_of(process) == "pretrain_gpt"]


def command_of(process):
    try:
        return Path(f"/proc/{process}/comm").read_text().strip()
    except OSError:
        return ""


def peak_of_ranks(command):
    """The most that a rank of this job had resident, looked at every 20 ms."""
    command = list(map(str, command))
    peak, deadline = Peak(), time.monotonic() + LONGEST_RUN
    with tempfile.TemporaryFile("w+") as errors, subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors) as job:
        while job.poll() is None:
            if time.monotonic() > deadline:
                job.terminate()
                raise RuntimeError(f"{' '.join(command)} ran for more than {LONGEST_RUN} s")
            peak.look(ranks_of(job.pid))
            time.sleep(0.02)
        if job.returncode != 0:
            errors.seek(0)
            raise RuntimeError(f"{' '.join(command)} ended with {job.returncode}:\n{errors.read()[-2000:]}")
    return peak.bytes


def memory(trainers):
    """Peak resident memory of the fullest rank against the planner's bytes."""
    given = trainers.given
    taken = spread(plans_of(trainers.question(trainers.cluster(), LARGE_MODEL)), given.memory_plans)
    rows, errors = [], {}
    for plan in taken:
        comparing.note(f"memory of {plan['plan']}")
        measured = peak_of_ranks([*trainers.ranks, trainers.gpt, *trainers.gpt_options(3, LARGE_MODEL), *plan["options"]])
        errors[plan["plan"]] = plan["memory_bytes"] / measured - 1
        rows.append((plan["plan"], f"{plan['memory_bytes'] / 2**20:.0f}", f"{measured / 2**20:.0f}", f"{100 * errors[plan['plan']]:+.0f} %"))
    comparing.note("")
    print(comparing.table(["plan", "predicted MiB", "measured MiB", ""], rows), flush=True)
    worst = max(errors, key=lambda plan: abs(errors[plan]))
    met = sum(abs(error) <= 0.1 for error in errors.values())
    return [Row(f"resident memory: plans within 10 %, the worst is {worst}", f"{met} of {len(taken)}, {100 * errors[worst]:+.1f} %", "10 %",
                met == len(taken))]  # fmt: skip
