"""Compiles the module for a release of torch for which the package has none."""

import contextlib
import fcntl
import os
import pathlib
import shutil
import sys
import sysconfig
import time

_FOLDER = pathlib.Path(__file__).parent
_PATIENCE = 1800  # seconds to wait for another process that compiles


def build(name):
    """Builds and loads the module with torch's own tools. The next import finds it in ~/.cache/tutti.

    Raises:
        ImportError: the module cannot be compiled here. The text says what is missing.
    """
    import torch

    needs = f"this package of tutti has no module for torch {torch.__version__}"
    sources = sorted((_FOLDER / "src").glob("*.cc"))
    if not sources:
        raise ImportError(f"{needs}, and no sources to compile one: install a wheel of tutti that has it")
    missing = _missing()
    if missing:
        raise ImportError(
            f"{needs}, and to compile one, {' and '.join(missing)} must be installed; or install a wheel of "
            "tutti that has it"
        )
    try:
        folder = _cache() / f"torch-{torch.__version__}-{sys.implementation.cache_tag}"
        folder.mkdir(parents=True, exist_ok=True)
        with _one_at_a_time(folder):
            return _load(name, sources, folder)
    except OSError as error:
        raise ImportError(
            f"{needs}, and one cannot be compiled in {error.filename or folder}: {error.strerror or error}. "
            "Set XDG_CACHE_HOME to a folder that can be written"
        ) from error


def _missing():
    """What must be installed, in Debian's names."""
    missing = []
    compiler = os.environ.get("CXX", "c++")
    if not shutil.which(compiler):
        missing.append(f"g++ 12 or later (there is no {compiler}; apt-get install g++)")
    if not pathlib.Path(sysconfig.get_path("include"), "Python.h").exists():
        missing.append("the headers of Python (apt-get install python3-dev)")
    if not shutil.which("ninja"):
        missing.append("ninja in PATH (pip install ninja, in the environment that is active)")
    return missing


def _cache():
    folder = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return pathlib.Path(folder, "tutti")


def _load(name, sources, folder):
    import torch

    library = _FOLDER / "lib"
    # One translation unit: the headers of torch take most of the time.
    unit = folder / "module.cc"
    text = "".join(f'#include "{path}"\n' for path in sources)
    if not unit.exists() or unit.read_text() != text:
        unit.write_text(text)
    if not (folder / f"{name}.so").exists():
        print(
            f"tutti: compiling the module for torch {torch.__version__}, once: about half a minute",
            file=sys.stderr,
        )
    try:
        from torch.utils import cpp_extension  # needs setuptools

        return cpp_extension.load(
            name=name,
            sources=[str(unit)],
            extra_include_paths=[str(_FOLDER / "include"), str(_FOLDER / "src")],
            extra_cflags=["-O2", "-std=c++20", "-fvisibility=hidden"],
            extra_ldflags=[f"-L{library}", "-ltutti", f"-Wl,-rpath,{library}"],
            build_directory=str(folder),
        )
    except (ImportError, RuntimeError) as error:
        raise ImportError(
            f"the module of tutti for torch {torch.__version__} cannot be compiled; it needs g++ 12 or "
            f"later: {error}"
        ) from error


@contextlib.contextmanager
def _one_at_a_time(folder):
    """Ranks of a host wait here. torch's own lock outlives a process that is killed."""
    deadline = time.monotonic() + _PATIENCE
    with open(folder / "tutti.lock", "w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise ImportError(
                        f"another process has been compiling in {folder} for {_PATIENCE} s: end the one that "
                        f"holds {file.name}"
                    ) from None
                time.sleep(0.1)  # flock() has no limit of its own
        (folder / "lock").unlink(missing_ok=True)
        yield
