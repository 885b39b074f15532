"""Probabilities as sharp as labels that were left out say they should be.

A Gaussian process that is left to its evidence can be too timid: with ten classes nine functions must
stay below the true one, and the variances that separate them count in full even where no training row
was ever misled by them; and inducing points that have been fitted to many rows can be too bold. One
number mends most of it: a factor on the latent means, chosen by the leave-one-out score, which the
cavities give for nothing, of rows that training has been spared, if there are any.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

import numpy as np

from cavity.engines.protocol import Engine
from cavity.errors import NumericalError
from cavity.schedules.converged import FixedPoint
from cavity.sweep import EXACT_LEVERAGE, LAGGING_LEVERAGE, SweepOptions

_ROWS = 10_000
"""Rows that decide: enough for a single number."""
_DEVIATION = 0.5
"""Of the logarithm of the factor, a priori: rows that the inducing points have overfitted exaggerate."""
_START = 0.25
_REACHES, _FAR_REACHES = (0.6, 0.25), (0.6, 0.6, 0.25)
"""Distances, in logarithm, of the points through which parabolas are drawn, one after the other; the
factor may be far from one after training with a share of the residual, which goes with spared rows."""


def epochs_needed(n_rows: int, spared: float = 0.0) -> float:
    """Passes over all rows that the search for the factor is worth.

    >>> epochs_needed(5_000), epochs_needed(60_000), round(epochs_needed(60_000, 0.05), 3)
    (6.0, 1.0, 0.45)
    """
    return 3 * len(_reaches(spared)) * min(spared or 1.0, _ROWS / n_rows)


def calibrated(
    engine: Engine, point: FixedPoint, seed: int, spared: float = 0.0, seconds: float = np.inf
) -> FixedPoint:
    """The point with the factor on its means that makes left-out labels most probable.

    spared: share of the rows that training has not seen and that decide; without, any rows do. The
    leave-one-out probabilities of the rows are brought up to date, if the seconds suffice for one more
    pass. Sites and q stay as they are. Predictions have the residual s in full, and so do the scores,
    even if training went by a share of it.
    """
    leverage = EXACT_LEVERAGE if point.converged else LAGGING_LEVERAGE
    batches: list[Any] = [None]
    if engine.n_rows > _ROWS or spared:
        drawn = engine.batches(min(_ROWS, engine.n_rows), np.random.default_rng(seed))
        batches = list(islice(drawn, round(1.0 / (spared or 1.0))))

    def score(log_stretch: float, batches: list[Any]) -> tuple[float, float]:
        # Damping 0 leaves the sites alone: the pass only looks.
        options = SweepOptions(
            0.0, leverage, gradient=False, stretch=float(np.exp(log_stretch)),
            spared=spared, only_spared=True,
        )  # fmt: skip
        total = [engine.sweep(point.prior, point.posterior, options, batch) for batch in batches]
        weight = sum(sums.weight for sums in total)
        return sum(sums.log_predictive for sums in total) / max(weight, 1e-300), weight

    def penalised(log_stretch: float) -> float:
        mean, weight = score(log_stretch, batches)
        return mean - 0.5 * (log_stretch / _DEVIATION) ** 2 / max(weight, 1.0)

    begin = time.monotonic()
    try:
        best = _highest(penalised, _reaches(spared))
        if not np.isfinite(best):
            raise NumericalError(
                "the leave-one-out scores are not finite, so that nothing can be calibrated by them; "
                "pass calibration=None, or tighter kernel bounds"
            )
        point = point._replace(stretch=float(np.exp(best)))
        taken = time.monotonic() - begin
        enough = taken + taken / epochs_needed(engine.n_rows, spared) <= seconds
        point = point._replace(mean_log_predictive=score(best, [None] if enough else batches)[0])
    except KeyboardInterrupt:
        return point._replace(interrupted=True)
    if enough:
        engine.commit()
    return point


def _reaches(spared: float) -> tuple[float, ...]:
    return _FAR_REACHES if spared else _REACHES


def _highest(function: Callable[[float], float], reaches: Sequence[float] = _REACHES) -> float:
    """Where a smooth function with one maximum is highest, by the vertices of parabolas.

    The same few steps whatever the values: a difference in rounding stays one.

    >>> round(_highest(lambda x: -((x - 0.6) ** 2)), 6)
    0.6
    """
    x = _START
    for reach in reaches:
        left, middle, right = (function(x + step) for step in (-reach, 0.0, reach))
        slope, bend = right - left, left - 2.0 * middle + right
        farthest = 2.0 * reach
        step = np.sign(slope) * farthest if bend >= 0.0 else -0.5 * reach * slope / bend
        x += float(np.clip(step, -farthest, farthest))
    return x
