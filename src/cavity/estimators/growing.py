"""Where `n_inducing="auto"` is decided: inducing points grow on the rows, or on a pilot of them."""

from __future__ import annotations

import warnings
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
PRICE = 0.06
"""Relative gain in leave-one-out NLL that 400 points must be worth …"""
FEW_ROWS = 2_000
"""… to so many rows, or fewer; of more, each has its share of the price."""
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
    on_all_rows: bool
    """Whether the growth has seen them all, not a pilot."""
    engine: LocalEngine | None
    """Has the rows' sites, if the growth has seen all rows in their order."""
    interrupted: bool
    """Whether the user has stopped the growth, and the fit with it."""


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
        price=price(source.n_rows, pilot.n_rows),
        learn_kernel=estimator._learns,
        learn_inducing=estimator._learns and estimator.learn_inducing,
        deviation=estimator.hyperprior,
        max_seconds=np.inf if seconds is None else GROWTH_SHARE * float(seconds),
    )
    engine = LocalEngine(pilot, standardizer, rule, threads)
    X = standardizer.apply(pilot.X, np.dtype(np.float64))
    rungs = ladder(pilot.n_rows)
    grown = growth.run(engine, kernel, X, _affordable(rungs, rule.n_latents), clock)
    engine.sites = grown.sites
    seen = source.n_rows == pilot.n_rows
    adopted = isinstance(source, ArraySource) and seen
    adopted = adopted and not estimator._stored_directions(len(grown.Z), source.n_rows)
    return GrownStart(
        grown.kernel,
        grown.Z,
        kernel.theta,
        grown.path,
        on_all_rows=seen,
        engine=engine if adopted else None,
        interrupted=grown.interrupted,
    )


def halfway_kernel(grown: GrownStart) -> Any:
    """The kernel half way, in log scale, from that before the growth to the one that a pilot has led to.

    All rows show more detail than a pilot, in features too that do not seem to matter in it.
    """
    return grown.kernel.clone_with_theta(0.5 * (grown.theta + grown.kernel.theta))


def price(n_rows: int, n_seen: int) -> float:
    """What 400 points must be worth to `n_rows` rows of which a pilot has `n_seen`.

    The more rows there are, the more detail they show and the more points they can place; and of a gain
    a pilot shows a part.

    >>> [price(n_rows, n_rows) for n_rows in (500, 2_000, 10_000)], round(price(20_000, 4_000), 6)
    ([0.06, 0.06, 0.012], 0.0012)
    """
    return PRICE * min(1.0, FEW_ROWS / n_rows) * n_seen / n_rows


def ladder(n_rows: int) -> list[int]:
    """The numbers of points to try: fewer than rows.

    >>> ladder(60), ladder(10)
    ([25, 50], [10])
    """
    return [m for m in LADDER if m < n_rows] or [min(LADDER[0], n_rows)]


def _pilot(source: Source, rng: np.random.Generator) -> ArraySource:
    """Some rows of a source, in memory."""
    most = source.n_rows if source.n_rows <= WHOLE_ROWS else PILOT_ROWS
    size = max(LADDER[0], min(most, PILOT_VALUES // source.n_features))
    X, labels, weight = source.sample(size, rng)
    if weight is not None and not weight.all():
        X, labels, weight = X[weight > 0], labels[weight > 0], weight[weight > 0]
    return ArraySource(X, labels, weight)


def _affordable(rungs: list[int], n_latents: int) -> list[int]:
    """The rungs that there is memory for, at least the first; a warning if there are others."""
    available = available_bytes()
    needed = [8 * _SQUARES * n_latents * m**2 for m in rungs]
    if available is None or needed[-1] <= MEMORY_SHARE * available:
        return rungs
    count = max(1, sum(size <= MEMORY_SHARE * available for size in needed))
    if count < len(rungs):
        warnings.warn(
            f'n_inducing="auto" tries no more than {rungs[count - 1]} inducing points, because '
            f"{rungs[count]} need about {needed[count]:,} bytes, more than {MEMORY_SHARE:.0%} of the "
            f"{available:,} that are available; with more memory the same random_state may find more. "
            "Free some, or give n_inducing a number",
            UserWarning,
            stacklevel=2,
        )
    return rungs[:count]
