#!/usr/bin/env python3
"""Checks that the source tree keeps its layers (docs/dev/architecture.md).

  layers.py includes ROOT                 every #include of tutti/, apps/ and bench/ against the table below; no type defined twice;
                                          no mutex that clang's thread-safety analysis does not understand
  layers.py variables ROOT                every variable TUTTI_... that the sources name is known to tutti/base/env.cc, and read
                                          (tests/docs/reference_test.py compares docs/reference/environment.md)
  layers.py libraries FILE...             no object in these archives, and no program, needs LibTorch
  layers.py headers ROOT CXX [torch]    every header compiles on its own

Debian puts ATen into /usr/include, so a wrong include compiles: only this keeps the Torch line.
"""
import concurrent.futures
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

# What each folder of tutti/ may include besides itself. The order is that of docs/dev/architecture.md.
ABOVE = {
    "base": [],
    "planning": ["base"],
    "transport": ["base"],
    "store": ["base", "transport"],
    "trace": ["base"],
    "rendezvous": ["base", "transport", "store"],
    "comm": ["base", "planning", "transport", "store", "trace"],
    "data": ["base"],
    "checkpoint": ["base", "comm"],
    "metrics": ["base", "comm", "trace"],
    "training": ["base", "comm", "checkpoint", "metrics", "trace"],
    "launch": ["base", "transport", "store", "rendezvous", "trace"],
    "embedding": ["base", "planning", "comm"],
    "doctor": ["base", "transport", "store", "rendezvous", "comm", "launch"],
    "runtime": ["base", "planning", "transport", "store", "rendezvous", "comm", "launch", "trace"],
}
CORE = list(ABOVE)
BELOW = {
    "tensor": CORE,
    "parallel": CORE + ["tensor"],
    "models": CORE + ["tensor", "parallel"],
}
# The umbrellas, and the version, which stand in tutti/ itself.
TOP = {"core.h": CORE, "version.h": [], "tutti.h": ["core.h", *CORE, *BELOW]}
ANYWHERE = ["version.h"]
# Only trainers, and benches that measure against LibTorch, see it; everything else in apps/ and bench/ must start in milliseconds.
TRAINERS = ("train_", "pretrain_")
# Headers below the Torch line that need no LibTorch, as little as their .cc files: programs plan with them.
PLAIN = {f"tutti/models/dlrm/{name}.h" for name in ("architecture", "auto_parallel", "options", "placing")}
TORCH_BENCHES = ("ddp_overhead.cc", "gpu_all_reduce.cc", "optimizer_bench.cc", "pipeline_bench.cc", "tensor_layers_bench.cc")

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.M)
TORCH_HEADER = re.compile(r"^(ATen|c10|torch|caffe2)/")
TORCH_SYMBOL = re.compile(r"(?<![\w:])(?:at|c10|torch|caffe2)::")  # demangled
TORCH_LIBRARY = re.compile(r"lib(?:torch|c10|caffe2)[\w.]*")


def includes_of(path):
    text = path.read_text(encoding="utf-8")
    for match in INCLUDE.finditer(text):
        yield text.count("\n", 0, match.start()) + 1, match.group(1), match.group(2)


def folder_of(parts):
    """tutti/comm/x.h -> comm; tutti/core.h -> core.h"""
    return parts[1]


def check_file(root, path):
    """The sentences about one source file."""
    relative = path.relative_to(root)
    parts = relative.parts
    is_test = path.name.endswith("_test.cc") or "testing" in parts
    if parts[0] in ("apps", "bench"):
        torch_allowed = (parts[0] == "apps" and path.name.startswith(TRAINERS)) or path.name in TORCH_BENCHES
        allowed = None  # a program may wire any parts together
    else:
        here = folder_of(parts)
        torch_allowed = (here in BELOW or here == "tutti.h") and relative.with_suffix(".h").as_posix() not in PLAIN
        allowed = {**ABOVE, **BELOW, **TOP}.get(here)
        if allowed is None:
            yield f"{relative}: the folder tutti/{here} is not in the table of tests/layers/layers.py"
            return
    for line, quote, name in includes_of(path):
        where = f"{relative}:{line}"
        if TORCH_HEADER.match(name) and not torch_allowed:
            yield f"{where}: includes <{name}>, but nothing above the Torch line may include LibTorch"
        beside = parts[0] in ("apps", "bench") and (path.parent / name).exists()  # a program's own files
        if quote == '"' and not beside and not name.startswith(("tutti/", "tests/", "apps/", "bench/")):
            yield f'{where}: includes "{name}"; write the path from the repository root ("tutti/...")'
        if quote == "<" and name.startswith("tutti/"):
            yield f"{where}: includes <{name}>; inside the project it is \"{name}\""
        if re.match(r"^(fmt|spdlog)/", name) and path.suffix == ".h":
            yield f"{where}: a header includes <{name}>, which is for .cc files only"
        if not name.startswith("tutti/"):
            continue
        if not (root / name).exists():
            yield f"{where}: includes {name}, which does not exist"
        there = folder_of(name.split("/"))
        if there in BELOW or there == "tutti.h":
            if not torch_allowed and name not in PLAIN:
                yield f"{where}: includes {name}, which lies below the Torch line"
        if allowed is None or there in ANYWHERE or there == folder_of(parts):
            continue
        if there not in allowed:
            # A test may use what its folder's users use, as long as the Torch line holds.
            if is_test and (torch_allowed or there in ABOVE):
                continue
            yield f"{where}: {folder_of(parts)}/ may include {', '.join(allowed) or 'nothing else'}; not {there}/"


def sources(root, folders=("tutti", "apps", "bench"), suffixes=(".h", ".cc")):
    for folder in folders:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in suffixes:
                yield path


def check_sanitizer_macros(root):
    """g++ and clang name their sanitizers in different ways."""
    for path in sources(root, ("tutti", "apps", "bench", "tests")):
        if path != root / "tutti/base/sanitizers.h" and "__SANITIZE_" in path.read_text(encoding="utf-8"):
            yield f"{path.relative_to(root)}: names __SANITIZE_...; write TUTTI_ASAN or TUTTI_TSAN (tutti/base/sanitizers.h)"


def check_includes(root):
    files = list(sources(root))
    problems = [problem for path in files for problem in check_file(root, path)]
    problems += [*check_types(root), *check_mutexes(root), *check_sanitizer_macros(root)]
    return problems, f"{len(files)} files keep their layers"


TYPE = re.compile(r"^(?:struct|class|enum class) (?:alignas\([^)]*\) )?(\w+)(?: final)?(?: ?:(?!:) ?[^;{]*)?\s*\{")
NAMESPACE = re.compile(r"^(?:inline )?namespace ?([\w:]*) \{")


def types_of(path):
    """(namespace, name) of each type that a header defines outside of other types."""
    spaces = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if match := NAMESPACE.match(line):
            spaces.append(match.group(1))
        elif re.match(r"^}  // (inline )?namespace", line):
            spaces.pop()
        elif (match := TYPE.match(line)) and "" not in spaces:
            yield "::".join(spaces), match.group(1)


def check_types(root):
    """Two types of one name in one namespace are one type to the linker, which takes either's functions for both."""
    where = {}
    for path in sources(root, suffixes=(".h",)):
        for name in types_of(path):
            where.setdefault(name, set()).add(str(path.relative_to(root)))
    return [f"{space}::{name} is defined in {' and in '.join(sorted(files))}"
            for (space, name), files in where.items() if len(files) > 1 and space != "tutti::kernels::TUTTI_ISA"]


MUTEX = re.compile(r"std::(?:recursive_|shared_)?(?:timed_)?mutex\b")
MUTEXES = pathlib.Path("tutti/base/mutex.h")


def check_mutexes(root):
    """Members guarded by a std::mutex are not checked."""
    problems = []
    for path in [*sources(root, ("tutti", "apps")), *sources(root, ("python/src",))]:
        where = path.relative_to(root)
        if where == MUTEXES or path.name.endswith("_test.cc"):
            continue
        for line, text in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if match := MUTEX.search(text):
                problems.append(f"{where}:{line}: {match.group(0)} is not annotated; take a type of {MUTEXES}")
    return problems


VARIABLE = re.compile(r'"TUTTI_([A-Z0-9_]+)"')
KNOWN = re.compile(r'"([A-Z][A-Z0-9_]*[A-Z0-9])"')


def check_variables(root):
    table = pathlib.Path("tutti/base/env.cc")
    known = set(KNOWN.findall((root / table).read_text(encoding="utf-8")))
    named = {}
    for path in [*sources(root), *sources(root, ["python"], [".cc", ".py"])]:
        if not path.name.endswith("_test.cc"):
            for name in VARIABLE.findall(path.read_text(encoding="utf-8")):
                named.setdefault(name, path.relative_to(root))
    problems = [f"{where}: TUTTI_{name} is not in {table}, so it would pass for a misspelt one"
                for name, where in sorted(named.items()) if name not in known]
    problems += [f"{table}: nobody reads TUTTI_{name}" for name in sorted(known - set(named))]
    return problems, f"{len(known)} variables are known"


def check_libraries(files):
    problems = []
    for file in files:
        if file.endswith(".a"):
            symbols = subprocess.run(["nm", "--demangle", "--undefined-only", file], capture_output=True, text=True, check=True).stdout
            member = "?"
            for line in symbols.splitlines():
                if line.endswith(":"):
                    member = line[:-1]
                elif TORCH_SYMBOL.search(line):
                    problems.append(f"{file}: {member} needs LibTorch: {line.strip()}")
        else:
            needed = subprocess.run(["ldd", file], capture_output=True, text=True, check=True).stdout
            for library in sorted(set(TORCH_LIBRARY.findall(needed))):
                problems.append(f"{file}: loads {library}, which costs half a second of start-up")
    return problems, f"{len(files)} files are free of LibTorch"


def proven_by_build(root, header):
    """A header that comes first in its own .cc or test was compiled on its own there."""
    own = str(header.relative_to(root))
    for sibling in (header.with_suffix(".cc"), header.with_name(header.stem + "_test.cc")):
        if sibling.exists():
            first = next(includes_of(sibling), None)
            if first and first[2] == own:
                return True
    return False


def check_headers(root, compiler, with_torch):
    # An _impl.h is a body that its siblings include with different settings, not a header.
    headers = [h for h in sources(root, folders=("tutti",), suffixes=(".h",)) if not h.name.endswith("_impl.h")]
    if not with_torch:
        headers = [h for h in headers if folder_of(h.relative_to(root).parts) not in (*BELOW, "tutti.h")]
    problems = []
    for header in headers:
        if "#pragma once" not in header.read_text(encoding="utf-8"):
            problems.append(f"{header.relative_to(root)}: has no #pragma once")
    alone = [h for h in headers if not proven_by_build(root, h)]

    def compile_one(header):
        with tempfile.NamedTemporaryFile("w", suffix=".cc") as source:
            source.write(f'#include "{header.relative_to(root)}"\n')
            source.flush()
            flags = ["-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Wno-missing-field-initializers", f"-I{root}"]
            run = subprocess.run([*compiler, *flags, source.name], capture_output=True, text=True)
        return header, run

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for header, run in pool.map(compile_one, alone):
            if run.returncode != 0:
                problems.append(f"{header.relative_to(root)}: does not compile on its own:\n{run.stderr.strip()}")
    return problems, f"{len(headers)} headers stand alone ({len(alone)} compiled here, the others come first in their own .cc)"


def main(arguments):
    if len(arguments) >= 2 and arguments[0] == "includes":
        problems, good = check_includes(pathlib.Path(arguments[1]).resolve())
    elif len(arguments) >= 2 and arguments[0] == "variables":
        problems, good = check_variables(pathlib.Path(arguments[1]).resolve())
    elif len(arguments) >= 2 and arguments[0] == "libraries":
        problems, good = check_libraries(arguments[1:])
    elif len(arguments) >= 3 and arguments[0] == "headers":
        problems, good = check_headers(pathlib.Path(arguments[1]).resolve(), shlex.split(arguments[2]), "torch" in arguments[3:])
    else:
        print(__doc__, file=sys.stderr)
        return 2
    for problem in problems:
        print(problem, file=sys.stderr)
    print(good if not problems else f"{len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
