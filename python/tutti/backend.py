"""The backend "tutti" of torch.distributed."""

import contextlib
import importlib

_module = None


def _load():
    """The compiled module for the torch that is installed."""
    global _module
    if _module is None:
        import torch

        name = "_torch_" + "_".join(torch.__version__.split(".")[:2])
        try:
            _module = importlib.import_module("tutti." + name)
        except ModuleNotFoundError as error:
            if error.name != "tutti." + name:
                raise
            from tutti import _compile

            _module = _compile.build(name)
    return _module


def register():
    """Makes ``init_process_group("tutti")`` known to torch.distributed. May be called again.

    torch 2.15 and later call it themselves, by the entry point of the package.
    """
    import torch.distributed as dist

    if not dist.is_available() or "TUTTI" in dist.Backend._plugins:
        return
    dist.Backend.register_backend(
        "tutti",
        lambda options, backend_options: _load().create(options, backend_options),
        extended_api=True,
        devices=["cpu"],
    )


@contextlib.contextmanager
def shared_memory(group=None):
    """CPU tensors that are made inside are in memory that the other ranks of this host read directly.

    Collectives copy nothing then, which is several times faster. Put the model, its wrapper and
    the first training step inside, so that parameters, gradients and buckets are made there.

    A process that is forked, such as a worker of a DataLoader, cannot read these tensors. So make
    datasets outside.

    Args:
        group: a process group with the backend "tutti"; the default group if it is None.
    """
    import torch
    import torch.distributed as dist

    group = group or dist.group.WORLD
    backend = group._get_backend(torch.device("cpu"))
    module = _load()
    if not isinstance(backend, module.TuttiBackend):
        raise TypeError(
            "tutti.shared_memory() needs a process group with the backend tutti, and this one has "
            + backend.name()
        )
    memory = module.SharedMemory(backend)
    memory.enter()
    try:
        yield
    finally:
        memory.leave()
