"""The report as a reader sees it, in headless Chromium where there is one."""

import json
import shutil
import subprocess

import numpy as np
import pytest
from sklearn.datasets import make_moons

from cavity import SEPClassifier
from cavity.report import write_report

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

# Run in the page: everything that a reader would stumble over.
LOOK = """
<script>
window.seen = [];
window.addEventListener("error", event => window.seen.push(String(event.message)));
window.addEventListener("load", () => {
  const wide = document.documentElement;
  const figures = [...document.querySelectorAll("figure svg")].map(svg => svg.getBoundingClientRect());
  const report = {
    errors: window.seen,
    requests: performance.getEntriesByType("resource").map(entry => entry.name)
      .filter(name => !name.startsWith("data:")),
    sections: [...document.querySelectorAll("main > section")].map(part => [
      part.id, Math.round(part.getBoundingClientRect().height)]),
    figures: figures.map(box => [Math.round(box.width), Math.round(box.height)]),
    overflow: wide.scrollWidth - wide.clientWidth,
    broken: [...document.querySelectorAll("nav a")].filter(
      link => !document.querySelector(link.getAttribute("href"))).length,
  };
  document.title = JSON.stringify(report);
});
</script>
"""


@pytest.fixture(scope="module")
def looked(tmp_path_factory):
    if BROWSER is None:
        pytest.skip("no Chromium on this machine")
    folder = tmp_path_factory.mktemp("browser")
    X, y = make_moons(250, noise=0.3, random_state=0)
    X = np.column_stack([X, np.random.default_rng(0).normal(size=250)])
    model = SEPClassifier(n_inducing=8, tol=1e-2, random_state=0).fit(X[:200], y[:200])
    page = write_report(model, folder / "report.html", X[200:], y[200:])
    watched = page.read_text(encoding="utf-8").replace("<head>", f"<head>{LOOK}", 1)
    page.write_text(watched, encoding="utf-8")
    run = subprocess.run(
        [
            *(BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--window-size=1000,900"),
            *(f"--user-data-dir={folder / 'profile'}", "--virtual-time-budget=2000"),
            *("--dump-dom", page.as_uri()),
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if "<title>" not in run.stdout:
        pytest.skip(f"the browser does not run here: {run.stderr[-300:]}")
    title = run.stdout[run.stdout.index("<title>") + 7 : run.stdout.index("</title>")]
    return json.loads(title)


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
