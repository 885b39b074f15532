"""Inference with local inducing points against EP on the covariance of all rows, written out."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern, Sum

from cavity.data.arrays import ArrayBlock, ArraySource
from cavity.data.routing import TreeRouting, leaf_batches, learn_tree, with_leaves
from cavity.data.scaling import Scaling
from cavity.gp.arrowhead import LocalNaturalParameters
from cavity.gp.leaves import Leaves, LocalPrior
from cavity.gp.likelihoods import Logit, NoisyArgmax, Probit
from cavity.gp.model import Model
from cavity.gp.parameters import ParameterSpace
from cavity.gp.posterior import NaturalParameters
from cavity.gp.prior import Prior
from cavity.inference.leaves import LocalGradient, LocalUpdate
from cavity.inference.optimizers import Adam
from cavity.inference.rule import ExpectationPropagation, Variational
from cavity.inference.sweep import SiteSum, Sweep, SweepOptions
from cavity.inference.trainer import Batch, Trainer, make_problem
from cavity.inference.updates import objective
from reference import expectation_propagation, predict
from support import fixed_point, make_engine, set_tile_rows, signs

FLOAT64 = np.dtype(np.float64)
JITTER = 1e-8
KERNEL = Sum(ConstantKernel(0.8) * RBF([1.1, 0.9]), ConstantKernel(1.3) * Matern([0.5, 0.7], nu=1.5))


def three_leaves():
    """Leaves left of −0.4, between, and right of 0.6 in the first column."""
    return TreeRouting(
        feature=np.array([0, 0, 0, 0, 0]),
        threshold=np.array([-0.4, 0.0, 0.6, 0.0, 0.0]),
        left=np.array([1, 1, 3, 3, 4]),
        right=np.array([2, 1, 4, 3, 4]),
        leaf=np.array([-1, 0, -1, 1, 2]),
    )


def rows(n=30, seed=0):
    """Rows [n, 2] and class codes [n] with a structure finer than that of the global kernel."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    return X, (np.sin(4 * X[:, 0]) + X[:, 1] + 0.3 * rng.normal(size=n) > 0).astype(np.int8)


def local_prior(kernel=KERNEL, seed=1, routing=None, sizes=(2, 3, 2)):
    """A prior with four points for all rows and some in every leaf."""
    rng = np.random.default_rng(seed)
    Z = rng.normal(size=(4, 2))
    points = tuple(rng.normal(size=(size, 2)) for size in sizes)
    return LocalPrior(kernel, Z, FLOAT64, Leaves(routing or three_leaves(), points), JITTER, JITTER)


def leaf_engine(X, labels, routing, **options):
    """An engine whose rows know their leaves."""
    engine = make_engine(X, labels, **options)
    engine.source = with_leaves(engine.source, routing(X))
    return engine


def fitc(prior, X, X_star=None):
    """Covariance of the latent values at rows with the block structure written out.

    Q_g + [same leaf] Q_r, plus the residual on the diagonal; or the covariances with other rows.
    """
    routing, points = prior.leaves.routing, prior.leaves.points
    other = X if X_star is None else X_star

    def nystrom(kernel, Z, A, B):
        K = kernel(Z, Z)
        K = K + JITTER * np.mean(np.diag(K)) * np.eye(len(Z))
        return kernel(A, Z) @ np.linalg.solve(K, kernel(Z, B))

    Q = nystrom(prior.kernel.k1, prior.Z, other, X)
    here, there = routing(other), routing(X)
    for leaf, Z in enumerate(points):
        same = np.outer(here == leaf, there == leaf)
        Q += np.where(same, nystrom(prior.kernel.k2, Z, other, X), 0.0)
    if X_star is not None:
        return Q
    return Q + np.diag(prior.kernel.diag(X) - np.diag(Q))


def test_evidence_scores_and_moments_are_those_of_ep_on_all_rows():
    X, labels = rows()
    prior = local_prior()
    engine = leaf_engine(X, labels, prior.leaves.routing)
    point = fixed_point(engine, prior)
    K = fitc(prior, X)
    truth = expectation_propagation(K, signs(labels))
    assert point.objective == pytest.approx(truth.log_evidence, abs=1e-8)
    np.testing.assert_allclose(engine.log_predictive, truth.log_predictive, atol=1e-8)
    X_star = rows(seed=5)[0]
    cross = fitc(prior, X, X_star)
    expected = predict(truth, K, cross, prior.kernel.diag(X_star))
    model = Model.from_prior(prior, point.posterior, Scaling.identity(2), engine.rule.likelihood)
    mean, variance = model.latent_moments(X_star)
    np.testing.assert_allclose(mean[0], expected[0], atol=1e-8)
    np.testing.assert_allclose(variance[0], expected[1], atol=1e-8)
    # The test rows' own covariance is that of the whole prior, whose residuals they share in a leaf.
    leaf = prior.leaves.routing(X_star)
    kernel = prior.kernel
    K_star = kernel.k1(X_star) + np.where(np.equal.outer(leaf, leaf), kernel.k2(X_star), 0.0)
    explained = cross @ np.linalg.solve(K + np.diag(1 / truth.precision), cross.T)
    mean, covariance = model.joint_moments(X_star)
    np.testing.assert_allclose(mean[0], expected[0], atol=1e-8)
    np.testing.assert_allclose(covariance[0], K_star - explained, atol=1e-8)


def variational(prior, X, labels, likelihood, n_sweeps=400):
    """The best bound on the evidence with one dense q of all inducing values, and its mean."""
    A = whitened_by_hand(prior, X)
    residual = prior.kernel.diag(X) - np.sum(A**2, axis=1)
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    weights = weights / np.sqrt(2.0 * np.pi)
    y = signs(labels)[:, None]

    def log_likelihood(f):
        return norm.logcdf(y * f) if isinstance(likelihood, Probit) else -np.logaddexp(0.0, -y * f)

    mean, S = np.zeros(A.shape[1]), np.eye(A.shape[1])
    for _ in range(n_sweeps):
        e, v = A @ mean, np.sum((A @ S) * A, axis=1) + residual
        values = log_likelihood(e[:, None] + np.sqrt(v)[:, None] * nodes)
        expected = values @ weights
        slope = (values * nodes) @ weights / np.sqrt(v)  # Stein's lemma
        curvature = (values * (nodes**2 - 1.0)) @ weights / v
        S = np.linalg.inv(np.eye(len(mean)) - A.T @ (curvature[:, None] * A))
        mean = S @ (A.T @ (slope - curvature * e))
    divergence = 0.5 * (np.trace(S) + mean @ mean - len(mean) - np.linalg.slogdet(S)[1])
    return expected.sum() - divergence, mean


def whitened_by_hand(prior, X):
    """Rows [n, m + Σ m_k] of all whitened inducing values, zero in the leaves of other rows."""
    leaf, blocks = prior.leaves.routing(X), [(prior.kernel.k1, prior.Z, np.ones(len(X), bool))]
    blocks += [(prior.kernel.k2, Z, leaf == number) for number, Z in enumerate(prior.leaves.points)]
    parts = []
    for kernel, Z, mask in blocks:
        K = kernel(Z)
        L = np.linalg.cholesky(K + JITTER * np.mean(np.diag(K)) * np.eye(len(Z)))
        parts.append(np.where(mask[:, None], np.linalg.solve(L, kernel(Z, X)).T, 0.0))
    return np.hstack(parts)


@pytest.mark.parametrize("likelihood", [Probit(), Logit()], ids=["probit", "logit"])
def test_variational_bound_is_that_of_one_dense_posterior(likelihood):
    X, labels = rows()
    prior = local_prior()
    engine = leaf_engine(X, labels, prior.leaves.routing, rule=Variational(likelihood))
    point = fixed_point(engine, prior)
    bound, mean = variational(prior, X, labels, likelihood)
    assert point.objective == pytest.approx(bound, abs=1e-8)
    model = Model.from_prior(prior, point.posterior, Scaling.identity(2), likelihood)
    X_star = rows(seed=5)[0]
    found, _ = model.latent_moments(X_star)
    np.testing.assert_allclose(found[0], whitened_by_hand(prior, X_star) @ mean, atol=1e-8)


def test_variational_bound_of_three_classes_rises_to_its_maximum():
    X, _ = rows(60)
    labels = np.digitize(X[:, 0] + 0.5 * X[:, 1], [-0.5, 0.5])
    prior, rule = local_prior(), Variational(NoisyArgmax(3))
    engine = leaf_engine(X, labels, prior.leaves.routing, rule=rule)
    point = fixed_point(engine, prior, tol=1e-10)
    # No q near the one that was found has a larger bound.
    rng = np.random.default_rng(0)
    for _ in range(4):
        shifts = [
            rng.normal(scale=1e-2, size=own.shift.shape) for own in point.posterior.naturals.leaves
        ]
        others = [
            NaturalParameters(own.precision, own.shift + shift)
            for own, shift in zip(point.posterior.naturals.leaves, shifts, strict=True)
        ]
        q = LocalNaturalParameters.of(others, len(prior.Z)).posterior()
        sums = engine.run(Sweep(prior, q, rule, SweepOptions(damping=0.0, gradient=False)))
        assert objective(sums, q, rule) < point.objective


def evidence(X, labels, prior):
    return fixed_point(leaf_engine(X, labels, prior.leaves.routing), prior).objective


def test_gradient_is_that_of_the_converged_evidence():
    X, labels = rows()
    prior = local_prior()
    engine = leaf_engine(X, labels, prior.leaves.routing)
    point = fixed_point(engine, prior)
    sums = engine.run(Sweep(prior, point.posterior, engine.rule, SweepOptions(damping=0.0)))
    found = LocalGradient(sums, prior, point.posterior)

    def slope(changed):
        # Central differences of sixth order: their error is far below that of the evidence.
        step, weights = 4e-3, {1: 45.0, 2: -9.0, 3: 1.0}
        values = {k: evidence(X, labels, changed(k * step)) for k in range(-3, 4) if k}
        return sum(w * (values[k] - values[-k]) for k, w in weights.items()) / (60.0 * step)

    theta = prior.kernel.theta
    for i in range(len(theta)):
        move = np.eye(len(theta))[i]
        expected = slope(lambda h, move=move: prior.at(prior.kernel.clone_with_theta(theta + h * move)))
        assert found.shared.theta[i] == pytest.approx(expected, abs=1e-8)

    def moved(h):
        Z = prior.Z.copy()
        Z[1, 0] += h
        return LocalPrior(prior.kernel, Z, FLOAT64, prior.leaves, JITTER, JITTER)

    assert found.shared.Z[1, 0] == pytest.approx(slope(moved), abs=1e-8)
    for leaf in range(3):

        def moved_in_leaf(h, leaf=leaf):
            points = list(map(np.copy, prior.leaves.points))
            points[leaf][1, 1] += h
            return prior.with_points(tuple(points))

        assert found.by_leaf[leaf][1, 1] == pytest.approx(slope(moved_in_leaf), abs=1e-8)


def test_gradient_from_summed_sites_is_that_from_rows():
    X, labels = rows()
    prior = local_prior()
    engine = leaf_engine(X, labels, prior.leaves.routing, rule=Variational())
    q = fixed_point(engine, prior).posterior
    found = []
    for whitened_gradient in (True, False):
        # In VI h = −ν̃ and γ = ν̃ in every row.
        sums = engine.run(
            Sweep(prior, q, engine.rule, SweepOptions(whitened_gradient=whitened_gradient))
        )
        found.append(LocalGradient(sums, prior, q, gamma=1.0))
    np.testing.assert_allclose(found[0].shared.theta, found[1].shared.theta, atol=1e-9)
    np.testing.assert_allclose(found[0].shared.Z, found[1].shared.Z, atol=1e-9)
    for leaf in range(3):
        np.testing.assert_allclose(found[0].by_leaf[leaf], found[1].by_leaf[leaf], atol=1e-9)


def test_one_leaf_with_kernels_of_one_shape_is_the_model_without_leaves():
    X, labels = rows()
    shape, Z = RBF([1.1, 0.9], "fixed"), np.random.default_rng(1).normal(size=(5, 2))
    everywhere = learn_tree(ArraySource(X, labels), 1, seed=0)
    kernel = Sum(ConstantKernel(0.8) * shape, ConstantKernel(1.3) * shape)
    prior = LocalPrior(kernel, Z, FLOAT64, Leaves(everywhere, (Z,)), JITTER, JITTER)
    point = fixed_point(leaf_engine(X, labels, everywhere), prior)
    plain = Prior(ConstantKernel(2.1) * shape, Z, FLOAT64, JITTER)
    truth = fixed_point(make_engine(X, labels), plain)
    assert point.objective == pytest.approx(truth.objective, abs=1e-8)
    X_star, likelihood = rows(seed=5)[0], ExpectationPropagation().likelihood
    models = [
        Model.from_prior(*part, Scaling.identity(2), likelihood)
        for part in ((prior, point.posterior), (plain, truth.posterior))
    ]
    for ours, theirs in zip(*(model.latent_moments(X_star) for model in models), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-8)
    np.testing.assert_allclose(*(model.remaining_variance_share(X_star) for model in models), atol=1e-8)


def test_leaf_of_no_rows_keeps_its_prior():
    X, labels = rows()
    X = X[X[:, 0] <= 0.6]
    labels = labels[: len(X)]
    prior = local_prior()
    engine = leaf_engine(X, labels, prior.leaves.routing)
    point = fixed_point(engine, prior)
    truth = expectation_propagation(fitc(prior, X), signs(labels))
    assert point.objective == pytest.approx(truth.log_evidence, abs=1e-8)
    size = len(prior.leaves.points[2])
    own = point.posterior.view(2).covariance[0, -size:, -size:]
    np.testing.assert_allclose(own, np.eye(size), atol=1e-12)
    # Far from the points of g and in the empty leaf, nothing is known.
    model = Model.from_prior(prior, point.posterior, Scaling.identity(2), engine.rule.likelihood)
    assert model.remaining_variance_share(np.array([[30.0, 30.0]]))[0, 0] == pytest.approx(1.0)


def test_row_on_a_seam_goes_left():
    """In training and predictions alike, so that its prediction is that of the rows that it was with."""
    routing = three_leaves()
    X = np.array([[-0.4, 9.0], [np.nextafter(-0.4, 1), 0.0], [0.6, 0.0], [0.7, 0.0]])
    assert routing(X).tolist() == [0, 1, 1, 2]


def test_number_of_threads_does_not_change_the_sums(monkeypatch):
    set_tile_rows(monkeypatch, 17)  # many tiles, so that threads share the work
    X, labels = rows(400)
    prior = local_prior()
    sums = []
    for count in (1, 2):
        engine = leaf_engine(X, labels, prior.leaves.routing, n_threads=count)
        q = engine.run(Sweep(prior, empty_posterior(prior), engine.rule)).naturals
        sums.append(q)
    for ours, theirs in zip(sums[0].leaves, sums[1].leaves, strict=True):
        np.testing.assert_array_equal(ours.precision, theirs.precision)
        np.testing.assert_array_equal(ours.shift, theirs.shift)


def test_size_of_tiles_does_not_change_the_answer(monkeypatch):
    X, labels = rows(400)
    prior = local_prior()
    whole = fixed_point(leaf_engine(X, labels, prior.leaves.routing), prior, tol=1e-10)
    set_tile_rows(monkeypatch, 17)
    cut = fixed_point(leaf_engine(X, labels, prior.leaves.routing, n_threads=2), prior, tol=1e-10)
    assert cut.objective == pytest.approx(whole.objective, abs=1e-8)
    for leaf in range(3):
        np.testing.assert_allclose(
            cut.posterior.view(leaf).mean, whole.posterior.view(leaf).mean, atol=1e-8
        )


def empty_posterior(prior):
    return make_problem(
        make_engine(*rows(4)), ExpectationPropagation(), space_of(prior), None, leaves=prior.leaves
    ).posterior


def space_of(prior):
    return ParameterSpace(prior.kernel, prior.Z)


def test_gradients_of_minibatches_have_the_mean_of_all_rows():
    X, labels = rows(600)
    prior = local_prior()
    engine = leaf_engine(X, labels, prior.leaves.routing)
    problem = replace(
        make_problem(engine, engine.rule, space_of(prior), None, leaves=prior.leaves), jitter=JITTER
    )
    trainer = Trainer(problem, Adam(), SweepOptions(), LocalUpdate())
    state = trainer.init()
    for _ in range(3):
        state, _ = trainer.step(state)
    whole = trainer.evaluate(state.x, state.q, 1.0)
    # Every row is in one minibatch.
    parts = [
        trainer.evaluate(state.x, state.q, 1.0, block) for block in small_batches(engine.source, 60)
    ]
    assert len(parts) > 5
    for leaf in range(3):
        seen = [part for part in parts if leaf in part.by_leaf]
        counted = [part.sums.scale * part.sums.shares[leaf] for part in seen]
        total = sum(c * part.by_leaf[leaf] for c, part in zip(counted, seen, strict=True))
        np.testing.assert_allclose(total / len(parts), whole.by_leaf[leaf], atol=1e-7)
    np.testing.assert_allclose(np.mean([part.slope for part in parts], axis=0), whole.slope, atol=1e-7)


def small_batches(source, size, seed=0):
    parts = leaf_batches(source.leaf, size, np.random.default_rng(seed))
    return iter([ArrayBlock(source, np.sort(part), 1.0 / len(parts)) for part in parts])


def test_a_step_changes_the_leaves_that_it_sees_alone():
    X, labels = rows(600)
    prior = local_prior()
    engine = leaf_engine(X, labels, prior.leaves.routing)
    problem = make_problem(engine, engine.rule, space_of(prior), None, leaves=prior.leaves)
    trainer = Trainer(problem, Adam(), SweepOptions(), LocalUpdate())
    state = trainer.init()
    block = next(
        b for b in small_batches(engine.source, 30) if len(set(engine.source.leaf[b.index])) == 1
    )
    (leaf,) = set(engine.source.leaf[block.index].tolist())
    after, _ = trainer.step(state, Batch(block, gain=0.1))
    for number in range(3):
        same = after.q.leaves[number] is state.q.leaves[number]
        assert same == (number != leaf)
    # The sites of a leaf stand for the rows of it that were seen.
    found = after.q.naturals.leaves[leaf]
    sums = engine.run(SiteSum(prior), block)
    np.testing.assert_allclose(found.precision, sums.parts[leaf].precision, rtol=1e-8)


def test_sites_of_an_epoch_are_those_of_all_rows():
    X, labels = rows(600)
    prior = local_prior()
    engine = leaf_engine(X, labels, prior.leaves.routing)
    problem = make_problem(engine, engine.rule, space_of(prior), None, leaves=prior.leaves)
    problem = replace(problem, jitter=JITTER, space=replace(space_of(prior), learn_kernel=False))
    problem = replace(problem, space=replace(problem.space, learn_inducing=False))
    trainer = Trainer(problem, Adam(), SweepOptions(), LocalUpdate(learn_inducing=False))
    state = trainer.init()
    for block in small_batches(engine.source, 60):
        state, _ = trainer.step(state, Batch(block, gain=1e-3))
    whole = engine.run(SiteSum(prior)).naturals
    for ours, theirs in zip(state.q.naturals.leaves, whole.leaves, strict=True):
        np.testing.assert_allclose(ours.precision, theirs.precision, rtol=1e-8, atol=1e-10)
    assert [leaf.seen for leaf in state.q.leaves] == pytest.approx([1.0, 1.0, 1.0])


def test_objective_of_a_rebuilt_q_is_the_evidence():
    X, labels = rows()
    prior = local_prior()
    engine = leaf_engine(X, labels, prior.leaves.routing)
    point = fixed_point(engine, prior)
    sums = engine.run(Sweep(prior, point.posterior, engine.rule, SweepOptions(damping=0.0)))
    assert objective(sums, point.posterior, engine.rule) == pytest.approx(point.objective, abs=1e-8)


def test_weight_is_a_number_of_copies():
    X, labels = rows()
    prior = local_prior()
    copies = np.random.default_rng(3).integers(0, 3, size=len(X))
    weighted = leaf_engine(X, labels, prior.leaves.routing, weight=copies.astype(float))
    many = np.repeat(np.arange(len(X)), copies)
    copied = leaf_engine(X[many], labels[many], prior.leaves.routing)
    ours, theirs = fixed_point(weighted, prior), fixed_point(copied, prior)
    assert ours.objective == pytest.approx(theirs.objective, abs=1e-8)
    for leaf in range(3):
        np.testing.assert_allclose(
            ours.posterior.view(leaf).covariance, theirs.posterior.view(leaf).covariance, atol=1e-8
        )


def test_files_keep_every_bit():
    X, labels = rows(600)
    prior = local_prior()
    engine = leaf_engine(X, labels, prior.leaves.routing)
    problem = make_problem(engine, engine.rule, space_of(prior), None, leaves=prior.leaves)
    update = LocalUpdate()
    trainer = Trainer(problem, Adam(), SweepOptions(), update)
    start = trainer.init()
    state, _ = trainer.step(start, Batch(next(small_batches(engine.source, 60))))
    arrays = update.as_arrays(state.q)
    back = update.from_arrays(arrays, start.q)
    for name, array in update.as_arrays(back).items():
        np.testing.assert_array_equal(array, arrays[name])
    assert [leaf.seen for leaf in back.leaves] == [leaf.seen for leaf in state.q.leaves]


def test_failed_step_goes_half_way_back():
    X, labels = rows(600)
    prior = local_prior()
    engine = leaf_engine(X, labels, prior.leaves.routing)
    problem = make_problem(engine, engine.rule, space_of(prior), None, leaves=prior.leaves)
    update = LocalUpdate()
    trainer = Trainer(problem, Adam(), SweepOptions(), update)
    before = trainer.init()
    after, _ = trainer.step(before)
    back = update.retreated(after.q, before.q)
    assert back.naturals is before.q.naturals
    for now, new, old in zip(back.points, after.q.points, before.q.points, strict=True):
        np.testing.assert_allclose(now, 0.5 * (new + old))
    assert [leaf.optimizer_state.scale for leaf in back.leaves] == [0.5] * 3
