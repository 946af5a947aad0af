"""Hooks of MkDocs for the Tutti site (mkdocs.yml).

- Adds what scripts/docs generated: the C++ API, and the script that draws diagrams.
- Adds a page for each file and folder of the repository that a page links to, under source/, so that no link leads out
  of the site.
"""
import os
import pathlib
import re

from mkdocs.structure.files import File
from mkdocs.utils import get_relative_url

ROOT = pathlib.Path(__file__).resolve().parents[2]
GENERATED = pathlib.Path(os.environ.get("TUTTI_DOCS_GENERATED", ROOT / "build/docs/generated"))
ALWAYS = ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
DIAGRAMS = "assets/diagrams.js"

# A fenced block, code in backticks, or the target of a link
PART = re.compile(r"(^ *```.*?^ *```\s*?$|(?P<ticks>`+)[^`].*?(?P=ticks))|(?<=\]\()(?P<link>[^)\s]+)", re.S | re.M)
LANGUAGES = {".cc": "cpp", ".h": "cpp", ".py": "python", ".sh": "bash", ".yaml": "yaml", ".yml": "yaml", ".json": "json",
             ".cmake": "cmake", ".txt": "cmake", "": "bash"}

origins = {}  # page: the folder that its links are relative to


def page_of(path):
    """The page that shows a file or folder of the repository."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if (ROOT / path).is_dir():
        return f"source/{path}/index.md"
    return f"source/{path}" if path.endswith(".md") else f"source/{path}.md"


def target_of(folder, link):
    """The path in the repository that a link of a page in `folder` leads to. Empty: another site, or the same page."""
    path = link.partition("#")[0]
    if not path or re.match(r"[a-z]+:", path):
        return ""
    target = os.path.normpath(os.path.join(folder, path))
    return target if (ROOT / target).exists() else ""


def source_page(path):
    """Markdown for a file or folder, and the folder that its links are relative to."""
    file = ROOT / path
    if path.endswith(".md"):
        return file.read_text(encoding="utf-8"), os.path.dirname(path)
    if (file / "README.md").exists():
        return (file / "README.md").read_text(encoding="utf-8"), path
    hidden = "---\nsearch:\n  exclude: true\n---\n"
    if file.is_dir():
        entries = [entry.name for entry in sorted(file.iterdir()) if entry.is_file() and entry.suffix != ".pyc"]
        return hidden + f"# {path}\n\n" + "".join(f"- [{name}]({name})\n" for name in entries), path
    text = file.read_text(encoding="utf-8", errors="replace").rstrip().replace("````", "` ```")
    language = LANGUAGES.get(file.suffix, "text")
    return hidden + f"# {path}\n\n````{language}\n{text}\n````\n", os.path.dirname(path)


def on_files(files, config):
    for path in sorted(GENERATED.rglob("*")):
        name = str(path.relative_to(GENERATED))
        if path.is_file():
            files.append(File(name, str(GENERATED), config.site_dir, config.use_directory_urls))
    pending = list(ALWAYS)
    for file in files.documentation_pages():
        origins[file.src_uri] = os.path.dirname(f"docs/{file.src_uri}")
        pending += outside_links(file.content_string, origins[file.src_uri])
    while pending:
        path = pending.pop()
        page = page_of(path)
        if page in origins or not (ROOT / path).exists():
            continue
        content, origins[page] = source_page(path)
        files.append(File.generated(config, page, content=content))
        pending += outside_links(content, origins[page])
    return files


def outside_links(markdown, folder):
    targets = [target_of(folder, found["link"]) for found in PART.finditer(markdown) if found["link"]]
    return [target for target in targets if target and not target.startswith("docs/") and target != "."]


def on_page_markdown(markdown, page, **_):
    here = page.file.src_uri

    def replaced(found):
        if not found["link"]:
            return re.sub(r"^( *```cpp) core$", r"\1", found[0], count=1, flags=re.M)
        target = target_of(origins[here], found["link"])
        if not target or (target.startswith("docs/") and not here.startswith("source/")):
            return found[0]
        _, mark, anchor = found["link"].partition("#")
        return os.path.relpath(page_of(target), os.path.dirname(here)) + mark + anchor

    return PART.sub(replaced, markdown)


def on_post_page(output, page, **_):
    if '<pre class="diagram">' in output:
        script = f'<script type="module" src="{get_relative_url(DIAGRAMS, page.url)}"></script>'
        output = output.replace("</head>", script + "</head>", 1)
    return output
