"""The report as a reader sees it, in headless Chromium where there is one."""

import re

import numpy as np
import pytest
from sklearn.datasets import make_moons

from cavity import SEPClassifier
from cavity.report import write_report
from headless_browser import looked_at

# Everything that a reader would stumble over, and the explorer before and after its slider is moved.
LOOK = """(() => {
  const words = name => document.getElementById(`explorer-${name}`).textContent;
  const before = [words("at"), words("recall"), words("flagged")];
  const slider = document.getElementById("explorer-threshold");
  slider.value = 0;
  slider.dispatchEvent(new Event("input"));
  return {
  explorer: [before, [words("at"), words("recall"), words("flagged")]],
  tables: [room(document.getElementById("explorer-box"))[1],
    room(document.querySelector(".unscripted"))[1]],
  width: window.innerWidth,
  dark: matchMedia("(prefers-color-scheme: dark)").matches,
  ground: getComputedStyle(document.body).backgroundColor,
  ink: getComputedStyle(document.querySelector("figure svg text")).fill,
  sections: [...document.querySelectorAll("main > section")].map(part => [part.id, room(part)[1]]),
  figures: [...document.querySelectorAll("figure svg")].map(room),
  overflow: document.documentElement.scrollWidth - document.documentElement.clientWidth,
  broken: [...document.querySelectorAll("nav a")].filter(
    link => !document.querySelector(link.getAttribute("href"))).length,
  };
})()"""


WAYS = {"light": {}, "dark": {"dark": True}, "phone": {"phone": True}}


@pytest.fixture(scope="module", params=WAYS)
def way(request):
    return request.param


@pytest.fixture(scope="module")
def looked(page, way, tmp_path_factory):
    seen = looked_at(page, LOOK, tmp_path_factory.mktemp("browser"), **WAYS[way])
    if way == "dark" and not seen["dark"]:
        pytest.skip("this browser cannot be asked for dark pages")
    return seen


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    X, y = make_moons(250, noise=0.3, random_state=0)
    X = np.column_stack([X, np.random.default_rng(0).normal(size=250)])
    model = SEPClassifier(n_inducing=8, random_state=0, config={"tol": 1e-2}).fit(X[:200], y[:200])
    path = write_report(model, folder / "report.html", X[200:], y[200:])
    return path.read_text(encoding="utf-8")


def test_no_errors_and_no_requests(looked):
    assert looked["errors"] == []
    assert looked["requests"] == []
    assert looked["broken"] == 0


def test_every_part_takes_room(looked):
    assert [name for name, _ in looked["sections"]] == [
        *("performance", "threshold", "relevance", "dependence", "surprising"),
        *("data", "fitted", "convergence", "inducing", "costs"),
    ]
    assert min(height for _, height in looked["sections"]) > 100


def test_figures_are_shown_at_a_readable_size_and_fit_the_page(looked):
    assert (
        len(looked["figures"]) == 9
    )  # convergence, reliability, two curves, relevance, three effects, plane
    assert min(width for width, _ in looked["figures"]) > 250
    assert max(width for width, _ in looked["figures"]) < 1000  # on a phone, wide ones scroll
    assert min(height for _, height in looked["figures"]) > 100
    assert looked["overflow"] <= 0


def test_a_phone_is_narrow(looked, way):
    assert (looked["width"] < 400) == (way == "phone")


def test_the_explorer_takes_the_place_of_its_table_and_moves(looked):
    before, after = looked["explorer"]
    assert before[0] == "50.0%"
    assert after == ["0.0%", "100.0%", "100.0%"]
    explorer, table = looked["tables"]
    assert explorer > 100
    assert table == 0


def test_figures_are_legible_on_their_ground(looked, way):
    """The letters of figures are far from the colour of the page, in the dark, too."""
    ground, ink = (
        sum(int(part) for part in re.findall(r"\d+", looked[name])[:3]) / 765
        for name in ("ground", "ink")
    )
    assert abs(ground - ink) > 0.6
    assert (ground < 0.5) == (way == "dark")
