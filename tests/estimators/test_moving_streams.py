"""Streams of rows from a known function: in any order they end where a fit on all rows would."""

import numpy as np
import pytest
from scipy.stats import norm

from cavity import SEPClassifier, SVIClassifier
from support import make

both = pytest.mark.parametrize("kind", [SEPClassifier, SVIClassifier])


def draw(n, seed=1):
    """Rows [n, 2], labels [n] and the values [n] of a function from a Gaussian process."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2.0, 2.0, (n, 2))
    frequencies, phases = rng.standard_normal((2, 1000)) / 0.7, rng.uniform(0.0, 2 * np.pi, 1000)
    f = 2.0 * np.sqrt(2 / 1000) * np.cos(X @ frequencies + phases) @ rng.standard_normal(1000)
    return X, (rng.uniform(size=n) < norm.cdf(f)).astype(int), f


X, LABELS, F = draw(4000)
TRAIN, TEST = slice(0, 3000), slice(3000, None)
SORTED = np.argsort(X[TRAIN, 0])


def stream(model, rows, size=500):
    for part in np.split(rows, len(rows) // size):
        model.partial_fit(X[part], LABELS[part], classes=[0, 1])
    return model


def classifier(kind, **options):
    """The kernel is of the kind that the function was drawn from."""
    options = {"kernel_name": "rbf", "scaling": "standard", **options}
    return make(kind, n_inducing=40, random_state=0, n_jobs=1, **options)


def nll_of(proba):
    return -np.log(proba[np.arange(1000), LABELS[TEST]]).mean()


TRUTH = np.c_[norm.cdf(-F[TEST]), norm.cdf(F[TEST])]


@both
@pytest.mark.parametrize("rows", [SORTED, np.arange(3000)], ids=["sorted", "shuffled"])
def test_the_end_is_close_to_the_best_possible_and_intervals_cover_the_function(kind, rows):
    """The rows that a sorted stream begins with say nothing about most of the function."""
    assert_close_to_the_truth(stream(classifier(kind), rows), worse=0.1, least_covered=0.85)


@both
def test_a_sorted_stream_ends_well_by_default(kind):
    """The default kernel is rougher than the function."""
    model = stream(kind(n_inducing=40, random_state=0, n_jobs=1), SORTED)
    assert "Matern" in str(model.kernel_)
    assert_close_to_the_truth(model, worse=0.15, least_covered=0.8)


def assert_close_to_the_truth(model, worse, least_covered):
    proba = model.predict_proba(X[TEST])
    assert nll_of(proba) < (1.0 + worse) * nll_of(TRUTH)
    best = (TRUTH.argmax(axis=1) == LABELS[TEST]).mean()
    assert (proba.argmax(axis=1) == LABELS[TEST]).mean() > best - 0.02
    mean, variance = (np.ravel(a) for a in model.latent_mean_and_variance(X[TEST]))
    covered = np.abs(F[TEST] - mean) < 1.96 * np.sqrt(variance)
    assert least_covered < covered.mean() < 1.0
    assert model.ood_score(X[TEST]).mean() < 0.2


def test_points_that_are_held_do_not_follow():
    model = stream(classifier(SEPClassifier, learn_inducing=False), SORTED)
    assert model.inducing_points_[:, 0].max() < -1.0


def test_points_of_the_user_keep_their_number():
    given = X[SORTED[:300:15]]
    model = stream(classifier(SEPClassifier, inducing_points=given), SORTED)
    assert model.inducing_points_.shape == (20, 2)
    assert model.inducing_points_[:, 0].max() > 1.0
