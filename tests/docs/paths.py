#!/usr/bin/env python3
"""paths.py ROOT: checks that every path of this repository that the documents name exists.

A path is what stands in backticks and begins with a folder of the repository: `tutti/base/error.h`, `tests/docs/`,
`bench/compare_*`. A documents' link to a file is checked as well. docs/map.md gives full paths only.
"""
import pathlib
import re
import sys

FOLDERS = ("apps", "bench", "cmake", "completions", "docs", "examples", "packaging", "scripts", "tests", "tutti")
PATH = re.compile(r"`((?:%s)/[\w./*+-]*)`" % "|".join(FOLDERS))
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")
PART = re.compile(r"`((?!(?:%s)/)[\w./*+-]+\.(?:cc|h|py|sh|cmake))`" % "|".join(FOLDERS))
CODE = re.compile(r"`[^`]*`")


def problems(root):
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
    print("\n".join(found) or "every path that the documents name exists")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
