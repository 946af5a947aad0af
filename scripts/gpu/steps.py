"""Steps of scripts/on-gpu: commands with a deadline, and the report that names each.

The report is a file of JSON that is written anew after each step, so it is there however a run ends.
"""

import contextlib
import json
import os
import pathlib
import shlex
import signal
import subprocess
import time

PASSED, FAILED, SKIPPED, PLANNED = "passed", "failed", "skipped", "planned"
TAIL = 4000  # characters of the output of a failed step that the report holds
GRACE = 10  # seconds from SIGTERM to SIGKILL


class Failure(Exception):
    """A step has failed; the text is a sentence for the report."""


class Skip(Exception):
    """A step cannot run here; the text says why."""


class Report:
    """What happened, as a dictionary. `file` may be None."""

    def __init__(self, file, facts):
        self.file = file and pathlib.Path(file)
        self.content = {**facts, "state": "running", "parts": {}, "figures": {}}

    def part(self, name):
        return self.content["parts"].setdefault(name, {"state": PASSED, "steps": []})

    def add_step(self, part, step):
        entry = self.part(part)
        entry["steps"].append(step)
        states = [one["state"] for one in entry["steps"]]
        entry["state"] = next(state for state in (FAILED, PASSED, SKIPPED, PLANNED) if state in states)
        self.write()

    def failed_steps(self):
        for part, entry in self.content["parts"].items():
            yield from (f"{part}: {step['name']}: {step['why']}" for step in entry["steps"] if step["state"] == FAILED)

    def write(self):
        if not self.file:
            return
        self.file.parent.mkdir(parents=True, exist_ok=True)
        new = self.file.with_name(self.file.name + ".new")
        new.write_text(json.dumps(self.content, indent=2) + "\n", encoding="utf-8")
        new.replace(self.file)


def end_group(process):
    """Ends the session of a process that run_logged() or started() began, politely first."""
    for number, patience in ((signal.SIGTERM, GRACE), (signal.SIGKILL, GRACE)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(patience)
            break
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)  # what it left behind in its session


@contextlib.contextmanager
def started(command, log, environment=None):
    """A process in a session of its own, whose output goes to the file `log`; it is ended when the block is left."""
    with open(log, "wb") as out:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, env=environment,
                                   start_new_session=True)  # fmt: skip
    try:
        yield process
    finally:
        end_group(process)


def text_of(log):
    return pathlib.Path(log).read_text(encoding="utf-8", errors="replace")


class Runner:
    """Runs the steps of one part at a time. With `dry` it prints them and runs nothing."""

    def __init__(self, report, folder, dry=False, clock=time.monotonic):
        self.report, self.folder, self.dry, self.clock = report, pathlib.Path(folder), dry, clock
        self.part_name, self.part_ends = None, 0.0

    @contextlib.contextmanager
    def part(self, name, limit):
        """A part whose steps have `limit` seconds together."""
        self.part_name, self.part_ends = name, self.clock() + limit
        print(f"== {name}", flush=True)
        self.report.part(name)
        began = self.clock()
        try:
            yield
        finally:
            self.report.part(name)["seconds"] = round(self.clock() - began, 1)
            self.report.write()

    def left(self, limit=None):
        """Seconds that a step may take: its own limit, or what is left of its part."""
        left = self.part_ends - self.clock()
        return left if limit is None else min(limit, left)

    def log_of(self, name):
        self.folder.mkdir(parents=True, exist_ok=True)
        return self.folder / f"{self.part_name}-{name.replace(' ', '-').replace('/', '-')}.log"

    def step(self, name, act, command=None):
        """Runs act(), which returns what the report shall hold of it, raises Failure or raises Skip. Whether it passed."""
        shown = shlex.join(map(str, command)) if command else None
        if self.dry:
            print(f"   {name}" + (f": {shown}" if shown else ""), flush=True)
            self.report.add_step(self.part_name, {"name": name, "state": PLANNED, "command": shown})
            return True
        step = {"name": name, "state": PASSED, **({"command": shown} if shown else {})}
        began = self.clock()
        try:
            if self.left() <= 0:
                raise Failure("the time of this part was over before it began")
            step.update(act() or {})
        except Skip as why:
            step.update(state=SKIPPED, why=str(why))
        except Failure as why:
            step.update(state=FAILED, why=str(why))
        except Exception as error:  # a defect of this script: the report names it, and the next step runs
            step.update(state=FAILED, why=f"{type(error).__name__}: {error}")
        step["seconds"] = round(self.clock() - began, 1)
        if step["state"] == FAILED and self.log_of(name).exists():
            step["output"] = text_of(self.log_of(name))[-TAIL:]
        self.report.add_step(self.part_name, step)
        print(f"   {step['state']:8}{name}" + (f": {step['why']}" if "why" in step else f" ({step['seconds']} s)"), flush=True)
        return step["state"] == PASSED

    def run(self, name, command, limit=None, environment=None, result=None, codes=(0,), skip_code=None):
        """A step that is one command. `result` makes figures of its output; `skip_code` is its exit code for "not run"."""
        return self.step(name, lambda: self.run_logged(name, command, limit, environment, result, codes, skip_code), command)

    def run_logged(self, name, command, limit=None, environment=None, result=None, codes=(0,), skip_code=None):
        seconds, log = self.left(limit), self.log_of(name)
        with started(list(map(str, command)), log, environment) as process:
            try:
                code = process.wait(seconds)
            except subprocess.TimeoutExpired:
                raise Failure(f"it did not end within {seconds:.0f} s") from None
        output = text_of(log)
        if skip_code is not None and code == skip_code:
            raise Skip(next((line[5:].strip() for line in output.splitlines() if line.startswith("SKIP:")), "no reason given"))
        if code not in codes:
            raise Failure(f"exit code {code}" if code >= 0 else f"killed by {signal.Signals(-code).name}")
        return result(output) if result else None


def last_json(output):
    """The last line of an output that is an object of JSON."""
    for line in reversed(output.splitlines()):
        if line.startswith("{"):
            with contextlib.suppress(ValueError):
                return json.loads(line)
    raise Failure("it printed no line of JSON")
