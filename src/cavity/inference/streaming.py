"""Learning from a stream: each chunk comes once, and q represents all rows so far or the latest ones."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from cavity.data.routing import by_leaf
from cavity.data.source import Source
from cavity.gp.arrowhead import Conditional, LocalNaturalParameters
from cavity.gp.inducing import conditional_variance, extended_greedily, most_useful
from cavity.gp.kernels import bind
from cavity.gp.leaves import LocalPrior
from cavity.gp.linalg import add_to_diagonal
from cavity.gp.posterior import NaturalParameters
from cavity.gp.prior import Prior
from cavity.inference.history import Progress
from cavity.inference.trainer import Batch, EarlierRows, Trainer, TrainingState
from cavity.typing import FLOAT64, Array, IntArray

_STEPS_PER_DOUBLING = 20
"""Steps of the parameters while the number of rows doubles, apart from one step a minibatch."""
_SITE_STEPS = 4
"""Most passes over a minibatch if there are no parameters to learn, so that only sites change."""
_FULL_RATE_ROWS = 150
"""Rows for each inducing point after which steps shrink as 1/n, unless old rows are forgotten."""
_REPEATED_DAMPING = 0.5
"""Damping of the sites when a minibatch is passed over again."""
_ROW_PRECISION = 0.5
"""About the precision of a row's site, which is not known before the row has been learned."""


@dataclass(frozen=True)
class Stream:
    """The state of a stream between two chunks."""

    state: TrainingState
    seen: float
    """Weight of the rows seen so far."""
    represents: float = 0.0
    """Weight of the rows that q represents: of all rows seen, or of fewer if old ones are forgotten."""


@dataclass(frozen=True)
class StreamSettings:
    """Settings of a stream."""

    batch_size: int
    n_inducing: int | None = None
    """Number of inducing points that follow the rows; None means that they stay where they are."""
    n_local: int = 0
    """Number of inducing points of each leaf that follow its rows, if there are leaves."""
    memory: float = np.inf
    """About how many of the latest rows q represents."""


def absorb(
    trainer: Trainer, stream: Stream, chunk: Source, progress: Progress, settings: StreamSettings
) -> tuple[Trainer, Stream]:
    """Learn the rows of a chunk in their order; returns also a trainer for the inducing points since.

    The rows that came before are known as factors on the values at the inducing points. For every
    minibatch, the inducing points are exchanged where its rows need others. Then the sites of its rows
    are found in one or more passes, each followed by a step of the kernel's parameters, and are added to
    the known factors. After n rows, q represents n rows, or `memory` of them if that is less.
    """
    for block in chunk.blocks(math.ceil(min(settings.batch_size, settings.memory))):
        rows = block.load()
        weight = float(len(rows.labels) if rows.weight is None else rows.weight.sum())
        if weight == 0.0:
            continue
        before = stream.represents
        represents = max(weight, min(before + weight, settings.memory))
        q = stream.state.q.scaled((represents - weight) / before if before else 0.0)
        prior = trainer.problem.prior(stream.state.x)
        if before and settings.n_inducing is not None:
            X = trainer.engine.scaling.apply(rows.X, FLOAT64)
            counts = np.ones(len(X)) if rows.weight is None else rows.weight
            if isinstance(prior, LocalPrior):
                assert chunk.leaf is not None
                leaf = chunk.leaf[block.index]
                prior, q = following_in_leaves(prior, q, X, counts, leaf, settings)
            else:
                prior, q = following(prior, q, X, counts, settings.n_inducing)
            trainer = replace(trainer, problem=trainer.problem.at_points_of(prior))
        m = settings.n_inducing or len(prior.Z)
        if isinstance(prior, LocalPrior):
            m += sum(prior.leaves.sizes)
        state = _learned(
            replace(trainer, earlier=EarlierRows(q, prior), rebuild=True, population=weight),
            replace(stream.state, q=q, previous=(stream.state.x, q)),
            Batch(block, rate=_rate(stream.seen, m, settings.memory)),
            _n_steps(stream.seen, weight, m, learns=len(stream.state.x) > 0),
            progress,
        )
        stream = Stream(state, stream.seen + weight, represents)
    return trainer, stream


def _learned(
    trainer: Trainer, state: TrainingState, batch: Batch, n_steps: int, progress: Progress
) -> TrainingState:
    """The state after steps on a minibatch; its rows keep the scores of the first pass."""
    engine, block = trainer.engine, batch.rows
    assert block is not None
    repeated = replace(trainer, options=replace(trainer.options, damping=_REPEATED_DAMPING))
    # The first pass finds the sites: there are none yet with which they could be averaged.
    state = replace(state, damping=1.0)
    scores: Array | None = None
    for _ in range(n_steps):
        state, info = repeated.step(state, batch)
        assert info is not None
        scores = engine.log_predictive[block.index].copy() if scores is None else scores
        progress.record(info, epochs=1.0)
    engine.log_predictive[block.index] = scores
    return replace(state, q=trainer.rebuilt(trainer.problem.prior(state.x), block))


class _Exchange(NamedTuple):
    """Inducing points after an exchange."""

    Z: Array
    """[m, d]"""
    cross: Array
    """[k, m]: prior covariances of the values at the k points before with those at the new ones."""

    def seen_from(self, before: Prior, after: Prior) -> Conditional:
        """The whitened values at the points before, given those at the new ones."""
        T = before.L_inverse @ self.cross @ after.L_inverse.T
        return Conditional(T, np.eye(len(T)) - T @ T.T)


def following(
    prior: Prior, q: NaturalParameters, X: Array, weight: Array, m: int
) -> tuple[Prior, NaturalParameters]:
    """Prior and q with m inducing points that also explain rows X [t, d] of given weights [t]."""
    found = _exchanged(prior, q.precision, X, weight, m)
    if found is None:
        return prior, q
    after = Prior(prior.kernel, found.Z, prior.dtype, prior.jitter)
    return after, q.carried(*found.seen_from(prior, after))


def following_in_leaves(
    prior: LocalPrior,
    q: LocalNaturalParameters,
    X: Array,
    weight: Array,
    leaf: IntArray,
    settings: StreamSettings,
) -> tuple[LocalPrior, LocalNaturalParameters]:
    """`following` for a model with leaves: global points follow all rows, those of a leaf its own.

    leaf: [t], the leaf of each row.
    """
    assert settings.n_inducing is not None
    whole = _exchanged(prior, q.precision, X, weight, settings.n_inducing)
    m, points, parts = q.m, list(prior.leaves.points), {}
    for number, rows in by_leaf(leaf):
        known = q.leaves[number].precision[:, m:, m:]
        found = _exchanged(prior.leaf(number), known, X[rows], weight[rows], settings.n_local)
        if found is not None:
            points[number], parts[number] = found.Z, found
    if whole is None and not parts:
        return prior, q
    after = LocalPrior(
        prior.kernel,
        prior.Z if whole is None else whole.Z,
        prior.dtype,
        replace(prior.leaves, points=tuple(points)),
        prior.jitter,
        prior.leaf_jitter,
    )
    carried = q.carried_in_leaves(
        None if whole is None else whole.seen_from(prior, after),
        {k: found.seen_from(prior.leaf(k), after.leaf(k)) for k, found in parts.items()},
    )
    return after, carried


def _exchanged(prior: Prior, known: Array, X: Array, weight: Array, m: int) -> _Exchange | None:
    """The m most useful points for what is known and for rows X [t, d]; None if none is exchanged.

    known: [C, k, k], precisions of what is known about the whitened values at the present points. The
    points are chosen among these and the rows. A point is worth the precision of what is known about its
    value, or will be after these rows, times the variance that the other points leave at it. Summed over
    all points left out, that is the trace term of Titsias' bound.
    """
    kernel, k = prior.own_kernel, len(prior.Z)
    known = np.mean([prior.L_inverse.T @ P @ prior.L_inverse for P in known], axis=0)
    if k >= m:
        gain = _ROW_PRECISION * weight @ conditional_variance(prior.Z, X, kernel)
        inverse = np.einsum("ij,ij->j", prior.L_inverse, prior.L_inverse)
        if gain <= np.min(np.diagonal(known) / inverse):
            return None  # no exchange could gain as much as it loses
    most = max(k, m) + max(1, m // 2)  # a minibatch replaces half of the points at most
    Z = extended_greedily(prior.Z, X, np.sign(weight), most, kernel)
    bound = bind(kernel, Z)
    K = np.array(bound.cross(Z)[0], dtype=np.float64)
    add_to_diagonal(K, prior.jitter * float(np.mean(np.diagonal(K))))
    A = np.linalg.solve(K, np.asarray(bound.cross(X)[0], dtype=np.float64).T)
    precision = (_ROW_PRECISION * weight * A) @ A.T
    precision[:k, :k] += known
    kept = most_useful(K, precision, min(m, len(Z)))
    if np.array_equal(kept, np.arange(k)):
        return None
    return _Exchange(Z[kept], K[:k, kept])


def _n_steps(seen: float, weight: float, m: int, *, learns: bool) -> int:
    """Number of steps on a minibatch: many in the beginning, one later on."""
    steps = max(1, round(_STEPS_PER_DOUBLING * math.log2(1.0 + weight / (m + seen))))
    return steps if learns else min(steps, _SITE_STEPS)


def _rate(seen: float, m: int, memory: float) -> float:
    # With a window, the stream may drift, so the steps must not shrink.
    return 1.0 if np.isfinite(memory) else min(1.0, _FULL_RATE_ROWS * m / (1.0 + seen))
