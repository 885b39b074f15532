"""The report as a reader sees it, in headless Chromium where there is one."""

import numpy as np
import pytest
from sklearn.datasets import make_moons

from cavity import SEPClassifier
from cavity.report import write_report
from headless_browser import looked_at

# Everything that a reader would stumble over.
LOOK = """{
  sections: [...document.querySelectorAll("main > section")].map(part => [part.id, room(part)[1]]),
  figures: [...document.querySelectorAll("figure svg")].map(room),
  overflow: document.documentElement.scrollWidth - document.documentElement.clientWidth,
  broken: [...document.querySelectorAll("nav a")].filter(
    link => !document.querySelector(link.getAttribute("href"))).length,
}"""


@pytest.fixture(scope="module")
def looked(tmp_path_factory):
    folder = tmp_path_factory.mktemp("browser")
    X, y = make_moons(250, noise=0.3, random_state=0)
    X = np.column_stack([X, np.random.default_rng(0).normal(size=250)])
    model = SEPClassifier(n_inducing=8, random_state=0, config={"tol": 1e-2}).fit(X[:200], y[:200])
    page = write_report(model, folder / "report.html", X[200:], y[200:])
    return looked_at(page.read_text(encoding="utf-8"), LOOK, folder)


def test_no_errors_and_no_requests(looked):
    assert looked["errors"] == []
    assert looked["requests"] == []
    assert looked["broken"] == 0


def test_every_part_takes_room(looked):
    assert [name for name, _ in looked["sections"]] == [
        *("fitted", "data", "convergence", "performance", "relevance"),
        *("dependence", "inducing", "surprising", "costs"),
    ]
    assert min(height for _, height in looked["sections"]) > 100


def test_figures_are_shown_at_a_readable_size_and_fit_the_page(looked):
    assert (
        len(looked["figures"]) == 9
    )  # convergence, reliability, two curves, relevance, three effects, plane
    assert min(width for width, _ in looked["figures"]) > 250
    assert max(width for width, _ in looked["figures"]) < 1000
    assert min(height for _, height in looked["figures"]) > 100
    assert looked["overflow"] <= 0
