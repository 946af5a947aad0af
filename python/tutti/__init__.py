"""Tutti for Python: a backend of torch.distributed, and the launcher `tutti run`.

Use it in any PyTorch program on CPUs::

    torch.distributed.init_process_group("tutti")

torch 2.13 and later find the backend themselves: no import is needed.

tutti.ckpt reads checkpoints, tutti.dcp saves and loads those of torch.distributed.checkpoint,
tutti.run starts jobs from Python, and tutti.plan predicts collectives. Importing tutti does not
import torch. Only the backend and tutti.dcp need it.
"""

import importlib
import typing

from tutti import backend
from tutti.backend import ddp_hook, register, shared_memory
from tutti.errors import Error, error_of

__all__ = ["Error", "ckpt", "dcp", "ddp_hook", "error_of", "plan", "register", "run", "shared_memory"]

if typing.TYPE_CHECKING:
    from tutti import ckpt, dcp, plan, run
else:

    def __getattr__(name):
        if name in __all__:
            return importlib.import_module("tutti." + name)
        raise AttributeError(f"module 'tutti' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


backend.announce()
