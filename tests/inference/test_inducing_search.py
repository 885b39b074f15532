"""The search for the number of inducing points: greedy candidates, a score that decides, a clock."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from cavity.gp.inducing import conditional_variance, extended_greedily
from cavity.gp.parameters import ParameterSpace
from cavity.inference.converge import converge
from cavity.inference.ep import ExpectationPropagation
from cavity.inference.history import Progress
from cavity.inference.inducing_search import Gain, InducingSearch, relative_gain
from cavity.inference.trainer import make_problem
from support import make_engine, table

KERNEL = ConstantKernel(1.0, (1e-2, 30.0)) * RBF([1.0, 1.0])
X, LABELS = table(120)


def wiggly(n=400, seed=0):
    """Rows that need many points: the label changes ten times along the first column."""
    rng = np.random.default_rng(seed)
    rows = rng.uniform(-3, 3, size=(n, 2))
    return rows, (np.sin(5 * rows[:, 0]) + 0.3 * rng.normal(size=n) > 0).astype(np.int8)


def search(rows, labels, numbers=(4, 8, 16, 32), **options):
    wanted = InducingSearch(**{"required_gain": 1.0, **options})  # of 400 points; of 32, 0.0064
    engine = make_engine(rows, labels)
    return wanted.run(engine, ExpectationPropagation(), KERNEL, rows, numbers, Progress())


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

    def test_what_points_leave_unexplained(self):
        kernel, Z = KERNEL, X[:6]
        K, cross = kernel(Z) + 1e-8 * np.eye(6), kernel(Z, X)
        left = kernel.diag(X) - np.einsum("ij,ij->j", cross, np.linalg.solve(K, cross))
        assert_allclose(conditional_variance(Z, X, kernel), left, atol=1e-6)


def test_more_points_where_more_are_needed():
    numbers = (10, 20, 40, 80)
    rows = np.random.default_rng(1).normal(size=(400, 2))
    noisy = rows[:, 0] + np.random.default_rng(2).normal(size=400) > 0
    few = search(rows, noisy.astype(np.int8), numbers)
    many = search(*wiggly(), numbers)
    assert len(few.Z) < len(many.Z)
    assert [candidate.m for candidate in many.candidates] == list(numbers[: len(many.candidates)])
    assert all(candidate.seconds > 0 for candidate in many.candidates)


def test_a_candidate_that_gains_nothing_is_not_taken():
    found = search(X, LABELS, required_gain=2_000.0)
    assert len(found.Z) == 4
    assert len(found.candidates) <= 2
    assert len(search(*wiggly(), required_gain=-1_000_000.0).Z) == 32


@pytest.mark.parametrize("seed", [3, 5])
def test_a_gain_that_may_be_chance_is_not_taken(seed):
    """Labels without any structure, on which more points gain a little, by less than its error."""
    rows = np.random.default_rng(seed).normal(size=(80, 2))
    labels = np.random.default_rng(seed + 50).integers(0, 2, 80).astype(np.int8)
    assert len(search(rows, labels, (5, 10, 20, 40), required_gain=0.0).Z) == 5


@pytest.mark.parametrize(
    ("before", "last", "promises"),
    [
        (0.0, np.inf, True),  # the first candidate has nothing to compare with: the second is tried
        (np.inf, 0.17, True),  # of one gain, half is expected
        (np.inf, 0.15, False),
        (0.20, 0.15, True),  # a line goes on to 0.10
        (0.20, 0.13, False),  # … to 0.06, less than half
        (0.30, 0.17, True),  # … to 0.04, but half is more
        (0.01, 0.09, True),  # no more than the last, though gains have risen
        (0.01, 0.07, False),
    ],
)
def test_a_candidate_is_tried_if_the_gains_before_promise_enough(before, last, promises):
    wanted = InducingSearch(required_gain=0.08)
    assert wanted.is_promising(Gain(before), Gain(last), 400) is promises
    assert not wanted.is_promising(Gain(before), Gain(last), None)


def test_the_gain_and_its_error_are_those_of_the_rows():
    """Weights count as copies, in the mean and in its standard error."""
    weight = np.array([1.0, 2.0, 1.0])
    before, after = np.array([-1.0, -0.5, -2.0]), np.array([-0.8, -0.5, -2.1])
    found = relative_gain(before, after, weight)
    copies = np.repeat(after - before, weight.astype(int))
    scale = 1.0  # the mean score before, by weight
    assert_allclose(found.value, copies.mean() / scale)
    assert_allclose(found.error, copies.std() / np.sqrt(4) / scale)


def test_points_kernel_and_sites_belong_together():
    """Those of the candidate that was enough, also if one more was tried in vain."""
    rows, labels = wiggly()
    found = search(rows, labels, (16, 32, 64), required_gain=12.0)
    assert len(found.Z) < found.candidates[-1].m
    engine = make_engine(rows, labels)
    engine.sites = found.sites
    prior = make_problem(engine, engine.rule, ParameterSpace(found.kernel, found.Z), 1.0).prior(
        ParameterSpace(found.kernel, found.Z).start
    )
    point = converge(engine, prior, engine.rule, tol=0.05, max_sweeps=1)
    assert point.converged  # the sites are (nearly) at EP's fixed point under this very prior
    candidate = next(candidate for candidate in found.candidates if candidate.m == len(found.Z))
    assert_allclose(point.mean_log_predictive, candidate.loo_score, atol=1e-3)


def test_the_penalty_is_a_quarter_of_the_precision_times_the_unexplained_variance():
    found = search(X, LABELS, (4,))
    left = conditional_variance(found.Z, X, found.kernel)
    assert_allclose(
        found.candidates[0].penalty, 0.25 * np.mean(found.sites.precision[0] * left), rtol=1e-9
    )


def test_the_clock_binds():
    found = search(*wiggly(), max_seconds=1e-9)
    assert len(found.Z) == 4
    assert len(found.candidates) == 1


@pytest.mark.parametrize("learn_kernel", [False, True])
def test_what_is_not_to_be_learned_stays(learn_kernel):
    rows, labels = wiggly()
    found = search(rows, labels, learn_kernel=learn_kernel, learn_inducing=False)
    assert {tuple(point) for point in found.Z} <= {tuple(row) for row in rows}
    assert (found.kernel == KERNEL) is not learn_kernel
    assert found.candidates[0].m == 4


def test_the_same_candidates_every_time():
    one, other = search(*wiggly()), search(*wiggly())
    assert_array_equal(one.Z, other.Z)
    assert_array_equal(
        [candidate.loo_score for candidate in one.candidates],
        [candidate.loo_score for candidate in other.candidates],
    )
