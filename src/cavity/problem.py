"""From validated rows to a problem that a schedule can solve."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from cavity.engines.local import LocalEngine, tile_rows
from cavity.engines.threads import Threads
from cavity.hyperprior import Hyperprior
from cavity.initialization import (
    default_kernel,
    initial_inducing_points,
    median_distance,
    sample_size,
)
from cavity.kernels import bind
from cavity.parameters import ParameterSpace
from cavity.prior import Prior
from cavity.rules.protocol import Rule
from cavity.sources.protocol import Source
from cavity.standardize import Standardizer, learn_standardizer
from cavity.typing import Array, Dtype


@dataclass(frozen=True)
class Problem:
    """What is to be fitted, and where it starts."""

    engine: LocalEngine
    space: ParameterSpace
    hyperprior: Hyperprior
    dtype: Dtype
    """Precision of the tiles: that of the data."""

    def prior(self, x: Array, dtype: Dtype | None = None) -> Prior:
        """The prior at a parameter vector."""
        kernel, Z = self.space.unpack(x)
        return Prior(kernel, Z, self.dtype if dtype is None else dtype)


def standardizer_of(source: Source, standardize: bool) -> Standardizer:
    """Centre and scale of a source, in one streaming pass."""
    if not standardize:
        return Standardizer.identity(source.n_features)
    size = tile_rows(1, source.n_features, np.dtype(np.float64))
    tiles = ((rows.X, rows.weight) for rows in (block.load() for block in source.blocks(size)))
    return learn_standardizer(tiles, source.n_features)


def starting_point(
    source: Source,
    standardizer: Standardizer,
    *,
    kernel: Any,
    inducing_points: Array | None,
    n_inducing: int,
    init_inducing: str,
    rng: np.random.RandomState,
) -> tuple[Any, Array]:
    """Kernel and standardised inducing points [m, d] to start from."""
    if inducing_points is not None:
        Z = standardizer.apply(inducing_points, np.dtype(np.float64))
        return kernel or default_kernel(source.n_features, median_distance(Z, rng)), Z
    draw = np.random.default_rng(rng.randint(2**31))
    rows = source.sample(max(sample_size(n_inducing), n_inducing), draw)
    X = standardizer.apply(rows.X, np.dtype(np.float64))
    if kernel is None:
        # Rows, not centres: clusters shrink distances, and by an amount that depends on m.
        kernel = default_kernel(source.n_features, median_distance(X, rng))
    bind(kernel, X[:1])  # a kernel that cannot be evaluated should say so before the work starts
    return kernel, initial_inducing_points(X, rows.weight, n_inducing, init_inducing, kernel, rng)


def make_problem(
    source: Source,
    standardizer: Standardizer,
    rule: Rule,
    threads: Threads,
    space: ParameterSpace,
    deviation: float | None,
) -> Problem:
    """A problem whose hyper-prior has the given standard deviation in theta (None: flat)."""
    start = space.start
    spread = np.full(len(start), np.inf)
    if deviation is not None:
        spread[: space.n_theta] = deviation
    return Problem(
        LocalEngine(source, standardizer, rule, threads),
        space,
        Hyperprior(start, spread),
        np.dtype(source.dtype),
    )
