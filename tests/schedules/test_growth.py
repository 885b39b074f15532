"""The ladder of inducing points: greedy rungs, a score that decides, a clock that binds."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from cavity.initialization import extended_greedily
from cavity.schedules.growth import Growth
from cavity.schedules.progress import Progress
from support import make_engine, table

KERNEL = ConstantKernel(1.0, (1e-2, 30.0)) * RBF([1.0, 1.0])
X, LABELS = table(120)


def wiggly(n=400, seed=0):
    """Rows that need many points: the label changes ten times along the first column."""
    rng = np.random.default_rng(seed)
    rows = rng.uniform(-3, 3, size=(n, 2))
    return rows, (np.sin(5 * rows[:, 0]) + 0.3 * rng.normal(size=n) > 0).astype(np.int8)


def climb(rows, labels, ladder=(4, 8, 16, 32), **options):
    growth = Growth(**{"tol": 0.003, **options})
    return growth.run(make_engine(rows, labels), KERNEL, rows, ladder, Progress())


class TestGreedyExtension:
    def test_each_point_has_the_greatest_weighted_conditional_variance(self):
        precision = np.random.default_rng(0).uniform(0.1, 1.0, len(X))
        Z = extended_greedily(X[:3] + 0.1, X, precision, 7, KERNEL)
        assert_array_equal(Z[:3], X[:3] + 0.1)
        for k in range(3, 7):
            K, cross = KERNEL(Z[:k]) + 1e-8 * np.eye(k), KERNEL(Z[:k], X)
            left = 1.0 - np.einsum("ij,ij->j", cross, np.linalg.solve(K, cross))
            assert_allclose(Z[k], X[np.argmax(precision * left)])

    def test_rows_of_no_precision_are_not_chosen_before_others(self):
        precision = (np.arange(len(X)) < 10).astype(float)
        Z = extended_greedily(np.zeros((0, 2)), X, precision, 10, KERNEL)
        assert_array_equal(np.sort(Z[:, 0]), np.sort(X[:10, 0]))

    def test_no_more_points_than_different_rows(self):
        twice = np.repeat(X[:5], 3, axis=0)
        assert len(extended_greedily(np.zeros((0, 2)), twice, np.ones(15), 9, KERNEL)) == 5


def test_more_points_where_more_are_needed():
    ladder = (10, 20, 40, 80)
    few, _ = climb(X, LABELS, ladder)
    many, path = climb(*wiggly(), ladder)
    assert few < many
    assert [rung.m for rung in path] == list(ladder[: len(path)])
    assert all(rung.seconds > 0 for rung in path)


def test_a_rung_that_gains_nothing_is_not_taken():
    enough, path = climb(X, LABELS, tol=0.5)
    assert enough == 4
    assert len(path) <= 2
    assert climb(*wiggly(), tol=-1.0)[0] == 32


def test_the_clock_binds():
    enough, path = climb(*wiggly(), max_seconds=1e-9)
    assert enough == 4
    assert len(path) == 1


@pytest.mark.parametrize("learn_kernel", [False, True])
def test_what_is_not_to_be_learned_stays(learn_kernel):
    enough, path = climb(*wiggly(), learn_kernel=learn_kernel, learn_inducing=False)
    assert enough > 0
    assert path[0].m == 4


def test_the_same_path_every_time():
    one, other = climb(*wiggly()), climb(*wiggly())
    assert one[0] == other[0]
    assert_array_equal([rung.loo_score for rung in one[1]], [rung.loo_score for rung in other[1]])
