"""Temperature scaling: one factor on the latent means, fitted to left-out labels.

Probabilities after training can be too close to uniform, above all with many classes, or too extreme,
when inducing points have been fitted to many rows. The factor that maximises a leave-one-out score
corrects most of both. The cavities give that score. It is taken over rows that training has left out, if
there are any, and otherwise over the training rows.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from cavity.engines.protocol import Engine, Minibatch
from cavity.errors import NumericalError
from cavity.inference.converge import FixedPoint
from cavity.inference.rule import Rule
from cavity.inference.sweep import LAGGING_LEVERAGE, Sweep, SweepOptions

ROWS = 10_000
"""Most rows that the factor is fitted to: enough for a single number."""
FEWEST_ROWS = 500
"""Fewest rows that the factor is fitted to when there is little time."""
PRIOR_DEVIATION = 0.5
"""Standard deviation of a normal prior on the factor's logarithm: without it, rows that the inducing
points have overfitted would lead to too large a factor."""
_START = 0.25
"""Logarithm of the factor at which the search begins."""
_REACHES = (0.6, 0.6, 0.25)
"""Distances, in logarithm, of the points of the successive parabolas. They are wide, since the factor
may be far from one after training with a scaled residual."""
_PASSES = 3 * len(_REACHES)
"""Passes over the deciding rows that the search takes."""


def epochs_needed(n_rows: int, calibration_share: float = 0.0, most: int | None = None) -> float:
    """The cost of fitting the factor, in passes over all rows.

    calibration_share: share of the rows that training has left out; most: largest number of rows that
    the factor is fitted to.

    >>> epochs_needed(5_000), epochs_needed(60_000), round(epochs_needed(60_000, 0.05), 3)
    (9.0, 1.5, 0.45)
    """
    return _PASSES * min(calibration_share or 1.0, (most or ROWS) / n_rows)


def calibrated(
    engine: Engine,
    point: FixedPoint,
    rule: Rule,
    seed: int,
    calibration_share: float = 0.0,
    seconds: float = np.inf,
) -> FixedPoint:
    """The point with the factor on its means that makes left-out labels most probable.

    calibration_share: share of the rows that training has left out, to which the factor is fitted; 0
    means that it is fitted to training rows. If `seconds` do not suffice, it is fitted to fewer rows. If
    they suffice for one more pass, the leave-one-out probabilities of all rows are updated. Sites and q
    do not change. The scores include the whole residual s, as predictions do, even if training has
    scaled it.
    """
    called = time.monotonic()
    leverage = point.max_leverage if point.converged else LAGGING_LEVERAGE

    def score(log_inverse_temperature: float, rows: Minibatch | None) -> tuple[float, float]:
        # With a damping of 0 the pass does not change the sites.
        options = SweepOptions(
            0.0, leverage, gradient=False, inverse_temperature=float(np.exp(log_inverse_temperature))
        )
        sums = engine.run(Sweep(point.prior, point.posterior, rule, options), rows)
        return sums.log_predictive / max(sums.weight, 1e-300), sums.weight

    try:
        most, rows = ROWS, _deciding_rows(engine, seed, calibration_share, ROWS)
        begin = time.monotonic()
        if np.isfinite(seconds):
            score(_START, rows)
            affordable = seconds / max(time.monotonic() - begin, 1e-9) - 1.0  # passes over these rows
            if affordable < _PASSES:
                deciding = min(ROWS, (calibration_share or 1.0) * engine.n_rows)
                most = max(FEWEST_ROWS, int(deciding * affordable / _PASSES))
                rows = _deciding_rows(engine, seed, calibration_share, most)
        begin = time.monotonic()

        def penalised(log_inverse_temperature: float) -> float:
            mean, weight = score(log_inverse_temperature, rows)
            return mean - 0.5 * (log_inverse_temperature / PRIOR_DEVIATION) ** 2 / max(weight, 1.0)

        best = maximum_by_parabolas(penalised)
        if not np.isfinite(best):
            raise NumericalError(
                "calibration failed, because the leave-one-out scores of the rows are not finite; "
                'pass config={"calibration": None}, or a kernel with tighter bounds'
            )
        point = point._replace(inverse_temperature=float(np.exp(best)))
        taken = time.monotonic() - begin
        left = seconds - (time.monotonic() - called)
        enough = taken / epochs_needed(engine.n_rows, calibration_share, most) <= left
        point = point._replace(mean_log_predictive=score(best, None if enough else rows)[0])
    except KeyboardInterrupt:
        return point._replace(interrupted=True)
    if enough:
        engine.commit()
    return point


def _deciding_rows(engine: Engine, seed: int, calibration_share: float, most: int) -> Minibatch | None:
    """The rows that the factor is fitted to, as a minibatch; None for all rows."""
    rng = np.random.default_rng(seed)
    if calibration_share:
        return engine.calibration_batch(calibration_share, most, rng)
    return next(iter(engine.batches(most, rng))) if engine.n_rows > most else None


def maximum_by_parabolas(function: Callable[[float], float]) -> float:
    """Where a smooth function with one maximum is highest, by the vertices of three parabolas.

    The number of steps does not depend on the values, so that a difference in rounding stays small.

    >>> round(maximum_by_parabolas(lambda x: -((x - 0.6) ** 2)), 6)
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
