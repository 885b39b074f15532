"""Local inducing points against one dense Gaussian of all inducing values."""

import numpy as np
import pytest

from cavity.gp.arrowhead import LocalNaturalParameters
from cavity.gp.posterior import NaturalParameters

M, SIZES, C = 3, (2, 4, 1), 2


def random_naturals(seed=0):
    """Summed sites of leaves with 3 global points, and with 2, 4 and 1 points of their own."""
    rng = np.random.default_rng(seed)
    leaves = []
    for size in SIZES:
        A = rng.normal(size=(C, 6, M + size))
        leaves.append(NaturalParameters(A.transpose(0, 2, 1) @ A, rng.normal(size=(C, M + size))))
    return leaves


def positions(leaf):
    """Where the values of a leaf's view are among all inducing values."""
    start = M + sum(SIZES[:leaf])
    return np.r_[0:M, start : start + SIZES[leaf]]


def dense(leaves):
    """The same sites as one Gaussian of all inducing values: precision and shift for each function."""
    size = M + sum(SIZES)
    precision, shift = np.zeros((C, size, size)), np.zeros((C, size))
    for leaf, own in enumerate(leaves):
        at = positions(leaf)
        for c in range(C):
            precision[c][np.ix_(at, at)] += own.precision[c]
            shift[c][at] += own.shift[c]
    return NaturalParameters(precision, shift).posterior()


def test_view_of_a_leaf_is_the_marginal_of_the_dense_posterior():
    leaves = random_naturals()
    q, truth = LocalNaturalParameters.of(leaves, M).posterior(), dense(leaves)
    np.testing.assert_allclose(q.mean, truth.mean[:, :M], atol=1e-12)
    np.testing.assert_allclose(q.covariance, truth.covariance[:, :M, :M], atol=1e-12)
    for leaf in range(len(SIZES)):
        at = positions(leaf)
        np.testing.assert_allclose(q.view(leaf).mean, truth.mean[:, at], atol=1e-12)
        np.testing.assert_allclose(
            q.view(leaf).covariance, truth.covariance[:, at][:, :, at], atol=1e-12
        )


def test_normaliser_and_divergence_are_those_of_the_dense_posterior():
    leaves = random_naturals()
    q, truth = LocalNaturalParameters.of(leaves, M).posterior(), dense(leaves)
    assert q.log_partition == pytest.approx(truth.log_partition, abs=1e-10)
    assert q.divergence == pytest.approx(truth.divergence, abs=1e-10)


def test_replacing_the_sites_of_some_leaves_is_the_same_as_adding_all_up_again():
    leaves, others = random_naturals(), random_naturals(1)
    changed = LocalNaturalParameters.of(leaves, M).replaced({0: others[0], 2: others[2]})
    anew = LocalNaturalParameters.of([others[0], leaves[1], others[2]], M)
    np.testing.assert_allclose(changed.precision, anew.precision, atol=1e-12)
    np.testing.assert_allclose(changed.shift, anew.shift, atol=1e-12)
    assert changed.posterior().log_partition == pytest.approx(anew.posterior().log_partition)


def test_leaf_without_sites_says_nothing():
    leaves = random_naturals()
    leaves[1] = NaturalParameters.zeros(C, M + SIZES[1])
    q = LocalNaturalParameters.of(leaves, M)
    assert not q.conditionals[1].message.naturals.precision.any()
    assert q.conditionals[1].message.log_partition == 0.0
    own = q.posterior().view(1).covariance[:, M:, M:]
    np.testing.assert_allclose(own, np.broadcast_to(np.eye(SIZES[1]), own.shape), atol=1e-12)
