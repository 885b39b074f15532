"""K_mm, its factor and its pull-back."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

from reference import central_differences, inducing_covariance
from support import FLOAT32, FLOAT64, KERNELS, make_prior, points, tried


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_factor_is_of_the_noise_free_covariance_plus_its_jitter(kernel):
    prior = make_prior(kernel, points())
    K = inducing_covariance(kernel, prior.Z, prior.jitter)
    assert_allclose(prior.L @ prior.L.T, K, atol=1e-12 * np.abs(K).max())
    assert_allclose(prior.L_inverse @ prior.L, np.eye(3), atol=1e-6)


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_pull_back_is_the_derivative_of_any_function_of_the_factor(kernel):
    """F(K) = ½ aᵀK⁻¹a has ∂F/∂K = −½ K⁻¹a aᵀK⁻¹: a whitened gradient of ½ (L⁻¹a)(L⁻¹a)ᵀ."""
    Z, a = points(), np.array([0.3, -1.0, 0.7])
    prior = make_prior(kernel, Z)

    def F(theta, Z):
        K = inducing_covariance(kernel.clone_with_theta(theta), Z, prior.jitter)
        return 0.5 * a @ np.linalg.solve(K, a)

    whitened = prior.L_inverse @ a
    gradient = prior.pull_back(0.5 * np.outer(whitened, whitened))
    by_theta = central_differences(lambda theta: F(theta, Z), kernel.theta)
    by_Z = central_differences(lambda moved: F(kernel.theta, moved), Z)
    assert_allclose(gradient.theta, by_theta, atol=1e-6 * max(1, np.abs(by_theta).max(initial=0)))
    assert_allclose(gradient.Z, by_Z, atol=1e-6 * max(1, np.abs(by_Z).max()))


def test_tiles_see_their_own_precision_and_the_algebra_stays_in_float64():
    kernel = ConstantKernel(1.0) * RBF(1.0)
    for dtype in (FLOAT32, FLOAT64):
        prior = make_prior(kernel, points(), dtype)
        assert prior.whitener.dtype == dtype
        assert prior.whitener.flags.c_contiguous
        assert prior.L.dtype == FLOAT64
        K, _ = prior.rows_kernel.cross(points(seed=3).astype(dtype))
        assert K.dtype == dtype


def test_coinciding_inducing_points_are_held_apart_by_the_jitter():
    Z = np.repeat(points(), 3, axis=0)
    prior = make_prior(RBF(1.0), Z)
    assert np.isfinite(prior.L_inverse).all()
    assert prior.jitter <= 1e-4


@pytest.mark.parametrize(
    "kernel", [WhiteKernel(1.0), ConstantKernel(1.0) * RBF(1e-300), ConstantKernel(0.0) * RBF(1.0)]
)
def test_a_prior_without_signal_is_an_error_with_a_name_or_a_finite_factor(kernel):
    with np.errstate(all="ignore"):
        prior, complaint = tried(lambda: make_prior(kernel, points()))
    assert np.isfinite(prior.L_inverse).all() if prior else "inducing" in complaint
