"""From validated rows to a problem that a schedule can solve."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.base import clone

from cavity.engines.local import HeldOut, tile_rows
from cavity.engines.protocol import Engine
from cavity.engines.threads import Threads
from cavity.hyperprior import Hyperprior
from cavity.initialization import (
    ROWS_TO_COUNT,
    VALUES_TO_COUNT,
    default_kernel,
    distinct_rows,
    initial_inducing_points,
    median_distance,
    sample_size,
)
from cavity.kernels import bind
from cavity.parameters import ParameterSpace
from cavity.posterior import Naturals, Posterior
from cavity.prior import Prior
from cavity.sources.blocks import joined
from cavity.sources.protocol import Block, RawRows, Source
from cavity.standardize import Moments, Standardizer, learn_standardizer
from cavity.typing import Array, Dtype, IntArray

_MOST_HELD_OUT = 10_000
_ROWS_TO_SHUFFLE = 1_000_000


@dataclass(frozen=True)
class Problem:
    """What is to be fitted, and where it starts."""

    engine: Engine
    space: ParameterSpace
    hyperprior: Hyperprior
    dtype: Dtype
    """Precision of the tiles: that of the data, or float32 for minibatches."""
    posterior: Posterior
    """q to start from: the prior, unless an earlier fit is continued."""
    jitter: float | None = None
    """Relative jitter of K; None is what the precision needs."""
    pretrained: bool = False
    """Whether the start has been trained on all these rows before, so that little is left to do."""
    interrupted: bool = False
    """Whether the user has had enough while the start was sought: it is to be the end, too."""

    def prior(self, x: Array, jitter: float | None = None) -> Prior:
        """The prior at a parameter vector."""
        kernel, Z = self.space.unpack(x)
        return Prior(kernel, Z, self.dtype, self.jitter if jitter is None else jitter)

    def for_minibatches(self) -> Problem:
        """The problem in float32: minibatches are noisy beyond its rounding.

        That needs a larger jitter, which belongs to the whitened coordinates of the q that is trained.
        """
        return replace(self, dtype=np.dtype(np.float32))


def standardizer_of(source: Source, threads: Threads, *, whiten: bool = False) -> Standardizer:
    """Centre and scale of a source, in one streaming pass; `whiten` tells its columns apart too."""

    def moments(block: Block) -> Moments:
        rows = block.load()
        return Moments.of(rows.X, rows.weight, products=whiten)

    size = tile_rows(1, source.n_features, np.dtype(np.float64))
    return learn_standardizer(threads.map(moments, source.blocks(size)))


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
    kernel = None if kernel is None else clone(kernel)
    if inducing_points is not None:
        Z = standardizer.apply(inducing_points, np.dtype(np.float64))
        return kernel or default_kernel(source.n_features, median_distance(Z, rng)), Z
    draw = np.random.default_rng(rng.randint(2**31))
    size = sample_size(n_inducing, init_inducing, source.n_features)
    raw, weight = _starting_rows(source, size, draw)
    X = standardizer.apply(raw, np.dtype(np.float64))
    if kernel is None:
        # Rows, not centres: clusters shrink distances, and by an amount that depends on m.
        kernel = default_kernel(source.n_features, median_distance(X, rng, weight))
    bind(kernel, X[:1])  # a kernel that cannot be evaluated should say so before the work starts
    return kernel, initial_inducing_points(X, weight, n_inducing, init_inducing, kernel, rng)


def _starting_rows(source: Source, size: int, rng: np.random.Generator) -> tuple[Array, Array | None]:
    """At most `size` rows [t, d] to choose a start from, with their weights [t].

    Of few rows, the different ones: their copies have been counted, so that it does not matter whether
    a row was passed twice or with a weight of two, nor in which order.
    """
    n = source.n_rows
    few = n <= ROWS_TO_COUNT and n * source.n_features <= VALUES_TO_COUNT
    if not few:
        rows = source.sample(size, rng)
        return rows.X, rows.weight
    again = np.random.default_rng(rng.integers(2**63))  # not to depend on how often `sample` draws
    X, weight = distinct_rows(*source.sample(n, rng)[::2])
    if len(X) > size:
        chosen = np.sort(again.choice(len(X), size, replace=False))
        X, weight = X[chosen], None if weight is None else weight[chosen]
    return X, weight


def hold_out(source: Source, fraction: float, rng: np.random.RandomState) -> HeldOut:
    """A random share of the rows, at most 10,000, read in one streaming pass."""
    mask = np.zeros(source.n_rows, dtype=bool)
    mask[held_out_numbers(source.n_rows, fraction, rng)] = True
    parts: list[RawRows] = []
    for block in source.blocks(tile_rows(1, source.n_features, np.dtype(np.float64))):
        chosen = mask[block.index]
        if chosen.any():
            parts.append(block.load().take(chosen))
    return HeldOut(mask, joined(parts))


def held_out_numbers(n_rows: int, fraction: float, rng: np.random.RandomState) -> IntArray:
    """Sorted numbers of a random share of the rows, at most 10,000."""
    size = int(np.clip(round(fraction * n_rows), 1, min(_MOST_HELD_OUT, n_rows - 1)))
    if n_rows > _ROWS_TO_SHUFFLE:  # a `RandomState` would put all of them in order, to take a few
        return np.sort(np.random.default_rng(rng.randint(2**31)).choice(n_rows, size, replace=False))
    return np.sort(rng.choice(n_rows, size=size, replace=False))


def make_problem(
    engine: Engine,
    space: ParameterSpace,
    deviation: float | None,
    *,
    centre: Array | None = None,
    posterior: Posterior | None = None,
) -> Problem:
    """A problem whose hyper-prior has the given standard deviation in theta (None: flat).

    The hyper-prior is centred on the start, and q starts at the prior, unless told otherwise.
    """
    start = space.start if centre is None else centre
    spread = np.full(len(start), np.inf)
    if posterior is None:
        posterior = Posterior.from_naturals(Naturals.zeros(engine.rule.n_latents, len(space.Z)))
    if deviation is not None:
        spread[: space.n_theta] = deviation
    dtype = np.dtype(engine.dtype)
    return Problem(engine, space, Hyperprior(start, spread), dtype, posterior)
