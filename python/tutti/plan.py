"""What `tutti plan` predicts, as Python objects.

    for one in tutti.plan.predict("all_reduce", ranks=16, hosts=2, bytes="64M", algorithm="all"):
        print(one["algorithm"], one["us"])
"""

from __future__ import annotations

import json
import subprocess
from typing import Any

from tutti.run import launcher

__all__ = ["predict"]


def predict(verb: str, **options: Any) -> list[dict[str, Any]]:
    """Predicts a collective, or a pipeline, on a network that the options describe.

    An entry for each algorithm, whose `us` is its time in microseconds, or for each schedule.

    Args:
        verb: such as "all_reduce", or "pipeline"; see `tutti plan --help`.
        options: those of `tutti plan`, with underscores for dashes; True for one without a value.

    Raises:
        ValueError: a verb, an option or a value that `tutti plan` rejects, with its message.
        OSError: the program `tutti` is not there, or cannot be executed.
    """
    words = [launcher(), "plan", verb, "--json"]
    for name, value in options.items():
        if value is False or value is None:
            continue
        words.append("--" + name.replace("_", "-"))
        if value is not True:
            words.append(str(value))
    ended = subprocess.run(words, capture_output=True, text=True)
    if ended.returncode != 0:
        raise ValueError(ended.stderr.strip())
    return [json.loads(line) for line in ended.stdout.splitlines()]
