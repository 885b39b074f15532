"""Learning from a stream: each row is seen once, and q represents all rows so far or the latest ones."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from cavity.data.source import Block, Source
from cavity.gp.inducing import extended_greedily
from cavity.gp.kernels import bind
from cavity.gp.linalg import add_to_diagonal
from cavity.gp.posterior import Naturals
from cavity.gp.prior import Prior
from cavity.inference.history import Progress
from cavity.inference.trainer import Batch, Known, Trainer, TrainingState
from cavity.typing import Array
import os
_FULL_RATE_ROWS = 150
FLOOR=int(os.environ.get('FLOOR',1))
DOUBLING=float(os.environ.get('DOUB',30))
DAMP=float(os.environ.get('DAMP',.5))
POP=int(os.environ.get('POP',0))
SWAP=int(os.environ.get('SWAP',1))
NOD=int(os.environ.get('NOD',0))


@dataclass(frozen=True)
class Stream:
    """The state of a stream between two chunks."""

    state: TrainingState
    seen: float
    """Weight of the rows seen so far."""
    represents: float = 0.0
    steps: int = 0
    """Weight of the rows that q represents: of all rows seen, or of fewer if old ones are forgotten."""


@dataclass(frozen=True)
class StreamSettings:
    """Settings of a stream."""

    batch_size: int
    memory: float = np.inf
    """About how many of the latest rows q represents."""
    replaces: bool = True


def absorb(
    trainer: Trainer, stream: Stream, chunk: Source, progress: Progress, settings: StreamSettings
) -> tuple[Trainer, Stream]:
    for block in chunk.blocks(int(min(settings.batch_size, settings.memory))):
        rows = block.load()
        weight = float(len(rows.labels) if rows.weight is None else rows.weight.sum())
        if weight == 0.0:
            continue
        before = stream.represents
        population = max(weight, min(before + weight, settings.memory))
        q = stream.state.q.scaled((population - weight) / before if before else 0.0)
        prior = trainer.problem.prior(stream.state.x)
        if settings.replaces and before and SWAP:
            prior, q = _following(prior, q, trainer.engine.standardizer.apply(rows.X, np.dtype(np.float64)), rows.weight)
            space = replace(trainer.problem.space, Z=prior.Z)
            trainer = replace(trainer, problem=replace(trainer.problem, space=space))
        learner = replace(trainer, known=Known(q, prior), rebuild=True, population=population if POP else weight)
        state = replace(stream.state, q=q, damping=1.0)
        m = len(prior.Z)
        n_steps = DOUBLING * np.log2((m + stream.seen + weight) / (m + stream.seen))
        n_steps = max(FLOOR, int(round(n_steps)))
        rate = 1.0 if np.isfinite(settings.memory) else min(1.0, _FULL_RATE_ROWS * m / (1 + stream.seen))
        scores = None
        for j in range(n_steps):
            state = replace(state, damping=1.0 if j == 0 else DAMP)
            state, info = learner.step(state, Batch(block, rate=rate))
            if scores is None:
                scores = trainer.engine.log_predictive[block.index].copy()
            progress.record(info, epochs=1.0)
        trainer.engine.log_predictive[block.index] = scores
        state = replace(state, q=learner.rebuilt(trainer.problem.prior(state.x), block))
        stream = replace(stream, state=state, seen=stream.seen+weight, represents=population)
    return trainer, stream


def _following(prior: Prior, q: Naturals, X: Array, weight) -> tuple[Prior, Naturals]:
    m, kernel = len(prior.Z), prior.kernel
    Z = extended_greedily(prior.Z, X, np.ones(len(X)), 2 * m, kernel)
    if len(Z) == m:
        return prior, q
    K = np.array(bind(kernel, Z).cross(Z)[0], dtype=np.float64)
    add_to_diagonal(K, prior.jitter * np.mean(np.diagonal(K)))
    P = np.linalg.inv(K)
    A = bind(kernel, Z).cross(X)[0] @ P
    w = np.full(len(X), 0.5) if weight is None else 0.5 * weight
    W = (A * w[:, None]).T @ A
    W[:m, :m] += sum(prior.L_inverse.T @ L @ prior.L_inverse for L in q.precision)/len(q.precision)
    kept = np.arange(len(Z))
    while len(kept) > m:
        j = int(np.argmin(np.diagonal(W) / np.diagonal(P)))
        # removal: f_j = t' f_rest + residual, t = -P_rest,j / P_jj
        rest = np.delete(np.arange(len(kept)), j)
        t = -P[rest, j] / P[j, j]
        c = W[rest, j]
        W = W[np.ix_(rest, rest)] + np.outer(t, c) + np.outer(c, t) + W[j, j] * np.outer(t, t)
        P = P[np.ix_(rest, rest)] - np.outer(P[rest, j], P[rest, j]) / P[j, j]
        kept = kept[rest]
    if kept[-1] < m:
        return prior, q
    global NSWAP
    NSWAP.append(int((kept >= m).sum()))
    after = Prior(kernel, Z[kept], prior.dtype, prior.jitter)
    T = prior.L_inverse @ K[:m][:, kept] @ after.L_inverse.T
    D = np.eye(m) - T @ T.T
    if NOD: D*=0
    return after, carried(q, T, D)
NSWAP = []

def carried(q, T, D):
    Ps, hs = [], []
    for P, h in zip(q.precision, q.shift):
        G = np.linalg.inv(np.eye(len(P)) + P @ D)
        N = T.T @ (G @ P) @ T
        Ps.append(0.5 * (N + N.T)); hs.append(T.T @ (G @ h))
    return Naturals(np.stack(Ps), np.stack(hs))
