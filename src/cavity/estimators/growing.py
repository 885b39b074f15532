"""Where `n_inducing="auto"` is decided: inducing points grow on the rows, or on a pilot of them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cavity.engines.local import LocalEngine
from cavity.engines.threads import Threads
from cavity.history import Rung
from cavity.memory import available_bytes
from cavity.problem import starting_point
from cavity.rules.protocol import Rule
from cavity.schedules.growth import LADDER, Growth
from cavity.schedules.progress import Progress
from cavity.sources.arrays import ArraySource
from cavity.sources.protocol import Source
from cavity.standardize import Standardizer
from cavity.typing import Array

WHOLE_ROWS = 10_000
"""Rows up to which the growth sees them all, as training does …"""
PILOT_ROWS = 4_000
"""… and those that it sees of more, in both cases …"""
PILOT_VALUES = 5_000_000
"""… if they have no more values than this."""
LEAST_GAIN = 0.005
"""Relative gain in leave-one-out NLL that is worth twice as many points, if the pilot has all rows."""
GROWTH_SHARE = 0.4
"""Share of max_seconds that the growth may take."""
MEMORY_SHARE = 0.5
"""Share of the memory there is that m×m arrays may take."""
STREAM_POINTS = 100
"""Inducing points of a stream, which cannot be seen twice."""
_SQUARES = 8
"""Arrays [m, m] that training holds for each latent function, about."""


class GrownStart(NamedTuple):
    """Where training begins when its inducing points have grown."""

    kernel: Any
    Z: Array
    """[m, d], standardised."""
    theta: Array
    """Of the kernel before the growth: the centre of the hyper-prior."""
    path: list[Rung]
    engine: LocalEngine | None
    """Has the rows' sites, if the growth has seen all rows in their order."""


def grown_start(
    estimator: Any,
    source: Source,
    standardizer: Standardizer,
    rule: Rule,
    threads: Threads,
    rng: np.random.RandomState,
    clock: Progress,
) -> GrownStart:
    """As many inducing points as are enough for these rows, with a kernel that fits them."""
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
    grown = growth.run(engine, kernel, X, ladder(pilot.n_rows, rule.n_latents), clock)
    engine.sites = grown.sites
    whole = isinstance(source, ArraySource) and source.n_rows == pilot.n_rows
    whole = whole and not estimator._stored_directions(len(grown.Z), source.n_rows)
    return GrownStart(grown.kernel, grown.Z, kernel.theta, grown.path, engine if whole else None)


def ladder(n_rows: int, n_latents: int) -> list[int]:
    """The numbers of points to try: fewer than rows, and no more than there is memory for.

    >>> ladder(60, 1), ladder(10, 1)
    ([25, 50], [10])
    """
    most = available_bytes()
    fitting = [
        m
        for m in LADDER
        if m < n_rows and (most is None or 8 * _SQUARES * n_latents * m**2 <= MEMORY_SHARE * most)
    ]
    return fitting or [min(LADDER[0], n_rows)]


def _pilot(source: Source, rng: np.random.Generator) -> ArraySource:
    """Some rows of a source, in memory."""
    most = source.n_rows if source.n_rows <= WHOLE_ROWS else PILOT_ROWS
    size = max(LADDER[0], min(most, PILOT_VALUES // source.n_features))
    X, labels, weight = source.sample(size, rng)
    if weight is not None and not weight.all():
        X, labels, weight = X[weight > 0], labels[weight > 0], weight[weight > 0]
    return ArraySource(X, labels, weight)
