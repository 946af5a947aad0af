"""The launcher: `python -m tutti.run` is `tutti run`, which takes torchrun's options.

launch() starts ranks from a program or a notebook::

    import tutti.run

    losses = tutti.run.launch(train, (model, 0.1), ranks=4)
"""

from __future__ import annotations

import json
import os
import pathlib
import pickle
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any

_GRACE = 30  # seconds for a job to end after Ctrl-C

__all__ = ["LaunchError", "launch", "launcher", "main"]


class LaunchError(RuntimeError):
    """A job that failed. The text begins with the rank that failed first, and its traceback.

    Attributes:
        report: what `tutti run --report` wrote (docs/reference/json.md), a dict.
        code: the exit code of `tutti run`; 1 if it succeeded and a rank returned no result.
    """

    def __init__(self, text: str, code: int, report: dict[str, Any]):
        super().__init__(text)
        self.code = code
        self.report = report


def launch(
    function: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    ranks: int,
    options: Sequence[str] = (),
) -> list[Any]:
    """Calls ``function(*args, **kwargs)`` in ``ranks`` processes on this machine.

    Each process has RANK, WORLD_SIZE and the other variables of torchrun, so
    ``init_process_group("tutti")`` needs no arguments. What the processes print is printed here.

    The function and its arguments are pickled. For a function of a notebook or of the script itself,
    install the package cloudpickle.

    For a job on several hosts, call launch() on each of them, with the options with which they meet::

        meet = "--nnodes 2 --rdzv-backend elastic --rdzv-endpoint head:29400 --rdzv-id job-7 --secret-file secret"
        results = launch(train, ranks=8, options=meet.split())

    Args:
        function, args, kwargs: what each process calls.
        ranks: the number of processes on this machine.
        options: more options of `tutti run`, such as ["--max-restarts", "3"].

    Returns:
        What the function returned on this machine, a list by local rank.

    Raises:
        LaunchError: a rank failed, or the job could not begin.
        ValueError: `--virtual-local-rank` is among the options. Results are stored by local rank.
    """
    if any(option.startswith("--virtual-local-rank") for option in options):
        raise ValueError("launch() needs the local rank of each process: leave out --virtual-local-rank")
    with tempfile.TemporaryDirectory(prefix="tutti-") as folder:
        pathlib.Path(folder, "call").write_bytes(_pickled(function, args, kwargs or {}))
        report = pathlib.Path(folder, "report.json")
        command = ["run", "-q", "-n", str(ranks), "--report", str(report), *options]
        code = _run([*command, sys.executable, "-m", "tutti._rank", folder])
        if code != 0:
            found = json.loads(report.read_text()) if report.exists() else {}
            text = found.get("failure") or f"`tutti run` ended with {code}; its message is above"
            if found.get("message"):
                text += "\n" + found["message"]
            raise LaunchError(text, code, found)
        return [_result(pathlib.Path(folder, f"result-{rank}"), rank) for rank in range(ranks)]


def _result(path, rank):
    if not path.exists():
        raise LaunchError(f"local rank {rank} ended without a result: did it call sys.exit()?", 1, {})
    return pickle.loads(path.read_bytes())


def _pickled(function, args, kwargs):
    try:
        import cloudpickle as pickler
    except ImportError:
        pickler = pickle
        if getattr(function, "__module__", None) == "__main__":
            raise LaunchError(
                f"{function.__name__} is defined in the program itself, where other processes "
                "cannot import it: move it to a module, or install cloudpickle",
                2,
                {},
            ) from None
    return pickle.dumps((sys.path, pickler.dumps((function, args, kwargs))))


def _run(command):
    try:
        command = [launcher(), *command]
        if sys.stdout is sys.__stdout__:
            process = subprocess.Popen(command)
        else:  # a notebook, whose cells do not show what processes print
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    except OSError as error:
        raise LaunchError(f"the launcher cannot be started: {error}", 127, {}) from error
    with process:
        try:
            for line in process.stdout or ():
                print(line, end="", flush=True)
            return process.wait()
        except KeyboardInterrupt:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(_GRACE)
            except subprocess.TimeoutExpired:
                process.kill()
            raise


def launcher() -> str:
    """The path of the program `tutti`: that of this package, else one in PATH that is not this script.

    Raises:
        FileNotFoundError: there is none.
        PermissionError: that of this package cannot be executed.
    """
    own = pathlib.Path(__file__).parent / "bin" / "tutti"
    if own.exists():
        if not os.access(own, os.X_OK):
            raise PermissionError(_why_not(own))
        return str(own)
    for folder in os.get_exec_path():
        found = os.path.join(folder, "tutti")
        if os.path.isfile(found) and os.access(found, os.X_OK) and not _is_script(found):
            return found
    raise FileNotFoundError(
        f"the program tutti is neither in {own.parent} nor in PATH: pip install --force-reinstall tutti"
    )


def _why_not(program):
    if os.statvfs(program).f_flag & os.ST_NOEXEC:
        return (
            f"{program} is on a file system that is mounted with noexec: "
            "install tutti in an environment on another one"
        )
    return f"{program} is not executable: chmod +x {program}, or pip install --force-reinstall tutti"


def _is_script(path):
    with open(path, "rb") as file:
        return file.read(2) == b"#!"


def main() -> None:
    """Replaces this process with `tutti` and its arguments."""
    os.environ.setdefault("PYTHON_EXEC", sys.executable)  # also where the environment is not active
    try:
        program = launcher()
        os.execv(program, [program, *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"tutti: the launcher cannot be started: {error}")


if __name__ == "__main__":
    sys.argv.insert(1, "run")
    main()
