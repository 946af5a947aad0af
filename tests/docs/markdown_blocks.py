"""The fenced blocks of a Markdown file, and the comment above a block that says how the tests treat it.

    <!-- from: examples/train/train.cc -->      the block stands in that file, line for line
    <!-- not run: needs a Slurm cluster -->     a console block that no test runs, and why
"""
import pathlib
import re
from dataclasses import dataclass

FENCE = re.compile(r"^(\s*)```(.*)$")
COMMENT = re.compile(r"^\s*<!-- (from|not run): (.*?) -->\s*$")


@dataclass
class Block:
    file: str  # relative to the repository
    line: int  # of its first line, not of the fence
    language: str  # "" for none
    words: list  # of the info string after the language
    lines: list
    origin: str = ""  # from: FILE
    not_run: str = ""  # the reason

    @property
    def place(self):
        return f"{self.file}:{self.line}"


def blocks_of(root, file):
    blocks, comments, opened = [], {}, None
    for number, line in enumerate((pathlib.Path(root) / file).read_text().split("\n"), 1):
        fence = FENCE.match(line)
        if opened:
            if fence and not fence[2].strip():
                blocks.append(opened)
                opened, comments = None, {}
            else:
                opened.lines.append(line)
        elif fence:
            words = fence[2].split()
            opened = Block(file, number + 1, words[0] if words else "", words[1:], [],
                           comments.get("from", ""), comments.get("not run", ""))
        elif comment := COMMENT.match(line):
            comments[comment[1]] = comment[2]
        elif line.strip():
            comments = {}
    if opened:
        raise SystemExit(f"{opened.place}: the block does not end")
    return blocks


def documents(root):
    return ["README.md"] + sorted(f"docs/{path.name}" for path in (pathlib.Path(root) / "docs").glob("*.md"))
