"""Intervals of the latent function contain the true one about as often as they say."""

import numpy as np
import pytest
from scipy.special import ndtr

from cavity import SEPClassifier

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
]
N_STAR = 2_000


def known_function(seed, n, lengthscale=1.0, variance=4.0, frequencies=1_000):
    """Rows, labels and true latent values of a draw from a Gaussian process over two inputs."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n + N_STAR, 2))
    phase = X @ rng.normal(size=(2, frequencies)) / lengthscale
    cosines, sines = rng.normal(size=(2, frequencies)) * np.sqrt(variance / frequencies)
    f = np.cos(phase) @ cosines + np.sin(phase) @ sines
    return X, (rng.uniform(size=len(f)) < ndtr(f)).astype(int), f


# Few rows are not calibrated, which the sharp model needs.
@pytest.mark.parametrize(
    ("model", "n"), [("chosen", 800), ("chosen", 4_000), ("safe", 4_000), ("sharp", 4_000)]
)
def test_intervals_cover_a_known_function(model, n):
    """The median over three functions; the race's choice, and each of the two models."""
    scale = {"safe": 1.0, "sharp": 0.0}.get(model)
    config = None if scale is None else {"residual_scale": scale, "trace_penalty": scale}
    covered, slopes = [], []
    for seed in range(3):
        X, y, f = known_function(seed, n)
        fit = SEPClassifier(max_epochs=120, config=config, n_inducing=100, random_state=0, n_jobs=1)
        fit.fit(X[:n], y[:n])
        mean, variance = (np.ravel(part) for part in fit.latent_mean_and_variance(X[n:]))
        covered.append(np.mean(np.abs(f[n:] - mean) < 1.96 * np.sqrt(variance)))
        slopes.append(np.polyfit(mean, f[n:], 1)[0])
    assert 0.90 < np.median(covered) < 0.99
    assert 0.9 < np.median(slopes) < 1.1
