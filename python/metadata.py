"""Writes the metadata that an installed package has: metadata.py PYPROJECT VERSION FOLDER."""

import pathlib
import sys
import tomllib

project = tomllib.loads(pathlib.Path(sys.argv[1]).read_text())["project"]
folder = pathlib.Path(sys.argv[3], f"{project['name']}.dist-info")
folder.mkdir(parents=True, exist_ok=True)
(folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {sys.argv[2]}\n")
groups = project["entry-points"] | {"console_scripts": project["scripts"]}
lines = [line for group, points in groups.items() for line in (f"[{group}]", *(f"{name} = {point}" for name, point in points.items()))]
(folder / "entry_points.txt").write_text("\n".join(lines) + "\n")
