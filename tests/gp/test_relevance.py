"""Relevance against finite differences and closed forms."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct

from cavity import SEPClassifier
from cavity.gp import relevance
from support import KERNELS, make, points, table

X, LABELS = table(80)
STEP = 1e-5
# The slope of a kernel with kinks at the inducing points is not that of differences across them.
SMOOTH = {name: kernel for name, kernel in KERNELS.items() if "1/2" not in name}


def fitted(kernel, rows=X, y=LABELS, **options):
    options = {"inducing_points": points(6), "optimizer": None, "n_jobs": 1, **options}
    return make(SEPClassifier, kernel, **options).fit(rows, y)


@pytest.mark.parametrize("name", KERNELS)
def test_slopes_are_those_of_the_latent_mean(name):
    fit = fitted(KERNELS[name], scaling=None)
    at = points(5, seed=4)
    slopes = relevance.latent_slopes(fit.model_, at, fit.model_.posterior.mean)
    for j in range(2):
        step = STEP * np.eye(2)[j]
        ahead, behind = (fit.latent_mean_and_variance(at + s)[0] for s in (step, -step))
        assert_allclose(slopes[0, :, j], (ahead - behind) / (2 * STEP), rtol=1e-5, atol=1e-7)


def test_slopes_are_by_the_features_when_these_are_whitened():
    fit = fitted(RBF([0.7, 1.3]), scaling="whiten")
    scaling, at = fit.model_.scaling, points(5, seed=4)
    whitened = scaling.apply(at, np.dtype(np.float64))
    slopes = relevance.latent_slopes(fit.model_, whitened, fit.model_.posterior.mean)
    for j in range(2):
        step = STEP * scaling.scale[j] * np.eye(2)[j]
        ahead, behind = (fit.latent_mean_and_variance(at + s)[0] for s in (step, -step))
        assert_allclose(slopes[0, :, j], (ahead - behind) / (2 * STEP), rtol=1e-5, atol=1e-7)
    assert np.isnan(fit.relevance_.lengthscale).all()


@pytest.mark.parametrize("name", SMOOTH)
def test_shares_add_up_and_lie_in_their_bands(name):
    r = fitted(KERNELS[name]).relevance_
    assert_allclose(r.value.sum(), 1.0)
    assert (r.lower <= r.value).all()
    assert (r.value <= r.upper).all()
    assert (r.lower >= 0.0).all()
    assert (r.upper <= 1.0).all()


def test_draws_have_the_moments_of_the_posterior():
    # E[Σ slope²] = (mean slope)² + dAᵀ S dA in closed form, with dA from differences of A.
    model = fitted(1.5 * RBF([0.7, 1.3])).model_
    at = points(4, seed=4)
    drawn = np.stack(list(relevance._drawn_slopes(model, at, np.random.default_rng(1))))[:, 0]
    A = [
        [model.kernel(at + s, model.Z) @ model.prior.L_inverse.T for s in (e, -e)]
        for e in STEP * np.eye(2)
    ]
    for j, (ahead, behind) in enumerate(A):
        dA = (ahead - behind) / (2 * STEP)
        mean = dA @ model.posterior.mean[0]
        variance = np.einsum("ij,jk,ik->i", dA, model.posterior.covariance[0], dA)
        deviation = np.sqrt(variance)
        assert_allclose(drawn[:, :, j].mean(axis=0), mean, atol=4 * deviation.max() / np.sqrt(200))
        assert_allclose(drawn[:, :, j].std(axis=0), deviation, rtol=0.25)


def test_a_linear_function_has_the_shares_of_its_squared_weights():
    # k(x, z) = x·z with Z spanning the plane: f = w·x, and every slope is w.
    fit = fitted(100.0 * DotProduct(0.0, "fixed"), scaling=None)
    model = fit.model_
    w = relevance.latent_slopes(model, points(3), model.posterior.mean)[0]
    assert_allclose(w, w[:1].repeat(3, axis=0), atol=1e-8)
    scaled = w[0] * model.Z.std(axis=0)
    assert_allclose(fit.relevance_.value, scaled**2 / (scaled**2).sum(), atol=0.05)


def test_features_of_a_column_count_together():
    # f = w·x: drawing the features of a group again changes it by w·(x′ − x), of variance 2 wᵀΣw.
    rng = np.random.default_rng(0)
    level = rng.integers(0, 3, 12)
    Z = np.column_stack([np.eye(3)[level], rng.normal(size=12), rng.normal(size=12)])
    kernel = 100.0 * DotProduct(0.0, "fixed")
    model = fitted(kernel, inducing_points=Z, scaling=None, rows=Z, y=np.arange(12) % 2).model_
    for groups in ([[0, 1, 2], [3], [4]], [[0, 2, 1], [4, 3]], [[0, 1, 2, 4], [3, 4]]):
        drawn = []
        for slopes in relevance._drawn_slopes(model, Z, np.random.default_rng(0)):
            w, covariance = slopes[0, 0], np.cov(Z.T, ddof=0)
            together = np.array([w[g] @ covariance[np.ix_(g, g)] @ w[g] for g in groups])
            drawn.append(together / together.sum())
        value, lower, upper = relevance.share_band(model, groups)
        assert_allclose(value, np.mean(drawn, axis=0), rtol=1e-6)
        assert_allclose(lower, np.minimum(np.quantile(drawn, 0.05, axis=0), value), rtol=1e-6)
        assert_allclose(upper, np.quantile(drawn, 0.95, axis=0), rtol=1e-6)


@pytest.mark.parametrize("scaling", [None, "standard"])
def test_the_coding_of_two_levels_does_not_matter(scaling):
    # A level as d, or as d and 1 − d with lengthscales √2 as long, is the same function.
    rng = np.random.default_rng(0)
    x, d = rng.normal(size=40), (np.arange(40) % 2).astype(float)
    one, two = np.column_stack([x, d]), np.column_stack([x, d, 1.0 - d])
    values = []
    for rows, groups, scales in (
        (one, [[0], [1]], [1.0, 1.0]),
        (two, [[0], [1, 2]], [1.0, 2**0.5, 2**0.5]),
    ):
        fit = fitted(RBF(scales), inducing_points=rows[:12], scaling=scaling, rows=rows, y=x + d > 0.5)
        values.append(relevance.share_band(fit.model_, groups)[0])
    assert_allclose(values[0], values[1], atol=1e-6)


def test_correlations_are_those_of_the_features_when_these_are_whitened():
    fit = fitted(RBF([0.7, 1.3]), scaling="whiten")
    ((_, root),) = relevance._feature_groups(fit.model_, [[0, 1]])
    assert_allclose(root @ root.T, np.corrcoef(fit.inducing_points_.T), atol=1e-9)


@pytest.mark.parametrize("unit", [1e-300, 1e-150, 1e150, 1e300])
def test_shares_do_not_depend_on_units_of_any_size(unit):
    slopes, scale = np.random.default_rng(0).normal(size=(2, 5, 3)), np.array([1.0, 2.0, 0.5])
    expected = relevance._shares(slopes, scale)
    assert_allclose(expected.sum(), 1.0)
    assert_allclose(relevance._shares(unit * slopes, scale), expected, rtol=1e-9)
    assert_allclose(relevance._shares(slopes, unit * scale), expected, rtol=1e-9)
    each = np.array([unit, 1.0, 1.0 / unit])
    assert_allclose(relevance._shares(slopes / each, scale * each), expected, rtol=1e-9)


def test_a_posterior_without_a_cholesky_factor_has_shares():
    fit = fitted(RBF(0.5))
    S = fit.model_.posterior.covariance[0]
    values, vectors = np.linalg.eigh(S)
    values[:2] = -1e-18, 0.0
    sharp = replace(fit.model_.posterior, covariance=((vectors * values) @ vectors.T)[None])
    shares = relevance.share_band(replace(fit.model_, posterior=sharp))
    assert np.isfinite(shares).all()


def test_a_constant_function_has_no_relevant_feature():
    r = fitted(ConstantKernel(2.0)).relevance_
    assert_array_equal(r.value, 0.0)
    assert np.isnan(r.lengthscale).all()


def test_several_latents_count_by_their_differences():
    slopes = np.zeros((3, 4, 2))
    slopes[:, :, 0] = 5.0  # common to all classes: no class gains
    slopes[0, :, 1] = 1.0
    assert_allclose(relevance._shares(slopes, np.ones(2)), [0.0, 1.0])


def test_lengthscale_is_in_the_units_of_the_inputs():
    fit = SEPClassifier(RBF([0.5, 2.0]), n_inducing=6, optimizer=None, random_state=0)
    scale = X.std(axis=0) * [10.0, 0.1]
    r = fit.fit(X * [10.0, 0.1], LABELS).relevance_
    assert_allclose(r.lengthscale, scale * [0.5, 2.0])
    assert np.isnan(fitted(RBF(1.0) + RBF([0.5, 2.0])).relevance_.lengthscale).all()


def test_reads_as_a_table():
    r = fitted(RBF([0.5, 2.0])).relevance_
    lines = str(r).splitlines()
    assert lines[0].split()[:2] == ["feature", "relevance"]
    assert lines[1].startswith(r.ranked()[0].name)
    assert r._repr_html_().count("<tr>") == 3
    assert [row.name for row in r] == ["x0", "x1"]
    assert r["x1"] == r[1]
