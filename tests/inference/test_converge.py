"""EP at its fixed point against n×n oracles that know nothing of inducing-point algebra."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

from cavity.gp.likelihoods import Probit
from cavity.gp.posterior import NaturalParameters, Posterior, marginals
from cavity.inference.converge import converge, score_fixed_posterior
from cavity.inference.history import Clock
from cavity.inference.rule import ExpectationPropagation, Variational
from cavity.inference.sweep import Sweep, SweepOptions
from reference import (
    exact_log_evidence,
    expectation_propagation,
    fitc_covariance,
    fitc_cross_covariance,
    predict,
)
from support import (
    FLOAT32,
    KERNELS,
    fixed_point,
    interrupt_at,
    make_engine,
    make_prior,
    points,
    signs,
    table,
)

every_kernel = pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)


def fitc(kernel, X, labels, prior):
    K, residual = fitc_covariance(kernel, X, prior.Z, prior.jitter)
    return K, residual, expectation_propagation(K, signs(labels))


@every_kernel
def test_evidence_and_leave_one_out_are_those_of_fitc(kernel):
    X, labels = table()
    engine, prior = make_engine(X, labels), make_prior(kernel, points())
    point = fixed_point(engine, prior)
    _, _, oracle = fitc(kernel, X, labels, prior)
    assert_allclose(point.objective, oracle.log_evidence, atol=1e-8)
    assert_allclose(engine.log_predictive, oracle.log_predictive, atol=1e-8)
    assert_allclose(point.mean_log_predictive, oracle.log_predictive.mean(), atol=1e-8)


@every_kernel
def test_predictions_are_those_of_fitc(kernel):
    X, labels = table()
    X_star, _ = table(10, seed=7)
    prior = make_prior(kernel, points())
    posterior = fixed_point(make_engine(X, labels), prior).posterior
    at = marginals(X_star, prior, posterior)
    K, _, oracle = fitc(kernel, X, labels, prior)
    K_star = fitc_cross_covariance(kernel, X_star, X, prior.Z, prior.jitter)
    mean, variance, log_proba = predict(oracle, K, K_star, kernel.diag(X_star))
    assert_allclose(at.mean[0], mean, atol=1e-8)
    assert_allclose(at.variance[0] + at.residual, variance, atol=1e-8)
    predicted = Probit().predict_log_proba(at.mean, at.variance + at.residual)
    assert_allclose(predicted[:, 1], log_proba, atol=1e-8)


def test_sites_are_those_of_fitc_seen_through_the_residual():
    """ν̃ = 1/(1/τ̃ + s) where τ̃ is the site on the row's own latent value; the means are the same."""
    X, labels = table()
    kernel = KERNELS["noisy"]
    engine, prior = make_engine(X, labels), make_prior(kernel, points())
    fixed_point(engine, prior)
    _, residual, oracle = fitc(kernel, X, labels, prior)
    assert_allclose(engine.sites.precision[0], 1 / (1 / oracle.precision + residual), atol=1e-9)
    means = engine.sites.shift[0] / engine.sites.precision[0]
    assert_allclose(means, oracle.shift / oracle.precision, atol=1e-8)


def test_inducing_points_at_the_rows_give_full_expectation_propagation():
    X, labels = table(15)
    kernel = ConstantKernel(2.0) * RBF(0.5)
    prior = make_prior(kernel, X)
    point = fixed_point(make_engine(X, labels), prior)
    oracle = expectation_propagation(kernel(X), signs(labels))
    assert_allclose(point.objective, oracle.log_evidence, atol=1e-6)
    X_star, _ = table(10, seed=7)
    at = marginals(X_star, prior, point.posterior)
    mean, variance, _ = predict(oracle, kernel(X), kernel(X_star, X), kernel.diag(X_star))
    assert_allclose(at.mean[0], mean, atol=1e-6)
    assert_allclose(at.variance[0] + at.residual, variance, atol=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_evidence_of_four_rows_is_close_to_the_exact_one(seed):
    X, labels = table(4, seed=seed)
    kernel = ConstantKernel(2.0) * RBF(1.0) + WhiteKernel(0.1)
    prior = make_prior(kernel, points())
    K, _ = fitc_covariance(kernel, X, prior.Z, prior.jitter)
    exact = exact_log_evidence(K, signs(labels))
    assert_allclose(fixed_point(make_engine(X, labels), prior).objective, exact, atol=0.01)


def test_float32_tiles_agree_with_the_oracle_to_their_own_precision():
    X, labels = table(60)
    X_star, _ = table(20, seed=7)
    X, X_star = X.astype(np.float32), X_star.astype(np.float32)
    kernel = KERNELS["noisy"]
    prior = make_prior(kernel, points(6), FLOAT32)
    point = fixed_point(make_engine(X, labels), prior, tol=1e-5)
    K, _, oracle = fitc(kernel, X.astype(float), labels, prior)
    assert_allclose(point.objective, oracle.log_evidence, rtol=1e-5)
    at = marginals(X_star, prior, point.posterior)
    assert at.A.dtype == np.float32
    K_star = fitc_cross_covariance(kernel, X_star.astype(float), X.astype(float), prior.Z, prior.jitter)
    mean, variance, _ = predict(oracle, K, K_star, kernel.diag(X_star))
    assert_allclose(at.mean[0], mean, atol=1e-4)
    assert_allclose(at.variance[0] + at.residual, variance, atol=1e-4)


@pytest.mark.parametrize("rule", [ExpectationPropagation(), Variational()], ids=["ep", "vi"])
@pytest.mark.parametrize("damping", [1.0, 0.5, 0.1])
def test_stops_only_where_a_sweep_moves_nothing(rule, damping):
    X, labels = table(60)
    engine, prior = make_engine(X, labels, rule=rule), make_prior(KERNELS["noisy"], points(6))
    point = converge(engine, prior, engine.rule, options=SweepOptions(damping), tol=1e-7, max_sweeps=500)
    assert point.converged
    assert point.change <= 1e-7
    sums = engine.run(
        Sweep(prior, point.posterior, engine.rule, SweepOptions(damping=1.0, gradient=False))
    )
    assert np.sqrt(sums.site_change / sums.weight) < 1e-6


def test_the_change_is_that_of_a_whole_sweep_whatever_the_damping():
    X, labels = table(60)
    prior = make_prior(KERNELS["noisy"], points(6))
    whole, damped = (
        converge(
            make_engine(X, labels),
            prior,
            ExpectationPropagation(),
            options=SweepOptions(damping),
            tol=0.0,
            max_sweeps=1,
        ).change
        for damping in (1.0, 0.1)
    )
    assert_allclose(damped, whole, rtol=1e-9)


def test_sites_are_not_taken_out_of_a_foreign_q_as_if_it_were_made_of_them():
    """Here the sites of a fit and a q without any: in the prior a row's ν̃v would exceed 1."""
    X, labels = table(60)
    engine, prior = make_engine(X, labels), make_prior(100.0 * KERNELS["noisy"], points(6))
    fixed_point(engine, prior)
    start = NaturalParameters.zeros(1, 6)
    variance = marginals(X, prior, Posterior.from_naturals(start)).variance[0]
    assert (engine.sites.precision[0] * variance).max() > 1.0
    converge(engine, prior, engine.rule, start=start, tol=0.0, max_sweeps=1)
    assert engine.log_predictive.min() > -20.0


def test_the_start_of_the_sites_does_not_matter():
    X, labels = table(60)
    prior = make_prior(KERNELS["noisy"], points(6))
    cold = make_engine(X, labels)
    warm = make_engine(X, labels)
    fixed_point(warm, make_prior(KERNELS["rbf"], points(6, seed=5)))
    assert_allclose(fixed_point(warm, prior).objective, fixed_point(cold, prior).objective, atol=1e-9)
    assert_allclose(warm.sites.precision, cold.sites.precision, atol=1e-9)


def test_says_so_when_there_were_too_few_sweeps():
    X, labels = table(60)
    point = converge(
        make_engine(X, labels),
        make_prior(KERNELS["rbf"], points(6)),
        ExpectationPropagation(),
        tol=1e-12,
        max_sweeps=2,
    )
    assert not point.converged
    assert point.n_sweeps == 2
    assert point.change > 1e-12


def test_one_sweep_at_a_foreign_q_knows_no_evidence():
    """Rows' terms and q belong together; with terms of other sites the sum may be anything."""
    X, labels = table(60)
    prior = make_prior(KERNELS["rbf"], points(6))
    foreign = fixed_point(make_engine(X, labels), make_prior(KERNELS["noisy"], points(6, seed=5)))
    start, tol = foreign.posterior.naturals, 1e-12
    one = converge(
        make_engine(X, labels), prior, ExpectationPropagation(), tol=tol, start=start, max_sweeps=1
    )
    two = converge(
        make_engine(X, labels), prior, ExpectationPropagation(), tol=tol, start=start, max_sweeps=2
    )
    assert np.isnan(one.objective)
    assert np.isfinite(two.objective)


@pytest.mark.parametrize("start", [None, NaturalParameters.zeros(1, 6)], ids=["sites", "q"])
def test_one_sweep_from_nothing_is_not_in_vain(start):
    """What it has found is the answer, not the prior that it was found with."""
    X, labels = table(60)
    prior = make_prior(KERNELS["rbf"], points(6))
    one = converge(
        make_engine(X, labels), prior, ExpectationPropagation(), tol=1e-12, max_sweeps=1, start=start
    )
    two = converge(make_engine(X, labels), prior, ExpectationPropagation(), tol=1e-12, max_sweeps=2)
    assert_allclose(one.posterior.mean, two.posterior.mean)
    assert np.abs(one.posterior.mean).max() > 0.1
    assert np.isnan(one.objective)


def test_interrupted_before_the_first_sweep_has_ended_there_is_nothing(monkeypatch):
    X, labels = table(60)
    engine, prior = make_engine(X, labels), make_prior(KERNELS["rbf"], points(6))
    interrupt_at(monkeypatch, 1)
    with pytest.raises(KeyboardInterrupt):
        converge(engine, prior, engine.rule)


def test_interrupted_in_the_second_sweep_from_nothing_the_first_is_not_in_vain(monkeypatch):
    X, labels = table(60)
    engine, prior = make_engine(X, labels), make_prior(KERNELS["rbf"], points(6))
    with monkeypatch.context() as patch:
        interrupt_at(patch, 2)
        point = converge(engine, prior, engine.rule)
    one = converge(make_engine(X, labels), prior, ExpectationPropagation(), tol=1e-12, max_sweeps=1)
    assert point.interrupted
    assert_allclose(point.posterior.mean, one.posterior.mean)


class TestLeftAsItIs:
    """A q that plain gradients have made: it is not the sum of its rows' sites."""

    def test_at_the_fixed_point_rows_are_left_out_as_sweeps_leave_them_out(self):
        X, labels = table(60)
        prior = make_prior(100.0 * KERNELS["noisy"], points(6))
        swept, engine = (make_engine(X, labels, rule=Variational()) for _ in range(2))
        point = fixed_point(swept, prior)
        left = score_fixed_posterior(engine, prior, point.posterior, engine.rule)
        assert_allclose(left.objective, point.objective, atol=1e-9)
        assert_allclose(engine.log_predictive, swept.log_predictive, atol=1e-8)

    def test_far_from_it_no_row_claims_more_of_q_than_there_is(self):
        """The prior is wider than any sum of sites: ν̃v > 1, as if all of q were one row's."""
        X, labels = table(60)
        prior = make_prior(100.0 * KERNELS["noisy"], points(6))
        q = Posterior.from_naturals(NaturalParameters.zeros(1, 6))
        engine = make_engine(X, labels, rule=Variational())
        point = score_fixed_posterior(engine, prior, q, engine.rule)
        assert (engine.sites.precision[0] * marginals(X, prior, q).variance[0]).max() > 1.0
        assert engine.log_predictive.min() > -10.0
        assert_allclose(point.mean_log_predictive, engine.log_predictive.mean())

    def test_without_seconds_there_is_no_second_sweep(self):
        X, labels = table(60)
        prior = make_prior(KERNELS["noisy"], points(6))
        engine = make_engine(X, labels, rule=Variational())
        q = fixed_point(make_engine(X, labels, rule=Variational()), prior).posterior
        clock = Clock()
        clock.deadline = 0.0
        point = score_fixed_posterior(engine, prior, q, engine.rule, clock)
        assert point.n_sweeps == 1
        assert np.isfinite(point.objective)
