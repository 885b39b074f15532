"""The threshold explorer: its counts, and its script in a JavaScript engine where there is one."""

import json
import re
import shutil
import subprocess

import numpy as np
import pytest
from sklearn.datasets import make_moons
from sklearn.metrics import (
    average_precision_score,
    confusion_matrix,
    f1_score,
    precision_score,
    recall_score,
)

from cavity import SEPClassifier
from cavity.report import write_report
from cavity.report.scores import Evaluation, confusion, scores, thresholds

NODE = shutil.which("node")
RNG = np.random.default_rng(0)
CODES = (RNG.random(500) < 0.2).astype(int)
P = np.clip(RNG.beta(1.0, 6.0, 500) + 0.4 * CODES * RNG.random(500), 1e-6, 1 - 1e-6)
P[:3] = 0.5, 0.05, 0.95  # on thresholds
JUDGED = Evaluation(CODES, np.log(np.column_stack([1 - P, P])), held_out=True, n_available=500)


def test_counts_are_those_of_each_threshold():
    found = thresholds(JUDGED, 1)
    for position in [0, 50, 100, found.start, 200, len(found.at) - 1]:
        line = found.line(position)
        flagged = np.exp(np.log(P)) >= line.threshold
        assert line.recall == recall_score(CODES, flagged)
        if flagged.any():
            assert line.precision == precision_score(CODES, flagged)
        assert line.flagged == flagged.mean()
        assert line.counts == (
            np.sum(flagged & (CODES == 1)),
            np.sum(flagged & (CODES == 0)),
            np.sum(~flagged & (CODES == 1)),
            np.sum(~flagged & (CODES == 0)),
        )
    assert found.line(found.start).threshold == 0.5
    assert [line.threshold for line in found.printed][::6] == [0.01, 0.5, 0.99]


def test_the_other_class_mirrors_it_and_one_class_has_no_thresholds():
    other = thresholds(JUDGED, 0)
    assert (other.n_class, other.n_other) == ((CODES == 0).sum(), CODES.sum())
    assert thresholds(Evaluation(np.zeros(5, int), JUDGED.log_proba[:5], True, 5), 1) is None


def test_scores_are_about_the_positive_class():
    """F1 of either class is that of scikit-learn; scores of both classes together do not change."""
    by_name = [{one.name: one.value for one in scores(JUDGED, code)} for code in (0, 1)]
    for code in (0, 1):
        flagged = JUDGED.log_proba.argmax(axis=1)
        assert by_name[code]["F1"] == f"{f1_score(CODES, flagged, pos_label=code):.3f}"
        truth, p = code == CODES, JUDGED.proba[:, code]
        found = float(by_name[code]["Average precision"])
        assert abs(found - average_precision_score(truth, p)) < 2e-3  # rows are ranked in steps
    for name in ("NLL", "Error", "Calibration error (ECE)", "ROC area"):
        assert by_name[0][name] == by_name[1][name]


def test_the_confusion_matrix():
    log_proba = np.log(RNG.dirichlet(np.ones(4), 300))
    codes = RNG.integers(0, 4, 300)
    found = confusion(Evaluation(codes, log_proba, True, 300), most=2)
    truth = confusion_matrix(codes, log_proba.argmax(axis=1))
    assert found.counts == truth.tolist()
    np.testing.assert_allclose(np.sum(found.shares, axis=1), 1.0)
    off = truth - np.diag(np.diag(truth))
    assert [rows for _, _, rows in found.worst] == np.sort(off, axis=None)[::-1][:2].tolist()
    a, b, rows = found.worst[0]
    assert truth[a, b] == rows


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    X, y = make_moons(300, noise=0.3, random_state=0)
    model = SEPClassifier(n_inducing=8, random_state=0, config={"tol": 1e-2}).fit(X[:200], y[:200])
    path = tmp_path_factory.mktemp("report") / "r.html"
    return write_report(model, path, X[200:], y[200:], n_effects=0).read_text(encoding="utf-8")


# A page of the elements that the script asks for by their ids; it prints what they say.
FAKE = """
const nodes = {};
const node = id => nodes[id] ??= {
  id, textContent: "", hidden: true, attributes: {}, listeners: {},
  setAttribute(name, value) { this.attributes[name] = value; },
  addEventListener(name, call) { this.listeners[name] = call; },
};
const KNOWN = %(known)s;
globalThis.document = {
  getElementById: id => KNOWN.includes(id) ? node(id) : null,
  documentElement: { classList: { add(name) { nodes.scripted = name; } } },
};
if (KNOWN.includes("explorer-data")) node("explorer-data").textContent = %(data)s;
%(script)s
const seen = [];
for (const i of %(positions)s) {
  const slider = node("explorer-threshold");
  if (i !== null) { slider.value = String(i); slider.listeners.input(); }
  seen.push(Object.fromEntries(Object.entries(nodes).map(([id, one]) =>
    [id.replace("explorer-", ""), one.textContent])));
  seen.at(-1).valuetext = slider.attributes["aria-valuetext"];
  seen.at(-1).hidden = node("explorer-box").hidden;
}
console.log(JSON.stringify(seen));
"""


def script_of(page):
    return re.search(r"<script>\n(.*?)</script>", page, flags=re.DOTALL)[1]


def run(page, positions, known=None):
    if NODE is None:
        pytest.skip("no JavaScript engine (node) on this machine")
    data = re.search(r'id="explorer-data">(.*?)</script>', page, flags=re.DOTALL)[1]
    code = FAKE % {
        "known": json.dumps(re.findall(r'id="(explorer-[\w-]+)"', page) if known is None else known),
        "data": json.dumps(data),
        "script": script_of(page),
        "positions": json.dumps(positions),
    }
    done = subprocess.run(
        [NODE, "-"], input=code, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_script_says_what_the_counts_say(page):
    data = json.loads(re.search(r'id="explorer-data">(.*?)</script>', page, flags=re.DOTALL)[1])
    positions = [None, 0, 130, len(data["at"]) - 1]
    total = data["n_class"] + data["n_other"]
    for position, words in zip(positions, run(page, positions), strict=True):
        i = data["start"] if position is None else position
        hits, alarms = data["hits"][i], data["alarms"][i]
        flagged = hits + alarms
        assert words["at"] == words["valuetext"] == f"{100 * data['at'][i]:.1f}%"
        assert words["precision"] == (f"{100 * hits / flagged:.1f}%" if flagged else "none flagged")
        assert words["recall"] == f"{100 * hits / data['n_class']:.1f}%"
        assert words["flagged"] == f"{100 * flagged / total:.1f}%"
        assert [words[name] for name in ("hits", "alarms", "misses", "rest")] == [
            *(str(hits), str(alarms)),
            *(str(data["n_class"] - hits), str(data["n_other"] - alarms)),
        ]
        assert words["hidden"] is False
    assert data["start"] == data["at"].index(0.5)


def test_the_script_does_nothing_where_there_is_no_explorer(page):
    (seen,) = run(page, [None], known=["explorer-box", "explorer-threshold"])
    assert seen["hidden"] is True


def test_without_a_script_and_on_paper_there_is_a_table(page):
    """The explorer is hidden until the script shows it; then the table is hidden on screens only."""
    assert re.search(r'<div id="explorer-box" class="explorer" hidden>', page)
    table = page[page.index('class="thresholds"') :]
    assert table[: table.index("</table>")].count('<tr><th scope="row"') == 13
    assert "unscripted" in page
    style = re.search(r"<style>(.*?)</style>", page, flags=re.DOTALL)[1]
    assert re.search(r"@media screen \{\s*\.scripted \.unscripted \{ display: none; \}\s*\}", style)
    on_paper = style[style.index("@media print") :]
    assert re.search(r"\.explorer.*\{ display: none; \}", on_paper)


def test_three_classes_have_an_explorer_only_for_a_class_that_is_chosen(tmp_path):
    X, _ = make_moons(150, noise=0.3, random_state=0)
    y = np.digitize(X[:, 0], [-0.3, 1.0])
    model = SEPClassifier(n_inducing=5, random_state=0, config={"tol": 1e-1}).fit(X, y)
    bare = write_report(model, tmp_path / "r.html", X, y, n_effects=0).read_text("utf-8")
    assert "explorer-data" not in bare
    assert "<script" not in bare
    chosen = write_report(model, tmp_path / "r.html", X, y, n_effects=0, pos_label=2).read_text("utf-8")
    assert "Threshold for 2" in chosen
    assert "predicted probability of 2" in chosen
    others = write_report(model, tmp_path / "r.html", X[y < 2], y[y < 2], n_effects=0, pos_label=2)
    assert "none is of the positive class" in others.read_text("utf-8")
