"""What a stream remembers: every row alike, or about as many as `window_size` says."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.special import ndtr
from sklearn.datasets import make_moons

from cavity import SEPClassifier, SVIClassifier
from support import make

both = pytest.mark.parametrize("kind", [SEPClassifier, SVIClassifier])
X, LABELS = make_moons(9_000, noise=0.3, random_state=2)
X_STAR, LABELS_STAR = make_moons(1_000, noise=0.3, random_state=1)


def classifier(kind=SEPClassifier, **options):
    options = {"n_inducing": 15, "batch_size": None, "tol": 1e-2, "validation_fraction": None, **options}
    return make(kind, random_state=0, n_jobs=1, **options)


def stream(model, X, labels, size=300):
    for i in range(0, len(X), size):
        model.partial_fit(X[i : i + size], labels[i : i + size], classes=[0, 1])
    return model


def started(model, start):
    """After 9,000 rows."""
    return model.fit(X, LABELS) if start == "fit" else stream(model, X, LABELS)


def nll(model, X, labels):
    return -model.predict_log_proba(X)[np.arange(len(labels)), labels].mean()


def side(n, sign, seed):
    """Rows on one side of x = 0 only, whose labels have something to tell there."""
    rng = np.random.default_rng(seed)
    X = np.c_[sign * rng.uniform(0, 4, n), rng.normal(size=n)]
    return X, (rng.random(n) < ndtr(3 * np.sin(2 * X[:, 0]) + 1.5 * X[:, 1])).astype(int)


@both
def test_without_a_memory_a_region_is_not_forgotten_because_no_rows_come_from_it(kind):
    """3,000 rows with x < 0, then 6,000 with x > 0. A window of 1,500 ends at 0.30 and 0.91."""
    left, right = side(3_000, -1, 0), side(6_000, 1, 1)
    X_left, labels_left = side(2_000, -1, 2)
    model = stream(classifier(kind), *left)
    before = nll(model, X_left, labels_left)
    stream(model, *right)
    assert nll(model, X_left, labels_left) < before + 0.05


@both
@pytest.mark.parametrize("start", ["stream", "fit"])
def test_without_a_memory_many_rows_are_not_outvoted_by_few(kind, start):
    """9,000 rows, then 500 with labels flipped."""
    model = started(classifier(kind), start)
    stream(model, X[:500], 1 - LABELS[:500])
    assert model.score(X_STAR, LABELS_STAR) > 0.8


def test_rows_of_a_model_without_the_residual_are_not_outvoted_by_few_either():
    """Its few inducing points leave much of the variance at all rows, which must not move them."""
    sharp = {"residual_scale": 0.0, "trace_penalty": 0.0, "batch_size": 1_000, "max_epochs": 60}
    model = classifier(**sharp).fit(X, LABELS)
    before = model.inducing_points_
    stream(model, X[:500], 1 - LABELS[:500])
    assert model.score(X_STAR, LABELS_STAR) > 0.8
    assert_allclose(model.inducing_points_, before)


@pytest.mark.parametrize("start", ["stream", "fit", "forgetful stream"])
@both
def test_a_memory_holds_whatever_came_before_it(kind, start):
    """Labels flip after 9,000 rows: twice the memory later, hardly anything is left of them."""
    model = classifier(kind, window_size=500 if start == "forgetful stream" else None)
    started(model, start).set_params(window_size=500)
    stream(model, X[:1_000], 1 - LABELS[:1_000])
    assert model.score(X_STAR, 1 - LABELS_STAR) > 0.85
