"""Rows with latent offsets, f = o + g: against EP on f with a known mean, and finite differences."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import norm

from cavity.data.source import with_offset
from cavity.gp.likelihoods import Logit, NoisyArgmax, Probit
from cavity.gp.model import Model
from cavity.inference.rule import ExpectationPropagation, Variational
from cavity.inference.sweep import Sweep, SweepOptions
from reference import (
    central_differences,
    expectation_propagation,
    fitc_covariance,
    fitc_cross_covariance,
    predict,
)
from support import KERNELS, fixed_point, make_engine, make_prior, points, signs, table
from support import value_and_gradient as evaluated

KERNEL = KERNELS["noisy"]
X, LABELS = table()
OFFSET = np.random.default_rng(3).normal(size=(len(X), 1))


def engine_with(offset, X=X, labels=LABELS, **options):
    engine = make_engine(X, labels, **options)
    if offset is not None:
        engine.source = with_offset(engine.source, offset)
    return engine


@pytest.fixture(scope="module")
def both():
    """The fixed point of EP on g with offsets, and that of the oracle on f with a mean."""
    engine, prior = engine_with(OFFSET), make_prior(KERNEL, points())
    point = fixed_point(engine, prior)
    K, residual = fitc_covariance(KERNEL, X, prior.Z, prior.jitter)
    oracle = expectation_propagation(K, signs(LABELS), prior_mean=OFFSET[:, 0])
    return engine, point, K, residual, oracle


def test_evidence_and_leave_one_out_are_those_of_the_known_mean(both):
    engine, point, _, _, oracle = both
    assert_allclose(point.objective, oracle.log_evidence, atol=1e-8)
    assert_allclose(engine.log_predictive, oracle.log_predictive, atol=1e-8)
    without = fixed_point(engine_with(None), point.prior)
    assert abs(without.objective - point.objective) > 1.0, "a case that tells nothing"


def test_sites_are_those_of_the_latent_value_shifted_back_by_the_offset(both):
    engine, _, _, residual, oracle = both
    nu = 1 / (1 / oracle.precision + residual)
    assert_allclose(engine.sites.precision[0], nu, atol=1e-9)
    shift_of_f = nu * oracle.shift / oracle.precision
    assert_allclose(engine.sites.shift[0], shift_of_f - nu * OFFSET[:, 0], atol=1e-8)


def test_predictions_are_those_of_the_known_mean(both):
    engine, point, K, _, oracle = both
    X_star, _ = table(10, seed=7)
    offset = np.linspace(-2.0, 2.0, 10)
    prior = point.prior
    model = Model.from_prior(prior, point.posterior, engine.scaling, Probit(), needs_offset=True)
    mean, variance = model.latent_moments(X_star, offset=offset[None])
    K_star = fitc_cross_covariance(KERNEL, X_star, X, prior.Z, prior.jitter)
    true_mean, true_variance, log_proba = predict(
        oracle, K, K_star, KERNEL.diag(X_star), OFFSET[:, 0], offset
    )
    assert_allclose(mean[0], true_mean, atol=1e-8)
    assert_allclose(variance[0], true_variance, atol=1e-8)
    assert_allclose(Probit().predict_log_proba(mean, variance)[:, 1], log_proba, atol=1e-8)


THREE = np.arange(len(X)) % 3
RULES = {
    "ep": (ExpectationPropagation(), LABELS),
    "ep-logit": (ExpectationPropagation(Logit()), LABELS),
    "vi": (Variational(), LABELS),
    "vi-logit": (Variational(Logit()), LABELS),
    "ep-classes": (ExpectationPropagation(NoisyArgmax(3)), THREE),
    "vi-classes": (Variational(NoisyArgmax(3)), THREE),
}
every_rule = pytest.mark.parametrize(("rule", "labels"), RULES.values(), ids=RULES)


def offset_of(rule):
    return np.random.default_rng(4).normal(size=(len(X), rule.n_latents))


@every_rule
def test_the_gradient_is_that_of_the_objective(rule, labels):
    def engine():
        return engine_with(offset_of(rule), labels=labels, rule=rule)

    def value(theta, Z):
        return fixed_point(engine(), make_prior(KERNEL.clone_with_theta(theta), Z), 1e-10).objective

    Z, converged = points(), engine()
    fixed_point(converged, make_prior(KERNEL, Z), 1e-10)
    _, slopes = evaluated(converged, make_prior(KERNEL, Z))
    by_theta = central_differences(lambda theta: value(theta, Z), KERNEL.theta, 1e-4)
    assert_allclose(slopes.theta, by_theta, atol=2e-5)
    at = np.zeros_like(Z)
    at[0, 0] = 1e-4
    by_Z = (value(KERNEL.theta, Z + at) - value(KERNEL.theta, Z - at)) / 2e-4
    assert_allclose(slopes.Z[0, 0], by_Z, atol=2e-5)


@every_rule
def test_offsets_of_zero_change_no_bit(rule, labels):
    prior = make_prior(KERNEL, points())
    engines = [engine_with(offset, labels=labels, rule=rule) for offset in (None, 0 * offset_of(rule))]
    one, other = (fixed_point(engine, prior, 1e-8) for engine in engines)
    assert one.objective == other.objective
    assert_array_equal(one.posterior.mean, other.posterior.mean)
    assert_array_equal(engines[0].log_predictive, engines[1].log_predictive)


@pytest.mark.parametrize("method", [ExpectationPropagation, Variational])
def test_an_offset_of_all_classes_alike_changes_nothing(method):
    rule, prior = method(NoisyArgmax(3)), make_prior(KERNEL, points())
    offset = offset_of(rule)
    alike = offset + np.linspace(-1.0, 1.0, len(X))[:, None]
    one, other = (
        fixed_point(engine_with(o, labels=THREE, rule=rule), prior, 1e-10) for o in (offset, alike)
    )
    assert_allclose(one.objective, other.objective, atol=1e-6)
    assert_allclose(one.posterior.mean, other.posterior.mean, atol=1e-6)


def test_a_weight_of_two_is_the_row_twice():
    prior = make_prior(KERNEL, points())
    weight = np.where(np.arange(len(X)) < 5, 2.0, 1.0)
    twice = np.r_[np.arange(5), np.arange(len(X))]
    one = fixed_point(engine_with(OFFSET, weight=weight), prior)
    other = fixed_point(engine_with(OFFSET[twice], X[twice], LABELS[twice]), prior)
    assert_allclose(one.objective, other.objective, atol=1e-8)


def test_minibatches_take_the_offsets_of_their_rows():
    prior, rule = make_prior(KERNEL, points()), ExpectationPropagation()
    engine = engine_with(OFFSET)
    posterior = fixed_point(engine, prior).posterior
    row_pass = Sweep(prior, posterior, rule, SweepOptions(damping=0.0))
    whole = engine.run(row_pass)
    parts = [engine.run(row_pass, batch) for batch in engine.batches(7, np.random.default_rng(0))]
    assert len(parts) > 1
    assert_allclose(sum(part.objective for part in parts), whole.objective, rtol=1e-10)


def test_the_inverse_temperature_multiplies_offset_and_function_alike():
    """log p(y) with the row left out is log Φ(±c(o + e\\)/√(1 + c²V)), with the same V for every c."""
    prior = make_prior(KERNEL, points())
    engine = engine_with(OFFSET)
    posterior = fixed_point(engine, prior).posterior

    def scores(c):
        options = SweepOptions(damping=0.0, gradient=False, inverse_temperature=c)
        engine.run(Sweep(prior, posterior, ExpectationPropagation(), options))
        engine.commit()
        return norm.ppf(np.exp(engine.log_predictive))

    plain = scores(1.0)

    def variance(c):
        ratio = (scores(c) / plain) ** 2
        return (c**2 - ratio) / (c**2 * (ratio - 1.0))

    assert (variance(1.7) > 0.0).all()
    assert_allclose(variance(1.7), variance(1.3), rtol=1e-5)
