"""The version is in one place, and what cannot read it there says the same."""

from pathlib import Path

import yaml

from cavity.version import __version__

ROOT = Path(__file__).parents[1]


def test_the_citation_is_that_of_this_version():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["cff-version"] == "1.2.0"
    assert citation["version"] == __version__
    assert {"message", "title", "authors", "preferred-citation"} <= set(citation)


def test_the_readme_names_the_wheel_of_this_version():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"dist/cavity-{__version__}-py3-none-any.whl" in readme
