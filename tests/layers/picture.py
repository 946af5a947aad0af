#!/usr/bin/env python3
"""Draws docs/images/layers.svg from the table of layers.py: every folder of tutti/ below the folders that it may use,
then every program of apps/.

  picture.py ROOT              writes the picture
  picture.py ROOT --check      fails if the picture or the table in docs/dev/architecture.md differs from layers.py
"""
import pathlib
import re
import sys

from layers import ABOVE, BELOW, CORE, TRAINERS

HOLDS = {
    "base": "errors, results, deadlines, dtypes, logging, environment", "planning": "mesh, schedules, tables",
    "transport": "links, authentication", "trace": "flight recorder, timers", "data": "samplers, clicks, tokens",
    "store": "key-value store: memory, file, TCP, etcd, prefix", "rendezvous": "rank, world size and address of each process",
    "comm": "groups, collectives, backends", "launch": "agent, workers, reports", "checkpoint": "save, load, reshard",
    "metrics": "AUC, timers of all ranks", "embedding": "tables over ranks, kernels", "doctor": "checks hosts before a job",
    "runtime": "init() turns a process into a rank", "tensor": "collectives on tensors, with and without autograd",
    "parallel": "data, tensor, pipeline and context parallelism, sharded optimizers and embeddings", "training": "the trainer, schedules", "models": "cnn, mlp, DLRM, GPT",
    "tutti": "run, bench, doctor, ckpt, data, ...", "train_image": "Fashion-MNIST", "train_dlrm": "recommendation", "pretrain_gpt": "language",
}
WIDTH, HEIGHT, GAP, MARGIN = 1080, 58, 12, 20
STYLE = ("text{font:12px Helvetica,Arial,sans-serif;fill:#444;text-anchor:middle}.name{font-size:15px;font-weight:bold;fill:#111}"
         ".core{fill:#eef3fb;stroke:#4a6fa5}.torch{fill:#fdf0e6;stroke:#c8702a}.app{fill:#f3f3f3;stroke:#777}"
         "text.line{fill:#c8702a;text-anchor:start}path{stroke:#c8702a;stroke-width:2;stroke-dasharray:7 5}")


def rows_of_folders():
    level = {}
    for folder, used in {**ABOVE, **BELOW}.items():
        level[folder] = 1 + max((level[one] for one in used), default=-1)
    rows = []
    for row in range(max(level.values()) + 1):
        rows.append([])
        for one in (one for one in level if level[one] == row):
            if rows[-1] and 7.5 * sum(letters_of(name) for name in [*rows[-1], one]) > WIDTH - 2 * MARGIN - GAP * len(rows[-1]):
                rows.append([])  # the texts of one row have to fit beside each other
            rows[-1].append(one)
    return rows


def uses(folder):
    used = {**ABOVE, **BELOW}[folder]
    return ", ".join(["all above the line", *used[len(CORE):]] if used[:len(CORE)] == CORE else used or ["the standard library"])


def letters_of(folder):
    return max(len(HOLDS[folder]), len("uses " + uses(folder)), 24)


def draw(root):
    folders = rows_of_folders()
    programs = ["tutti", *(p.stem for p in sorted((root / "apps").glob("*.cc")) if "int main(" in p.read_text(encoding="utf-8"))]
    y, parts = MARGIN, []
    for row in [*folders, programs]:
        if row[0] == next(iter(BELOW)) or row is programs:
            words = "Programs (apps/)" if row is programs else "The Torch line: nothing above it includes LibTorch"
            parts.append(f'<text class="line" x="{MARGIN}" y="{y + 10}">{words}</text><path d="M{MARGIN} {y + 17}H{WIDTH - MARGIN}"/>')
            y += 28
        last = {name: "uses " + uses(name) if row is not programs else ("links" if name.startswith(TRAINERS) else "does not link") + " LibTorch"
                for name in row}
        letters = {name: max(len(HOLDS[name]), len(last[name]), 24) for name in row}
        x, free = MARGIN, WIDTH - 2 * MARGIN - GAP * (len(row) - 1)
        for name in row:
            kind = "app" if row is programs else "torch" if name in BELOW else "core"
            width = free * letters[name] / sum(letters.values())
            assert 7 * letters[name] < width, f"the text for {name} does not fit into its box"
            middle = x + width / 2
            parts.append(f'<rect class="{kind}" x="{x:.0f}" y="{y}" width="{width:.0f}" height="{HEIGHT}" rx="6"/>'
                         f'<text class="name" x="{middle:.0f}" y="{y + 19}">{name}</text><text x="{middle:.0f}" y="{y + 35}">{HOLDS[name]}</text>'
                         f'<text x="{middle:.0f}" y="{y + 50}">{last[name]}</text>')
            x += width + GAP
        y += HEIGHT + GAP
    return "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y + MARGIN - GAP}">', f"<style>{STYLE}</style>",
                      "<title>The folders of tutti/ in layers, base at the top; drawn by tests/layers/picture.py</title>",
                      '<rect width="100%" height="100%" fill="#fff"/>', *parts, "</svg>\n"])


def problems(root, picture):
    rows = dict(re.findall(r"^\| `(\w+)` \|[^|]*\| ([^|]*) \|$", (root / "docs/dev/architecture.md").read_text(encoding="utf-8"), re.M))
    for folder in [*ABOVE, *BELOW]:
        if rows.get(folder) != uses(folder):
            yield f"docs/dev/architecture.md: `{folder}` uses {rows.get(folder)}; tests/layers/layers.py allows {uses(folder)}"
    if picture.read_text(encoding="utf-8") != draw(root):
        yield f"{picture.relative_to(root)} differs from the table of layers.py: run tests/layers/picture.py {root}"


if __name__ == "__main__":
    home = pathlib.Path(sys.argv[1]).resolve()
    image = home / "docs/images/layers.svg"
    if "--check" not in sys.argv:
        sys.exit(image.write_text(draw(home), encoding="utf-8") == 0)
    found = list(problems(home, image))
    print("\n".join(found) or "the picture and docs/dev/architecture.md agree with layers.py")
    sys.exit(bool(found))
