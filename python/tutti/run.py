"""`python -m tutti.run`: the launcher `tutti run`, which takes torchrun's options."""

import os
import pathlib
import sys


def launcher():
    """The path of the program `tutti`."""
    own = pathlib.Path(__file__).parent / "bin" / "tutti"
    return str(own) if own.exists() else "tutti"


def main():
    """Replaces this process with `tutti` and its arguments."""
    program = launcher()
    try:
        os.execvp(program, [program, *sys.argv[1:]])
    except FileNotFoundError:
        sys.exit("tutti: the launcher is not in this package and not in PATH")


if __name__ == "__main__":
    sys.argv.insert(1, "run")
    main()
