"""The version is in one place, and what cannot read it there says the same."""

import re
from pathlib import Path

import yaml

from cavity.version import __version__

ROOT = Path(__file__).parents[1]


def test_the_citation_is_that_of_this_version():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["cff-version"] == "1.2.0"
    assert citation["version"] == __version__
    assert {"message", "title", "authors", "preferred-citation"} <= set(citation)


def test_pages_name_the_wheel_of_this_version():
    named = {
        (page.name, wheel)
        for page in [ROOT / "README.md", *ROOT.glob("docs/*.md")]
        for wheel in re.findall(r"cavity-[\w.]+-py3-none-any\.whl", page.read_text(encoding="utf-8"))
    }
    wheel = f"cavity-{__version__}-py3-none-any.whl"
    assert named == {("README.md", wheel), ("cluster.md", wheel)}


def test_the_changelog_begins_with_this_version():
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(r"^## \[([^\]]+)\]", changes, re.MULTILINE)[1] == __version__
