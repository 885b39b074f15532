"""What shows, scores and checks a model, if it has leaves."""

import numpy as np
import pytest
from sklearn.base import BaseEstimator

from cavity import SEPClassifier, TableClassifier
from cavity.estimators.facts import fit_facts
from cavity.estimators.selection import compare
from cavity.report import write_report
from support import PINNED

SETTINGS = {name: value for name, value in PINNED.items() if name != "scaling"} | {"n_local": 8}

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def stripes(n=400, seed=0):
    """Rows [n, 2] whose label changes often along the first column."""
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.uniform(0, 20, size=n), rng.normal(size=n)])
    return X, (np.sin(1.5 * X[:, 0]) + 0.3 * X[:, 1] > 0).astype(int)


X, LABELS = stripes()


def classifier(leaves=4, **parameters):
    given = {"n_inducing": 3, "batch_size": 200, "max_epochs": 2, "random_state": 0, "n_jobs": 1}
    return SEPClassifier(leaves=leaves, config=SETTINGS, **{**given, **parameters})


@pytest.fixture(scope="module")
def fitted():
    return classifier().fit(X, LABELS)


class Halves(BaseEstimator):
    """Routes rows by the sign of the first column."""

    def fit(self, X, y=None):
        return self

    def predict(self, X):
        return (np.asarray(X)[:, 0] > 0).astype(int)


def test_rows_of_a_leaf_without_training_rows_are_further_from_what_was_learned():
    """The points of an empty leaf are among the rows, so that only what was learned there differs."""
    rng = np.random.default_rng(1)
    rows = np.abs(rng.normal(size=(300, 2)))
    model = classifier(Halves(), max_epochs=4).fit(rows, (rows.sum(axis=1) > 1.5).astype(int))
    near = np.array([[0.02, 0.6], [0.01, 1.0]])
    across = near * [-1.0, 1.0]
    assert (model.ood_score(across) > model.ood_score(near) + 0.1).all()
    epistemic = [model.predict_uncertainty(part).epistemic for part in (near, across)]
    assert (epistemic[1] > epistemic[0]).all()


def test_facts_count_the_points_of_leaves(fitted):
    facts = fit_facts(fitted)
    assert (facts.leaves, facts.local_points, facts.inducing_points) == (4, 32, 35)
    assert facts.as_words()["Inducing points"] == "35, 32 of them in 4 leaves"
    assert fitted.model_.inducing_points.shape == (35, 2)
    assert "32 of them in 4 leaves" in fitted._repr_html_inner()
    assert facts.model_bytes > 4 * 8 * 11**2


def test_a_comparison_counts_the_points_of_leaves(fitted):
    assert compare([fitted]).best.n_inducing == 35


def test_displays_show_the_points_of_leaves(fitted):
    pytest.importorskip("matplotlib").use("Agg")
    from cavity import plot

    display = plot.InducingPointsDisplay.from_estimator(fitted, X, LABELS)
    np.testing.assert_allclose(display.points, fitted.model_.inducing_points)
    plot.DecisionBoundaryDisplay.from_estimator(fitted, X, LABELS)
    curve = plot.PartialDependenceDisplay.from_estimator(fitted, X, 0)
    assert curve.ax_ is not None
    plot.RelevanceDisplay.from_estimator(fitted)


def test_report_of_a_table(tmp_path):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("matplotlib")
    pytest.importorskip("jinja2")
    frame = pandas.DataFrame({"along": X[:, 0], "across": X[:, 1], "late": LABELS})
    model = TableClassifier(classifier()).fit(frame, "late")
    page = write_report(model, tmp_path / "report.html", frame, "late").read_text()
    assert "32 of them in 4 leaves" in page


@pytest.mark.parametrize("method", ["fit", "partial_fit"])
def test_more_leaves_than_memory_allows_are_refused_before_the_start(method, monkeypatch):
    monkeypatch.setattr("cavity.memory.available_bytes", lambda: 10_000)
    with pytest.raises(MemoryError, match=r"leaves with .* inducing points each, besides 3"):
        getattr(classifier(), method)(X, LABELS)
