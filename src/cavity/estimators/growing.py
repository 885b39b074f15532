"""Where `n_inducing="auto"` is decided: by growth on a pilot of the rows."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np

from cavity.engines.local import LocalEngine
from cavity.engines.threads import Threads
from cavity.history import Rung
from cavity.problem import starting_point
from cavity.rules.protocol import Rule
from cavity.schedules.growth import LADDER, Growth
from cavity.schedules.progress import Progress
from cavity.sources.arrays import ArraySource
from cavity.sources.protocol import Source
from cavity.standardize import Standardizer

PILOT_ROWS = 4_000
"""Rows on which numbers of inducing points are compared …"""
PILOT_VALUES = 5_000_000
"""… if they have no more values than this."""
LEAST_GAIN = 0.0015
"""Relative gain in leave-one-out NLL that is worth twice as many points, if the pilot has all rows."""
GROWTH_SHARE = 0.25
"""Share of max_seconds that the growth may take."""
STREAM_POINTS = 100
"""Inducing points of a stream, which cannot be seen twice."""


def sufficient_points(
    estimator: Any,
    source: Source,
    standardizer: Standardizer,
    rule: Rule,
    threads: Threads,
    rng: np.random.RandomState,
    clock: Progress,
) -> tuple[int, list[Rung]]:
    """The number of inducing points that is enough for these rows, and the numbers that were tried.

    `rng` is left as it is: a fit that is told the number which this one finds is the same fit.
    """
    rng = deepcopy(rng)
    kernel, _ = starting_point(
        source,
        standardizer,
        kernel=estimator.kernel,
        inducing_points=None,
        n_inducing=min(LADDER[0], source.n_rows),
        init_inducing="random",
        rng=rng,
    )
    pilot = _pilot(source, np.random.default_rng(rng.randint(2**31)))
    seconds = getattr(estimator, "max_seconds", None)
    growth = Growth(
        # The more rows there are, the better it shows what more points explain.
        tol=LEAST_GAIN * (pilot.n_rows / source.n_rows) ** 0.5,
        learn_kernel=estimator._learns,
        learn_inducing=estimator._learns and estimator.learn_inducing,
        deviation=estimator.hyperprior,
        max_seconds=np.inf if seconds is None else GROWTH_SHARE * float(seconds),
    )
    engine = LocalEngine(pilot, standardizer, rule, threads)
    X = standardizer.apply(pilot.X, np.dtype(np.float64))
    ladder = [m for m in LADDER if m < pilot.n_rows] or [pilot.n_rows]
    return growth.run(engine, kernel, X, ladder, clock)


def _pilot(source: Source, rng: np.random.Generator) -> ArraySource:
    """Some rows of a source, in memory."""
    size = max(LADDER[0], min(PILOT_ROWS, PILOT_VALUES // source.n_features))
    X, labels, weight = source.sample(size, rng)
    if weight is not None and not weight.all():
        X, labels, weight = X[weight > 0], labels[weight > 0], weight[weight > 0]
    return ArraySource(X, labels, weight)
