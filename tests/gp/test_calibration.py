"""Calibration by two numbers, fitted to rows that were held out."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from cavity.errors import NumericalError
from cavity.gp import calibration
from cavity.gp.calibration import (
    SMALLEST_CENTRE,
    Calibration,
    LatentParts,
    PenalisedLogLoss,
    cross_fitted_log_loss,
    fit_calibration,
)
from cavity.gp.likelihoods import Logit, NoisyArgmax, Probit

LIKELIHOODS = [Probit(), Logit(), NoisyArgmax(4)]


def drawn(likelihood, n, truth=(1.0, 1.0), seed=0, residual=2.0):
    """Parts of n rows, and labels of which a prediction with the true numbers is right."""
    rng = np.random.default_rng(seed)
    shape = likelihood.n_latents, n
    parts = LatentParts(
        1.5 * rng.normal(size=shape), 0.5 * rng.gamma(2.0, 0.5, shape), residual * rng.gamma(1.0, 1.0, n)
    )
    mean, variance = Calibration(*truth).moments(parts)
    p = likelihood.proba_given_latents(mean + np.sqrt(variance) * rng.normal(size=shape))
    labels = (rng.random(n) > p.cumsum(axis=0)).sum(axis=0)
    return parts, np.minimum(labels, len(p) - 1)


def objective_of(likelihood, parts, labels, weight=None, residual_scale=1.0):
    w = np.ones(len(labels)) if weight is None else weight
    return PenalisedLogLoss(likelihood, parts, labels, w, residual_scale)


def logs(found):
    return np.log([found.inverse_temperature, found.residual_variance_scale])


def deviations(objective, x, n, step=1e-3):
    """Posterior standard deviations of (log c, log b) at x."""
    by_x = [(objective(x + d)[1] - objective(x - d)[1]) / (2 * step) for d in step * np.eye(2)]
    return np.sqrt(np.diagonal(np.linalg.inv(n * np.array(by_x))))


@pytest.mark.parametrize("likelihood", LIKELIHOODS)
@pytest.mark.parametrize("x", [(0.0, 0.0), (0.7, -3.0), (-1.0, 1.5)])
def test_the_gradient_is_that_of_the_objective(likelihood, x):
    parts, labels = drawn(likelihood, 40)
    weight = np.random.default_rng(1).random(40) + 0.5
    objective = objective_of(likelihood, parts, labels, weight, residual_scale=0.3)
    step = 1e-5
    found = [(objective(x + d)[0] - objective(x - d)[0]) / (2 * step) for d in step * np.eye(2)]
    assert_allclose(objective(np.array(x))[1], found, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_the_objective_is_the_mean_log_loss_and_the_prior(likelihood):
    parts, labels = drawn(likelihood, 30)
    mean, variance = Calibration(1.5, 0.2).moments(parts)
    log_proba = likelihood.predict_log_proba(mean, variance)[np.arange(30), labels]
    penalty = 0.5 * (np.log(1.5) / 0.5) ** 2 + 0.5 * np.log(0.2 / 0.1) ** 2
    objective = objective_of(likelihood, parts, labels, residual_scale=0.1)
    value, _ = objective(np.log([1.5, 0.2]))
    assert value == pytest.approx((penalty - log_proba.sum()) / 30, rel=1e-5)


@pytest.mark.parametrize("likelihood", LIKELIHOODS)
@pytest.mark.parametrize(
    ("truth", "residual_scale", "residual"), [((1.0, 1.0), 1.0, 2.0), ((1.3, 0.05), 0.0, 20.0)]
)
def test_the_numbers_that_made_the_labels_are_found(likelihood, truth, residual_scale, residual):
    n = 4_000 if likelihood.n_latents == 1 else 2_000
    parts, labels = drawn(likelihood, n, truth, seed=3, residual=residual)
    found = logs(fit_calibration(likelihood, parts, labels, None, residual_scale))
    objective = objective_of(likelihood, parts, labels, None, residual_scale)
    error = deviations(objective, found, n)
    assert error[0] < 0.15
    assert (np.abs(found - np.log(truth)) < 3.0 * error).all()


@pytest.mark.parametrize("likelihood", LIKELIHOODS)
@pytest.mark.parametrize("residual_scale", [0.0, 0.1, 1.0])
def test_no_other_numbers_are_better(likelihood, residual_scale):
    parts, labels = drawn(likelihood, 150, (2.0, 0.3), seed=1)
    found = logs(fit_calibration(likelihood, parts, labels, None, residual_scale))
    objective = objective_of(likelihood, parts, labels, None, residual_scale)
    assert np.abs(objective(found)[1]).max() < 1e-9
    grid = np.stack(np.meshgrid(np.linspace(-2, 2, 7), np.linspace(-6, 3, 7))).reshape(2, -1).T
    assert objective(found)[0] <= min(objective(x)[0] for x in [objective.centre, *grid])


@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_a_weight_is_a_number_of_copies(likelihood):
    parts, labels = drawn(likelihood, 60)
    weight = np.arange(60) % 3
    copies = np.repeat(np.arange(60), weight)
    weighted = fit_calibration(likelihood, parts, labels, weight.astype(float))
    copied = fit_calibration(likelihood, parts.of(copies), labels[copies])
    assert_allclose(logs(weighted), logs(copied), atol=1e-8)


@pytest.mark.parametrize("likelihood", LIKELIHOODS)
@pytest.mark.parametrize("residual_scale", [0.0, 1.0])
@pytest.mark.parametrize("size", [1e-6, 1.0, 1e3])
def test_rows_without_a_mistake_give_finite_numbers(likelihood, residual_scale, size):
    parts, labels = drawn(likelihood, 200)
    mean = size * np.abs(parts.mean)
    if likelihood.n_latents == 1:
        mean = mean * np.where(labels == 1, 1.0, -1.0)
    else:
        mean[labels, np.arange(200)] += 10.0 * size * (1.0 + mean.max())
    found = fit_calibration(likelihood, parts._replace(mean=mean), labels, None, residual_scale)
    assert np.isfinite(logs(found)).all()
    assert 1e-3 < found.inverse_temperature < 1e3
    assert 0.0 < found.residual_variance_scale < 1e6


@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_without_rows_the_prior_decides(likelihood):
    none = np.zeros((likelihood.n_latents, 0))
    labels = np.zeros(0, dtype=int)
    for residual_scale in (1.0, 0.0):
        found = fit_calibration(
            likelihood, LatentParts(none, none, none[0]), labels, None, residual_scale
        )
        assert_allclose(logs(found), np.log([1.0, residual_scale or SMALLEST_CENTRE]), atol=1e-12)


def test_numbers_that_are_not_finite_are_named():
    parts, labels = drawn(Probit(), 10)
    with pytest.raises(NumericalError, match="log probabilities of held-out labels are not finite"):
        fit_calibration(Probit(), parts._replace(mean=np.full((1, 10), np.nan)), labels)


def test_the_rows_of_a_fit_are_evenly_spaced(monkeypatch):
    parts, labels = drawn(NoisyArgmax(4), 300)
    chosen = np.linspace(0, 299, 100).round().astype(int)
    expected = fit_calibration(NoisyArgmax(4), parts.of(chosen), labels[chosen])
    assert fit_calibration(NoisyArgmax(4), parts, labels) != expected
    monkeypatch.setattr(calibration, "MOST_VALUES", 400)
    monkeypatch.setattr(calibration, "FEWEST_ROWS", 50)
    assert fit_calibration(NoisyArgmax(4), parts, labels) == expected


@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_no_row_is_scored_by_numbers_that_it_has_chosen(likelihood):
    parts, labels = drawn(likelihood, 81, (2.0, 0.2))
    weight = np.random.default_rng(1).random(81) + 0.5
    loss = np.empty(81)
    for first in (0, 1):
        fitted, scored = np.arange(first, 81, 2), np.arange(1 - first, 81, 2)
        numbers = fit_calibration(likelihood, parts.of(fitted), labels[fitted], weight[fitted], 0.3)
        moments = numbers.moments(parts.of(scored))
        loss[scored] = -likelihood.log_predictive(labels[scored], *moments)
    mean, error = cross_fitted_log_loss(likelihood, parts, labels, weight, 0.3)
    assert mean == pytest.approx(np.average(loss, weights=weight), rel=1e-12)
    variance = np.average((loss - mean) ** 2, weights=weight)
    assert error == pytest.approx(np.sqrt(variance / weight.sum()), rel=1e-12)


def test_the_score_of_copies_is_that_of_weights():
    parts, labels = drawn(Probit(), 80)
    twice = np.tile(np.arange(80), 2)  # copies keep their parity
    weighted = cross_fitted_log_loss(Probit(), parts, labels, np.full(80, 2.0))
    copied = cross_fitted_log_loss(Probit(), parts.of(twice), labels[twice])
    assert_allclose(weighted, copied, rtol=1e-8)


def test_the_score_is_that_of_new_rows():
    (parts, labels), (others, truth) = (drawn(Probit(), 2_000, (1.3, 0.3), seed) for seed in (0, 1))
    mean, error = cross_fitted_log_loss(Probit(), parts, labels)
    numbers = fit_calibration(Probit(), parts, labels)
    new = -Probit().log_predictive(truth, *numbers.moments(others)).mean()
    assert abs(mean - new) < 3.0 * np.sqrt(2.0) * error


def test_rows_without_weight_cannot_be_scored():
    parts, labels = drawn(Probit(), 10)
    with pytest.raises(ValueError, match="no held-out rows of positive weight"):
        cross_fitted_log_loss(Probit(), parts, labels, np.zeros(10))


def test_a_single_row_is_scored_under_the_prior():
    parts, labels = drawn(Probit(), 1)
    mean, error = cross_fitted_log_loss(Probit(), parts, labels)
    expected = -Probit().log_predictive(labels, *Calibration().moments(parts))
    assert_array_equal([mean, error], [expected[0], 0.0])
