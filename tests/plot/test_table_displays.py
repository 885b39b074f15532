"""All displays on a table classifier and a data frame."""

import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot

from cavity import SEPClassifier, TableClassifier
from cavity.plot import (
    CalibrationDisplay,
    DecisionBoundaryDisplay,
    InducingPointsDisplay,
    PartialDependenceDisplay,
    RelevanceDisplay,
    TrainingCurveDisplay,
)
from cavity.plot.features import partial_effect
from flights_table import flights

FRAME = flights(300)


@pytest.fixture(scope="module")
def model():
    classifier = SEPClassifier(n_inducing=8, random_state=0, config={"tol": 1e-2})
    return TableClassifier(classifier).fit(FRAME, "delayed")


@pytest.fixture
def ax():
    figure, ax = pyplot.subplots()
    yield ax
    pyplot.close(figure)


DRAWN = {
    "boundary": lambda fit, ax: DecisionBoundaryDisplay.from_estimator(
        fit, FRAME, "delayed", features=("hour", "distance"), grid_resolution=15, ax=ax
    ),
    "inducing points": lambda fit, ax: InducingPointsDisplay.from_estimator(
        fit, FRAME, "delayed", ax=ax
    ),
    "points alone": lambda fit, ax: InducingPointsDisplay.from_estimator(fit, ax=ax),
    "calibration": lambda fit, ax: CalibrationDisplay.from_estimator(fit, FRAME, "delayed", ax=ax),
    "relevance": lambda fit, ax: RelevanceDisplay.from_estimator(fit, ax=ax),
    "training curve": lambda fit, ax: TrainingCurveDisplay.from_estimator(fit, ax=ax),
    **{
        column: lambda fit, ax, column=column: PartialDependenceDisplay.from_estimator(
            fit, FRAME, column, n_rows=5, n_draws=10, ax=ax
        )
        for column in ("hour", "carrier", "date", "weekend")
    },
}


@pytest.mark.parametrize("draw", DRAWN.values(), ids=DRAWN)
def test_a_display_draws(draw, model, ax):
    display = draw(model, ax)
    assert display.ax_ is ax
    assert ax.get_xlabel()
    ax.figure.canvas.draw()


@pytest.mark.parametrize(
    ("column", "value", "at"), [("carrier", "DL", 1), ("carrier", None, 3), ("weekend", True, 1)]
)
def test_partial_dependence_is_the_mean_prediction_with_the_column_changed(model, column, value, at):
    j = model.columns_.index(column)
    effect = partial_effect(model, FRAME, j, n_rows=300, n_draws=30)
    changed = FRAME.assign(**{column: pd.Series([value] * 300, dtype=FRAME[column].dtype)})
    np.testing.assert_allclose(
        effect.probability[at], model.predict_proba(changed).mean(axis=0), rtol=1e-5
    )
    assert effect.n_rows == 300
    assert (effect.low <= effect.probability + 1e-9).all()
    assert (effect.probability <= effect.high + 1e-9).all()


def test_dates_and_numbers_have_axes_of_their_own(model):
    names = model.columns_
    seen = partial_effect(model, FRAME[:20], names.index("date"), n_rows=20, n_grid=5, n_draws=5)
    assert seen.grid.dtype.kind == "M"
    changed = FRAME[:20].assign(date=pd.Timestamp(seen.grid[2]))
    np.testing.assert_allclose(seen.probability[2], model.predict_proba(changed).mean(axis=0), rtol=1e-4)
    hours = partial_effect(model, FRAME, names.index("hour"), n_rows=20, n_grid=5, n_draws=5)
    assert np.isfinite(hours.grid).all()


def test_categories_are_named_on_their_axis(model, ax):
    PartialDependenceDisplay.from_estimator(model, FRAME, "carrier", n_rows=5, n_draws=5, ax=ax)
    assert [text.get_text() for text in ax.get_xticklabels()] == ["AA", "DL", "UA", "(missing)"]


def test_a_column_that_is_missing_in_all_rows_has_no_effect(model):
    for column, nothing in (("hour", np.nan), ("date", pd.NaT)):
        with pytest.raises(ValueError, match=f"'{column}' is missing in all rows of X"):
            PartialDependenceDisplay.from_estimator(model, FRAME.assign(**{column: nothing}), column)
    with pytest.raises(ValueError, match="features has 'hour', which is missing in all rows of X"):
        DecisionBoundaryDisplay.from_estimator(
            model, FRAME.assign(hour=np.nan), features=("hour", "distance")
        )


def test_relevance_is_that_of_columns(model, ax):
    RelevanceDisplay.from_estimator(model, ax=ax)
    assert {text.get_text() for text in ax.get_yticklabels()} == set(model.columns_)


def test_the_plane_is_what_the_model_predicts(model, ax):
    display = DecisionBoundaryDisplay.from_estimator(
        model, FRAME, features=("distance", "hour"), grid_resolution=4, ax=ax
    )
    row = {name: [FRAME[name].mode()[0]] for name in ("carrier", "weekend")}
    row |= {
        "distance": [display.x[1]],
        "hour": [display.y[2]],
        "date": [FRAME["date"].sort_values().iloc[150]],
    }
    np.testing.assert_allclose(display.probability[2, 1], model.predict_proba(row)[0], rtol=1e-4)
    assert np.ptp(display.points[:, 0]) > 100  # in the units of the column


def test_other_columns_than_numbers_have_no_plane(model, ax):
    with pytest.raises(ValueError, match=r"'carrier', which is categorical.*'hour', 'distance'"):
        DecisionBoundaryDisplay.from_estimator(model, FRAME, features=("hour", "carrier"), ax=ax)
    with pytest.raises(ValueError, match="feature='gate' is not one of"):
        PartialDependenceDisplay.from_estimator(model, FRAME, "gate", ax=ax)


def test_rows_without_a_label_do_not_count_for_calibration(model, ax):
    whole = CalibrationDisplay.from_estimator(model, FRAME, "delayed", ax=ax)
    frame = pd.concat([FRAME, flights(30, seed=3).assign(delayed=None)])
    assert CalibrationDisplay.from_estimator(model, frame, "delayed", ax=ax).bins.count.sum() == 300
    assert whole.bins.count.sum() == 300


def test_blanks_at_the_ends_of_labels_do_not_count_for_calibration(model, ax):
    whole = CalibrationDisplay.from_estimator(model, FRAME, "delayed", ax=ax)
    padded = FRAME.assign(delayed=FRAME["delayed"] + " ")
    for X, y in ((padded, "delayed"), (FRAME, padded["delayed"])):
        other = CalibrationDisplay.from_estimator(model, X, y, ax=ax)
        assert np.array_equal(other.bins.frequency, whole.bins.frequency)


def test_numbers_and_dates_in_text_have_the_effects_of_what_they_mean():
    def as_people_write(frame):
        hours = frame["hour"].map("{:.2f}".format).str.replace(".", ",").replace("nan", "n/a")
        return frame.assign(hour=hours, date=frame["date"].dt.strftime("%d.%m.%Y"))

    small = SEPClassifier(n_inducing=8, random_state=0, config={"tol": 1e-2})
    plain, text = (TableClassifier(small).fit(f, "delayed") for f in (FRAME, as_people_write(FRAME)))
    for column in ("hour", "date"):
        position = plain.columns_.index(column)
        wanted, found = (
            partial_effect(fit, frame, position, n_rows=5, n_draws=10)
            for fit, frame in ((plain, FRAME), (text, as_people_write(FRAME)))
        )
        assert (found.grid == wanted.grid).all()
        assert np.allclose(found.probability, wanted.probability, atol=1e-6)
