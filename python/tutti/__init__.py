"""Tutti for Python: an engine for torch.distributed, and the launcher `tutti run`.

Use it in any PyTorch program on CPUs::

    torch.distributed.init_process_group("tutti")

From torch 2.15 on this needs no import. With older releases, ``import tutti`` first.

tutti.ckpt reads checkpoints, tutti.dcp saves and loads those of torch.distributed.checkpoint,
tutti.run starts jobs from Python, and tutti.plan predicts collectives.
"""

import importlib
import sys

from tutti.backend import ddp_hook, register, shared_memory

__all__ = ["ckpt", "dcp", "ddp_hook", "plan", "register", "run", "shared_memory"]

# Importing torch takes a second, so it is left to the program.
if "torch" in sys.modules:
    register()


def __getattr__(name):
    if name in ("ckpt", "dcp", "plan", "run"):
        return importlib.import_module("tutti." + name)
    raise AttributeError(f"module 'tutti' has no attribute {name!r}")
