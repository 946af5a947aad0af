"""Checks that every ```cpp block of the documents compiles.

usage: cpp_blocks.py core|torch ROOT COMPILER

`core` checks the blocks whose fence says ```cpp core: they need <tutti/core.h> alone. `torch` checks all others. Each
is one translation unit, since LibTorch's headers cost seconds: a block becomes a namespace of its own. A block with a
main() is taken as it is; any other is the body of a function that sees the names of prelude_core.h or prelude_torch.h.
A block's #include lines move to the top. Messages of the compiler name the line of the Markdown file.
"""
import pathlib
import re
import shlex
import subprocess
import sys

sys.dont_write_bytecode = True
from markdown_blocks import blocks_of, documents  # noqa: E402


def is_program(block):
    return any(re.match(r"(int|auto) main\(", line) for line in block.lines)


def translation_unit(part, folder, blocks):
    includes, bodies = [], []
    for number, block in enumerate(blocks):
        body = []
        for at, line in enumerate(block.lines):
            if line.startswith("#include"):
                includes += [f'#line {block.line + at} "{block.file}"', line]
                line = ""
            body.append(line)
        text = [f'#line {block.line} "{block.file}"'] + body
        if not is_program(block):
            text = ["[[maybe_unused]] inline int fragment() {"] + text + ["return 0; }"]
        bodies += [f"namespace docs::block_{number} {{"] + text + ["}"]
    return "\n".join(includes + [f'#include "{folder}/prelude_{part}.h"'] + bodies) + "\n"


def excerpt(block, root):
    """What is wrong with a block that says `from: FILE`, or nothing."""
    path = pathlib.Path(root) / block.origin
    if not path.is_file():
        return f"{block.place}: there is no file {block.origin}"
    if "\n" + "\n".join(block.lines) + "\n" not in "\n" + path.read_text():
        return f"{block.place}: the block is not what {block.origin} says; copy the file's lines into it"
    return ""


def main(part, root, compiler):
    folder = str(pathlib.Path(__file__).resolve().parent)
    every = [block for file in documents(root) for block in blocks_of(root, file)]
    wrong = [excerpt(block, root) for block in every if block.origin]
    wrong += [f"{block.place}: a block with C++ needs the fence ```cpp, or the compiler never sees it"
              for block in every if not block.language and any("tutti::" in line for line in block.lines)]
    wrong += [f"{block.place}: the fence says ```cpp {' '.join(block.words)}; only `core` may follow"
              for block in every if block.language == "cpp" and block.words not in ([], ["core"])]
    blocks = [block for block in every
              if block.language == "cpp" and not block.origin and (block.words == ["core"]) == (part == "core")]
    if not blocks:
        wrong.append(f"no block for {part} was found: is {root} the repository?")
    command = shlex.split(compiler) + ["-std=c++20", "-fsyntax-only", "-Wno-return-type", "-I", root, "-x", "c++", "-"]
    compiled = subprocess.run(command, input=translation_unit(part, folder, blocks), text=True, capture_output=True)
    print(compiled.stderr, end="")
    if compiled.returncode != 0:
        wrong.append("a block does not compile; the messages above name its file and line")
    for text in filter(None, wrong):
        print(text)
    print(f"{len(blocks)} blocks for {part}: " + ", ".join(block.place for block in blocks))
    return 1 if any(wrong) else 0


if __name__ == "__main__":
    if len(sys.argv) != 4 or sys.argv[1] not in ("core", "torch"):
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
