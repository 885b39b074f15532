"""Probabilities as sharp as labels that were left out say they should be.

A Gaussian process that is left to its evidence can be too timid: with ten classes nine functions must
stay below the true one, and the variances that separate them count in full even where no training row
was ever misled by them; and inducing points that have been fitted to many rows can be too bold. One
number mends most of it: a factor on the latent means, chosen by the leave-one-out score, which the
cavities give for nothing, of rows that training has been spared, if there are any."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from cavity.engines.protocol import Engine
from cavity.errors import NumericalError
from cavity.inference.converge import FixedPoint
from cavity.inference.rule import Rule
from cavity.inference.sweep import LAGGING_LEVERAGE, Sweep, SweepOptions

_ROWS = 10_000
"""Rows that decide: enough for a single number …"""
_FEWEST_ROWS = 500
"""… and if there is little time left, as many as there is time for, but no fewer."""
_DEVIATION = 0.5
"""Of the logarithm of the factor, a priori: rows that the inducing points have overfitted exaggerate."""
_START = 0.25
_REACHES = (0.6, 0.6, 0.25)
"""Distances, in logarithm, of the points through which parabolas are drawn, one after the other: after
training with a share of the residual the factor may be far from one."""
_PASSES = 3 * len(_REACHES)


def epochs_needed(n_rows: int, hold_out: float = 0.0, most: int | None = None) -> float:
    """Passes over all rows that the search for the factor is worth, if so many rows decide at most.

    >>> epochs_needed(5_000), epochs_needed(60_000), round(epochs_needed(60_000, 0.05), 3)
    (9.0, 1.5, 0.45)
    """
    return _PASSES * min(hold_out or 1.0, (most or _ROWS) / n_rows)


def calibrated(
    engine: Engine,
    point: FixedPoint,
    rule: Rule,
    seed: int,
    hold_out: float = 0.0,
    seconds: float = np.inf,
) -> FixedPoint:
    """The point with the factor on its means that makes left-out labels most probable.

    hold_out: share of the rows that training has not seen and that decide; if 0, any rows do. The
    leave-one-out probabilities of the rows are brought up to date, if the seconds suffice for one more
    pass; if they do not even suffice for the search, fewer rows decide. Sites and q stay as they are.
    Predictions have the residual s in full, and so do the scores, even if training went by a share of
    it.
    """
    called = time.monotonic()
    leverage = point.max_leverage if point.converged else LAGGING_LEVERAGE

    def score(log_inverse_temperature: float, rows: Any) -> tuple[float, float]:
        # Damping 0 leaves the sites alone: the pass only looks.
        options = SweepOptions(
            0.0, leverage, gradient=False, inverse_temperature=float(np.exp(log_inverse_temperature))
        )
        sums = engine.run(Sweep(point.prior, point.posterior, rule, options), rows)
        return sums.log_predictive / max(sums.weight, 1e-300), sums.weight

    try:
        most, rows = _ROWS, _judges(engine, seed, hold_out, _ROWS)
        begin = time.monotonic()
        if np.isfinite(seconds):
            score(_START, rows)
            affordable = seconds / max(time.monotonic() - begin, 1e-9) - 1.0  # passes over these rows
            if affordable < _PASSES:
                judging = min(_ROWS, (hold_out or 1.0) * engine.n_rows)
                most = max(_FEWEST_ROWS, int(judging * affordable / _PASSES))
                rows = _judges(engine, seed, hold_out, most)
        begin = time.monotonic()

        def penalised(log_inverse_temperature: float) -> float:
            mean, weight = score(log_inverse_temperature, rows)
            return mean - 0.5 * (log_inverse_temperature / _DEVIATION) ** 2 / max(weight, 1.0)

        best = _highest(penalised)
        if not np.isfinite(best):
            raise NumericalError(
                "the leave-one-out scores are not finite, so that nothing can be calibrated by them; "
                "pass calibration=None, or tighter kernel bounds"
            )
        point = point._replace(inverse_temperature=float(np.exp(best)))
        taken = time.monotonic() - begin
        left = seconds - (time.monotonic() - called)
        enough = taken / epochs_needed(engine.n_rows, hold_out, most) <= left
        point = point._replace(mean_log_predictive=score(best, None if enough else rows)[0])
    except KeyboardInterrupt:
        return point._replace(interrupted=True)
    if enough:
        engine.commit()
    return point


def _judges(engine: Engine, seed: int, hold_out: float, most: int) -> Any:
    """The rows that decide, as a minibatch; None for all of them."""
    rng = np.random.default_rng(seed)
    if hold_out:
        return engine.calibration_batch(hold_out, most, rng)
    return next(iter(engine.batches(most, rng))) if engine.n_rows > most else None


def _highest(function: Callable[[float], float]) -> float:
    """Where a smooth function with one maximum is highest, by the vertices of parabolas.

    The same few steps whatever the values: a difference in rounding stays one.

    >>> round(_highest(lambda x: -((x - 0.6) ** 2)), 6)
    0.6
    """
    x = _START
    for reach in _REACHES:
        left, middle, right = (function(x + step) for step in (-reach, 0.0, reach))
        slope, bend = right - left, left - 2.0 * middle + right
        farthest = 2.0 * reach
        step = np.sign(slope) * farthest if bend >= 0.0 else -0.5 * reach * slope / bend
        x += float(np.clip(step, -farthest, farthest))
    return x
