"""Learning from a stream: each row is seen once, and q represents all rows so far or the latest ones."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from cavity.data.source import Source
from cavity.gp.kernels import bind
from cavity.gp.posterior import Naturals
from cavity.inference.history import Progress
from cavity.inference.trainer import Batch, Problem, Trainer, TrainingState

_FULL_RATE_STEPS = 30
"""Number of steps after which the optimiser's steps shrink as 1/t, unless old rows are forgotten."""
_FADING_SHARE = 0.6
"""Share of the settling rows that fade from q, since they were learned under other parameters."""


@dataclass(frozen=True)
class Stream:
    """The state of a stream between two chunks."""

    state: TrainingState
    seen: float
    """Weight of the rows seen so far."""
    steps: int = 0
    represents: float = 0.0
    """Weight of the rows that q represents: of all rows seen, or of fewer if old ones are forgotten."""
    fitted: float = 0.0
    """Weight of the rows of an earlier fit that the stream continues; its parameters have settled."""


@dataclass(frozen=True)
class StreamSettings:
    """Settings of a stream."""

    batch_size: int
    settling: float = 0.0
    """Number of rows after which parameters that were not fitted before count as settled."""
    memory: float = np.inf
    """About how many of the latest rows q represents."""

    def averaged(self, stream: Stream, seen: float) -> float:
        """Number of rows over which q is averaged after `seen` rows.

        All rows count alike, except those that were seen before the parameters had settled: until then q
        averages over the latest two fifths of the settling rows, and the others stay faded.

        >>> settings, stream = StreamSettings(10, settling=1_000.0), Stream(None, 0.0)
        >>> [settings.averaged(stream, seen) for seen in (100.0, 400.0, 1_000.0, 5_000.0)]
        [100.0, 400.0, 400.0, 4400.0]
        """
        if stream.fitted:
            return seen
        fading = _FADING_SHARE * self.settling
        return min(seen, max(self.settling - fading, seen - fading))


def absorb(
    trainer: Trainer, stream: Stream, chunk: Source, progress: Progress, settings: StreamSettings
) -> Stream:
    """Learn the rows of a chunk in their order: update q and the parameters.

    A new row is not in q yet, so its cavity is q itself. After n rows, q represents n rows, or `memory`
    of them if that is less, so that old rows are forgotten. To that end q is scaled to the new number of
    rows, and the minibatch, scaled to the same number, enters with its share as gain.
    """
    for block in chunk.blocks(settings.batch_size):
        rows = block.load()
        weight = float(len(rows.labels) if rows.weight is None else rows.weight.sum())
        if weight == 0.0:
            continue
        before = stream.represents
        seen, population = stream.seen + weight, min(before + weight, settings.memory)
        growth = population / before if before else 1.0
        state = replace(stream.state, q=stream.state.q.scaled(growth))
        batch = Batch(
            block,
            gain=min(1.0, weight / min(population, settings.averaged(stream, seen))),
            rate=_rate(stream.steps + stream.fitted / settings.batch_size, settings.memory),
        )
        state, info = replace(trainer, population=population).step(state, batch)
        assert info is not None
        state = replace(state, q=_transported(state.q, trainer.problem, state))
        stream = replace(stream, state=state, seen=seen, steps=stream.steps + 1, represents=population)
        progress.record(info, epochs=1.0)
    return stream


def _transported(q: Naturals, problem: Problem, state: TrainingState) -> Naturals:
    """Map q from the inducing points before the last step to those after it.

    The rows behind q are gone, so q cannot be computed anew, and an unchanged whitened q would mean
    another function once kernel and points have moved. Given the values u₁ at the new points, the mean
    of those at the old points is L₀⁻¹ K(Z₀, Z₁) L₁⁻ᵀ u₁.
    """
    before, after = problem.prior(state.previous[0]), problem.prior(state.x)
    between, _ = bind(after.kernel, after.Z).cross(before.Z)
    return q.mapped(before.L_inverse @ between @ after.L_inverse.T)


def _rate(steps: float, memory: float) -> float:
    # With a window, the stream may drift, so the steps must not shrink.
    return 1.0 if np.isfinite(memory) else min(1.0, _FULL_RATE_STEPS / (1.0 + steps))
