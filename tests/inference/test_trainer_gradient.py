"""Gradients of the objective against finite differences, by every parameter and coordinate."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from cavity.inference.converge import converge
from cavity.inference.rule import ExpectationPropagation, Variational
from cavity.inference.sweep import SweepOptions
from reference import (
    central_differences,
    fitc_covariance,
    log_evidence_of_factors,
    projections,
)
from support import (
    KERNELS,
    fixed_point,
    make_engine,
    make_prior,
    points,
    signs,
    table,
    value_and_gradient,
)

every_kernel = pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)


def assert_digits(actual, expected, digits):
    assert_allclose(actual, expected, atol=10.0**-digits * max(1.0, np.abs(expected).max(initial=0.0)))


def assert_gradient_at_the_fixed_point(kernel, rule, digits):
    X, labels = table()
    Z = points()
    engine = make_engine(X, labels, rule=rule)
    fixed_point(engine, make_prior(kernel, Z))

    def converged_value(theta, points):
        return fixed_point(engine, make_prior(kernel.clone_with_theta(theta), points), 1e-10).objective

    _, gradient = value_and_gradient(engine, make_prior(kernel, Z))
    by_theta = central_differences(lambda theta: converged_value(theta, Z), kernel.theta)
    by_Z = central_differences(lambda moved: converged_value(kernel.theta, moved), Z)
    assert_digits(gradient.theta, by_theta, digits)
    assert_digits(gradient.Z, by_Z, digits)


@every_kernel
def test_gradient_of_the_evidence_at_the_fixed_point(kernel):
    assert_gradient_at_the_fixed_point(kernel, ExpectationPropagation(), digits=7)


@pytest.mark.parametrize("name", ["rbf-ard", "noisy", "matern-3/2", "product"])
def test_gradient_of_the_variational_bound_at_the_fixed_point(name):
    assert_gradient_at_the_fixed_point(KERNELS[name], Variational(), digits=6)


def unconverged(kernel, sweeps=2):
    """An engine whose sites are on their way, its prior, and its log Z_q as a plain function."""
    X, labels = table()
    prior = make_prior(kernel, points())
    engine = make_engine(X, labels)
    converge(engine, prior, engine.rule, options=SweepOptions(damping=0.4), tol=0.0, max_sweeps=sweeps)
    directions, _ = projections(kernel, X, prior.Z, prior.jitter)
    precision, shift = engine.sites.precision[0].copy(), engine.sites.shift[0].copy()

    def plain(theta, Z):
        moved = kernel.clone_with_theta(theta)
        return log_evidence_of_factors(
            moved, X, signs(labels), Z, prior.jitter, directions, precision, shift
        )

    return engine, prior, plain


@every_kernel
def test_exact_gradient_before_convergence_holds_the_factors_fixed(kernel):
    engine, prior, plain = unconverged(kernel)
    value, gradient = value_and_gradient(engine, prior, exact=True)
    assert_allclose(value, plain(kernel.theta, prior.Z), atol=1e-8)
    by_theta = central_differences(lambda theta: plain(theta, prior.Z), kernel.theta)
    by_Z = central_differences(lambda Z: plain(kernel.theta, Z), prior.Z)
    assert_digits(gradient.theta, by_theta, 6)
    assert_digits(gradient.Z, by_Z, 6)


def test_approximate_gradient_is_exact_at_the_fixed_point_and_only_there():
    kernel = KERNELS["noisy"]
    engine, prior, _ = unconverged(kernel)
    _, approximate = value_and_gradient(engine, prior)
    _, exact = value_and_gradient(engine, prior, exact=True)
    assert np.abs(approximate.theta - exact.theta).max() > 1e-2
    fixed_point(engine, prior)
    _, approximate = value_and_gradient(engine, prior)
    _, exact = value_and_gradient(engine, prior, exact=True)
    assert_allclose(approximate.theta, exact.theta, atol=1e-9)
    assert_allclose(approximate.Z, exact.Z, atol=1e-9)


@every_kernel
def test_penalty_charges_for_the_variance_that_the_inducing_points_leave(kernel):
    """It takes ½ c Σ ν̃ s from the objective; the gradient sees s there, with ν̃ held, and only there."""
    X, labels = table()
    engine, prior = make_engine(X, labels), make_prior(kernel, points())
    fixed_point(engine, prior)
    precision = engine.sites.precision[0].copy()

    def charge(theta, Z):
        _, residual = fitc_covariance(kernel.clone_with_theta(theta), X, Z, prior.jitter)
        return -0.5 * 0.7 * precision @ residual

    value, _ = value_and_gradient(engine, prior)
    charged_value, gradient = value_and_gradient(engine, prior, trace_penalty=0.7)
    assert_allclose(charged_value - value, charge(kernel.theta, prior.Z), atol=1e-7)
    _, charged = value_and_gradient(engine, prior, trace_penalty=1.4)
    by_theta = central_differences(lambda theta: charge(theta, prior.Z), kernel.theta)
    by_Z = central_differences(lambda Z: charge(kernel.theta, Z), prior.Z)
    assert_digits(charged.theta - gradient.theta, by_theta, 6)
    assert_digits(charged.Z - gradient.Z, by_Z, 6)
