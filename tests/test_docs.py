"""Every code block of the README and of docs/ runs and prints what the page says.

Links have targets, on a code hosting site and in the built documentation, which has no warnings.
"""

import re
import subprocess
import sys
from html.parser import HTMLParser
from importlib import import_module

import matplotlib
import pytest
from matplotlib import pyplot

from commands_elsewhere import CHECKS
from doc_blocks import Block
from doc_pages import PAGES, ROOT, Reader
from flights_table import flights

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


@pytest.fixture
def tables(tmp_path, monkeypatch):
    """A folder with the tables that the README uses."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    flights(300).to_csv("flights.csv", index=False)
    flights(100, seed=1).to_csv("new.csv", index=False)


@pytest.fixture
def home(tmp_path_factory, monkeypatch):
    """A home folder for a user of bash; one of the commands writes to it."""
    folder = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setattr("shellingham.detect_shell", lambda: ("bash", "/bin/bash"))
    return folder


# The page about clusters is executed in tests/engines/dask/test_dask_page.py, which has a cluster.
@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "cluster.md"], ids=page_name)
def test_code_of_a_page_runs(page, tables, home, drawing):
    Reader(page).read()


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_no_code_hides_from_the_tests(page):
    """Indented code has no language, so it would not be executed."""
    prose = CODE.sub("", page.read_text(encoding="utf-8"))
    assert not re.findall(r"(?<=\n\n)    \S.*", prose)


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("python", "1 / 0"),
        ("python", ">>> 1 + 1\n3\n"),
        ("console", "$ cavity --version\nversion five\n"),
        ("console", "$ cavity inspect none\ncavity: none: there is no such model file\n"),
        ("sh", "cavity inspect none"),
        ("sh", "cavity --colour red"),
        ("sh", "rm nothing"),
        ("sh", "make gold"),
        ("sh", "pip install 'cavity[gold]'"),
        ("sh", "pip install '.[gold]'"),
        ("sh", "python -m benchmarks run gold"),
        ("sh", "dask ssh --gold 1"),
        ("sh", "helm install cluster dask/dask --set {"),
        ("sh", "kubectl delete everything"),
        ("sh", "export GOLD=1"),
        ("json", "{'a': 1}"),
        ("yaml", "a: b: c"),
        ("text", "cavity fit x.csv"),
        ("toml", "a = 1"),
        ("", "cavity"),
    ],
)
def test_a_reader_notices(language, text, tables):
    """Wrong blocks fail, in every language and for every command that is only checked."""
    with pytest.raises((Exception, SystemExit)):
        Reader(ROOT / "README.md").execute(Block(language, text, 1))


def test_commands_that_are_only_checked_are_few():
    assert set(CHECKS) == {"make", "pip", "python", "dask", "helm", "kubectl", "export"}


def slugs(page):
    """The anchors of a page's headings, as code hosting sites and MyST form them."""
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
    """The ids of a page, and the targets of its links and images."""

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


def test_the_documentation_has_every_picture(built):
    shown = {image.name for image in (built / "_images").iterdir()}
    for page in ROOT.glob("docs/**/*.md"):
        pictures = re.findall(r"!\[[^\]]*\]\(([^)]+)\)", page.read_text(encoding="utf-8"))
        assert {picture.rpartition("/")[2] for picture in pictures} <= shown, page.name


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


PUBLIC = [
    "cavity",
    "cavity.data",
    "cavity.datasets",
    "cavity.export",
    "cavity.export.onnx",
    "cavity.gp.kernels",
    "cavity.inference",
    "cavity.plot",
    "cavity.report",
]


@pytest.mark.parametrize("module", PUBLIC)
def test_every_public_name_is_in_the_reference(built, module):
    known = {name.rpartition(".")[2] for name in Links(built / "api.html").ids}
    names = import_module(module).__all__
    assert {name for name in names if not name.startswith("_")} <= known


LARGE_ROOMS = ("data", "engines", "gp", "inference")
"""Rooms of which the page names every file: to name the folder would not help a reader."""


def test_every_room_is_in_the_design():
    """The page about the design names every file, or its folder, and no file that does not exist."""
    source, page = ROOT / "src" / "cavity", (ROOT / "docs" / "design.md").read_text("utf-8")
    rooms = {
        path.stem for path in source.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    assert rooms - set(re.findall(r"\w+", page)) == {"__init__", "__main__"}
    named = set(re.findall(r"`((?:\w+/)+(?:\w+\.py)?|\w+\.py)`", page)) - {"estimators/"}
    assert [name for name in named if not (source / name).exists() and not (ROOT / name).exists()] == []
    folders = tuple(name for name in named - {f"{room}/" for room in LARGE_ROOMS} if name.endswith("/"))
    files = {str(path.relative_to(source).as_posix()) for path in source.glob("*/**/*.py")}
    files = {file for file in files if not file.endswith("__init__.py")}
    assert {file for file in files - named if not file.startswith(folders)} == set()
