"""Streams of models with leaves: q stands for all rows so far, and points follow the rows."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.linalg import block_diag
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern, Sum

from cavity.data.routing import TreeRouting, with_leaves
from cavity.gp.arrowhead import Conditional, LocalNaturalParameters
from cavity.gp.leaves import Leaves, LocalPrior
from cavity.gp.parameters import ParameterSpace
from cavity.gp.posterior import NaturalParameters, Posterior
from cavity.inference.history import Progress
from cavity.inference.leaves import LocalStreamUpdate
from cavity.inference.optimizers import Adam
from cavity.inference.rule import ExpectationPropagation
from cavity.inference.streaming import Stream, StreamSettings, absorb, following_in_leaves
from cavity.inference.sweep import SiteSum, SweepOptions
from cavity.inference.trainer import EarlierRows, Trainer, make_problem
from support import fixed_point, make_engine

FLOAT64 = np.dtype(np.float64)
KERNEL = Sum(ConstantKernel(0.8) * RBF([1.1, 0.9]), ConstantKernel(1.3) * Matern([0.5, 0.7], nu=1.5))


def two_leaves():
    """Leaves left and right of 0 in the first column."""
    return TreeRouting(
        feature=np.zeros(3, np.int64),
        threshold=np.zeros(3),
        left=np.array([1, 1, 2]),
        right=np.array([2, 1, 2]),
        leaf=np.array([-1, 0, 1]),
    )


def rows(n=200, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    return X, (np.sin(3 * X[:, 0]) + X[:, 1] + 0.3 * rng.normal(size=n) > 0).astype(np.int8)


def local_prior(sizes=(3, 4), kernel=KERNEL):
    rng = np.random.default_rng(1)
    points = tuple(rng.normal(size=(size, 2)) for size in sizes)
    return LocalPrior(kernel, rng.normal(size=(4, 2)), FLOAT64, Leaves(two_leaves(), points))


def trainer_for(X, labels, prior, *, learn=True, weight=None):
    """A trainer of a chunk, as a stream has it, and the chunk."""
    engine = make_engine(X, labels, weight=weight)
    engine.source = with_leaves(engine.source, prior.leaves.routing(X))
    space = ParameterSpace(prior.kernel, prior.Z, learn_kernel=learn, learn_inducing=False)
    problem = make_problem(engine, ExpectationPropagation(), space, 1.0, leaves=prior.leaves)
    problem = replace(problem, jitter=prior.jitter, leaf_jitter=prior.leaf_jitter)
    return Trainer(problem, Adam(0.02), SweepOptions(), LocalStreamUpdate())


def listen(cuts, settings, *, learn=False):
    X, labels = rows()
    prior, stream = local_prior(), None
    for start, stop in pairwise(cuts):
        part = slice(start, stop)
        trainer = trainer_for(X[part], labels[part], prior, learn=learn)
        stream = Stream(trainer.init(), 0.0) if stream is None else stream
        trainer, stream = absorb(trainer, stream, trainer.engine.source, Progress(), settings)
    return stream, prior


@pytest.mark.parametrize("learn", [False, True])
@pytest.mark.parametrize("memory", [np.inf, 60.0])
def test_how_the_rows_are_cut_into_chunks_does_not_matter(learn, memory):
    settings = StreamSettings(batch_size=20, memory=memory)
    whole, _ = listen([0, 200], settings, learn=learn)
    parts, _ = listen([0, 40, 80, 120, 160, 200], settings, learn=learn)
    assert parts.seen == whole.seen == 200.0
    assert_allclose(parts.state.x, whole.state.x, rtol=1e-9)
    for ours, theirs in zip(parts.state.q.leaves, whole.state.q.leaves, strict=True):
        assert_allclose(ours.precision, theirs.precision, rtol=1e-8, atol=1e-10)


def test_at_a_fixed_kernel_a_stream_comes_close_to_the_fixed_point_of_all_rows():
    X, labels = rows()
    stream, prior = listen([0, 200], StreamSettings(20))
    engine = make_engine(X, labels)
    engine.source = with_leaves(engine.source, prior.leaves.routing(X))
    point = fixed_point(engine, prior).posterior
    q = stream.state.q.posterior()
    for leaf in range(2):
        expected, found = point.view(leaf), q.view(leaf)
        distance = np.linalg.norm(found.mean - expected.mean)
        assert distance < 0.15 * np.linalg.norm(expected.mean)
        assert_allclose(np.trace(found.covariance[0]), np.trace(expected.covariance[0]), rtol=0.25)


def objective(trainer, known, prior):
    """Log evidence of the rows under a kernel, if the known factors on values at points stay."""
    engine = trainer.engine
    for _ in range(200):
        q = engine.run(SiteSum(prior)).naturals + known.under(prior)
        trainer_q = replace(trainer, earlier=known, rebuild=True, population=engine.total_weight)
        found = trainer_q.evaluate(prior.kernel.theta, q, 1.0)
        engine.commit()
        if found.info.site_change < 1e-12:
            break
    return found


def test_gradient_is_that_of_the_evidence_with_fixed_known_factors():
    """The rows of the minibatch are all in one leaf; the other leaf has known factors only."""
    X, labels = rows(60)
    right = X[:, 0] > 0
    prior = local_prior()
    before = trainer_for(X, labels, prior)
    known = EarlierRows(fixed_point(before.engine, prior).posterior.naturals, prior)
    theta, step = prior.kernel.theta, 1e-5

    def at(theta):
        trainer = trainer_for(X[right], labels[right], prior)
        moved = prior.at(prior.kernel.clone_with_theta(theta))
        flat = replace(trainer.problem.hyperprior, scale=np.full(len(theta), np.inf))
        trainer = replace(trainer, problem=replace(trainer.problem, hyperprior=flat))
        return objective(trainer, known, moved)

    found = at(theta)
    for i in range(len(theta)):
        move = step * np.eye(len(theta))[i]
        slope = (at(theta + move).info.objective - at(theta - move).info.objective) / (2 * step)
        assert found.slope[i] == pytest.approx(slope, abs=1e-5)


def arrowhead(q, sizes):
    """Precision and shift of all values, written out."""
    starts = np.cumsum([q.m, *sizes])
    P, shift = np.zeros((starts[-1],) * 2), np.zeros(starts[-1])
    for k, own in enumerate(q.leaves):
        at = np.r_[: q.m, starts[k] : starts[k + 1]]
        P[np.ix_(at, at)] += own.precision[0]
        shift[at] += own.shift[0]
    return NaturalParameters(P[None], shift[None])


def some_naturals(m=4, sizes=(3, 4), seed=3):
    rng = np.random.default_rng(seed)
    leaves = []
    for size in sizes:
        A = rng.normal(size=(9, m + size))
        leaves.append(NaturalParameters((A.T @ A)[None], rng.normal(size=(1, m + size))))
    return LocalNaturalParameters.of(leaves, m)


def conditional(k, m, seed):
    """u [k] given v [m]: a part of the variance of u is that of v."""
    T = 0.9 * np.linalg.qr(np.random.default_rng(seed).normal(size=(max(k, m),) * 2))[0][:k, :m]
    return Conditional(T, np.eye(k) - T @ T.T)


@pytest.mark.parametrize("whole", [False, True])
def test_other_points_carry_what_was_known(whole):
    """The oracle has the joint precision of all values written out."""
    q = some_naturals()
    first = conditional(4, 5, 0) if whole else None
    parts = {1: conditional(4, 3, 1)}
    found = q.carried_in_leaves(first, parts)
    T, D = first or Conditional(np.eye(4), np.zeros((4, 4)))
    exact = arrowhead(q, (3, 4)).carried(
        block_diag(T, np.eye(3), parts[1].T), block_diag(D, np.zeros((3, 3)), parts[1].D)
    )
    truth, ours = Posterior.from_naturals(exact), found.posterior()
    m = T.shape[1]
    for leaf, at in enumerate([np.r_[: m + 3], np.r_[:m, m + 3 : m + 6]]):
        view = ours.view(leaf)
        assert_allclose(view.mean[0], truth.mean[0, at], atol=1e-9)
        assert_allclose(view.covariance[0], truth.covariance[0][np.ix_(at, at)], atol=1e-9)
    if not whole:  # then leaves are still independent given the global values
        everything = Posterior.from_naturals(arrowhead(found, (3, 3)))
        assert_allclose(everything.covariance, truth.covariance, atol=1e-9)
        assert found.leaves[0] is q.leaves[0]


def test_points_follow_the_rows_into_another_region():
    prior = local_prior()
    q = some_naturals()
    X = np.random.default_rng(5).uniform(3.0, 6.0, (80, 2))
    settings = StreamSettings(20, n_inducing=6, n_local=5)
    after, carried = following_in_leaves(prior, q, X, np.ones(80), np.ones(80, int), settings)
    assert len(after.Z) == 6
    assert after.leaves.sizes == (3, 5)  # no row is in the first leaf
    assert (after.leaves.points[1] > 3.0).all(axis=1).any()
    assert carried.leaves[1].shift.shape == (1, 11)
    same = following_in_leaves(prior, q, prior.Z[:1], np.zeros(1), np.zeros(1, int), settings_of(q))
    assert same == (prior, q)


def settings_of(q):
    return StreamSettings(20, n_inducing=q.m, n_local=3)


def test_rows_of_weight_two_are_two_rows():
    X, labels = rows(40)
    prior = local_prior()
    found = []
    for many, weight in ((np.arange(40), np.full(40, 2.0)), (np.repeat(np.arange(40), 2), None)):
        trainer = trainer_for(X[many], labels[many], prior, learn=False, weight=weight)
        _, stream = absorb(
            trainer, Stream(trainer.init(), 0.0), trainer.engine.source, Progress(), StreamSettings(80)
        )
        found.append(stream)
    assert found[0].seen == found[1].seen == 80.0
    for ours, theirs in zip(*(stream.state.q.leaves for stream in found), strict=True):
        assert_allclose(ours.precision, theirs.precision, rtol=1e-9, atol=1e-9)
