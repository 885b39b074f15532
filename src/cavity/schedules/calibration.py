"""Probabilities as sharp as the leave-one-out labels say they should be.

A Gaussian process that is left to its evidence can be too timid: with ten classes nine functions must
stay below the true one, and the variances that separate them count in full even where no training row
was ever misled by them. One number mends most of it: a factor on the latent means, chosen by the
leave-one-out score, which the cavities give for nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
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
_REACHES = (0.6, 0.25)
"""Distances, in logarithm, of the points through which parabolas are drawn, one after the other."""


def epochs_needed(n_rows: int) -> float:
    """Passes over all rows that the search for the factor is worth.

    >>> epochs_needed(5_000), epochs_needed(60_000)
    (6.0, 1.0)
    """
    return 3 * len(_REACHES) * min(1.0, _ROWS / n_rows)


def calibrated(
    engine: Engine,
    point: FixedPoint,
    seed: int,
    seconds: float = np.inf,
    residual_share: float = 1.0,
) -> FixedPoint:
    """The point with the factor on its means that makes leave-one-out labels most probable.

    The leave-one-out probabilities of the rows are brought up to date, if the seconds suffice for one
    more pass. Sites and q stay as they are. Predictions have the residual s in full, and so do the
    scores, even if training went by a share of it; the factor then makes up for that, too.
    """
    leverage = EXACT_LEVERAGE if point.converged else LAGGING_LEVERAGE
    batch: Any = None
    if engine.n_rows > _ROWS:
        batch = next(iter(engine.batches(_ROWS, np.random.default_rng(seed))))

    def score(log_stretch: float, rows: Any) -> float:
        # Damping 0 leaves the sites alone: the pass only looks.
        options = SweepOptions(0.0, leverage, gradient=False, stretch=float(np.exp(log_stretch)))
        sums = engine.sweep(point.prior, point.posterior, options, rows)
        return sums.log_predictive / sums.weight

    def penalised(log_stretch: float) -> float:
        penalty = 0.5 * (log_stretch / _DEVIATION) ** 2
        return score(log_stretch, batch) - penalty / engine.total_weight

    begin = time.monotonic()
    try:
        # After a share of s alone the factor may be anywhere, and needs a round more to be found.
        rounds = _REACHES if residual_share == 1.0 else (_REACHES[0], *_REACHES)
        best = _highest(penalised, rounds)
        if not np.isfinite(best):
            raise NumericalError(
                "the leave-one-out scores are not finite, so that nothing can be calibrated by them; "
                "pass calibration=None, or tighter kernel bounds"
            )
        point = point._replace(stretch=float(np.exp(best)))
        taken = time.monotonic() - begin
        enough = taken + taken / epochs_needed(engine.n_rows) <= seconds
        point = point._replace(mean_log_predictive=score(best, None if enough else batch))
    except KeyboardInterrupt:
        return point._replace(interrupted=True)
    if enough:
        engine.commit()
    return point


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
