"""The default classifier is sane on whatever table it is given: never much worse than a linear model."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.preprocessing import StandardScaler

from cavity import SEPClassifier

N_STAR = 3_000
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def one_feature(rng, n):
    X = rng.normal(size=(n, 1))
    return X, 1.5 * X[:, 0]


def ten_features(rng, n):
    X = rng.normal(size=(n, 10))
    return X, X[:, 0] + np.sin(2 * X[:, 1]) + 0.5 * X[:, 2]


def thousand_features(rng, n):
    X = rng.normal(size=(n, 1_000)) * 0.3 + rng.normal(size=(n, 1))
    return X, 1.5 * X.mean(axis=1)


def one_hots(rng, n):
    effects = 1.2 * np.random.default_rng(0).normal(size=40)
    popular = np.random.default_rng(1).dirichlet(0.3 * np.ones(40))
    category = rng.choice(40, size=n, p=popular)
    return np.column_stack([np.eye(40)[category], rng.normal(size=n)]), effects[category]


def lognormal_columns(rng, n):
    X = np.exp(2.0 * rng.normal(size=(n, 3)))
    return X, np.log(X[:, 0]) - 0.5 * np.log(X[:, 1])


def cauchy_columns(rng, n):
    X = rng.standard_cauchy(size=(n, 3))
    return X, 2.0 * np.tanh(X[:, 0])


def rare_pixels(rng, n):
    lit = rng.random((n, 60)) < np.linspace(0.002, 0.4, 60)
    X = lit * rng.integers(1, 256, size=(n, 60))
    return X.astype(np.uint8), X[:, 30:].sum(axis=1) / 300.0 - 3.3


def one_percent(rng, n):
    X = rng.normal(size=(n, 4))
    return X, X[:, 0] + 0.5 * X[:, 1] - 4.9


MAKERS = [
    one_feature,
    ten_features,
    thousand_features,
    one_hots,
    lognormal_columns,
    cauchy_columns,
    rare_pixels,
    one_percent,
]


ROWS = {one_percent: 1_800, thousand_features: 300}
"""Where 600 are too few, or take too long."""


def make(maker, seed, n):
    rng = np.random.default_rng(seed)
    X, score = maker(rng, n)
    return X, rng.random(n) < 1.0 / (1.0 + np.exp(-score))


def nll_and_yardstick(model, maker, n):
    """Test NLL of a model and of logistic regression, both fitted to n rows."""
    X, y = make(maker, 1, n)
    X_star, y_star = make(maker, 2, N_STAR)
    scaler = StandardScaler().fit(X)
    linear = LogisticRegression(max_iter=1_000).fit(scaler.transform(X), y)
    yardstick = log_loss(y_star, linear.predict_proba(scaler.transform(X_star)))
    return log_loss(y_star, model.fit(X, y).predict_proba(X_star)), yardstick


@pytest.mark.parametrize("maker", MAKERS, ids=lambda maker: maker.__name__)
def test_never_much_worse_than_a_linear_model(maker):
    model = SEPClassifier(random_state=0, n_jobs=1)
    nll, yardstick = nll_and_yardstick(model, maker, ROWS.get(maker, 600))
    assert nll < yardstick + 0.01, f"{nll:.4f} against {yardstick:.4f}"


@pytest.mark.parametrize("maker", MAKERS, ids=lambda maker: maker.__name__)
def test_nor_on_minibatches(maker):
    """What larger tables get, in fewer steps and with fewer points."""
    n = 1_000 if maker is thousand_features else 3_000
    model = SEPClassifier(n_inducing=50, batch_size=200, max_epochs=60_000 / n, random_state=0, n_jobs=1)
    nll, yardstick = nll_and_yardstick(model, maker, n)
    assert nll < yardstick + 0.01, f"{nll:.4f} against {yardstick:.4f}"
    if maker in (ten_features, lognormal_columns, cauchy_columns):
        assert nll < yardstick - 0.02  # there is more to learn than a straight line


@pytest.mark.parametrize("maker", [one_hots, cauchy_columns, one_percent], ids=lambda m: m.__name__)
def test_nor_with_as_many_points_as_it_takes(maker):
    model = SEPClassifier(n_inducing="auto", random_state=0, n_jobs=1)
    nll, yardstick = nll_and_yardstick(model, maker, ROWS.get(maker, 600))
    assert nll < yardstick + 0.01, f"{nll:.4f} against {yardstick:.4f}"
