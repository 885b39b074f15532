import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

from cavity import SEPClassifier
from cavity.plot.canvas import latent_draws, log_proba_at
from cavity.plot.columns import grid_of
from cavity.plot.features import partial_effect


@pytest.fixture(scope="module")
def fitted():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3)) * [1.0, 10.0, 1.0]
    y = X[:, 0] + 0.1 * X[:, 1] + 0.3 * rng.normal(size=300) > 0
    kernel = ConstantKernel(2.0) * RBF([1.0] * 3) + WhiteKernel(0.5, "fixed")
    return SEPClassifier(kernel, n_inducing=20, random_state=0, config={"tol": 1e-2}).fit(X, y), X


def test_the_curve_is_the_mean_prediction(fitted):
    model, X = fitted
    effect = partial_effect(model, X, 1, n_rows=len(X), n_grid=5, n_draws=2)
    moved = X.copy()
    moved[:, 1] = effect.grid[3]
    np.testing.assert_allclose(effect.probability[3], model.predict_proba(moved).mean(axis=0), atol=1e-6)


def test_the_band_is_that_of_functions_drawn_by_the_estimator(fitted):
    """Against `sample_latent` and the probit written out, with the noise of the kernel in it."""
    from scipy.special import ndtr

    model, X = fitted
    effect = partial_effect(model, X, 0, n_rows=10, n_grid=4, n_draws=4_000, seed=3)
    rows = X[np.sort(np.random.default_rng(3).choice(len(X), 10, replace=False))]
    inputs = np.tile(rows, (4, 1))
    inputs[:, 0] = np.repeat(effect.grid, 10)
    f = model.sample_latent(inputs, 4_000, random_state=1)
    averages = ndtr(f / np.sqrt(1.0 + 0.5)).reshape(4, 10, -1).mean(axis=1)
    low, high = np.quantile(averages, [0.05, 0.95], axis=1)
    np.testing.assert_allclose(effect.low[:, 1], low, atol=0.015)
    np.testing.assert_allclose(effect.high[:, 1], high, atol=0.015)


def test_draws_have_the_moments_of_the_posterior(fitted):
    model, X = fitted
    draws, noise = latent_draws(model, X[:6], 20_000, np.random.default_rng(0))
    mean, variance = model.latent_mean_and_variance(X[:6])
    np.testing.assert_allclose(draws[0].mean(axis=1), mean, atol=0.05)
    np.testing.assert_allclose(draws[0].var(axis=1) + noise[0], variance, rtol=0.05)
    np.testing.assert_allclose(noise, 0.5 * model.inverse_temperature_**2, rtol=1e-6)


def test_predictions_need_no_names_of_columns(fitted):
    model, X = fitted
    np.testing.assert_allclose(log_proba_at(model, X), model.predict_log_proba(X))


@pytest.mark.parametrize("level", [0.5, 0.95])
def test_the_curve_lies_in_its_band_and_wide_bands_hold_narrow_ones(fitted, level):
    model, X = fitted
    effect = partial_effect(model, X, 1, n_rows=8, n_grid=6, level=level)
    assert (effect.low <= effect.high).all()
    assert (effect.low - 0.02 <= effect.probability).all()
    assert (effect.probability <= effect.high + 0.02).all()
    wider = partial_effect(model, X, 1, n_rows=8, n_grid=6, level=0.99)
    assert (wider.high - wider.low >= effect.high - effect.low - 1e-12).all()


def test_grids():
    assert grid_of(np.array([2.0, 2.0]), 5).tolist() == [2.0]
    even = grid_of(np.arange(1000.0), 5)
    np.testing.assert_allclose(np.diff(even), np.diff(even)[0])
    mostly_zero = np.concatenate([np.zeros(990), np.linspace(1, 2, 10)])
    assert grid_of(mostly_zero, 5).tolist() == [0.0, 2.0]
