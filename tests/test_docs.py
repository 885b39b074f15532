"""Every Python block of the README and of docs/ runs, and prints what it says it prints.

Links lead somewhere, on a code hosting site as in the built documentation, which has no warnings.
"""

import doctest
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import matplotlib
import pytest
from matplotlib import pyplot

import cavity.kernels
import cavity.plot
import cavity.report
import cavity.sources

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    [ROOT / "README.md", *(page for page in ROOT.glob("docs/**/*.md") if "_build" not in page.parts)]
)
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]*))?\)")
HEADING = re.compile(r"^#+ +(.*?) *$", re.MULTILINE)


def page_name(page):
    return page.relative_to(ROOT).as_posix()


@pytest.fixture
def drawing():
    matplotlib.use("Agg")
    yield
    pyplot.close("all")


# The page about clusters is executed where there are some: tests/dask/test_dask_page.py.
@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "cluster.md"], ids=page_name)
def test_code_of_a_page_runs(page, tmp_path, monkeypatch, drawing):
    monkeypatch.chdir(tmp_path)
    text = page.read_text(encoding="utf-8")
    names = {"__name__": "__main__"}
    for match in BLOCK.finditer(text):
        line = text[: match.start(1)].count("\n")
        if match[1].startswith(">>>"):
            run_session(match[1], names, page.name, line)
        else:
            exec(compile("\n" * line + match[1], page, "exec"), names)


def run_session(block, names, page, line):
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    session = doctest.DocTestParser().get_doctest(block, names, page, page, line)
    report = []
    runner.run(session, out=report.append, clear_globs=False)
    names.update(session.globs)
    assert runner.failures == 0, "".join(report)


def slugs(page):
    """The anchors of a page's headings, as code hosting sites and MyST make them."""
    headings = HEADING.findall(CODE.sub(lambda code: code[0].strip("`"), page.read_text("utf-8")))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_links_between_pages_lead_somewhere(page):
    for target, anchor in LINK.findall(CODE.sub("", page.read_text(encoding="utf-8"))):
        linked = page.parent / target if target else page
        assert linked.exists(), f"{page.name} links to {target}, which is not there"
        if anchor and linked.suffix == ".md":
            assert anchor in slugs(linked), f"{linked.name} has no heading #{anchor}"


class Links(HTMLParser):
    """The ids of a page and what its links and images point to."""

    def __init__(self, page):
        super().__init__()
        self.ids, self.targets = set(), set()
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.ids |= {attrs["id"]} if attrs.get("id") else set()
        targets = {attrs.get("href"), attrs.get("src")} - {None, ""}
        self.targets |= {target for target in targets if not re.match(r"[a-z]+:", target)}


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The documentation as HTML."""
    folder = tmp_path_factory.mktemp("docs")
    run = subprocess.run(
        [*(sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html"), "docs", folder],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return folder


def test_the_documentation_has_every_page_and_its_links_hold(built):
    pages = {page: Links(page) for page in built.glob("**/*.html")}
    assert {f"{page.stem}.html" for page in ROOT.glob("docs/**/*.md")} <= {page.name for page in pages}
    for page, links in pages.items():
        for target in links.targets:
            path, _, anchor = target.partition("#")
            linked = (page.parent / path.partition("?")[0]).resolve() if path else page
            assert linked.exists(), f"{page.name} links to {target}"
            if anchor and linked in pages:
                assert anchor in pages[linked].ids, f"{page.name} links to {target}"


@pytest.mark.parametrize("module", [cavity, cavity.plot, cavity.report, cavity.kernels, cavity.sources])
def test_every_public_name_is_in_the_reference(built, module):
    known = {name.rpartition(".")[2] for name in Links(built / "api.html").ids}
    assert {name for name in module.__all__ if not name.startswith("_")} <= known
