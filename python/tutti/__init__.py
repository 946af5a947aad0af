"""Tutti for Python: a backend of torch.distributed, and the launcher `tutti run`.

Use it in any PyTorch program on CPUs::

    torch.distributed.init_process_group("tutti")

From torch 2.15 on this needs no import. With older releases, ``import tutti`` first.

tutti.ckpt reads checkpoints, tutti.dcp saves and loads those of torch.distributed.checkpoint,
tutti.run starts jobs from Python, and tutti.plan predicts collectives.
"""

import importlib
import importlib.metadata

from tutti.backend import ddp_hook, register, shared_memory

__all__ = ["ckpt", "dcp", "ddp_hook", "plan", "register", "run", "shared_memory"]


def _torch_asks_for_backends():
    """Whether torch looks for the entry point of this package, so that it need not be imported here."""
    try:
        version = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return True
    return [int(part) for part in version.split(".")[:2]] >= [2, 15]


if not _torch_asks_for_backends():
    register()


def __getattr__(name):
    if name in ("ckpt", "dcp", "plan", "run"):
        return importlib.import_module("tutti." + name)
    raise AttributeError(f"module 'tutti' has no attribute {name!r}")
