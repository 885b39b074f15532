"""Pipelines of simple preprocessing inside the graph."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from onnx_serving import run
from sklearn.gaussian_process.kernels import RBF
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    MaxAbsScaler,
    MinMaxScaler,
    PolynomialFeatures,
    StandardScaler,
)

from cavity import SEPClassifier
from cavity.export.onnx import to_onnx
from support import table

X, LABELS = table(80, d=3)
X = 5.0 + 3.0 * X
HOLES = np.where(np.random.default_rng(0).random(X.shape) < 0.2, np.nan, X)
HOLES[:, 1] = X[:, 1]


def pipeline(*steps):
    fit = SEPClassifier(RBF(1.5), optimizer=None, n_inducing=12, n_jobs=1, random_state=0)
    return make_pipeline(*steps, fit)


def assert_served(fit, rows):
    served = run(to_onnx(fit, input_dtype="float64"), rows, dtype=np.float64)
    assert_allclose(served["probabilities"], fit.predict_proba(rows), atol=1e-9)
    single = run(to_onnx(fit), rows)
    # Half of the rounding of float32 rows, not of the graph.
    assert_allclose(single["probabilities"], fit.predict_proba(rows), atol=1e-5)


@pytest.mark.parametrize(
    "steps",
    [
        [StandardScaler()],
        [StandardScaler(with_mean=False)],
        [StandardScaler(with_std=False)],
        [MinMaxScaler()],
        [MinMaxScaler((-1, 2), clip=True)],
        [MaxAbsScaler()],
        ["passthrough", StandardScaler(), MinMaxScaler()],
    ],
    ids=str,
)
def test_scalers(steps):
    fit = pipeline(*steps).fit(X, LABELS)
    assert_served(fit, np.vstack([X, 2.0 * X - 7.0]))


@pytest.mark.parametrize("strategy", ["mean", "median", "most_frequent", "constant"])
@pytest.mark.parametrize("indicator", [False, True])
def test_imputers(strategy, indicator):
    fit = pipeline(SimpleImputer(strategy=strategy, add_indicator=indicator), StandardScaler())
    assert_served(fit.fit(HOLES, LABELS), HOLES)


def test_an_imputer_of_a_marker_and_of_an_empty_column():
    marked = np.where(np.isnan(HOLES), -1.0, HOLES)
    assert_served(pipeline(SimpleImputer(missing_values=-1)).fit(marked, LABELS), marked)
    empty = np.column_stack([HOLES, np.full(len(X), np.nan)])
    fit = pipeline(SimpleImputer())
    with pytest.warns(UserWarning, match="Skipping features"):
        fit.fit(empty, LABELS)
    served = run(to_onnx(fit), empty)["probabilities"]
    with pytest.warns(UserWarning, match="Skipping features"):
        assert_allclose(served, fit.predict_proba(empty), atol=1e-5)


def test_other_steps_are_refused_by_name():
    fit = pipeline(PolynomialFeatures()).fit(X, LABELS)
    with pytest.raises(TypeError, match="'PolynomialFeatures' has no ONNX form"):
        to_onnx(fit)
