"""How much each feature matters to the fitted latent function, in shares that add up to one.

A lengthscale alone misleads: a kernel may be sensitive to a feature along which the data do not vary, or
along which the fitted function is flat. So the slopes of the function itself are measured,

    r_j ∝ Σ_i (s_j ∂f̂(z_i)/∂x_j)²,      Σ_j r_j = 1,

the mean squared slope along feature j at the inducing points z_i, which represent the rows. s_j is the
feature's standard deviation, so that rescaling a column changes nothing. f̂(x) = k(x, Z)K⁻¹f̄ is the
latent function given the inducing values f̄. Value and band are the mean and quantiles of r over draws of
f̄ from q, the same draws in every call. For several latent functions only their differences count, so
their mean slope is subtracted first.

A slope at x is the kernel's gradient by an inducing point at x, which every registered kernel has.

A column of a table may be several features, such as one for each level. Its relevance is that of the
features together,

    r_G ∝ Σ_i g_iᵀ Σ_G g_i,      g_i the slopes along the features of G,

with Σ_G their covariance. To first order, it is half the mean squared change of the function when the
column is drawn again, independently of the others. It does not depend on how the column is coded: two
levels have the same relevance as one feature or as two. The correlations in Σ_G are those of the
inducing points. For a single feature this is the formula above.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.linalg import solve_triangular

from cavity.data.routing import by_leaf
from cavity.errors import NumericalError
from cavity.gp.kernels import BoundKernel, bind
from cavity.gp.kernels.base import Tape
from cavity.gp.leaves import LocalPrior
from cavity.gp.linalg import jittered_cholesky
from cavity.gp.model import Model
from cavity.gp.prior import Prior
from cavity.text import html_table, suggestion, text_table
from cavity.typing import Array, IntArray

if TYPE_CHECKING:
    from sklearn.gaussian_process.kernels import Kernel

N_DRAWS = 200
"""Functions drawn from q."""
_MOST_POINTS = 128
"""Inducing points at which slopes are taken, at most."""
_JITTER = 1e-15
"""Relative jitter of a covariance before it is factored: that of a sharp posterior is singular."""
_LOWER, _UPPER = 0.05, 0.95
"""Quantiles of the band."""


class FeatureRelevance(NamedTuple):
    """The relevance of one feature."""

    name: str
    value: float
    """Expected share of the squared slope, in [0, 1]."""
    lower: float
    upper: float
    """5 % and 95 % quantiles of the share under the posterior of the latent function."""
    lengthscale: float
    """Lengthscale in the units of X; NaN if the kernel has none, or more than one, for the feature."""


class Relevance:
    """Relevance of d features of a fitted model, one row each, in the order of the columns of X.

    The numbers are computed on first use: showing an estimator lists all its attributes, and that must
    not take time.
    """

    def __init__(
        self, model: Model, names: Sequence[str], groups: Sequence[Sequence[int]] | None = None
    ) -> None:
        """names: of the rows; groups: the features that each row stands for (None: one each)."""
        self._model = model
        self.names = tuple(names)
        self._groups = groups or [(j,) for j in range(len(self.names))]

    @property
    def value(self) -> Array:
        """Shares [d]; they add up to one, or are all zero if the latent function is constant."""
        return self._band[0]

    @property
    def lower(self) -> Array:
        """5 % quantiles [d] of the shares."""
        return self._band[1]

    @property
    def upper(self) -> Array:
        """95 % quantiles [d] of the shares."""
        return self._band[2]

    @cached_property
    def lengthscale(self) -> Array:
        """Lengthscales [d] in the units of X; NaN where the kernel has none or several for a feature.

        Where a scaling is not a straight line, they are those in the middle of the column.
        """
        scaling = self._model.scaling
        if scaling.whitening_matrix is not None:  # then those of the kernel mix the features
            return np.full(len(self), np.nan)
        scales = lengthscales(self._model.kernel, self._model.Z.shape[1]) * scaling.unit
        return np.array([scales[group[0]] if len(group) == 1 else np.nan for group in self._groups])

    @cached_property
    def _band(self) -> tuple[Array, Array, Array]:
        return share_band(self._model, self._groups)

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, feature: int | str) -> FeatureRelevance:
        """The row of a feature, by position or name."""
        if isinstance(feature, str) and feature not in self.names:
            raise ValueError(f"there is no feature {feature!r}{suggestion(feature, self.names)}")
        j = self.names.index(feature) if isinstance(feature, str) else feature
        numbers = (float(column[j]) for column in self._columns)
        return FeatureRelevance(self.names[j], *numbers)

    def __iter__(self) -> Iterator[FeatureRelevance]:
        return (self[j] for j in range(len(self)))

    def ranked(self) -> list[FeatureRelevance]:
        """The rows, most relevant first."""
        return [self[int(j)] for j in np.argsort(-self.value, kind="stable")]

    def __repr__(self) -> str:
        return f"<relevance of {len(self)} features>"

    def __str__(self) -> str:
        return text_table(self._header, self._cells)

    def _repr_html_(self) -> str:
        return html_table(self._header, self._cells)

    @property
    def _columns(self) -> tuple[Array, ...]:
        return self.value, self.lower, self.upper, self.lengthscale

    @property
    def _header(self) -> list[str]:
        return ["feature", "relevance", "5 %", "95 %", "lengthscale"]

    @property
    def _cells(self) -> list[list[str]]:
        return [
            [row.name, *(f"{share:.3f}" for share in row[1:4]), f"{row.lengthscale:.4g}"]
            for row in self.ranked()
        ]


class FeatureGroup(NamedTuple):
    """Features that are judged together."""

    features: IntArray
    """[g]: their positions."""
    root: Array
    """[g, k]: their correlations are its product with its transpose."""


def share_band(
    model: Model, groups: Sequence[Sequence[int]] | None = None
) -> tuple[Array, Array, Array]:
    """Mean, 5 % and 95 % quantile of the shares of groups of features, over functions drawn from q.

    groups: the features of each group, some of which may be in several; None makes each a group.
    """
    with np.errstate(all="ignore"):
        points, scale = _representatives(model.Z), _feature_scale(model)
        found = None if groups is None else _feature_groups(model, groups)
        rng = np.random.default_rng(0)
        drawn = _drawn_slopes(model, points, rng) if model.local is None else _drawn_by_leaf(model, rng)
        share = np.array([_shares(slopes, scale, found) for slopes in drawn])
    value = share.mean(axis=0)
    lower, upper = np.quantile(share, [_LOWER, _UPPER], axis=0)
    return value, np.minimum(lower, value), np.maximum(upper, value)


def latent_slopes(model: Model, points: Array, u: Array) -> Array:
    """∂f̂/∂x [C, t, d] at standardised points [t, d], for whitened inducing values u [C, m]."""
    bound = bind(model.kernel, points)
    _, tape = bound.cross(model.prior.Z)
    weights = u @ model.prior.L_inverse  # L⁻ᵀu, so that f̂ = k(x, Z)·weights
    shape = (u.shape[1], len(points))
    slopes = np.stack([bound.pull_back(tape, _columns_of(w, shape))[1] for w in weights])
    matrix = model.scaling.whitening_matrix
    return slopes if matrix is None else slopes @ matrix.T  # along the features, before whitening


def _columns_of(weights: Array, shape: tuple[int, int]) -> Array:
    return np.ascontiguousarray(np.broadcast_to(weights[:, None], shape))


def _drawn_slopes(model: Model, points: Array, rng: np.random.Generator) -> Iterator[Array]:
    """Slopes [C, t, d] of functions drawn from q."""
    mean = model.posterior.mean
    roots = [np.tril(jittered_cholesky(S, _JITTER)[0]) for S in model.posterior.covariance]
    for _ in range(N_DRAWS):
        noise = rng.standard_normal(mean.shape)
        u = np.stack([mu + R @ e for mu, R, e in zip(mean, roots, noise, strict=True)])
        yield latent_slopes(model, points, u)


def _drawn_by_leaf(model: Model, rng: np.random.Generator) -> Iterator[Array]:
    """Slopes at points of leaves, of functions drawn from q: those of g, and of r in each leaf.

    Given the global values, those of leaves are drawn independently of each other.
    """
    prior = model.prior
    assert isinstance(prior, LocalPrior)
    assert model.local is not None
    points, sites = model.local.leaves.points, model.local.naturals
    leaf = np.repeat(np.arange(len(points)), [len(Z) for Z in points])
    chosen = np.linspace(0, len(leaf) - 1, min(_MOST_POINTS, len(leaf))).astype(int)
    at, m = np.concatenate(points)[chosen], sites.m
    groups = by_leaf(leaf[chosen])
    whole = _Slopes.of(prior, at)
    local = [_Slopes.of(prior.leaf(k), at[rows]) for k, rows in groups]
    roots = [np.tril(jittered_cholesky(S, _JITTER)[0]) for S in model.posterior.covariance]
    conditionals = [sites.conditionals[k] for k, _ in groups]
    matrix = model.scaling.whitening_matrix
    for _ in range(N_DRAWS):
        slopes = []
        for c, (mean, root) in enumerate(zip(model.posterior.mean, roots, strict=True)):
            u = mean + root @ rng.standard_normal(m)
            slope = whole(u)
            for (_, rows), one, own in zip(groups, local, conditionals, strict=True):
                noise = rng.standard_normal(len(own.means[c]))
                slope[rows] += one(own.means[c] - own.slopes[c] @ u + own.roots[c].T @ noise)
            slopes.append(slope)
        drawn = np.stack(slopes)
        yield drawn if matrix is None else drawn @ matrix.T


class _Slopes(NamedTuple):
    """Slopes of f̂ = k(x, Z)K⁻¹f̄ at points, for whitened values at Z."""

    bound: BoundKernel
    tape: Tape
    L_inverse: Array
    n_points: int

    @classmethod
    def of(cls, prior: Prior, points: Array) -> _Slopes:
        bound = bind(prior.own_kernel, points)
        return cls(bound, bound.cross(prior.Z)[1], prior.L_inverse, len(points))

    def __call__(self, u: Array) -> Array:
        """[t, d], for u [m]."""
        weights = u @ self.L_inverse
        return self.bound.pull_back(self.tape, _columns_of(weights, (len(u), self.n_points)))[1]


def _shares(slopes: Array, scale: Array, groups: Sequence[FeatureGroup] | None = None) -> Array:
    """Shares of groups of features in the squared slopes [C, t, d] per unit of `scale` [d].

    groups: None makes each feature a group.
    """
    if len(slopes) > 1:
        slopes = slopes - slopes.mean(axis=0)
    steepest = np.abs(slopes).max(axis=(0, 1))
    if not np.isfinite(steepest).all():
        raise NumericalError(
            "the slopes of the latent function are beyond the range of numbers, so that no feature has "
            'a relevance; fit with tighter kernel bounds or scaling="standard"'
        )
    # Relative to the largest product of slope and scale, in logarithms: units may be of any size.
    with np.errstate(divide="ignore"):
        size = np.log(steepest) + np.log(scale)
    if np.isneginf(size).all():
        return np.zeros(len(scale if groups is None else groups))
    relative = slopes / np.where(steepest > 0.0, steepest, 1.0) * np.exp(size - size.max())
    squares = np.square(relative).sum(axis=(0, 1))
    if groups is not None:
        squares = np.array(
            [
                squares[features[0]]
                if len(features) == 1
                else np.square(relative[..., features] @ root).sum()
                for features, root in groups
            ]
        )
    total = squares.sum()
    return np.asarray(squares / total if total > 0.0 else squares)


def _feature_groups(model: Model, groups: Sequence[Sequence[int]]) -> list[FeatureGroup]:
    """Groups of features, with their correlations at the inducing points."""
    points, matrix = np.asarray(model.Z, dtype=np.float64), model.scaling.whitening_matrix
    if matrix is not None:
        points = solve_triangular(matrix, points.T, trans="T").T
    found: list[FeatureGroup] = []
    for group in groups:
        features = np.array(group, dtype=np.int64)
        part, size = points[:, features], len(features)
        apart = part - part.mean(axis=0)
        length = np.linalg.norm(apart, axis=0)
        varies = length > np.finfo(float).eps * np.abs(part).max(axis=0) * len(part)
        root = np.zeros((size, len(part) + size))
        root[varies, : len(part)] = (apart[:, varies] / length[varies]).T
        # A feature that is the same at all inducing points, such as a rare level, counts by itself.
        root[~varies, len(part) + np.flatnonzero(~varies)] = 1.0
        found.append(FeatureGroup(features, root))
    return found


def _representatives(Z: Array) -> Array:
    """At most 128 of the inducing points [m, d], evenly spaced among them."""
    if len(Z) <= _MOST_POINTS:
        return np.ascontiguousarray(Z, dtype=np.float64)
    chosen = np.linspace(0, len(Z) - 1, _MOST_POINTS).round().astype(int)
    return np.ascontiguousarray(Z[chosen], dtype=np.float64)


def _feature_scale(model: Model) -> Array:
    """Standard deviation [d] of each feature in the units of the kernel's inputs.

    It is one if the inputs were standardised, and that of the inducing points if they were not.
    """
    if model.scaling.is_identity and len(model.Z) > 1:
        largest = np.maximum(np.abs(model.Z).max(axis=0), np.finfo(float).tiny)
        return np.asarray(largest * (model.Z / largest).std(axis=0))  # squares stay in range
    return np.ones(model.Z.shape[1])


def lengthscales(kernel: Kernel, d: int) -> Array:
    """The lengthscale [d] of each feature in the kernel's own units; NaN if there is not just one.

    >>> from sklearn.gaussian_process.kernels import RBF, DotProduct
    >>> lengthscales(2.0 * RBF([0.5, 3.0]) + DotProduct(), 2)
    array([0.5, 3. ])
    """
    found = [
        np.ravel(np.asarray(value, dtype=np.float64))
        for name, value in kernel.get_params().items()
        if name.split("__")[-1] == "length_scale"
    ]
    if len(found) != 1 or len(found[0]) not in (1, d):
        return np.full(d, np.nan)
    return np.array(np.broadcast_to(found[0], d))
