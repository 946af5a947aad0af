"""Compiles the module for a release of torch for which the package has none."""

import pathlib
import sys

_FOLDER = pathlib.Path(__file__).parent


def build(name):
    """Builds and loads the module with torch's own tools; the next import finds it in torch's cache."""
    import torch
    from torch.utils import cpp_extension

    sources = sorted(str(path) for path in (_FOLDER / "src").glob("*.cc"))
    library = _FOLDER / "lib"
    if not sources:
        raise ImportError(
            f"this package of tutti has no module for torch {torch.__version__}, and not what is "
            "needed to compile one; install the package of tutti that was made for it"
        )
    print(f"tutti: compiling the module for torch {torch.__version__}, once", file=sys.stderr)
    try:
        return cpp_extension.load(
            name=name,
            sources=sources,
            extra_include_paths=[str(_FOLDER / "include"), str(_FOLDER / "src")],
            extra_cflags=["-O2", "-std=c++20", "-fvisibility=hidden"],
            extra_ldflags=[f"-L{library}", "-ltutti", f"-Wl,-rpath,{library}"],
        )
    except (OSError, RuntimeError) as error:
        raise ImportError(
            f"the module of tutti for torch {torch.__version__} cannot be compiled; it needs g++ 12 "
            f"or later and ninja: {error}"
        ) from error
