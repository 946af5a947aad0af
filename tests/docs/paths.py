#!/usr/bin/env python3
"""paths.py ROOT: checks that every path of this repository that the documents name exists, and every test that
docs/faults.md names.

A path is what stands in backticks and begins with a folder of the repository: `tutti/base/error.h`, `tests/docs/`,
`bench/compare_*`. A documents' link to a file is checked as well. docs/map.md gives full paths only.
"""
import fnmatch
import pathlib
import re
import sys

FOLDERS = ("apps", "bench", "cmake", "completions", "docs", "examples", "packaging", "scripts", "tests", "tutti")
PATH = re.compile(r"`((?:%s)/[\w./*+-]*)`" % "|".join(FOLDERS))
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")
PART = re.compile(r"`((?!(?:%s)/)[\w./*+-]+\.(?:cc|h|py|sh|cmake))`" % "|".join(FOLDERS))
CODE = re.compile(r"`[^`]*`")
TEST = re.compile(r"^(?:TYPED_)?TEST(?:_[FP])?\(\s*(\w+),\s*(\w+)\)", re.M)
NAMED_TEST = re.compile(r"`(?:[A-Z]\w*/)?([A-Z]\w+\.[A-Z*][\w*]*)(?:/[\w*]+)?`")


def tests_that_are_gone(root):
    """Tests of GoogleTest in docs/faults.md that no source has; a name may be a pattern."""
    sources = [path for folder in ("apps", "bench", "tests", "tutti") for path in (root / folder).rglob("*.cc")]
    tests = [".".join(test) for path in sources for test in TEST.findall(path.read_text(encoding="utf-8"))]
    for number, line in enumerate((root / "docs/faults.md").read_text(encoding="utf-8").splitlines(), 1):
        for name in NAMED_TEST.findall(line):
            if not fnmatch.filter(tests, name):
                yield f"docs/faults.md:{number}: no test is called {name}"


def problems(root):
    yield from tests_that_are_gone(root)
    for page in [root / "README.md", root / "CONTRIBUTING.md", *sorted((root / "docs").glob("*.md"))]:
        in_block = False
        for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
            if line.startswith("```"):
                in_block = not in_block
            if in_block:
                continue
            where = f"{page.relative_to(root)}:{number}"
            for path in PATH.findall(line):
                if not any(True for _ in root.glob(path.rstrip("/"))):
                    yield f"{where}: {path} does not exist"
            for path in LINK.findall(CODE.sub("", line)):
                if not (page.parent / path).exists():
                    yield f"{where}: the link {path} leads nowhere"
            if page.name == "map.md":
                for path in PART.findall(line):
                    yield f"{where}: {path} is no full path"


def main():
    found = list(problems(pathlib.Path(sys.argv[1]).resolve()))
    print("\n".join(found) or "every path and test that the documents name exists")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
