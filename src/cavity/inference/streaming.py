"""Learning from a stream: each chunk is seen once, and q stands for all rows so far."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from cavity.data.source import Source
from cavity.gp.kernels import bind
from cavity.gp.posterior import Naturals
from cavity.inference.history import Progress
from cavity.inference.trainer import Batch, Problem, Trainer, TrainingState

_FULL_RATE_STEPS = 30
"""Steps after which the optimiser's steps shrink, as 1/t, while nothing is forgotten."""
_FADING_SHARE = 0.6
"""Of the rows in which a stream settles, so many fade: they were learned under other parameters."""


@dataclass(frozen=True)
class Stream:
    """Where a stream stands."""

    state: TrainingState
    seen: float
    """Weight of the rows seen so far."""
    steps: int = 0
    represents: float | None = None
    """Weight of the rows that q stands for: as many as seen, or fewer if some were to be forgotten.

    None, as in files of old: as many as the memory allows.
    """
    fitted: float = 0.0
    """Weight of the rows of a fit that the stream goes on from: its parameters have settled on them."""


@dataclass(frozen=True)
class StreamSettings:
    """How a stream is learned."""

    batch_size: int
    settling: float = 0.0
    """Rows in which parameters that were never fitted find their place."""
    memory: float = np.inf
    """About how many of the latest rows q stands for."""

    def averaged(self, stream: Stream, seen: float) -> float:
        """Over how many rows q is averaged once so many are seen.

        All alike, but for those from before the parameters had settled: in that time q averages over
        the latest two fifths of it, and what faded then is not made up for.

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
    """Take the rows of a chunk into q, in order, and let the parameters follow.

    A new row is not in q yet, so its cavity is q itself. After n rows, q stands for n of them, or for
    `memory` if that is less, so that what has drifted away is forgotten: q is scaled to the new
    number, and the minibatch, scaled to the same number, enters with its share as gain.
    """
    for block in chunk.blocks(settings.batch_size):
        rows = block.load()
        weight = float(len(rows.labels) if rows.weight is None else rows.weight.sum())
        if weight == 0.0:
            continue
        before = stream.represents
        if before is None:
            before = min(stream.seen, settings.memory)
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
    """q, made at the inducing points before the last step, as a q at those after it.

    The rows that made it are gone, so it cannot be renewed, and a whitened q that is left alone while
    kernel and points move drifts away from what it said. Given the new points the old u is
    L₀⁻¹ K(Z₀, Z₁) L₁⁻ᵀ u₁ on average.
    """
    before, after = problem.prior(state.previous[0]), problem.prior(state.x)
    between, _ = bind(after.kernel, after.Z).cross(before.Z)
    return q.mapped(before.L_inverse @ between @ after.L_inverse.T)


def _rate(steps: float, memory: float) -> float:
    # What never forgets may settle; what follows a drift must keep moving.
    return 1.0 if np.isfinite(memory) else min(1.0, _FULL_RATE_STEPS / (1.0 + steps))
