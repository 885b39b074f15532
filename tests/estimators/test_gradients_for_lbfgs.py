"""What L-BFGS gets from the estimators that use it: a value and its slope, entry by entry."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from cavity import GFITCClassifier, SVIClassifier
from cavity.inference import lbfgs as gradient_vi
from cavity.inference import lbfgs as outer
from reference import central_differences
from support import table

X, TWO = table(30)
THREE = np.digitize(X[:, 0] + 0.5 * X[:, 1] ** 2, [-0.3, 0.7])
WEIGHTS = np.random.default_rng(0).uniform(1.0, 3.0, len(X))
FITS = {
    "svi": (gradient_vi, SVIClassifier(batch_size=None, config={"posterior_update": "gradient"})),
    "gfitc": (outer, GFITCClassifier()),
}
MODELS = {"probit": ("probit", TWO), "logit": ("logit", TWO), "three classes": ("probit", THREE)}


class EndOfTestError(Exception):
    """The fit need not go on."""


@pytest.mark.parametrize(("schedule", "estimator"), FITS.values(), ids=FITS)
@pytest.mark.parametrize(("likelihood", "labels"), MODELS.values(), ids=MODELS)
@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["plain", "weighted"])
def test_it_is_the_slope_of_the_value(monkeypatch, schedule, estimator, likelihood, labels, weights):
    """With the default hyper-prior, away from its centre, and q away from where it starts."""
    assert len(np.unique(labels)) in (2, 3)
    monkeypatch.setattr(outer, "_EP_TOL", 1e-11)
    found = {}

    def compare(evaluate, start, bounds, *_, **__):
        at = start + 0.3 * np.random.default_rng(1).standard_normal(len(start))
        assert (bounds[:, 0] < at).all()
        assert (at < bounds[:, 1]).all()
        found["slope"] = evaluate(at).gradient
        found["differences"] = central_differences(lambda x: evaluate(x).info.objective, at)
        raise EndOfTestError

    monkeypatch.setattr(schedule, "maximize", compare)
    estimator.set_params(likelihood=likelihood, n_inducing=4, random_state=0, n_jobs=1)
    with pytest.raises(EndOfTestError):
        estimator.fit(X, labels, sample_weight=weights)
    largest = np.abs(found["differences"]).max()
    assert largest > 1.0
    assert_allclose(found["slope"], found["differences"], atol=1e-5 * largest)
