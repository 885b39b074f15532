"""Starting values of inducing points and lengthscales, from the data."""

from __future__ import annotations

import warnings
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
from scipy.sparse import csr_array
from scipy.spatial.distance import pdist
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import kernels
from threadpoolctl import ThreadpoolController

from cavity.data.source import RowSource
from cavity.errors import NumericalError
from cavity.gp.kernels import bind
from cavity.gp.prior import Prior
from cavity.text import abbreviated
from cavity.typing import FLOAT64, Array, IntArray

if TYPE_CHECKING:
    from sklearn.gaussian_process.kernels import Kernel

ROWS_TO_COUNT = 10_000
"""Rows up to which equal rows are counted, so that copies and weights give the same start."""
VALUES_TO_COUNT = 20_000_000
"""Values (rows times columns) up to which that is done."""
_SORTED_COLUMNS = 32
"""Columns by which distinct rows are sorted."""
SAMPLE_PER_POINT = 10
"""Rows drawn for each inducing point: more rows change the start little and cost time."""
GREEDY_SAMPLE_PER_POINT = 4
"""The same for the greedy choice."""
_SAMPLE_BYTES = 100_000_000
"""Bytes that the sample may take in double precision, if it has more rows than inducing points."""
_PROJECTIONS = 64
"""Random projections to which rows of many columns are reduced for clustering."""
_LONG_WORK = 1_000_000_000
"""Products of a value and a centre from which they are reduced: some seconds of work."""


def sample_size(m: int, how: str = "kmeans", n_features: int = 1) -> int:
    """Number of rows to draw for choosing m inducing points; the greedy choice is O(m²) a row.

    It is smaller for rows of many columns, since sparse rows become dense in the sample.

    >>> [sample_size(m, n_features=20_000) for m in (10, 1_000)]
    [625, 1000]
    """
    per_point = SAMPLE_PER_POINT if how != "greedy" else GREEDY_SAMPLE_PER_POINT
    fitting = _SAMPLE_BYTES // (8 * n_features)
    return max(m, min(max(2_000, per_point * m), fitting))


def distinct_rows(X: Array, weight: Array | None) -> tuple[Array, Array | None]:
    """The distinct rows of X [t, d] in a fixed order, and the total weight of each with its copies.

    None for the weights means that all are the same. Rows of no weight are left out.

    >>> distinct_rows(np.array([[2.0], [1.0], [2.0]]), None)
    (array([[1.],
           [2.]]), array([1., 2.]))
    """
    weight = np.ones(len(X)) if weight is None else np.asarray(weight, dtype=np.float64)
    X, weight = X[weight > 0], weight[weight > 0]
    X = np.ascontiguousarray(X + np.zeros(1, X.dtype))  # −0 is 0
    keys = X.view(np.dtype((np.void, X.dtype.itemsize * X.shape[1]))).ravel()
    _, first, copy_of = np.unique(keys, return_index=True, return_inverse=True)
    # Comparing bytes finds equal rows fast. Their order is that of the numbers, which, unlike that of
    # the bytes, does not depend on the units.
    order = np.lexsort(X[first, :_SORTED_COLUMNS].T[::-1])
    totals: Array = np.bincount(copy_of, weight)[order].astype(np.float64)
    return X[first[order]], None if np.ptp(totals) == 0.0 else totals


def starting_rows(source: RowSource, size: int, rng: np.random.Generator) -> tuple[Array, Array | None]:
    """At most `size` rows [t, d] to choose inducing points from, with their weights [t].

    Few rows are reduced to the different ones, with their copies counted: then it does not matter
    whether a row was passed twice or with a weight of two, nor in which order.
    """
    n = source.n_rows
    few = n <= ROWS_TO_COUNT and n * source.n_features <= VALUES_TO_COUNT
    if not few:
        rows = source.sample(size, rng)
        return rows.X, rows.weight
    again = np.random.default_rng(rng.integers(2**63))  # independent of how often `sample` draws
    X, weight = distinct_rows(*source.sample(n, rng)[::2])
    if len(X) > size:
        chosen = np.sort(again.choice(len(X), size, replace=False))
        X, weight = X[chosen], None if weight is None else weight[chosen]
    return X, weight


def initial_inducing_points(
    X: Array, weight: Array | None, m: int, how: str, kernel: Kernel, rng: np.random.RandomState
) -> Array:
    """m inducing points [m, d] from a sample of standardised rows X [t, d].

    "kmeans" takes the centres of clusters, "random" takes rows, and "greedy" takes one row at a time,
    that of the largest conditional variance given those before (Burt et al., 2020).
    """
    X = np.asarray(X, dtype=np.float64)
    if weight is not None:
        X, weight = X[weight > 0], weight[weight > 0]
    if m >= len(X):
        return X.copy()
    if how == "random":
        p = None if weight is None else weight / weight.sum()
        return np.array(X[np.sort(rng.choice(len(X), size=m, replace=False, p=p))])
    if how == "greedy":
        return np.array(X[greedy_conditional_variance(X, m, kernel, rng)])
    return kmeans_centres(X, weight, m, rng)


def kmeans_centres(X: Array, weight: Array | None, m: int, rng: np.random.RandomState) -> Array:
    """Centres [m, d] of m clusters of X [t, d]; some coincide if X has fewer distinct rows.

    Where that would take long, rows of many columns are clustered by random projections, which keep
    distances to about a tenth; the centres are means of the rows themselves.
    """
    seen = X
    if X.shape[1] > _PROJECTIONS and X.size * m > _LONG_WORK:
        seen = X @ (rng.standard_normal((X.shape[1], _PROJECTIONS)) / np.sqrt(_PROJECTIONS))
    clusters = KMeans(m, n_init=1, max_iter=20, tol=1e-3, random_state=rng)
    # One OpenMP thread: in a forked process GNU's OpenMP waits for ever for threads of the parent.
    with _openmp().limit(limits=1, user_api="openmp"), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer distinct rows than clusters
        clusters.fit(seen, sample_weight=weight)
    centres = clusters.cluster_centers_ if seen is X else _means(X, weight, clusters.labels_, m)
    if not np.isfinite(centres).all():
        raise NumericalError(
            "the rows have no cluster centres, because sums of them are beyond the range of numbers; "
            'use scaling="standard", or inducing_points="random"'
        )
    return np.asarray(centres, dtype=np.float64)


@cache
def _openmp() -> ThreadpoolController:
    """The libraries with threads of their own; to look for them takes as long as a small k-means."""
    return ThreadpoolController()


def _means(X: Array, weight: Array | None, group: Array, m: int) -> Array:
    """Weighted means [m, d] of the rows X [t, d] of groups 0 … m − 1; an empty group takes any row."""
    weight = np.ones(len(X)) if weight is None else weight
    members = csr_array((weight, (group, np.arange(len(X)))), shape=(m, len(X)))
    totals = np.bincount(group, weight, minlength=m)
    means = (members @ X) / np.maximum(totals, 1e-300)[:, None]
    empty = np.flatnonzero(totals == 0.0)
    means[empty] = X[: len(empty)]
    return np.asarray(means)


def greedy_conditional_variance(X: Array, m: int, kernel: Kernel, rng: np.random.RandomState) -> Array:
    """Indices [m] of rows of X [t, d], each of the largest variance given those before; O(t·m²)."""
    order = rng.permutation(len(X))
    nothing = np.zeros((0, len(X)))
    chosen = _pivots(X[order], m, kernel, nothing, np.ones(len(X)), negligible=1e-12)
    # Every row may be explained by fewer: the rest can be any.
    unused = np.setdiff1d(np.arange(len(X)), chosen)[: m - len(chosen)]
    return np.asarray(order[np.append(np.array(chosen, dtype=int), unused)])


def extended_greedily(Z: Array, X: Array, precision: Array, m: int, kernel: Kernel) -> Array:
    """Inducing points Z [k, d] and m − k rows of X [t, d] more, chosen one by one; O(t·m²).

    Each is the row of the largest conditional variance given those before, times its `precision` [t]:
    what the row would lose by being explained by them alone. Fewer than m if all rows are explained.
    """
    known = _whitened(Z, X, kernel) if len(Z) else np.zeros((0, len(X)))
    negligible = 1e-9 * float(np.max(bind(kernel, X[:1]).diagonal(X)[0]))
    return np.vstack([Z, X[_pivots(X, m - len(Z), kernel, known, precision, negligible)]])


def most_useful(K: Array, precision: Array, m: int) -> IntArray:
    """Numbers [m] of the points to keep of k points, in ascending order; O((k − m)·k²).

    K: [k, k], their kernel matrix; precision: [k, k], of what is known about the latent values at them.
    One point at a time is left out, the one that loses least: its precision times the variance that the
    other points leave at it. What was known about it is then known about the others.

    >>> most_useful(np.eye(3), np.diag([2.0, 1.0, 3.0]), 2)
    array([0, 2])
    """
    P, W = np.linalg.inv(K), precision.copy()
    kept = np.ones(len(K), dtype=bool)
    for _ in range(len(K) - m):
        loss = np.where(kept, np.diagonal(W) / np.diagonal(P), np.inf)
        j = int(np.argmin(loss))
        # Given the others, the value at j has the mean tᵀf and the variance 1/P_jj.
        t = P[:, j] / -P[j, j]
        t[j] = 0.0
        half = np.outer(t, W[:, j] + 0.5 * W[j, j] * t)
        W += half + half.T
        P -= np.outer(P[:, j], P[:, j] / P[j, j])
        P[j, j] = 1.0
        kept[j] = False
    return np.flatnonzero(kept)


def _pivots(
    X: Array, n_pivots: int, kernel: Kernel, known: Array, weight: Array, negligible: float
) -> list[int]:
    """Rows of X [t, d] that a pivoted Cholesky factorisation of the kernel matrix chooses.

    known: [k, t], rows of the factor from earlier pivots; weight: [t], factor on a row's remaining
    variance. It ends early if no remaining variance is more than `negligible`.
    """
    factors = np.zeros((len(known) + n_pivots, len(X)))
    factors[: len(known)] = known
    remaining = np.array(bind(kernel, X[:1]).diagonal(X)[0], dtype=np.float64)
    remaining -= np.einsum("ij,ij->j", known, known)
    chosen: list[int] = []
    for j in range(len(known), len(factors)):
        pivot = int(np.argmax(np.where(remaining > negligible, weight * remaining, -1.0)))
        if remaining[pivot] <= negligible:
            break
        column = bind(kernel, X[pivot : pivot + 1]).cross(X)[0][:, 0].astype(np.float64)
        column = column - factors[:j, pivot] @ factors[:j]
        factors[j] = column / np.sqrt(remaining[pivot])
        remaining -= factors[j] ** 2
        remaining[pivot] = 0.0
        chosen.append(pivot)
    return chosen


def conditional_variance(Z: Array, X: Array, kernel: Kernel) -> Array:
    """Variance [t] that is left at X [t, d] when the latent values at Z [m, d] are known; O(t·m²).

    >>> kernel = RBF(1.0)
    >>> conditional_variance(np.array([[0.0]]), np.array([[0.0], [9.0]]), kernel).round(6) + 0.0
    array([0., 1.])
    """
    variance = np.array(bind(kernel, X[:1]).diagonal(X)[0], dtype=np.float64)
    explained = _whitened(Z, X, kernel)
    left = variance - np.einsum("ij,ij->j", explained, explained)
    return np.asarray(np.maximum(left, 0.0))


def _whitened(Z: Array, X: Array, kernel: Kernel) -> Array:
    """L⁻¹k(Z, X) [m, t]."""
    prior = Prior(kernel, Z, FLOAT64)
    return np.asarray(prior.L_inverse @ prior.rows_kernel.cross(X)[0].T, dtype=np.float64)


def median_distance(Z: Array, rng: np.random.RandomState, weight: Array | None = None) -> float:
    """Median distance between the rows of Z [m, d], from 500 of them at most; 1 if there is none.

    weight: [m]; a weight w counts its row w times.
    """
    if len(Z) > 500:
        chosen = rng.choice(len(Z), 500, replace=False)
        Z, weight = Z[chosen], None if weight is None else weight[chosen]
    distances = pdist(Z)
    positive = (distances > 0) & np.isfinite(distances)
    if not positive.any():
        return 1.0
    if weight is None:
        return float(np.median(distances[positive]))
    first, second = np.triu_indices(len(Z), k=1)
    return _weighted_median(distances[positive], (weight[first] * weight[second])[positive])


def _weighted_median(values: Array, weight: Array) -> float:
    order = np.argsort(values)
    values, reached = values[order], np.cumsum(weight[order])
    # The mean of the two middle values where the weight divides evenly, as it would be for copies.
    half = 0.5 * reached[-1]
    low = int(np.searchsorted(reached, half * (1 - 1e-12)))
    high = int(np.searchsorted(reached, half * (1 + 1e-12), side="right"))
    return float(0.5 * (values[low] + values[min(high, len(values) - 1)]))


class RBF(kernels.RBF):  # type: ignore[misc]  # scikit-learn is untyped
    """scikit-learn's kernel, printed in a line however many lengthscales it has.

    >>> RBF([1.0] * 72)
    RBF(length_scale=[1, 1, 1, ..., 1, 1, 1])
    """

    def __repr__(self) -> str:
        return abbreviated(super().__repr__())


class Matern(kernels.Matern):  # type: ignore[misc]
    """scikit-learn's kernel, printed in a line however many lengthscales it has."""

    def __repr__(self) -> str:
        return abbreviated(super().__repr__())


KERNEL_NAMES = ("matern32", "matern12", "rbf")
"""The kernels that `default_kernel` makes, by name."""
POINT_STARTS = ("kmeans", "random", "greedy")
"""The ways in which inducing points are chosen among the rows, by name."""


def default_kernel(n_features: int, lengthscale: float, name: str = "matern32") -> Kernel:
    """Amplitude × an ARD kernel, with a bounded amplitude and without white noise.

    name: "matern32" or "matern12" (Matérn with ν = 3/2 or 1/2) or "rbf" (squared exponential). With a
    probit likelihood, amplitude and noise are only defined up to a common scale, and the evidence of a
    sparse model keeps rising slowly as both grow.
    """
    scales, bounds = [lengthscale] * n_features, (1e-2 * lengthscale, 1e3 * lengthscale)
    if name == "rbf":
        shape = RBF(scales, bounds)
    else:
        shape = Matern(scales, bounds, nu={"matern32": 1.5, "matern12": 0.5}[name])
    return kernels.ConstantKernel(1.0, (1e-2, 30.0)) * shape
