#!/usr/bin/env python3
"""reference_test.py ROOT: the pages of docs/reference name what the sources name: variables, exit codes, JSON, headers."""
import pathlib
import re
import sys

# These files name variables in tables and lists, so each of their quoted names counts.
TABLES = ("tutti/rendezvous/identity.cc", "tutti/rendezvous/schedulers.cc", "tutti/rendezvous/scheduler_nodes.cc",
          "tutti/comm/backends/mpi/mpi_job.cc")
NO_VARIABLES = {"LSF", "PBS", "SGE", "EOF"}
READ = re.compile(r'\b(?:env|env_seconds|env_flag|getenv|lookup|variable)\((?:\w+, )?"([A-Z][A-Z0-9_]*)"')
SET = re.compile(r'\bset(?:_number)?\("([A-Z][A-Z0-9_]*)"|emplace\("([A-Z][A-Z0-9_]*)"')
QUOTED = re.compile(r'"([A-Z][A-Z0-9_]*[A-Z0-9_])"')
CODE = re.compile(r"`([^`\n]+)`")

JSON = {
    "json.md": ("tutti/launch/reports/json_report.cc", "tutti/launch/monitor/node_status.cc", "tutti/launch/output/lines.cc",
                "apps/train_image.cc", "apps/train_dlrm.cc", "apps/pretrain_gpt.cc",
                "tutti/parallel/data_parallel/stats_json.cc", "tutti/checkpoint/io/background_saver.cc",
                "tutti/checkpoint/memory/memory_copies.cc", "bench/collectives/report.cc",
                "bench/comparison/operation_report.cc", "bench/comparison/compare.cc", "apps/tutti/plan_report.cc",
                "apps/tutti/plan_pipeline.cc", "apps/tutti/doctor.cc", "tutti/doctor/gpus.cc", "tutti/doctor/pair_probe.cc",
                "apps/tutti/ckpt/ls.cc"),
    "formats.md": ("tutti/trace/flight/dump.cc",),
}
KEY = re.compile(r'\{\\?"(\w+)\\?",|\w+\["(\w+)"\] = |\w+\["(\w+)"\]\.push_back|add_(?:text|time)\("(\w+)"|[{,]"(\w+)\\?":')
NO_FIELDS = {"in", "critical", "warning"}  # areas of a plan, levels of a line


def text_of(path):
    return path.read_text(encoding="utf-8")


def sources(root):
    return [path for folder in ("tutti", "apps") for pattern in ("*.cc", "*.h") for path in sorted((root / folder).rglob(pattern))
            if "_test" not in path.stem]


def variables(root):
    page = "docs/reference/environment.md"
    named = set(re.findall(r"[A-Z][A-Z0-9_]*[A-Z0-9_]", " ".join(CODE.findall(text_of(root / page)))))
    read = {}
    quoted = set()
    for path in sources(root):
        text, file = text_of(path), str(path.relative_to(root))
        found = READ.findall(text)
        if file in TABLES:
            found += QUOTED.findall(text)
        if file == "tutti/launch/environment.cc":
            found += [one or other for one, other in SET.findall(text)]
        for name in found:
            read.setdefault(name, file)
        quoted |= set(QUOTED.findall(text))
    known = text_of(root / "tutti/base/env.cc").partition("known_variables()")[2]
    read |= {f"TUTTI_{name}": "tutti/base/env.cc" for name in re.findall(r'"([A-Z_]+)"', known) if name != "TUTTI_"}
    for name in sorted(set(read) - named - NO_VARIABLES):
        yield f"{page}: lacks {name}, which {read[name]} reads or sets"
    for name in sorted(name for name in named if name.startswith("TUTTI_") and name != "TUTTI_TIMEOUTS"):
        if name not in read and name.rstrip("_") != "TUTTI":
            yield f"{page}: {name} is no variable of Tutti"


def exit_codes(root):
    page = "docs/reference/exit-codes.md"
    text = text_of(root / page)
    of_run = text.partition("## tutti run")[2].partition("\n## ")[0]
    documented = set(re.findall(r"^\| (\d+) \|", of_run, re.M))
    constants = dict(re.findall(r"constexpr int (k\w+) = (\d+);", text_of(root / "tutti/launch/exit_codes.h")))
    footer = text_of(root / "apps/tutti/run_options.cc").partition("Exit codes:\n")[2].partition(')"')[0]
    wanted = {**constants, **{f"tutti run --help: {code}": code for code in re.findall(r"^  (\d+) ", footer, re.M)}}
    yield from (f"{page}: lacks the code {code} ({name})" for name, code in wanted.items() if code not in documented)
    yield from (f"{page}: {code} is no code of tutti run" for code in sorted(documented - set(wanted.values())))


def json_fields(root):
    for page, files in JSON.items():
        named = set(re.findall(r"\w+", " ".join(CODE.findall(text_of(root / "docs/reference" / page)))))
        for file in files:
            keys = {next(filter(None, found)) for found in KEY.findall(text_of(root / file))} - NO_FIELDS
            keys = {key for key in keys if key.islower()}
            if not keys:
                yield f"{file}: no JSON was found; does another file write it?"
            yield from (f"docs/reference/{page}: lacks the field {key} of {file}" for key in sorted(keys - named))


def headers(root):
    page = "docs/reference/cpp-api.md"
    text = text_of(root / page)
    listed = re.findall(r"^\| `(tutti/[\w/]+\.h)`", text.partition("## Headers outside")[0], re.M)
    public = {name for umbrella in ("core.h", "tutti.h")
              for name in re.findall(r'^#include "(tutti/.+\.h)"', text_of(root / "tutti" / umbrella), re.M)}
    yield from (f"{page}: lacks {name}" for name in sorted(public - set(listed) - {"tutti/core.h"}))
    yield from (f"{page}: {name} is in no umbrella header" for name in sorted(set(listed) - public))


def main(root):
    problems = [problem for check in (variables, exit_codes, json_fields, headers) for problem in check(root)]
    print("\n".join(problems) or "the reference names what the sources name")
    return 1 if problems else 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(main(pathlib.Path(sys.argv[1]).resolve()))
