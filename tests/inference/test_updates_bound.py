"""The variational bound of any Gaussian q: below the evidence, with the slopes it says it has."""

import ast
import subprocess
from functools import lru_cache

import gpflow_bound
import numpy as np
import pytest
from benchmarks.peers import environments
from gpflow_bound import FIGURES, JITTER, cases
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

from cavity.gp.likelihoods import Logit, Probit
from cavity.gp.prior import Prior
from cavity.inference.rule import Variational
from cavity.inference.sweep import Sweep, SweepOptions
from cavity.inference.updates import GaussianSpace, bound_gradient, objective
from reference import central_differences, exact_log_evidence
from support import FLOAT64, KERNELS, fixed_point, make_engine, make_prior, points, signs, table

EIGHT, EIGHT_LABELS = table(8, seed=2)
LIKELIHOODS = {"probit": Probit(), "logit": Logit()}
every_kernel = pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
every_likelihood = pytest.mark.parametrize("likelihood", LIKELIHOODS.values(), ids=LIKELIHOODS)


def bound(engine, prior, posterior):
    """The ELBO, and the undamped sums of the pass that gave it."""
    sums = engine.run(Sweep(prior, posterior, engine.rule, SweepOptions(whitened_gradient=False)))
    return objective(sums, posterior, engine.rule), sums


def random_q(m, rng, scale=1.0):
    """The vector of a whitened mean and a factor with diagonal entries of either sign."""
    factor = np.tril(0.4 * scale * rng.normal(size=(m, m)), -1)
    factor += np.diag(rng.choice([-1.0, 1.0], m) * np.exp(0.7 * rng.normal(size=m)))
    return GaussianSpace(1, m).pack(scale * rng.normal(size=(1, m)), factor[None])


# Amplitude, lengthscale, noise.
PARAMETERS = [(0.3, 3.0, 0.01), (2.0, 1.0, 0.1), (5.0, 0.3, 1.0), (20.0, 1.5, 0.001)]


@lru_cache
def kernel_and_exact_evidence(parameters):
    amplitude, lengthscale, noise = parameters
    kernel = ConstantKernel(amplitude) * RBF(lengthscale) + WhiteKernel(noise)
    return kernel, exact_log_evidence(kernel(EIGHT), signs(EIGHT_LABELS), error=1e-8)


THREE = EIGHT[[0, 3, 5]]
THREE_LABELS = np.array([0, 1, 1])


@lru_cache
def kernel_and_exact_logit_evidence(parameters):
    """Of three rows, by a sum over a grid of 100³ points of a whitened space."""
    kernel, _ = kernel_and_exact_evidence(parameters)
    t, y = np.linspace(-8.0, 8.0, 100), signs(THREE_LABELS)
    grid = np.stack(np.meshgrid(t, t, t, indexing="ij"), axis=-1).reshape(-1, 3)
    f = grid @ np.linalg.cholesky(kernel(THREE)).T
    log_density = -0.5 * (grid**2).sum(axis=1) - np.logaddexp(0.0, -y * f).sum(axis=1)
    return kernel, float(np.log(np.exp(log_density).sum() * ((t[1] - t[0]) / np.sqrt(2 * np.pi)) ** 3))


class TestBelowTheEvidence:
    """The exact evidence of eight rows is the probability of an orthant (to 1e-8)."""

    @pytest.mark.parametrize("parameters", PARAMETERS, ids=str)
    @given(seed=st.integers(0, 2**32 - 1), scale=st.floats(0.0, 3.0), m=st.integers(1, 5))
    def test_whatever_q_and_the_inducing_points_are(self, parameters, seed, scale, m):
        kernel, exact = kernel_and_exact_evidence(parameters)
        rng = np.random.default_rng(seed)
        prior = make_prior(kernel, rng.normal(size=(m, 2)))
        engine = make_engine(EIGHT, EIGHT_LABELS, rule=Variational())
        q = GaussianSpace(1, m).posterior(random_q(m, rng, scale))
        assert bound(engine, prior, q)[0] <= exact + 1e-6

    @pytest.mark.parametrize("parameters", PARAMETERS, ids=str)
    @settings(max_examples=40)
    @given(seed=st.integers(0, 2**32 - 1), scale=st.floats(0.0, 3.0), m=st.integers(1, 3))
    def test_that_of_the_logit_too(self, parameters, seed, scale, m):
        kernel, exact = kernel_and_exact_logit_evidence(parameters)
        rng = np.random.default_rng(seed)
        prior = make_prior(kernel, rng.normal(size=(m, 2)))
        engine = make_engine(THREE, THREE_LABELS, rule=Variational(Logit()))
        q = GaussianSpace(1, m).posterior(random_q(m, rng, scale))
        assert bound(engine, prior, q)[0] <= exact + 1e-6

    @every_likelihood
    @pytest.mark.parametrize("parameters", PARAMETERS, ids=str)
    def test_at_its_maximum_over_q(self, parameters, likelihood):
        if isinstance(likelihood, Logit):
            X, labels, (kernel, exact) = THREE, THREE_LABELS, kernel_and_exact_logit_evidence(parameters)
        else:
            X, labels, (kernel, exact) = EIGHT, EIGHT_LABELS, kernel_and_exact_evidence(parameters)

        def best(Z):
            engine = make_engine(X, labels, rule=Variational(likelihood))
            return fixed_point(engine, make_prior(kernel, Z), 1e-9).objective

        assert best(points(2)) <= best(X) + 1e-9
        assert best(X) <= exact + 1e-6

    def test_no_q_is_better_than_the_fixed_point(self):
        prior = make_prior(KERNELS["noisy"], points(4))
        engine = make_engine(EIGHT, EIGHT_LABELS, rule=Variational())
        best = fixed_point(engine, prior)
        space, rng = GaussianSpace(1, 4), np.random.default_rng(0)
        at = space.pack(best.posterior.mean, np.linalg.cholesky(best.posterior.covariance))
        assert_allclose(bound(engine, prior, space.posterior(at))[0], best.objective, atol=1e-9)
        for scale in (1e-3, 0.1, 1.0):
            for _ in range(5):
                q = space.posterior(at + scale * rng.normal(size=at.shape))
                assert bound(engine, prior, q)[0] < best.objective


class TestVector:
    @pytest.mark.parametrize("n_latents", [1, 3])
    def test_there_and_back(self, n_latents):
        rng = np.random.default_rng(0)
        space = GaussianSpace(n_latents, 4)
        mean, factors = rng.normal(size=(n_latents, 4)), np.tril(rng.normal(size=(n_latents, 4, 4)))
        vector = space.pack(mean, factors)
        assert vector.shape == (n_latents * (4 + 10),)
        for given_, back in zip((mean, factors), space.unpack(vector), strict=True):
            assert_allclose(back, given_, rtol=0)
        posterior = space.posterior(vector)
        assert_allclose(posterior.mean, mean)
        assert_allclose(posterior.covariance, factors @ factors.transpose(0, 2, 1))

    def test_divergence_from_the_prior_is_that_of_the_textbook(self):
        rng = np.random.default_rng(1)
        space = GaussianSpace(1, 4)
        q = random_q(4, rng)
        (mean,), (factor,) = space.unpack(q)
        S = factor @ factor.T
        expected = 0.5 * (np.trace(S) + mean @ mean - 4 - np.linalg.slogdet(S)[1])
        assert_allclose(space.posterior(q).divergence, expected, rtol=1e-12)


@every_likelihood
@every_kernel
def test_gradient_by_theta_and_points_with_the_whitened_q_held(kernel, likelihood):
    X, labels = table(20)
    Z = points(3)
    engine = make_engine(X, labels, rule=Variational(likelihood))
    space, vector = GaussianSpace(1, 3), random_q(3, np.random.default_rng(0))
    q = space.posterior(vector)

    def value(theta, points):
        return bound(engine, make_prior(kernel.clone_with_theta(theta), points), q)[0]

    prior = make_prior(kernel, Z)
    gradient, _ = bound_gradient(vector, bound(engine, prior, q)[1], prior, space)
    by_theta = central_differences(lambda theta: value(theta, Z), kernel.theta)
    by_Z = central_differences(lambda moved: value(kernel.theta, moved), Z)
    assert_allclose(gradient.theta, by_theta, atol=1e-6 * max(1.0, np.abs(by_theta).max(initial=0)))
    assert_allclose(gradient.Z, by_Z, atol=1e-6 * max(1.0, np.abs(by_Z).max()))


@every_likelihood
@pytest.mark.parametrize("seed", range(4))
def test_gradient_by_mean_and_factor(likelihood, seed):
    """Every entry, for factors whose diagonal has either sign, near the prior and far from it."""
    X, labels = table(20)
    prior = make_prior(KERNELS["noisy"], points(4))
    engine = make_engine(X, labels, rule=Variational(likelihood))
    space = GaussianSpace(1, 4)
    q = random_q(4, np.random.default_rng(seed), scale=[0.1, 1.0, 1.0, 4.0][seed])

    def value(vector):
        return bound(engine, prior, space.posterior(vector))[0]

    _, gradient = bound_gradient(q, bound(engine, prior, space.posterior(q))[1], prior, space)
    differences = central_differences(value, q)
    assert_allclose(gradient, differences, atol=1e-6 * max(1.0, np.abs(differences).max()))


@every_likelihood
def test_gradient_vanishes_at_the_fixed_point_of_the_natural_steps(likelihood):
    X, labels = table(40)
    prior = make_prior(KERNELS["noisy"], points(5))
    engine = make_engine(X, labels, rule=Variational(likelihood))
    q = fixed_point(engine, prior).posterior
    space = GaussianSpace(1, 5)
    vector = space.pack(q.mean, np.linalg.cholesky(q.covariance))
    _, gradient = bound_gradient(vector, bound(engine, prior, q)[1], prior, space)
    assert_allclose(gradient, 0.0, atol=1e-8)


def our_bound(likelihood, variance, lengthscales, X, labels, Z, mean, factor):
    # GPflow adds its jitter as it is, ours is relative to the mean of the diagonal.
    kernel = ConstantKernel(variance) * RBF(lengthscales)
    prior = Prior(kernel, Z, FLOAT64, JITTER / variance)
    q = GaussianSpace(1, len(Z)).posterior(GaussianSpace(1, len(Z)).pack(mean[None], factor[None]))
    engine = make_engine(X, labels, rule=Variational(LIKELIHOODS[likelihood]))
    return bound(engine, prior, q)[0]


@pytest.mark.parametrize(("name", "case"), list(cases()), ids=FIGURES)
def test_the_bound_is_that_of_gpflow(name, case):
    assert_allclose(our_bound(*case), FIGURES[name], rtol=1e-9)


@pytest.mark.skipif(not environments.installed("gpflow"), reason="the peer gpflow is not installed")
def test_the_figures_are_those_of_the_gpflow_that_is_installed():
    """In the environment of the benchmarks' peer: it cannot be next to ours."""
    command = [environments.python("gpflow"), gpflow_bound.__file__]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    theirs = ast.literal_eval(printed)
    assert list(theirs) == list(FIGURES)
    assert_allclose(list(theirs.values()), list(FIGURES.values()), rtol=1e-9)
