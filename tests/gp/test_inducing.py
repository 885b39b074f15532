"""Where inducing points and lengthscales start."""

import tracemalloc

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_array
from scipy.spatial.distance import cdist, pdist
from sklearn.gaussian_process import kernels as sklearn_kernels
from sklearn.gaussian_process.kernels import RBF

from cavity import NumericalError
from cavity.data import ArraySource
from cavity.data.scaling import Scaling
from cavity.gp import inducing as initialization
from cavity.gp.inducing import (
    KERNEL_NAMES,
    default_kernel,
    greedy_conditional_variance,
    initial_inducing_points,
    kmeans_centres,
    median_distance,
    most_useful,
    sample_size,
)
from cavity.inference.start import kernel_and_points

HOW = ["kmeans", "random", "greedy"]
every_way = pytest.mark.parametrize("how", HOW)


def rng():
    return np.random.RandomState(0)


def rows(n=80, seed=0):
    return np.random.default_rng(seed).normal(size=(n, 2))


def choose(X, m, how, weight=None, seed=0):
    return initial_inducing_points(X, weight, m, how, RBF(1.0), np.random.RandomState(seed))


@every_way
@pytest.mark.parametrize("m", [1, 2, 17, 79])
def test_as_many_points_as_asked_for_within_the_rows(how, m):
    X = rows()
    Z = choose(X, m, how)
    assert Z.shape == (m, 2)
    assert Z.dtype == np.float64
    assert np.all(X.min(axis=0) <= Z)
    assert np.all(X.max(axis=0) >= Z)


def test_rows_whose_sums_overflow_have_no_centres():
    X = np.finfo(float).max * rows(30).clip(-1, 1)
    with np.errstate(all="ignore"), pytest.raises(NumericalError, match="no cluster centres"):
        choose(X, 4, "kmeans")


@pytest.mark.parametrize("how", ["random", "greedy"])
def test_rows_are_chosen_without_repetition(how):
    X = rows()
    Z = choose(X, 40, how)
    assert len(np.unique(Z, axis=0)) == 40
    assert {tuple(z) for z in Z} <= {tuple(x) for x in X}


@every_way
@pytest.mark.parametrize("m", [80, 200])
def test_enough_points_are_the_rows_themselves(how, m):
    X = rows()
    Z = choose(X, m, how)
    assert_array_equal(Z, X)
    assert not np.shares_memory(Z, X)


@every_way
def test_a_seed_decides(how):
    X = rows()
    assert_array_equal(choose(X, 10, how, seed=3), choose(X, 10, how, seed=3))
    assert not np.array_equal(choose(X, 10, "random", seed=3), choose(X, 10, "random", seed=4))


@every_way
def test_repeated_rows_still_give_the_number_asked_for(how):
    X = np.repeat(rows(3), 20, axis=0)
    Z = choose(X, 10, how)
    assert Z.shape == (10, 2)
    assert_allclose(cdist(Z, X).min(axis=1), 0.0, atol=1e-12)
    if how != "random":
        assert_allclose(cdist(X, Z).min(axis=1), 0.0, atol=1e-12)


@every_way
def test_rows_of_weight_zero_are_not_looked_at(how):
    X = np.concatenate([rows(), rows() + 100.0])
    Z = choose(X, 10, how, weight=np.repeat([1.0, 0.0], 80))
    assert (Z < 50).all()


@pytest.mark.parametrize(("how", "worst_of"), [("kmeans", np.mean), ("greedy", np.max)])
def test_points_leave_less_variance_unexplained_than_random_rows(how, worst_of):
    X, kernel = rows(400), RBF(1.0)

    def unexplained(Z):
        K = kernel(X, Z)
        explained = np.sum(K * np.linalg.solve(kernel(Z) + 1e-9 * np.eye(len(Z)), K.T).T, axis=1)
        return worst_of(1.0 - explained)

    random = [unexplained(choose(X, 12, "random", seed=seed)) for seed in range(5)]
    assert unexplained(choose(X, 12, how)) < min(random)


def test_greedy_takes_the_largest_conditional_variance_each_time():
    X, kernel = rows(30), RBF(0.7)
    chosen = greedy_conditional_variance(X, 6, kernel, rng())
    for j in range(1, 6):
        before = X[chosen[:j]]
        K = kernel(X, before)
        conditional = 1.0 - np.sum(K * np.linalg.solve(kernel(before), K.T).T, axis=1)
        assert_allclose(conditional[chosen[j]], conditional.max(), rtol=1e-8)


def test_median_distance():
    X = rows(50)
    assert_allclose(median_distance(X, rng()), np.median(pdist(X)))
    many = rows(3000)
    assert_allclose(median_distance(many, rng()), np.median(pdist(many)), rtol=0.05)


@pytest.mark.parametrize("X", [np.zeros((5, 2)), np.zeros((1, 2))])
def test_median_distance_of_equal_rows_is_one(X):
    assert median_distance(X, rng()) == 1.0


def test_default_kernel_starts_inside_bounds_that_close_the_scale_ridge():
    kernel = default_kernel(3, 0.7)
    assert_allclose(np.exp(kernel.theta), [1.0, 0.7, 0.7, 0.7])
    lower, upper = kernel.bounds.T
    assert (lower < kernel.theta).all()
    assert (kernel.theta < upper).all()
    assert_allclose(np.exp(upper[0]), 30.0)
    assert_allclose(np.diag(kernel(rows(4)[:, [0, 1, 1]])), 1.0)  # no noise of its own


def test_the_sample_grows_with_the_points():
    sizes = [sample_size(m) for m in (1, 10, 100, 1_000, 10_000)]
    assert sizes == sorted(sizes)
    assert sizes[0] >= 1_000
    assert sizes[-1] >= 10_000


def test_the_sample_of_wide_rows_takes_no_more_than_it_may_but_is_enough_for_the_points():
    for how in HOW:
        assert sample_size(10, how, 50) == sample_size(10, how)
        assert 8 * 100_000 * sample_size(10, how, 100_000) <= 100_000_000
        assert sample_size(500, how, 100_000) == 500


def test_sparse_rows_that_are_wide_do_not_fill_the_memory_to_choose_a_start():
    """3,000 rows of 20,000 columns, with 60,000 values: 2,000 of them would take 320 MB."""
    draw, shape = np.random.default_rng(0), (3_000, 20_000)
    places = draw.integers(0, shape[0], 60_000), draw.integers(0, shape[1], 60_000)
    X = csr_array((draw.random(60_000), places), shape=shape)
    source = ArraySource(X, (np.arange(3_000) % 2).astype(np.int8))
    options = {
        "kernel": RBF(1.0),
        "kernel_name": "rbf",
        "inducing_points": None,
        "n_inducing": 4,
        "inducing_init": "random",
    }
    starts = []
    for _ in range(2):
        tracemalloc.start()
        starts.append(kernel_and_points(source, Scaling.identity(20_000), rng=rng(), **options)[1])
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 220e6
    assert_array_equal(*starts)
    assert starts[0].shape == (4, 20_000)


class TestProjectedClusters:
    """Many columns: rows are told apart by random projections, centres are means of whole rows."""

    @pytest.fixture(autouse=True)
    def always(self, monkeypatch):
        monkeypatch.setattr(initialization, "_LONG_WORK", 0)

    def test_groups_that_lie_apart_are_found(self):
        rng = np.random.default_rng(0)
        truth = 3.0 * rng.normal(size=(6, 300))
        rows = np.repeat(truth, 50, axis=0) + rng.normal(size=(300, 300))
        centres = kmeans_centres(rows, None, 6, np.random.RandomState(0))
        nearest = np.linalg.norm(centres[:, None] - truth, axis=2).min(axis=0)
        assert nearest.max() < 1.5 * np.sqrt(300 / 50)

    def test_a_weight_counts_copies_in_the_means(self):
        rng = np.random.default_rng(0)
        rows, weight = rng.normal(size=(30, 100)), np.arange(1.0, 31.0)
        (centre,) = kmeans_centres(rows, weight, 1, np.random.RandomState(0))
        assert_allclose(centre, np.average(rows, axis=0, weights=weight), atol=1e-12)

    def test_fewer_different_rows_than_clusters(self):
        rows = np.repeat(np.eye(3, 100), 20, axis=0)
        centres = kmeans_centres(rows, None, 10, np.random.RandomState(0))
        assert centres.shape == (10, 100)
        assert np.isfinite(centres).all()
        assert len(np.unique(centres.round(9), axis=0)) == 3


def test_the_point_left_out_is_the_one_whose_noise_the_others_see_least():
    """The oracle: the trace of the precision times the covariance given the points that are kept."""
    Z = rows(9)
    K = RBF(1.0)(Z) + 1e-6 * np.eye(9)
    root = np.random.default_rng(1).normal(size=(9, 9))
    precision = root @ root.T

    def loss(kept, K=K, precision=precision):
        given = K[:, kept] @ np.linalg.inv(K[np.ix_(kept, kept)]) @ K[kept]
        return np.trace(precision @ (K - given))

    every = [np.delete(np.arange(9), j) for j in range(9)]
    best = min(every, key=loss)
    assert_array_equal(most_useful(K, precision, 8), best)
    # What was known about the point is known about the others from then on.
    T = K[:, best] @ np.linalg.inv(K[np.ix_(best, best)])
    smaller = K[np.ix_(best, best)], T.T @ precision @ T
    again = min((np.delete(np.arange(8), j) for j in range(8)), key=lambda kept: loss(kept, *smaller))
    assert_array_equal(most_useful(K, precision, 7), best[again])


@pytest.mark.parametrize("name", KERNEL_NAMES)
def test_a_kernel_of_many_features_is_told_in_a_line(name):
    kernel = default_kernel(72, 1.0, name)
    assert len(str(kernel)) < 80
    assert "1, ..., 1" in str(kernel)
    plain = getattr(sklearn_kernels, type(kernel.k2).__name__)
    assert isinstance(kernel.k2, plain)
    rows = np.random.default_rng(0).normal(size=(5, 72))
    parameters = kernel.k2.get_params()
    np.testing.assert_array_equal(kernel.k2(rows), plain(**parameters)(rows))
    assert str(kernel.clone_with_theta(kernel.theta + 0.1)) != str(kernel)
