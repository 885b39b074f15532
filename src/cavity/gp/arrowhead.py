"""The posterior of local inducing points: the precision of q has the form of an arrowhead.

The model is that of `cavity.gp.leaves`. In whitened coordinates u = (u_0, u_1, …, u_K) the prior is
N(0, I), a site of a row in leaf k is a factor along a vector of (u_0, u_k) alone, and the precision is

    [ I + Σ_k P_k   C_1      …   C_K     ]        P_k [m, m], C_k [m, m_k], D_k [m_k, m_k]:
    [ C_1ᵀ          I + D_1              ]        the blocks of the summed sites of leaf k,
    [ …                      …           ]        which are the `NaturalParameters` of its view.
    [ C_Kᵀ                       I + D_K ]

Integrating u_k out leaves a factor of u_0, the *message* of leaf k: a Schur complement,

    precision P_k − C_k(I + D_k)⁻¹C_kᵀ,   shift η_k0 − C_k(I + D_k)⁻¹η_k,
    logarithm of its size ½ η_kᵀ(I + D_k)⁻¹η_k − ½ log|I + D_k|.

The sum of the messages is what the rows say about u_0. The marginal of q in the view of leaf k has the
naturals of leaf k and the messages of all other leaves: a dense Gaussian of m + m_k values, exactly.
It is made of the marginal of u_0 and of u_k given u_0, which depends on the sites of leaf k alone.

The classes here extend those of a model without leaves: a `LocalPosterior` is the `Posterior` of the
global values, and it has a `view` for each leaf.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.linalg import block_diag

from cavity.gp.leaves import ForEachLeaf, Leaves, LocalPrior
from cavity.gp.linalg import (
    add_to_diagonal,
    cholesky_in_place,
    gram_of_lower,
    inverse_lower,
    stacked,
    transposed_lower_times,
)
from cavity.gp.posterior import MapFunction, NaturalParameters, Posterior
from cavity.gp.prior import Prior
from cavity.gp.tiles import Sums
from cavity.typing import FLOAT64, Array, Dtype

_TOTALS = ("n_rows", "n_visited", "weight", "objective", "log_predictive", "site_change")
"""Sums over rows of all leaves."""


@dataclass(frozen=True)
class LocalPart:
    """What a fitted model knows of its leaves."""

    leaves: Leaves
    sites: tuple[NaturalParameters, ...]
    """The summed sites of each leaf in the coordinates of its view."""
    jitter: float
    """The relative jitter that the kernel matrices of leaves begin with."""

    def __getstate__(self) -> dict[str, object]:
        return {field.name: vars(self)[field.name] for field in fields(self)}  # no caches

    @cached_property
    def naturals(self) -> LocalNaturalParameters:
        """The summed sites, with what follows from them."""
        m = self.sites[0].shift.shape[1] - self.leaves.sizes[0]
        return LocalNaturalParameters.of(self.sites, m)


class Conditional(NamedTuple):
    """Old values u given new ones v, under the prior: u is N(Tv, D)."""

    T: Array
    D: Array


@dataclass(frozen=True)
class Quadratic:
    """Σ_c u_cᵀG_c u_c − 2g_cᵀu_c + a: a function of the global values."""

    curvature: Array
    """G [C, m, m]."""
    slope: Array
    """g [C, m]."""
    constant: float

    def plus(self, other: Quadratic, sign: float = 1.0) -> Quadratic:
        """The sum with another, or the difference."""
        return Quadratic(
            self.curvature + sign * other.curvature,
            self.slope + sign * other.slope,
            self.constant + sign * other.constant,
        )

    def expected(self, mean: Array, covariance: Array) -> float:
        """Its expectation where u_c is N(mean_c, covariance_c)."""
        second = covariance + mean[:, :, None] * mean[:, None, :]
        return self.constant + float(np.sum(self.curvature * second) - 2.0 * np.sum(self.slope * mean))


@dataclass(frozen=True)
class Message:
    """What the sites of some leaves say about the global values, with the leaves' own integrated out."""

    naturals: NaturalParameters
    """The factor of the global values: [C, m, m] and [C, m]."""
    log_partition: float
    """Logarithm of the integral over the leaves' values, relative to their prior."""
    divergence: Quadratic
    """Twice the divergence of the leaves' values from their prior, given the global values."""

    @classmethod
    def nothing(cls, n_latents: int, m: int) -> Message:
        """What no leaves say."""
        none = NaturalParameters.zeros(n_latents, m)
        return cls(none, 0.0, Quadratic(none.precision, none.shift, 0.0))

    def plus(self, other: Message, sign: float = 1.0) -> Message:
        """What both say; or what this one says without the other."""
        precision = self.naturals.precision + sign * other.naturals.precision
        shift = self.naturals.shift + sign * other.naturals.shift
        log_partition = self.log_partition + sign * other.log_partition
        return Message(
            NaturalParameters(precision, shift),
            log_partition,
            self.divergence.plus(other.divergence, sign),
        )


@dataclass(frozen=True)
class LeafConditional:
    """The values of a leaf given the global ones: u_k is N(d − Ju_0, (I + D)⁻¹).

    J = (I + D)⁻¹Cᵀ and d = (I + D)⁻¹η depend on the sites of the leaf alone. So they are computed once
    for each change of these, and other leaves may change what is known about u_0 in the meantime.
    """

    message: Message
    """What the leaf says about u_0."""
    roots: tuple[Array, ...]
    """L⁻¹ [m_k, m_k] for each latent function, where LLᵀ = I + D."""
    slopes: tuple[Array, ...]
    """J [m_k, m] for each of them."""
    means: tuple[Array, ...]
    """d [m_k] for each of them."""

    @classmethod
    def of(cls, naturals: NaturalParameters, m: int) -> LeafConditional:
        """Integrate the values of a leaf out of the summed sites of its view."""
        size = naturals.shift.shape[1] - m
        precisions, shifts, curvatures, pulls = [], [], [], []
        roots, slopes, means = [], [], []
        log_partition, constant = 0.0, 0.0
        for P, eta in zip(naturals.precision, naturals.shift, strict=True):
            B = np.array(P[m:, m:], order="C")
            add_to_diagonal(B, 1.0)
            L = cholesky_in_place(B)
            root, log_root = inverse_lower(L), float(np.log(L.diagonal()).sum())
            X, y = root @ P[m:, :m], root @ eta[m:]
            J, d = transposed_lower_times(root, X), y @ root
            precisions.append(P[:m, :m] - X.T @ X)
            shifts.append(eta[:m] - y @ X)
            curvatures.append(J.T @ J)
            pulls.append(d @ J)
            log_partition += 0.5 * float(y @ y) - log_root
            constant += float(np.vdot(root, root) + d @ d) - size + 2.0 * log_root
            roots.append(root)
            slopes.append(J)
            means.append(d)
        divergence = Quadratic(stacked(curvatures), stacked(pulls), constant)
        message = Message(
            NaturalParameters(stacked(precisions), stacked(shifts)), log_partition, divergence
        )
        return cls(message, tuple(roots), tuple(slopes), tuple(means))

    def joined(self, q: Posterior, dtype: Dtype) -> Posterior:
        """The marginal of the global values and those of the leaf, where q is that of the global ones.

        Its covariance is in `dtype`; the sites are left out.
        """
        means, covariances, log_root = [], [], q.half_log_determinant
        for mean, S, root, J, d in zip(
            q.mean, q.covariance, self.roots, self.slopes, self.means, strict=True
        ):
            m, S = len(mean), S.astype(dtype, copy=False)
            narrow = J.astype(dtype, copy=False)
            own = gram_of_lower(root.astype(dtype, copy=False))
            across = narrow @ S
            own += across @ narrow.T
            covariance = np.empty((m + len(d),) * 2, dtype)
            covariance[:m, :m], covariance[m:, m:] = S, own
            np.negative(across, out=covariance[m:, :m])
            covariance[:m, m:] = covariance[m:, :m].T
            means.append(np.concatenate([mean, d - J @ mean]))
            covariances.append(covariance)
            log_root += float(np.log(root.diagonal()).sum())
        nothing = NaturalParameters.zeros(len(means), 0)
        return Posterior(stacked(means), stacked(covariances), log_root, nothing)


@dataclass(frozen=True)
class LocalNaturalParameters(NaturalParameters):
    """Summed sites of the rows of all leaves; by inheritance, what they say about the global values."""

    leaves: tuple[NaturalParameters, ...]
    """The summed sites of each leaf in the coordinates of its view: [C, m + m_k, m + m_k]."""
    conditionals: tuple[LeafConditional, ...]
    """For each leaf, its values given the global ones."""
    total: Message
    """What all leaves say about the global values."""

    @classmethod
    def of(
        cls, leaves: Sequence[NaturalParameters], m: int, map_function: MapFunction = map
    ) -> LocalNaturalParameters:
        """The sum of the sites of leaves, each in the coordinates of its view."""
        conditionals = tuple(map_function(lambda naturals: LeafConditional.of(naturals, m), leaves))
        total = Message.nothing(len(leaves[0].shift), m)
        for one in conditionals:
            total = total.plus(one.message)
        return cls(*total.naturals.parts, tuple(leaves), conditionals, total)

    @classmethod
    def none(cls, n_latents: int, m: int, sizes: Sequence[int]) -> LocalNaturalParameters:
        """No sites, for leaves with so many points."""
        made = {size: NaturalParameters.zeros(n_latents, m + size) for size in set(sizes)}
        known = {size: LeafConditional.of(naturals, m) for size, naturals in made.items()}
        nothing = Message.nothing(n_latents, m)
        leaves, conditionals = zip(*((made[size], known[size]) for size in sizes), strict=True)
        return cls(*nothing.naturals.parts, leaves, conditionals, nothing)

    @property
    def m(self) -> int:
        """Number of global inducing points."""
        return int(self.shift.shape[1])

    def replaced(
        self, changes: Mapping[int, NaturalParameters], map_function: MapFunction = map
    ) -> LocalNaturalParameters:
        """The same with the summed sites of some leaves replaced, at the cost of these leaves."""
        leaves, conditionals, total = list(self.leaves), list(self.conditionals), self.total
        found = map_function(lambda one: LeafConditional.of(one, self.m), list(changes.values()))
        for (leaf, naturals), new in zip(changes.items(), found, strict=True):
            total = total.plus(new.message).plus(conditionals[leaf].message, -1.0)
            leaves[leaf], conditionals[leaf] = naturals, new
        return LocalNaturalParameters(*total.naturals.parts, tuple(leaves), tuple(conditionals), total)

    def scaled(self, factor: float) -> LocalNaturalParameters:
        """The sites counted `factor` times."""
        return LocalNaturalParameters.of([own.scaled(factor) for own in self.leaves], self.m)

    def __add__(self, other: NaturalParameters) -> LocalNaturalParameters:
        assert isinstance(other, LocalNaturalParameters)
        leaves = [own + theirs for own, theirs in zip(self.leaves, other.leaves, strict=True)]
        return LocalNaturalParameters.of(leaves, self.m)

    def mixed_with(self, other: NaturalParameters, gain: float) -> LocalNaturalParameters:
        """(1 − gain)·self + gain·other."""
        assert isinstance(other, LocalNaturalParameters)
        pairs = zip(self.leaves, other.leaves, strict=True)
        return LocalNaturalParameters.of([own.mixed_with(theirs, gain) for own, theirs in pairs], self.m)

    def under(self, before: Prior, after: Prior) -> LocalNaturalParameters:
        """The same factors on the values at the inducing points, under another kernel."""
        assert isinstance(before, LocalPrior)
        assert isinstance(after, LocalPrior)
        T = before.L_inverse @ after.L
        leaves = [
            own.mapped(block_diag(T, before.leaf(k).L_inverse @ after.leaf(k).L))
            for k, own in enumerate(self.leaves)
        ]
        return LocalNaturalParameters.of(leaves, self.m)

    def carried_in_leaves(
        self, whole: Conditional | None, parts: Mapping[int, Conditional]
    ) -> LocalNaturalParameters:
        """The factors as factors on other values; the global ones (None: the same) and those of leaves.

        Every view keeps its marginal, exactly. If the global values are others, what the noise D between
        old and new ones has in common for rows of different leaves is lost: given the new values, leaves
        are independent. Of all arrowheads, that is the nearest one to the exact answer.
        """
        same = Conditional(np.eye(self.m), np.zeros((self.m, self.m)))
        T, D = same if whole is None else whole
        m, noisy = T.shape[1], np.linalg.inv(np.eye(self.m) + self.precision @ D)
        total = NaturalParameters(self.precision, self.shift).seen_through(noisy, T)
        leaves = list(self.leaves)
        for k, conditional in enumerate(self.conditionals):
            if whole is None and k not in parts:
                continue
            size = leaves[k].shift.shape[1] - self.m
            T_k, D_k = parts.get(k, (np.eye(size), np.zeros((size, size))))
            view = self.view(k).carried(block_diag(T, T_k), block_diag(D, D_k))
            own = conditional.message.naturals.seen_through(noisy, T)
            view.precision[:, :m, :m] -= total.precision - own.precision
            view.shift[:, :m] -= total.shift - own.shift
            leaves[k] = view
        return LocalNaturalParameters.of(leaves, m)

    def view(self, leaf: int) -> NaturalParameters:
        """What all rows say about the values in the view of a leaf."""
        own, message, m = self.leaves[leaf], self.conditionals[leaf].message.naturals, self.m
        precision, shift = own.precision.copy(), own.shift.copy()
        precision[:, :m, :m] += self.precision - message.precision
        shift[:, :m] += self.shift - message.shift
        return NaturalParameters(precision, shift)

    def posterior(self, map_function: MapFunction = map, dtype: Dtype = FLOAT64) -> LocalPosterior:
        """q ∝ N(u | 0, I) · exp(ηᵀu − ½ uᵀΛu)."""
        core = Posterior.from_naturals(self, map_function)
        return LocalPosterior(core.mean, core.covariance, core.half_log_determinant, self, dtype=dtype)


@dataclass(frozen=True)
class LocalPosterior(Posterior):
    """q of the inducing values of all leaves; as `Posterior`, its marginal of the global values."""

    naturals: LocalNaturalParameters
    dtype: Dtype = field(default=FLOAT64, kw_only=True)
    """Precision of the covariances of views."""

    def view(self, leaf: int) -> Posterior:
        """The marginal of the values in the view of a leaf, m + m_k of them."""
        return self._views[leaf]

    def of_global_values(self) -> Posterior:
        """The marginal of the global values alone."""
        sites = NaturalParameters(self.naturals.precision, self.naturals.shift)
        return Posterior(self.mean, self.covariance, self.half_log_determinant, sites)

    @cached_property
    def _views(self) -> ForEachLeaf[Posterior]:
        conditionals = self.naturals.conditionals
        return ForEachLeaf(len(conditionals), lambda leaf: conditionals[leaf].joined(self, self.dtype))

    @property
    def log_partition(self) -> float:
        """The log-normaliser of q minus that of the prior, from messages: no view is needed."""
        return super().log_partition + self.naturals.total.log_partition

    @property
    def divergence(self) -> float:
        """KL[q ‖ prior]: that of the global values, and that of the leaves' values given them."""
        of_leaves = self.naturals.total.divergence.expected(self.mean, self.covariance)
        return super().divergence + 0.5 * of_leaves


@dataclass(frozen=True)
class PosteriorViews(Posterior):
    """The marginals of q in the views of some leaves, to be sent; as a `Posterior` it is empty."""

    views: Mapping[int, Posterior] = field(kw_only=True)

    @classmethod
    def of(cls, views: Mapping[int, Posterior]) -> PosteriorViews:
        """The views by leaf."""
        nothing = NaturalParameters.zeros(1, 0)
        return cls(nothing.shift, nothing.precision, 0.0, nothing, views=views)

    def view(self, leaf: int) -> Posterior:
        """The marginal of the values in the view of a leaf."""
        return self.views[leaf]


@dataclass
class LocalSums(Sums):
    """Sums of a pass over rows of several leaves: those that have no leaf are totals of all."""

    parts: dict[int, Sums] = field(default_factory=dict)
    """The sums of every leaf that the pass has met, in the coordinates of its view."""
    shares: dict[int, float] = field(default_factory=dict)
    """Share of a leaf's rows that were drawn for the pass."""
    scale: float = 1.0
    """What the sums were multiplied by since then."""
    m: int = 0
    """Number of global points."""
    sizes: tuple[int, ...] = ()
    """Numbers of points of all leaves."""

    @classmethod
    def of(
        cls, parts: Mapping[int, Sums], shares: Mapping[int, float], m: int, sizes: tuple[int, ...]
    ) -> LocalSums:
        """The sums of leaves, taken together."""
        n_latents = len(next(iter(parts.values())).shift) if parts else 1
        nothing = NaturalParameters.zeros(n_latents, 0)
        return cls(
            n_rows=sum(part.n_rows for part in parts.values()),
            n_visited=sum(part.n_visited for part in parts.values()),
            weight=sum(part.weight for part in parts.values()),
            precision=nothing.precision,
            shift=nothing.shift,
            objective=sum(part.objective for part in parts.values()),
            log_predictive=sum(part.log_predictive for part in parts.values()),
            site_change=sum(part.site_change for part in parts.values()),
            parts=dict(parts),
            shares=dict(shares),
            m=m,
            sizes=sizes,
        )

    @property
    def naturals(self) -> LocalNaturalParameters:
        """The summed sites of all leaves; leaves that the pass has not met have none."""
        n_latents = len(self.shift)
        leaves = [
            self.parts[leaf].naturals
            if leaf in self.parts
            else NaturalParameters.zeros(n_latents, self.m + size)
            for leaf, size in enumerate(self.sizes)
        ]
        return LocalNaturalParameters.of(leaves, self.m)

    @property
    def checksum(self) -> float:
        """A number that is not finite if an entry of the summed sites is not."""
        return sum(part.checksum for part in self.parts.values())

    def __iadd__(self, other: Sums) -> LocalSums:
        assert isinstance(other, LocalSums)
        if not self.parts:
            self.precision, self.shift = other.precision, other.shift  # their number of latents
        for name in _TOTALS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for leaf, part in other.parts.items():
            if leaf in self.parts:
                self.parts[leaf] += part
            else:
                self.parts[leaf] = part
            self.shares[leaf] = self.shares.get(leaf, 0.0) + other.shares[leaf]
        return self

    def __imul__(self, factor: float) -> LocalSums:
        for name in _TOTALS:
            setattr(self, name, getattr(self, name) * factor)
        for part in self.parts.values():
            part *= factor
        self.scale *= factor
        return self
