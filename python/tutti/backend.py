"""The backend "tutti" of torch.distributed."""

from __future__ import annotations

import contextlib
import importlib
import os
import pathlib
import re
import sys
import typing
from collections.abc import Callable, Iterator

if typing.TYPE_CHECKING:
    import torch
    import torch.distributed as dist

_OLDEST = (2, 13)
_ASKS = (2, 15)  # from this release on, torch asks for the entry point torch.distributed.backends
_module: typing.Any = None


def release_of(version: str) -> tuple[int, ...]:
    """The major and minor number of a version: (2, 15) of "2.15.0a0+cpu"."""
    found = re.match(r"(\d+)\.(\d+)", version)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def require_torch(caller: str) -> None:
    """Imports torch.

    Args:
        caller: what needs it, for the error.

    Raises:
        ImportError: there is no torch, or it is older than 2.13.
    """
    try:
        import torch
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise ImportError(
            f"{caller} needs torch 2.13 or later, and {sys.executable} has no torch: "
            "pip install 'torch>=2.13'"
        ) from None
    if release_of(torch.__version__) < _OLDEST:
        raise ImportError(
            f"{caller} needs torch 2.13 or later, and this is torch {torch.__version__} in "
            f"{pathlib.Path(torch.__file__).parent}: in a virtual environment, pip install 'torch>=2.13'"
        )


def _load() -> typing.Any:
    """The compiled module for the torch that is installed."""
    global _module
    if _module is None:
        require_torch('the backend "tutti"')
        import torch

        name = "_torch_%d_%d" % release_of(torch.__version__)
        try:
            _module = importlib.import_module("tutti." + name)
        except ImportError as error:
            if error.name != "tutti." + name:
                raise _unfit(name, error) from error
            from tutti import _compile

            _module = _compile.build(name)
    return _module


def loaded() -> typing.Any:
    """The compiled module, or None if nothing has needed it."""
    return _module


def _unfit(name: str, error: ImportError) -> ImportError:
    """The error for a module that is there and cannot be loaded."""
    import torch

    folder = pathlib.Path(__file__).parent
    try:
        made_for = (folder / f"{name}.txt").read_text().strip()
    except OSError:
        made_for = name.removeprefix("_torch_").replace("_", ".")
    return ImportError(
        f"tutti.{name} in {folder} was built for torch {made_for} and cannot be loaded with torch "
        f"{torch.__version__}: {error}. Install the torch it was built for, or build tutti again in this "
        "environment"
    )


def _create(*arguments: typing.Any) -> typing.Any:
    return _load().create(*arguments)


def _register() -> None:
    import torch
    import torch.distributed as dist

    if not dist.is_available() or "TUTTI" in dist.Backend._plugins:
        return
    if release_of(torch.__version__) < (2, 0):  # _create() says what is missing
        dist.Backend.register_backend("tutti", _create)
        return
    dist.Backend.register_backend("tutti", _create, extended_api=True, devices=["cpu", "cuda"])


def announce() -> None:
    """Registers the backend if torch has been imported and would not ask for it: before 2.15."""
    torch = sys.modules.get("torch")
    if torch is not None and release_of(getattr(torch, "__version__", "")) < _ASKS:
        _register()


def autoload() -> None:
    """What torch calls at the end of ``import torch``, by the entry point torch.backends."""
    announce()
    replace_gloo()


def register() -> None:
    """Makes ``init_process_group("tutti")`` known to torch.distributed. May be called again.

    It is only needed with TORCH_DEVICE_BACKEND_AUTOLOAD=0 and torch older than 2.15.

    Raises:
        ImportError: there is no torch, or it is older than 2.13.
    """
    require_torch("tutti.register()")
    _register()


def replace_gloo() -> None:
    """With TUTTI_REPLACE_GLOO=1, the groups that a program makes with gloo are Tutti's.

    For programs that cannot choose their backend.

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


def ddp_hook(
    group: dist.ProcessGroup | None = None,
) -> Callable[[typing.Any, dist.GradBucket], torch.futures.Future[torch.Tensor]]:
    """A communication hook of DistributedDataParallel that averages gradients in shared memory.

    For models that were not made inside shared_memory()::

        model = DistributedDataParallel(Net())
        model.register_comm_hook(None, tutti.ddp_hook())

    Each bucket is copied into memory that the ranks of this host share. It needs as much memory as
    the gradients.

    Args:
        group: the process group of the model; the default group if it is None.

    Raises:
        RuntimeError: there is no default group yet.
        ValueError: this rank is not in the group.
        TypeError: the group has another backend.
    """
    backend = _backend_of(group, "tutti.ddp_hook()")
    import torch.distributed as dist

    buffers: dict[tuple[int, torch.dtype], torch.Tensor] = {}

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


def _backend_of(group: dist.ProcessGroup | None, caller: str) -> typing.Any:
    require_torch(caller)
    import torch
    import torch.distributed as dist

    if group is None:
        group = dist.group.WORLD
    if group is None:
        raise RuntimeError(f'{caller}: call init_process_group("tutti") first')
    if group == dist.GroupMember.NON_GROUP_MEMBER:
        raise ValueError(f"{caller}: rank {dist.get_rank()} is not in this group; call it on its members only")
    if not isinstance(group, dist.ProcessGroup):
        raise TypeError(f"{caller} needs a process group, and got {group!r}")
    backend = group._get_backend(torch.device("cpu"))
    backend = getattr(backend, "wrapped_pg", backend)  # under TORCH_DISTRIBUTED_DEBUG=DETAIL
    if not isinstance(backend, _load().TuttiBackend):
        raise TypeError(
            f"{caller} needs a process group with the backend tutti, and this one has {backend.name()}"
        )
    return backend


@contextlib.contextmanager
def shared_memory(group: dist.ProcessGroup | None = None) -> Iterator[None]:
    """CPU tensors that are made inside are in memory that the other ranks of this host read directly.

    Collectives copy nothing then, which is several times faster. Put the model, its wrapper and
    the training inside, at least its first two steps: DistributedDataParallel makes its buckets
    anew in the second.

    A process that is forked, such as a worker of a DataLoader, cannot read these tensors, and makes
    its own in ordinary memory. So make datasets outside.

    Args:
        group: a process group with the backend "tutti"; the default group if it is None.

    Raises:
        RuntimeError: there is no default group yet.
        ValueError: this rank is not in the group.
        TypeError: the group has another backend.
    """
    backend = _backend_of(group, "tutti.shared_memory()")
    memory = _load().SharedMemory(backend)
    memory.enter()
    try:
        yield
    finally:
        memory.leave()
