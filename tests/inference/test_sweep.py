"""The pass: one tile of rows in, refined sites and sums out."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from cavity.gp.posterior import NaturalParameters, Posterior, marginals
from cavity.gp.tiles import Rows, Sites
from cavity.inference.rule import ExpectationPropagation, Variational
from cavity.inference.sweep import Sweep, SweepOptions
from reference import projections
from support import FLOAT32, KERNELS, make_prior, points, table

KERNEL = KERNELS["noisy"]
RULE = ExpectationPropagation()


@pytest.fixture
def state():
    """Rows, sites that are on their way, the prior and q with exactly these sites."""
    X, labels = table(30)
    rng = np.random.default_rng(2)
    sites = Sites(rng.uniform(0.01, 0.3, size=(1, 30)), rng.normal(size=(1, 30)))
    prior = make_prior(KERNEL, points(5))
    return Rows(X, labels, None), sites, prior, posterior_of(prior, X, sites)


def posterior_of(prior, X, sites, weight=1.0):
    A = KERNEL(X, prior.Z) @ np.linalg.inv(prior.L).T
    precision = A.T @ ((weight * sites.precision[0])[:, None] * A)
    return Posterior.from_naturals(
        NaturalParameters(precision[None], (weight * sites.shift[0] @ A)[None])
    )


def parts_of(rows, sites, parts):
    for part in parts:
        weight = None if rows.weight is None else rows.weight[part]
        yield (
            Rows(np.ascontiguousarray(rows.X[part]), rows.labels[part], weight),
            Sites(sites.precision[:, part], sites.shift[:, part]),
        )


def assert_same_sums(actual, expected, rtol=1e-10):
    for name, value in vars(expected).items():
        if name in {"n_rows", "n_visited"}:  # count rows, however often each of them counts
            continue
        other = getattr(actual, name)
        if value is None:
            assert other is None
        else:
            scale = max(1.0, np.abs(value).max(initial=0.0))
            assert_allclose(other, value, atol=rtol * scale, err_msg=name)


def test_marginals_are_those_of_q(state):
    rows, _, prior, q = state
    at = marginals(rows.X, prior, q)
    U, residual = projections(KERNEL, rows.X, prior.Z, prior.jitter)
    F = U @ prior.L  # υᵀf̄ = (υᵀL)u
    assert_allclose(at.mean[0], F @ q.mean[0], atol=1e-9)
    assert_allclose(at.variance[0], np.diag(F @ q.covariance[0] @ F.T), atol=1e-9)
    assert_allclose(at.residual, residual, atol=1e-9)
    assert (at.residual >= 0).all()


def test_sums_are_those_of_the_refined_sites(state):
    rows, sites, prior, q = state
    refined, sums = Sweep(prior, q, RULE, SweepOptions())(rows, sites)
    A = KERNEL(rows.X, prior.Z) @ np.linalg.inv(prior.L).T
    nu, mu = refined.sites.precision[0], refined.sites.shift[0]
    assert_allclose(sums.precision[0], A.T @ (nu[:, None] * A), atol=1e-8)
    assert_allclose(sums.shift[0], mu @ A, atol=1e-8)
    assert_allclose(sums.log_predictive, refined.log_predictive.sum())
    assert sums.weight == 30


def test_damping_moves_a_share_of_the_way(state):
    rows, sites, prior, q = state
    full = Sweep(prior, q, RULE, SweepOptions(damping=1.0))(rows, sites)[0].sites
    part = Sweep(prior, q, RULE, SweepOptions(damping=0.3))(rows, sites)[0].sites
    none, sums = Sweep(prior, q, RULE, SweepOptions(damping=0.0))(rows, sites)
    assert none.sites is None  # the rows keep theirs
    for k in range(2):
        assert_allclose(part[k], 0.7 * sites[k] + 0.3 * full[k])
    assert sums.site_change == 0.0


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("cut", [[30], [1, 29], [7] * 4 + [2], [1] * 30])
def test_tiles_add_up_whatever_their_size(state, cut, exact):
    rows, sites, prior, q = state
    options = SweepOptions(damping=0.5, exact=exact)
    whole_rows, whole = Sweep(prior, q, RULE, options)(rows, sites)
    parts = np.split(np.arange(30), np.cumsum(cut)[:-1])
    total, predictive = None, []
    for tile, own in parts_of(rows, sites, parts):
        refined, sums = Sweep(prior, q, RULE, options)(tile, own)
        predictive.append(refined.log_predictive)
        if total is None:
            total = sums
        else:
            total += sums
    assert_same_sums(total, whole)
    assert_allclose(np.concatenate(predictive), whole_rows.log_predictive)


def test_order_of_rows_does_not_matter(state):
    rows, sites, prior, q = state
    order = np.random.default_rng(0).permutation(30)
    ((shuffled, own),) = parts_of(rows, sites, [order])
    refined, sums = Sweep(prior, q, RULE, SweepOptions(exact=True))(shuffled, own)
    expected_rows, expected = Sweep(prior, q, RULE, SweepOptions(exact=True))(rows, sites)
    assert_same_sums(sums, expected)
    assert_allclose(refined.sites.precision, expected_rows.sites.precision[:, order])


@pytest.mark.parametrize("exact", [False, True])
def test_a_weight_of_two_is_the_row_twice(state, exact):
    rows, sites, prior, _ = state
    weight = np.where(np.arange(30) < 10, 2.0, 1.0)
    twice = np.concatenate([np.arange(30), np.arange(10)])
    ((doubled, own),) = parts_of(rows, sites, [twice])
    q = posterior_of(prior, rows.X, sites, weight)
    options = SweepOptions(damping=0.7, exact=exact)
    _, weighted = Sweep(prior, q, RULE, options)(rows._replace(weight=weight), sites)
    _, repeated = Sweep(prior, q, RULE, options)(doubled, own)
    assert_same_sums(weighted, repeated)


def test_a_weight_of_zero_is_no_row(state):
    rows, sites, prior, q = state
    weight = (np.arange(30) >= 10).astype(float)
    ((rest, own),) = parts_of(rows, sites, [np.arange(10, 30)])
    _, weighted = Sweep(prior, q, RULE, SweepOptions())(rows._replace(weight=weight), sites)
    _, without = Sweep(prior, q, RULE, SweepOptions())(rest, own)
    assert_same_sums(weighted, without)


def test_sums_can_be_scaled_to_stand_for_more_rows(state):
    rows, sites, prior, q = state
    _, sums = Sweep(prior, q, RULE, SweepOptions())(rows, sites)
    weighted = rows._replace(weight=np.full(30, 2.5))
    _, expected = Sweep(prior, q, RULE, SweepOptions())(weighted, sites)
    sums *= 2.5
    assert_same_sums(sums, expected)


@pytest.mark.parametrize("exact", [False, True])
def test_float32_tiles_agree_to_float32_accuracy(state, exact):
    rows, sites, prior, q = state
    low = make_prior(KERNEL, prior.Z, FLOAT32)
    # The same jitter, so that precision is all that differs.
    high = type(prior)(KERNEL, prior.Z, prior.dtype, jitter=low.jitter)
    assert high.jitter == low.jitter
    options = SweepOptions(exact=exact)
    tile = rows._replace(X=rows.X.astype(np.float32))
    refined, sums = Sweep(low, q, RULE, options)(tile, sites)
    expected_rows, expected = Sweep(high, q, RULE, options)(rows, sites)
    assert_same_sums(sums, expected, rtol=2e-4)
    assert_allclose(refined.log_predictive, expected_rows.log_predictive, atol=1e-4)
    for name in ("precision", "shift", "theta", "Z"):
        assert getattr(sums, name).dtype == np.float64
    assert sums.whitened_gradient.dtype == np.float32


def test_a_pass_without_gradient_sums_the_same(state):
    rows, sites, prior, q = state
    _, sums = Sweep(prior, q, RULE, SweepOptions(gradient=False))(rows, sites)
    _, full = Sweep(prior, q, RULE, SweepOptions())(rows, sites)
    assert sums.theta is None
    assert sums.Z is None
    assert sums.whitened_gradient is None
    assert_array_equal(sums.precision, full.precision)
    assert sums.objective == full.objective


def test_a_pass_without_the_part_through_the_inducing_points_is_the_same_otherwise(state):
    rows, sites, prior, q = state
    _, sums = Sweep(prior, q, Variational(), SweepOptions(whitened_gradient=False))(rows, sites)
    _, full = Sweep(prior, q, Variational(), SweepOptions())(rows, sites)
    assert sums.whitened_gradient is None
    for name in ("precision", "shift", "theta", "Z"):
        assert_array_equal(getattr(sums, name), getattr(full, name))


def test_nothing_given_is_modified(state):
    rows, sites, prior, q = state
    kept = [A.copy() for A in (rows.X, sites.precision, sites.shift, q.mean, q.covariance)]
    Sweep(prior, q, RULE, SweepOptions(exact=True))(rows, sites)
    given = (rows.X, sites.precision, sites.shift, q.mean, q.covariance)
    for before, after in zip(kept, given, strict=True):
        assert_array_equal(before, after)
