"""The backend "tutti" of torch.distributed."""

import contextlib
import importlib
import os

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


def _create(options, backend_options):
    return _load().create(options, backend_options)


def register() -> None:
    """Makes ``init_process_group("tutti")`` known to torch.distributed. May be called again.

    torch 2.15 and later call it themselves, by the entry point of the package.
    """
    import torch.distributed as dist

    if not dist.is_available() or "TUTTI" in dist.Backend._plugins:
        return
    dist.Backend.register_backend(
        "tutti",
        _create,
        extended_api=True,
        devices=["cpu", "cuda"],
    )


def replace_gloo() -> None:
    """With TUTTI_REPLACE_GLOO=1, the groups that a program makes with gloo are Tutti's.

    For programs that cannot choose their backend. torch calls it at the end of ``import torch``, by the
    entry point of the package.

    Raises:
        ValueError: TUTTI_REPLACE_GLOO is neither a yes nor a no.
        RuntimeError: torch is older than 2.15.
    """
    asked = os.environ.get("TUTTI_REPLACE_GLOO", "")
    if asked.lower() in ("", "0", "false", "no", "off"):
        return
    if asked.lower() not in ("1", "true", "yes", "on"):
        raise ValueError(f"TUTTI_REPLACE_GLOO is 1 or 0, and not {asked!r}")
    import torch
    import torch.distributed as dist

    # torch asks for its own backends by entry points too, and takes what is registered already.
    if not hasattr(dist.Backend, "_ensure_backend_registered"):
        raise RuntimeError(
            "TUTTI_REPLACE_GLOO needs torch 2.15 or later, and this is "
            f'{torch.__version__}. Use init_process_group("tutti") instead'
        )
    dist.Backend.register_backend(
        "gloo",
        _create,
        extended_api=True,
        devices=["cpu"],  # not of the type GLOO: DistributedDataParallel casts such a backend to its own class
    )


def ddp_hook(group=None):
    """A communication hook of DistributedDataParallel that averages gradients in shared memory.

    For models that were not made inside shared_memory()::

        model = DistributedDataParallel(Net())
        model.register_comm_hook(None, tutti.ddp_hook())

    Each bucket is copied into memory that the ranks of this host share. It needs as much memory as
    the gradients.

    Args:
        group: the process group of the model; the default group if it is None.
    """
    import torch.distributed as dist

    backend = _backend_of(group, "tutti.ddp_hook()")
    buffers = {}

    def hook(state, bucket):
        gradients = bucket.buffer()
        key = id(bucket.parameters()[0]), gradients.dtype
        buffer = buffers.get(key)
        if buffer is None or buffer.numel() != gradients.numel():  # buckets change after the first step
            buffer = backend.allocate_tensor(
                gradients.numel(), dtype=gradients.dtype, device=gradients.device
            )
            buffers[key] = buffer
        buffer.copy_(gradients)
        work = dist.all_reduce(buffer, dist.ReduceOp.AVG, group=group, async_op=True)
        return work.get_future().then(lambda future: future.value()[0])

    return hook


def _backend_of(group, caller):
    import torch
    import torch.distributed as dist

    group = group or dist.group.WORLD
    if group is None:
        raise RuntimeError(f'{caller}: call init_process_group("tutti") first')
    backend = group._get_backend(torch.device("cpu"))
    backend = getattr(backend, "wrapped_pg", backend)  # under TORCH_DISTRIBUTED_DEBUG=DETAIL
    if not isinstance(backend, _load().TuttiBackend):
        raise TypeError(
            f"{caller} needs a process group with the backend tutti, and this one has {backend.name()}"
        )
    return backend


@contextlib.contextmanager
def shared_memory(group=None):
    """CPU tensors that are made inside are in memory that the other ranks of this host read directly.

    Collectives copy nothing then, which is several times faster. Put the model, its wrapper and
    the training inside, at least its first two steps: DistributedDataParallel makes its buckets
    anew in the second.

    A process that is forked, such as a worker of a DataLoader, cannot read these tensors, and makes
    its own in ordinary memory. So make datasets outside.

    Args:
        group: a process group with the backend "tutti"; the default group if it is None.
    """
    memory = _load().SharedMemory(_backend_of(group, "tutti.shared_memory()"))
    memory.enter()
    try:
        yield
    finally:
        memory.leave()
