from types import SimpleNamespace

import numpy as np
import pytest
from matplotlib import pyplot
from sklearn.datasets import make_blobs

from cavity import SEPClassifier
from cavity.plot import DecisionBoundaryDisplay, PartialDependenceDisplay
from cavity.plot.features import Effect, partial_effect
from cavity.report import figures, write_report
from cavity.report.scores import Evaluation


@pytest.fixture(scope="module")
def fitted():
    X, codes = make_blobs(150, centers=[[-3, 0], [3, 0], [0, 4]], random_state=0)
    y = np.array(["left", "right", "top"])[codes]
    return SEPClassifier(n_inducing=6, random_state=0, config={"tol": 1e-1}).fit(X, y), X, y


def test_a_report_on_three_classes(fitted, tmp_path):
    model, X, y = fitted
    page = write_report(model, tmp_path / "r.html", X, y, n_effects=1).read_text(encoding="utf-8")
    assert "mean over classes against the rest" in page
    assert "probability of the likeliest class" in page
    for name in ("left", "right", "top"):
        assert f">{name}</text>" in page
        assert f"Likeliest: {name}</th>" in page


def test_without_held_out_rows_there_is_nothing_to_judge_by(fitted, tmp_path):
    """Leave-one-out gives the probability of the label alone, not of the other two classes."""
    page = write_report(fitted[0], tmp_path / "r.html", n_effects=0).read_text(encoding="utf-8")
    assert "no rows to judge by" in page
    assert "Training rows whose label" in page


def test_effects_of_three_classes_add_up_to_one(fitted):
    model, X, _ = fitted
    effect = partial_effect(model, X, 0, n_grid=5, n_rows=6, n_draws=20)
    np.testing.assert_allclose(effect.probability.sum(axis=1), 1.0, atol=1e-3)
    assert effect.probability[0, 0] > effect.probability[-1, 0]  # left is on the left


def test_the_boundary_of_three_classes(fitted):
    model, X, y = fitted
    figure, ax = pyplot.subplots()
    display = DecisionBoundaryDisplay.from_estimator(model, X, y, grid_resolution=10, ax=ax)
    assert display.probability.shape == (10, 10, 3)
    figure.canvas.draw()
    pyplot.close(figure)


def test_of_many_classes_those_are_shown_that_move():
    probability = np.full((2, 10), 0.1)
    probability[1, :3] = [0.3, 0.0, 0.0]
    effect = Effect(0, np.array([0.0, 1.0]), probability, probability, probability, 0.9, 5)
    figure, ax = pyplot.subplots()
    display = PartialDependenceDisplay(effect, name="x", classes=list("abcdefghij")).plot(ax)
    shown = [text.get_text() for text in display.ax_.get_legend().get_texts()]
    assert len(shown) == 6
    assert shown[:3] == ["a", "b", "c"]
    pyplot.close(figure)


@pytest.mark.parametrize(("n_classes", "named"), [(10, True), (50, False)])
def test_curves_are_named_if_the_names_fit_into_the_figure(n_classes, named):
    rng = np.random.default_rng(0)
    codes = np.arange(5 * n_classes) % n_classes
    evaluation = Evaluation(
        codes, np.log(rng.dirichlet(np.ones(n_classes), len(codes))), True, len(codes)
    )
    classes = [f"a long name {code}" for code in range(n_classes)]
    target = SimpleNamespace(positive=None, classes=classes)
    for figure in (figures.roc(target, evaluation), figures.precision_recall(target, evaluation)):
        assert (">a long name 0</text>" in figure.svg) == named
