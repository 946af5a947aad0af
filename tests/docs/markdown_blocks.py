"""Reads the Markdown documents: their fenced blocks, their text without the blocks, and the anchors of their headings.

A comment above a block says how the tests treat it:

    <!-- from: examples/train/train.cc -->      the block is part of that file, line for line
    <!-- not run: needs a Slurm cluster -->     no test runs this console block, for this reason

allowed.txt lists the exceptions of the checks.
"""
import fnmatch
import pathlib
import re
from dataclasses import dataclass

ALLOWED = pathlib.Path(__file__).resolve().parent / "allowed.txt"

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
    """All Markdown files that users read, relative to the repository."""
    root = pathlib.Path(root)
    files = [*root.glob("*.md"), *root.glob("docs/**/*.md"), *root.glob("examples/**/*.md")]
    return sorted(str(path.relative_to(root)) for path in files)


def text_of(root, file):
    """The lines of a file; those of code blocks and HTML comments are empty."""
    text = (pathlib.Path(root) / file).read_text(encoding="utf-8")
    text = re.sub(r"<!--.*?-->", lambda found: re.sub(r"[^\n]", "", found[0]), text, flags=re.S)
    lines, in_block = [], False
    for line in text.split("\n"):
        fence = FENCE.match(line)
        if fence and (not in_block or not fence[2].strip()):
            in_block, line = not in_block, ""
        lines.append("" if in_block else line)
    return lines


def plain(text):
    """Markdown without its markup: links become their text; code becomes its text."""
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return re.sub(r"[`*]|<[^>]+>|(?<!\w)_|_(?!\w)", "", text)


def slug(heading):
    """The anchor of a heading, as GitHub and the site (pymdownx.slugs) make it."""
    return re.sub(r"[^\w\- ]", "", plain(heading).strip().lower()).replace(" ", "-")


def anchors_of(root, file):
    anchors = set()
    for line in text_of(root, file):
        if heading := re.match(r"#{1,6} +(.+?)(?: +#+)?(?: *\{ *#([\w-]+) *\})?$", line):
            anchors |= {slug(heading[1]), heading[2] or slug(heading[1])}
        anchors |= set(re.findall(r'\b(?:id|name)="([^"]+)"', line))
    return anchors


class Allowed:
    """The exceptions of one check."""

    def __init__(self, check):
        self.entries, self.used = [], set()
        for number, line in enumerate(ALLOWED.read_text(encoding="utf-8").splitlines(), 1):
            if not line.strip() or line.startswith("#"):
                continue
            fields = [field.strip() for field in line.split(" | ")]
            if len(fields) != 4 or not fields[3]:
                raise SystemExit(f"{ALLOWED.name}:{number}: expected: check | file pattern | text | reason")
            texts = [fields[2]] if check == "sentence" else fields[2].split(", ")
            self.entries += [(number, fields[1], text) for text in texts if fields[0] == check]

    def covers(self, file, text):
        """Whether an entry names this file and this text, or its beginning followed by `...`."""
        for number, files, allowed in self.entries:
            begins = allowed.endswith("...") and text.startswith(allowed[:-3].rstrip())
            if fnmatch.fnmatch(file, files) and (begins or text == allowed):
                self.used.add((number, allowed))
                return True
        return False

    def unused(self):
        return [f"{ALLOWED.name}:{number}: nothing needs this entry: {text}" for number, _, text in self.entries
                if (number, text) not in self.used]
