"""Configuration of the documentation; `make docs` builds it."""

from __future__ import annotations

import re
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "src"))

project = "cavity"
author = "the cavity developers"
project_copyright = f"2026, {author}"
try:
    release = metadata.version("cavity")
except metadata.PackageNotFoundError:
    release = "unreleased"

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = "cavity"
html_copy_source = False

myst_heading_anchors = 3
# The copy button leaves out the prompts of sessions.
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

autodoc_typehints = "none"  # docstrings say what is meant, with shapes
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
napoleon_google_docstring = False
napoleon_use_ivar = True
napoleon_use_rtype = False

# Several records have a field X, so a mention of X in a docstring is ambiguous.
suppress_warnings = ["ref.python"]

GROUPS = {
    "Start": ["tutorial", "command-line"],
    "How to": ["howto/*"],
    "Understand": ["method", "engine", "uncertainty", "sharp-bits", "reliability", "results", "design"],
    "Reference": ["api"],
}
OTHERS = "How to"
"""The group of pages that are in no other group."""


def table_of_contents() -> str:
    """Toctrees of all pages, in the order of the groups."""
    pages = {path.relative_to(HERE).with_suffix("").as_posix() for path in HERE.glob("**/*.md")}
    pages = {page for page in pages if not page.startswith("_build/")} - {"index"}
    groups: dict[str, list[str]] = {}
    for caption, patterns in GROUPS.items():
        groups[caption] = [
            page for pattern in patterns for page in sorted(pages) if Path(page).match(pattern)
        ]
    named = {page for group in groups.values() for page in group}
    groups[OTHERS] += sorted(pages - named)
    return "\n".join(
        "\n".join(["```{toctree}", ":hidden:", f":caption: {caption}", "", *group, "```", ""])
        for caption, group in groups.items()
    )


OUTWARD = re.compile(r"(?<!!)\[([^\]]+)\]\(((?:\.\./)+[^)#\s]+)(?:#[^)]*)?\)")
"""A link, not an image, to a file outside the folder of the page."""


def prepare(app: Any, docname: str, source: list[str]) -> None:
    """Insert the table of contents into the first page; replace links to files that are not built.

    A link such as [benchmarks](../benchmarks/README.md) works on a code hosting site only, so it becomes
    the name of the file.
    """
    if docname == "index":
        source[0] = source[0].replace("<!-- contents -->", table_of_contents())
    folder = (HERE / docname).parent

    def named(link: re.Match[str]) -> str:
        target = (folder / link[2]).resolve()
        if target.is_relative_to(HERE):
            return link[0]
        path = target.relative_to(HERE.parent).as_posix()
        return f"`{path}`" if link[1].strip("`") == path else f"{link[1]} (`{path}`)"

    source[0] = OUTWARD.sub(named, source[0])


MARKED = re.compile(r"(`[^`]*`|(?<![\w*])\*\w[^*`]*\*(?![\w*]))")
"""Code in backticks, and *emphasised* words."""


def tidy(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Show `names` in docstrings as code, and escape the rest, which is plain text."""
    session = False
    for i, line in enumerate(lines):
        session = line.lstrip().startswith(">>>") or (session and bool(line.strip()))
        if not session:
            lines[i] = "".join(as_text(part) for part in MARKED.split(line.replace("``", "`")))


def as_text(part: str) -> str:
    """Convert a part of a line, in which only backticks and emphasis are markup."""
    if part.startswith("`"):
        return f"`{part}`"
    if MARKED.fullmatch(part):
        return part
    return re.sub(r"(?<!\\)([*|]|_(?!\w))", r"\\\1", part)


def setup(app: Any) -> None:
    """Register the functions above with Sphinx."""
    app.connect("source-read", prepare)
    app.connect("autodoc-process-docstring", tidy)
