#!/usr/bin/env python3
"""Checks that what the documents name exists.

  references.py links ROOT     relative links and their anchors; each page is in the navigation of mkdocs.yml
  references.py paths ROOT     paths in backticks; pages that comments and messages of the sources name
  references.py tests ROOT     names of tests in backticks
  references.py symbols ROOT   names of C++, of variables and of JSON fields in backticks
  references.py options ROOT   options in backticks and in console blocks, against docs/reference/command-line.md

Exceptions are in allowed.txt.
"""
import fnmatch
import os
import pathlib
import re
import sys

sys.dont_write_bytecode = True
from markdown_blocks import Allowed, anchors_of, blocks_of, documents, text_of  # noqa: E402

# scripts/docs makes these
GENERATED = ("docs/api/", "docs/source/")

SOURCES = ("apps", "bench", "cmake", "completions", "examples", "scripts", "tests", "tutti")
FOLDERS = (*SOURCES, "docs", "packaging", "python")
PATH = re.compile(r"`((?:%s)/[\w./*+-]*)`" % "|".join(FOLDERS))
PART = re.compile(r"`((?!(?:%s)/)[\w./*+-]+\.(?:cc|h|py|sh|cmake))`" % "|".join(FOLDERS))
CODE = re.compile(r"(`+)(.+?)\1", re.S)
LINK = re.compile(r"\]\(\s*<?([^)\s>]+)>?[^)]*\)|^\[[^\]]+\]:\s*(\S+)|\b(?:src|href)=\"([^\"]+)\"", re.M)
PAGE = re.compile(r"\bdocs/[\w/-]+\.md\b")
GOOGLE_TEST = re.compile(r"^(?:TYPED_)?TEST(?:_[FP])?\(\s*(\w+),\s*(\w+)\)", re.M)
NAMED_TEST = re.compile(r"(?:[A-Z]\w*/)?([A-Z]\w+\.[A-Z*][\w*]*)(?:/[\w*]+)?")
CTEST = re.compile(r"add_test\(\s*NAME (\w+\.[\w$]+)")


def files_of(root, folders, patterns):
    for folder in folders:
        for pattern in patterns:
            yield from sorted((root / folder).rglob(pattern))


def inline_code(root, file):
    """Line and text of everything in backticks. A span may continue on the next line."""
    text = "\n".join(text_of(root, file))
    for found in CODE.finditer(text):
        if "\n\n" not in found[2]:
            yield text.count("\n", 0, found.start()) + 1, " ".join(found[2].split())


def links(root):
    anchors = {}
    for file in documents(root):
        text = "\n".join(text_of(root, file))
        text = CODE.sub(lambda found: re.sub(r"[^\n]", "x", found[0]), text)
        for found in LINK.finditer(text):
            link = found[1] or found[2] or found[3]
            where = f"{file}:{text.count(chr(10), 0, found.start()) + 1}"
            if re.match(r"[a-z]+:", link):
                continue
            path, _, anchor = link.partition("#")
            target = os.path.normpath(os.path.join(os.path.dirname(file), path)) if path else file
            if target.startswith(("..", "/")):
                yield f"{where}: the link {link} leaves the repository"
            elif not (root / target).exists():
                if not target.startswith(GENERATED):
                    yield f"{where}: the link {link} leads nowhere"
            elif anchor and target.endswith(".md"):
                if target not in anchors:
                    anchors[target] = anchors_of(root, target)
                if anchor not in anchors[target]:
                    yield f"{where}: {target} has no heading with the anchor #{anchor}"
    listed = set(re.findall(r"[\s:](\S+\.md)\s*$", (root / "mkdocs.yml").read_text(encoding="utf-8"), re.M))
    pages = {str(path.relative_to(root / "docs")) for path in (root / "docs").rglob("*.md")}
    yield from (f"mkdocs.yml: the navigation lacks docs/{page}" for page in sorted(pages - listed))
    for page in sorted(listed - pages):
        if not f"docs/{page}".startswith(GENERATED):
            yield f"mkdocs.yml: there is no docs/{page}"


def paths(root):
    for file in documents(root):
        for number, line in enumerate(text_of(root, file), 1):
            for path in PATH.findall(line):
                if not any(True for _ in root.glob(path.rstrip("/"))) and not path.startswith(GENERATED):
                    yield f"{file}:{number}: {path} does not exist"
            if file == "docs/dev/map.md":
                for path in PART.findall(line):
                    yield f"{file}:{number}: {path} is no full path"
    for path in files_of(root, SOURCES, ("*.h", "*.cc", "*.py", "*.cmake", "CMakeLists.txt", "*.sh")):
        if path.parent.name != "docs":
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
                for page in PAGE.findall(re.sub(r"\w+://\S+", "", line)):
                    if not (root / page).exists() and not page.startswith(GENERATED):
                        yield f"{path.relative_to(root)}:{number}: there is no page {page}"


def tests(root):
    allowed = Allowed("test")
    texts = [path.read_text(encoding="utf-8") for path in files_of(root, ("apps", "bench", "examples", "tests", "tutti"), ("*.cc",))]
    names = [".".join(test) for text in texts for test in GOOGLE_TEST.findall(text)]
    lists = [path.read_text(encoding="utf-8") for path in files_of(root, ("examples", "tests"), ("CMakeLists.txt",))]
    names += [re.sub(r"\$.*", "*", name) for text in lists for name in CTEST.findall(text)]
    groups = {name.split(".")[0] for name in names}
    for file in documents(root):
        for number, code in inline_code(root, file):
            found = NAMED_TEST.fullmatch(code)
            name = found[1] if found else code if re.fullmatch(r"[a-z]+\.\w+", code) and code.split(".")[0] in groups else ""
            known = fnmatch.filter(names, name) or any(fnmatch.fnmatch(name, known) for known in names if known.endswith("*"))
            if name and not known and not allowed.covers(file, name):
                yield f"{file}:{number}: no test is called {name}"
    yield from allowed.unused()


def names_in(code):
    """The names of ours in a piece of code. Empty if it is something else: a command, a formula, a name of LibTorch."""
    if re.match(r"(torch|at|c10|std)(\.|::)", code):
        return []
    if code.startswith("TUTTI_") or re.fullmatch(r"[a-z]\w*(_\w+)+", code) or re.fullmatch(r"k[A-Z]\w+", code):
        return re.findall(r"^\w+", code)
    name = re.fullmatch(r"((?:[\w<>]+(?:::|\.|->))*~?\w+)(\(.*\))?(?:\[.*\])?", code)
    if not name:
        return []
    parts = re.findall(r"\w+", name[1])
    if "::" in name[1]:
        return parts
    if name[2]:
        return parts[-1:]
    return parts if re.fullmatch(r"(?:[A-Z][a-z0-9]+){2,}", name[1]) else []


def symbols(root):
    allowed, words = Allowed("symbol"), set()
    sources = files_of(root, SOURCES, ("*.h", "*.cc", "*.py", "*.cmake", "CMakeLists.txt", "*.in"))
    for path in [*sources, root / "CMakeLists.txt", root / "CMakePresets.json"]:
        text = path.read_text(encoding="utf-8")
        if path.suffix in (".h", ".cc"):
            text = re.sub(r"//.*", "", text)
        words |= set(re.findall(r"\w+", text))
    for file in documents(root):
        for number, code in inline_code(root, file):
            for name in names_in(code):
                known = name in words or name.removeprefix("TUTTI_") in words
                if not known and not allowed.covers(file, name):
                    yield f"{file}:{number}: no source has the name {name} (`{code}`)"
    yield from allowed.unused()


OPTION = re.compile(r"(?<![\w-])--[a-zA-Z][\w-]*")


def options_in_use(root, file):
    """Line and option: in backticks, and in console blocks where the command is one of ours."""
    for number, code in inline_code(root, file):
        if re.match(r"--\w|tutti |train_|pretrain_gpt", code):
            yield from ((number, option) for option in OPTION.findall(code))
    for block in blocks_of(root, file):
        command = ""
        for number, line in enumerate(block.lines, block.line):
            if block.language == "console" and (line.startswith("$ ") or command.endswith("\\")):
                command = command.removesuffix("\\") + line.removeprefix("$ ") if command.endswith("\\") else line[2:]
                first = command.split()[0].rsplit("/", 1)[-1]
                if first == "tutti" or first.startswith(("train_", "pretrain_gpt")):
                    own = re.split(r" (?:--|\./\S+)(?= |$)", line)[0]  # what follows belongs to the user's program
                    yield from ((number, option) for option in OPTION.findall(own))


def options(root):
    allowed = Allowed("option")
    # docs.command_line compares the reference with the help texts. The sources of the programs have the options of
    # torchrun, Megatron-LM and DLRM that these reject by name.
    files = [root / "docs/reference/command-line.md", root / "run-tests", root / "quickstart"]
    files += [path for path in (root / "apps").rglob("*.cc") if not path.name.endswith("_test.cc")]
    files += [path for folder in ("scripts", "bench", "examples", "tests/soak", "tests/docs") for path in (root / folder).rglob("*")
              if path.is_file() and path.suffix in ("", ".py", ".cc", ".sh")]
    text = "\n".join(path.read_text(encoding="utf-8", errors="ignore") for path in files)
    known = set(OPTION.findall(text)) | {f"--{name}" for name in re.findall(r'\{"([a-z]+(?:-[a-z]+)+)"', text)}
    for file in documents(root):
        for number, option in options_in_use(root, file):
            is_known = option in known or (option.endswith("-") and any(name.startswith(option) for name in known))
            if not is_known and not allowed.covers(file, option):
                yield f"{file}:{number}: no help text has the option {option}"
    yield from allowed.unused()


CHECKS = {"links": links, "paths": paths, "tests": tests, "symbols": symbols, "options": options}


def main(check, root):
    found = list(CHECKS[check](pathlib.Path(root).resolve()))
    print("\n".join(found) or f"the {check} that the documents name exist")
    return 1 if found else 0


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in CHECKS:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
