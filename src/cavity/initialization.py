"""Where inducing points and lengthscales start: from the data."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from scipy.spatial.distance import pdist
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from cavity.kernels import bind
from cavity.typing import Array

SAMPLE_PER_POINT = 10
"""Rows looked at for each inducing point: more changes the start little and costs time."""


def sample_size(m: int) -> int:
    """How many rows to draw for choosing m inducing points."""
    return max(2_000, SAMPLE_PER_POINT * m)


def initial_inducing_points(
    X: Array, weight: Array | None, m: int, how: str, kernel: Any, rng: np.random.RandomState
) -> Array:
    """m inducing points [m, d] from a sample of standardised rows X [t, d].

    "kmeans" takes the centres of clusters, "random" rows, "greedy" the rows that the ones before
    leave with the largest conditional variance under the kernel (Burt et al., 2020).
    """
    X = np.asarray(X, dtype=np.float64)
    if weight is not None:
        X, weight = X[weight > 0], weight[weight > 0]
    if m >= len(X):
        return X.copy()
    if how == "random":
        return np.array(X[np.sort(rng.choice(len(X), size=m, replace=False))])
    if how == "greedy":
        return np.array(X[greedy_conditional_variance(X, m, kernel, rng)])
    return kmeans_centres(X, weight, m, rng)


def kmeans_centres(X: Array, weight: Array | None, m: int, rng: np.random.RandomState) -> Array:
    """Centres [m, d] of m clusters of X [t, d]; some coincide if X has fewer distinct rows."""
    clusters = KMeans(m, n_init=1, max_iter=20, tol=1e-3, random_state=rng)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer distinct rows than clusters
        clusters.fit(X, sample_weight=weight)
    return np.asarray(clusters.cluster_centers_, dtype=np.float64)


def greedy_conditional_variance(X: Array, m: int, kernel: Any, rng: np.random.RandomState) -> Array:
    """Indices [m] of rows of X [t, d] chosen by pivoted Cholesky of the kernel matrix, O(t·m²)."""
    order = rng.permutation(len(X))
    X = X[order]
    bound = bind(kernel, X[:1])
    remaining = np.array(bound.diagonal(X)[0], dtype=np.float64)
    factors = np.zeros((m, len(X)))
    chosen: list[int] = []
    for j in range(m):
        pivot = int(np.argmax(remaining))
        if remaining[pivot] <= 1e-12:  # every row is explained: the rest can be any
            unused = np.setdiff1d(np.arange(len(X)), chosen)
            chosen.extend(unused[: m - j].tolist())
            break
        column = bind(kernel, X[pivot : pivot + 1]).cross(X)[0][:, 0].astype(np.float64)
        column = column - factors[:j].T @ factors[:j, pivot]
        factors[j] = column / np.sqrt(remaining[pivot])
        remaining = np.maximum(remaining - factors[j] ** 2, 0.0)
        remaining[pivot] = -1.0
        chosen.append(pivot)
    return np.asarray(order[np.array(chosen)])


def median_distance(Z: Array, rng: np.random.RandomState) -> float:
    """Median distance between the rows of Z [m, d], from 500 of them at most; 1 if there is none."""
    if len(Z) > 500:
        Z = Z[rng.choice(len(Z), 500, replace=False)]
    distances = pdist(Z)
    positive = distances[(distances > 0) & np.isfinite(distances)]
    return float(np.median(positive)) if len(positive) else 1.0


def default_kernel(n_features: int, lengthscale: float) -> Any:
    """Amplitude × ARD squared exponential, inside bounds that close the scale ridge.

    With a probit likelihood amplitude and noise are only defined up to a common scale and the evidence
    of a sparse model keeps creeping up as both grow, so the amplitude is bounded and there is no noise
    of its own.
    """
    bounds = (1e-2 * lengthscale, 1e3 * lengthscale)
    return ConstantKernel(1.0, (1e-2, 30.0)) * RBF([lengthscale] * n_features, bounds)
