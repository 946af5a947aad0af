"""The rows of the planner's table: what was measured, the target, and whether it was met."""
import csv
import os
import statistics
import subprocess
import time
from dataclasses import dataclass

import comparing

COLUMNS = ["tp", "cp", "pp", "dp", "mbs", "sp", "schedule", "chunks", "first", "last", "zero", "recompute", "overlap"]
UNSET = {"tp": 1, "cp": 1, "pp": 1, "dp": 1, "sp": 0, "schedule": "1f1b", "chunks": 1, "first": "even", "last": "even", "zero": 0, "recompute": "none", "overlap": 0}


@dataclass
class Row:
    what: str
    figure: str
    target: str
    met: bool | None  # None: not measured, and `figure` says why

    def cells(self):
        return [self.what, self.figure, self.target, {True: "met", False: "**missed**", None: "not measured"}[self.met]]


def options_of(sizes):
    """["--num-layers", "4"] of {"--num-layers": 4}."""
    return [str(text) for pair in sizes.items() for text in pair]


def parts_of(plan):
    """{"tp": "2", ...} of "tp=2,sp,mbs=4"."""
    given = dict((part.split("=") + ["1"])[:2] for part in plan.split(","))
    return {column: given.get(column, UNSET.get(column)) for column in COLUMNS}


def write_runs(path, rows):
    """A table for tutti plan train --check: dictionaries with the same keys."""
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def read_runs(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(line for line in file if not line.startswith("#")))


def check(question, path):
    """The answer of tutti plan train --check: mean_error, tau, worst_regret, ..."""
    return comparing.last_json(comparing.run([*question, "--check", str(path), "--json"]))


def regret(measured, taken):
    """How much slower the plan `taken` is than the fastest one of {plan: seconds}."""
    return measured[taken] / min(measured.values()) - 1


def medians(rounds):
    """{name: median} of comparing.in_turn()."""
    return {name: statistics.median(results[name] for results in rounds) for name in rounds[0]}


def percent(share):
    return f"{100 * share:.1f} %"


def timed(command):
    """Output, seconds, and peak resident bytes of a command that must succeed."""
    begin = time.monotonic()
    # Its output is small enough for a pipe that is read to its end before the process is waited for.
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    output = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, command))} ended with {process.returncode}")
    return output, time.monotonic() - begin, usage.ru_maxrss * 1024
