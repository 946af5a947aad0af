"""Compiles the module for a release of torch for which the package has none."""

import contextlib
import fcntl
import os
import pathlib
import sys

_FOLDER = pathlib.Path(__file__).parent


def build(name):
    """Builds and loads the module with torch's own tools. The next import finds it in ~/.cache/tutti."""
    import torch
    from torch.utils import cpp_extension

    sources = sorted(str(path) for path in (_FOLDER / "src").glob("*.cc"))
    library = _FOLDER / "lib"
    if not sources:
        raise ImportError(
            f"this package of tutti has no module for torch {torch.__version__}, and not what is "
            "needed to compile one; install the package of tutti that was made for it"
        )
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
    folder = cache / "tutti" / f"{name}-{sys.implementation.cache_tag}"
    folder.mkdir(parents=True, exist_ok=True)
    with _one_at_a_time(folder):
        if not (folder / f"{name}.so").exists():
            print(
                f"tutti: compiling the module for torch {torch.__version__}, once: about two minutes",
                file=sys.stderr,
            )
        try:
            return cpp_extension.load(
                name=name,
                sources=sources,
                extra_include_paths=[str(_FOLDER / "include"), str(_FOLDER / "src")],
                extra_cflags=["-O2", "-std=c++20", "-fvisibility=hidden"],
                extra_ldflags=[f"-L{library}", "-ltutti", f"-Wl,-rpath,{library}"],
                build_directory=str(folder),
            )
        except (OSError, RuntimeError) as error:
            raise ImportError(
                f"the module of tutti for torch {torch.__version__} cannot be compiled; it needs "
                f"g++ 12 or later and ninja: {error}"
            ) from error


@contextlib.contextmanager
def _one_at_a_time(folder):
    """Ranks of a host wait here. torch's own lock outlives a process that is killed."""
    with open(folder / "tutti.lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        (folder / "lock").unlink(missing_ok=True)
        yield
