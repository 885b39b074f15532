import sys

import numpy as np
import pandas
import pytest
from matplotlib import pyplot
from sklearn.datasets import make_moons
from sklearn.exceptions import NotFittedError

from cavity import GFITCClassifier, SEPClassifier, TableClassifier
from cavity.plot import (
    CalibrationDisplay,
    DecisionBoundaryDisplay,
    InducingPointsDisplay,
    PartialDependenceDisplay,
    RelevanceDisplay,
    TrainingCurveDisplay,
)

X, Y = make_moons(200, noise=0.3, random_state=0)
LABELS = np.where(Y, "lower", "upper")


@pytest.fixture(scope="module")
def fitted():
    frame = pandas.DataFrame(X, columns=["east", "north"])
    return SEPClassifier(n_inducing=8, random_state=0, config={"tol": 1e-2}).fit(frame, LABELS)


@pytest.fixture
def ax():
    figure, ax = pyplot.subplots()
    yield ax
    pyplot.close(figure)


DRAWN = {
    "boundary": lambda fit, ax: DecisionBoundaryDisplay.from_estimator(
        fit, X, LABELS, grid_resolution=15, ax=ax
    ),
    "inducing points": lambda fit, ax: InducingPointsDisplay.from_estimator(fit, X, LABELS, ax=ax),
    "partial dependence": lambda fit, ax: PartialDependenceDisplay.from_estimator(
        fit, X, "north", n_rows=5, n_draws=10, ax=ax
    ),
    "relevance": lambda fit, ax: RelevanceDisplay.from_estimator(fit, ax=ax),
    "reliability": lambda fit, ax: CalibrationDisplay.from_predictions(
        LABELS, fit.predict_proba(pandas.DataFrame(X, columns=["east", "north"])), ax=ax
    ),
    "training curve": lambda fit, ax: TrainingCurveDisplay.from_estimator(fit, ax=ax),
}


@pytest.mark.parametrize("draw", DRAWN.values(), ids=DRAWN)
def test_a_display_draws_on_the_given_axes_and_again_on_others(draw, fitted, ax):
    display = draw(fitted, ax)
    assert display.ax_ is ax
    assert display.figure_ is ax.figure
    assert ax.get_xlabel()
    ax.figure.canvas.draw()
    assert display.plot() is display
    assert display.ax_ is not ax
    assert display.ax_.get_xlabel() == ax.get_xlabel()
    pyplot.close(display.figure_)


def test_the_boundary_is_what_the_estimator_predicts(fitted, ax):
    display = DecisionBoundaryDisplay.from_estimator(
        fitted, X, features=("north", "east"), grid_resolution=4, ax=ax
    )
    at = pandas.DataFrame([[display.y[2], display.x[1]]], columns=["east", "north"])
    np.testing.assert_allclose(display.probability[2, 1], fitted.predict_proba(at)[0], atol=1e-6)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("north", "east")
    assert (display.points == fitted.inducing_points_[:, ::-1]).all()


def test_more_classes_than_two(ax):
    rng = np.random.default_rng(0)
    probability = rng.dirichlet([1.0, 1.0, 1.0], 300)
    labels = np.array([rng.choice(["a", "b", "c"], p=p) for p in probability])
    top = CalibrationDisplay.from_predictions(labels, probability, ax=ax)
    assert top.of == "the likeliest class"
    assert top.bins.predicted.min() > 1 / 3
    right = np.mean(np.array(["a", "b", "c"])[probability.argmax(axis=1)] == labels)
    assert top.bins.frequency @ top.bins.count / 300 == pytest.approx(right)
    one = CalibrationDisplay.from_predictions(labels, probability, pos_label="b", ax=ax)
    assert one.bins.frequency @ one.bins.count / 300 == pytest.approx(np.mean(labels == "b"))
    surface = DecisionBoundaryDisplay(
        np.arange(4.0),
        np.arange(5.0),
        rng.dirichlet([1.0, 1.0, 1.0], (5, 4)),
        classes=["a", "b", "c"],
        names=("x", "y"),
    )
    surface.plot(ax)
    ax.figure.canvas.draw()


def test_training_curves_of_several_fits_are_told_apart(fitted, ax):
    again = SEPClassifier(n_inducing=4, random_state=0, config={"tol": 1e-1}).fit(X, LABELS)
    other = GFITCClassifier(n_inducing=4, tol=1e-1, max_iter=3, random_state=0, optimizer=None)
    display = TrainingCurveDisplay.from_estimators([fitted, again, other.fit(X, LABELS)], ax=ax)
    assert list(display.histories) == ["SEPClassifier 1", "SEPClassifier 2", "GFITCClassifier"]
    _, loss = display.curve("SEPClassifier 1")
    assert loss[-1] == -fitted.history_[-1].leave_one_out
    assert len(ax.get_legend().get_texts()) == 3


def test_relevance_is_sorted_and_cut(fitted, ax):
    display = RelevanceDisplay.from_estimator(fitted, max_features=1, ax=ax)
    top = fitted.relevance_.ranked()[0]
    assert [label.get_text() for label in ax.get_yticklabels()] == [top.name]
    assert ax.patches[0].get_width() == top.value
    assert display.order == [["east", "north"].index(top.name)]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda fit: RelevanceDisplay.from_estimator(fit, feature_names=["a"]), "feature_names has 1"),
        (lambda fit: DecisionBoundaryDisplay.from_estimator(fit, X, features=(0, 2)), "column 2"),
        (lambda fit: DecisionBoundaryDisplay.from_estimator(fit, X, features=(0, 0)), "two different"),
        (lambda fit: InducingPointsDisplay.from_estimator(fit, features=("east", "up")), "'up'"),
        (lambda fit: PartialDependenceDisplay.from_estimator(fit, X, "up"), "feature='up'"),
        (lambda fit: PartialDependenceDisplay.from_estimator(fit, X, [0, 1]), r"feature=\[0, 1\]"),
        (lambda fit: PartialDependenceDisplay.from_estimator(fit, X, 2), "feature=2 .* from 0 to 1"),
        (lambda fit: CalibrationDisplay.from_predictions([0, 1], [0.5, 0.5], n_bins=0), "n_bins=0"),
        (lambda fit: TrainingCurveDisplay.from_estimator(fit, y="loss"), "y='loss'"),
        (lambda fit: TrainingCurveDisplay.from_estimator(fit, x="hours"), "x='hours'"),
        (lambda fit: CalibrationDisplay.from_predictions([0, 1], np.ones((2, 3))), "2 classes"),
        (
            lambda fit: CalibrationDisplay.from_predictions([0, 1], [0.5, 0.5], pos_label=2),
            "pos_label=2",
        ),
    ],
)
def test_bad_arguments_are_named(fitted, call, message):
    with pytest.raises(ValueError, match=message):
        call(fitted)


@pytest.mark.parametrize("model", [SEPClassifier(), TableClassifier()])
def test_what_is_not_fitted_is_called_so(model):
    for draw in (
        lambda: RelevanceDisplay.from_estimator(model),
        lambda: DecisionBoundaryDisplay.from_estimator(model, X),
        lambda: InducingPointsDisplay.from_estimator(model, X),
        lambda: PartialDependenceDisplay.from_estimator(model, X, 0),
        lambda: TrainingCurveDisplay.from_estimator(model),
        lambda: CalibrationDisplay.from_estimator(model, X, Y),
    ):
        with pytest.raises(NotFittedError, match="is not fitted yet"):
            draw()


def test_without_matplotlib_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"cavity\[plot\]"):
        TrainingCurveDisplay({}, y="objective", x="seconds").plot()
