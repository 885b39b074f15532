"""How a posterior with local inducing points moves: the update of q for models with leaves.

A step sees rows of a few leaves. Only these leaves, and their sites on the global values, change: the
cost of a step does not depend on the number of leaves. Each leaf keeps the summed sites of its own rows,
averaged over its own minibatches, and an optimiser's state of its own for its inducing points. So the
sum of all leaves is never scaled up from those that a step has drawn. And it stands for the rows that
steps have seen: if the first few hundred rows of a leaf stood for all of them, the leaf's precision
would be overstated until its next turn, and the learned amplitude of the leaves would shrink.

The gradient by what all leaves share, the kernels and the global points, is estimated from the leaves of
a step without bias: a leaf of which a share of the rows is drawn counts with that share.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar

import numpy as np

from cavity.gp.arrowhead import LocalNaturalParameters, LocalPosterior, LocalSums
from cavity.gp.leaves import LocalPrior
from cavity.gp.posterior import MapFunction, NaturalParameters, Posterior
from cavity.gp.prior import ParameterGradient, Prior
from cavity.gp.tiles import Sums
from cavity.inference.optimizers import Adam, Optimizer, OptimizerState
from cavity.inference.updates import Evaluation, Gradients, NaturalUpdate, gradient
from cavity.typing import Array, Dtype


@dataclass(frozen=True)
class LeafState:
    """What training knows of one leaf, besides its sites and points."""

    optimizer_state: OptimizerState
    """That of the optimiser of its inducing points."""
    seen: float = 0.0
    """How often its rows were in a step, on average: 1 after one epoch."""

    @property
    def known(self) -> float:
        """The share of its rows that its sites stand for."""
        return min(1.0, self.seen)


@dataclass(frozen=True)
class LocalState:
    """The q of a model with leaves, and the inducing points of the leaves."""

    naturals: LocalNaturalParameters
    points: tuple[Array, ...]
    """The inducing points [m_k, d] of every leaf."""
    leaves: tuple[LeafState, ...]


class LocalGradient:
    """Gradients of the objective by what all leaves share, and by the points of each leaf in a pass.

    sums: of the rows of some leaves, scaled up to all rows; known: the share of the rows of each of
    these leaves that the posterior stands for, all by default.
    """

    def __init__(
        self,
        sums: LocalSums,
        prior: LocalPrior,
        posterior: LocalPosterior,
        gamma: float = 0.0,
        known: Mapping[int, float] | None = None,
        map_function: MapFunction = map,
    ) -> None:
        m = len(prior.Z)

        def of_leaf(leaf: int) -> tuple[Array, Array, Array, ParameterGradient]:
            """A leaf's part of the gradient: through K_mm of g, by theta and Z; and through its own."""
            part, view = sums.parts[leaf], posterior.view(leaf)
            assert part.theta is not None
            assert part.Z is not None
            # As many rows as the posterior stands for count in the gradient, too.
            share = 1.0 if known is None else known[leaf]
            # The leaf's own prior is as much of the objective as the rows that were drawn are of it.
            counted = sums.scale * sums.shares[leaf]
            local = _twice(share * _block(part, view, gamma, slice(m, None)))
            local += counted * _moment_gap(view, m)
            local *= 0.5
            own = prior.leaf(leaf).pull_back(local)
            own = own._replace(Z=(share * part.Z[m:] + own.Z) / counted)
            return (
                share * _block(part, view, gamma, slice(m)),
                share * part.theta,
                share * part.Z[:m],
                own,
            )

        found = dict(zip(sums.parts, map_function(of_leaf, list(sums.parts)), strict=True))
        wholes, thetas, points, own = zip(*found.values(), strict=True)
        twice = _twice(sum(wholes))
        twice += posterior.prior_minus_second_moment()
        twice *= 0.5
        through_K = prior.pull_back(twice)
        through_K_of_leaves = sum(one.theta for one in own)
        theta = sum(thetas) + np.concatenate([through_K.theta, through_K_of_leaves])
        self.shared = ParameterGradient(theta, sum(points) + through_K.Z)
        """Gradient by the kernels of g and r, and by the global points."""
        self.by_leaf: dict[int, Array] = {leaf: one[-1].Z for leaf, one in found.items()}
        """Gradient [m_k, d] by the points of each leaf, of the objective of that leaf's rows alone."""


@dataclass(frozen=True)
class LocalStreamUpdate(NaturalUpdate):
    """q is the sum of the sites of all leaves, of which a stream has all rows so far."""

    def gradients(
        self, q: LocalNaturalParameters, sums: Sums, prior: Prior, posterior: Posterior
    ) -> Gradients:
        """The objective's gradient with fixed factors on the values at all inducing points."""
        assert isinstance(sums, LocalSums)
        assert isinstance(prior, LocalPrior)
        assert isinstance(posterior, LocalPosterior)
        met = replace(sums, shares=dict.fromkeys(sums.parts, 1.0), scale=1.0)
        found = LocalGradient(met, prior, posterior).shared
        # Leaves without rows in this minibatch have known factors, too.
        m, n_own = len(prior.Z), prior.own_kernel.n_dims
        for leaf in set(range(len(prior.leaves))) - set(sums.parts):
            gap = 0.5 * _moment_gap(posterior.view(leaf), m)
            found.theta[n_own:] += prior.leaf(leaf).pull_back(gap).theta
        return Gradients(found, np.zeros(0))

    def moved(
        self, q: LocalNaturalParameters, evaluation: Evaluation, gain: float, move: Array, rate: float
    ) -> LocalNaturalParameters:
        """The same q: the next pass sums it up anew."""
        return q


def parameter_gradient(sums: Sums, prior: Prior, posterior: Posterior) -> ParameterGradient:
    """Gradient of the objective by kernel and global inducing points, with leaves or without."""
    if not isinstance(prior, LocalPrior):
        return gradient(sums, prior, posterior)
    assert isinstance(sums, LocalSums)
    assert isinstance(posterior, LocalPosterior)
    return LocalGradient(sums, prior, posterior).shared


def _twice(whitened: Array) -> Array:
    """Twice the symmetric part of a whitened gradient [m, m]."""
    twice: Array = whitened + whitened.T
    return twice


def _block(part: Sums, view: Posterior, gamma: float, at: slice) -> Array:
    """A diagonal block of the rows' part of the whitened gradient: see `whitened_gradient_of_sites`."""
    if part.whitened_gradient is not None:
        return part.whitened_gradient[at, at]
    assert part.mean_gradient is not None
    dtype = view.covariance.dtype
    block: Array = (view.mean[:, at].T @ part.mean_gradient[:, at]).astype(dtype, copy=False)
    for covariance, precision in zip(view.covariance, part.precision, strict=True):
        block -= covariance[at] @ precision[:, at].astype(dtype, copy=False)
        if gamma:
            block += (0.5 * gamma) * precision[at, at]
    return block


def _moment_gap(view: Posterior, m: int) -> Array:
    """Σ_c (I − covariance_c − mean_c mean_cᵀ) of the leaf's own values in its view."""
    own = Posterior(view.mean[:, m:], view.covariance[:, m:, m:], 0.0, view.naturals)
    return own.prior_minus_second_moment()


@dataclass(frozen=True)
class LocalUpdate(NaturalUpdate):
    """q is the sum of the sites of all leaves; a step replaces a share of those of some leaves."""

    is_whitened: ClassVar[bool] = False  # the prior comes first: its leaves' points are a part of q
    optimizer: Optimizer = field(default_factory=Adam)
    """How the points of the leaves move."""
    learn_inducing: bool = True

    def start(self, posterior: Posterior, prior: Prior) -> LocalState:
        """The sites of the posterior, and the points of the prior's leaves."""
        assert isinstance(prior, LocalPrior)
        assert isinstance(posterior, LocalPosterior)
        points = prior.leaves.points
        leaves = [
            # Where sites are known already, they stand for all rows of the leaf.
            LeafState(self.optimizer.initial(Z.size), seen=float(own.precision.any()))
            for Z, own in zip(points, posterior.naturals.leaves, strict=True)
        ]
        return LocalState(posterior.naturals, points, tuple(leaves))

    def located(self, prior: Prior, q: LocalState) -> LocalPrior:
        """The prior with the leaves' points of q."""
        assert isinstance(prior, LocalPrior)
        return prior.with_points(q.points)

    def with_sites(self, q: LocalState, naturals: NaturalParameters) -> LocalState:
        """The same points with other summed sites."""
        assert isinstance(naturals, LocalNaturalParameters)
        return replace(q, naturals=naturals)

    def moments(self, q: LocalState, dtype: Dtype, prior: Prior | None = None) -> LocalPosterior:
        """Moments of q, the covariances of views in the precision of the tiles."""
        return q.naturals.posterior(self.map_latents, dtype)

    def gradients(self, q: LocalState, sums: Sums, prior: Prior, posterior: Posterior) -> Gradients:
        """The objective's gradient by what all leaves share, and by the points of the leaves."""
        assert isinstance(sums, LocalSums)
        assert isinstance(prior, LocalPrior)
        assert isinstance(posterior, LocalPosterior)
        known = {leaf: q.leaves[leaf].known for leaf in sums.parts}
        found = LocalGradient(sums, prior, posterior, self.gamma or 0.0, known, self.map_latents)
        return Gradients(found.shared, np.zeros(0), found.by_leaf)

    def moved(
        self, q: LocalState, evaluation: Evaluation, gain: float, move: Array, rate: float
    ) -> LocalState:
        """The leaves of a pass with a share of their sites replaced, and with their points moved."""
        sums = evaluation.sums
        assert isinstance(sums, LocalSums)
        leaves, points, changes = list(q.leaves), list(q.points), {}
        for number, part in sums.parts.items():
            leaf, share, before = leaves[number], sums.shares[number], q.naturals.leaves[number]
            after = _after(leaf, share)
            own = max(gain, min(1.0, share / after.seen))
            # The sums are scaled up to all rows; those of a leaf stand for the rows seen of the leaf.
            new = own * after.known / (sums.scale * share)
            old = (1.0 - own) * (after.known / leaf.known if leaf.known else 1.0)
            changes[number] = _weighted_sum(new, part.naturals, old, before)
            state, Z = leaf.optimizer_state, points[number]
            if self.learn_inducing:
                slope = evaluation.by_leaf[number].ravel()
                step, state = self.optimizer.step(state, slope, rate)
                points[number] = Z + step.reshape(Z.shape)
            leaves[number] = LeafState(state, after.seen)
        return LocalState(q.naturals.replaced(changes, self.map_latents), tuple(points), tuple(leaves))

    def retreated(self, q: LocalState, before: LocalState) -> LocalState:
        """The sites before the last step, with the points that it moved half-way back."""
        points = [
            Z if Z is last else 0.5 * (Z + last) for Z, last in zip(q.points, before.points, strict=True)
        ]
        leaves = [
            leaf if leaf is last else LeafState(self.optimizer.shrunk(leaf.optimizer_state), last.seen)
            for leaf, last in zip(q.leaves, before.leaves, strict=True)
        ]
        return LocalState(before.naturals, tuple(points), tuple(leaves))

    def as_arrays(self, q: LocalState) -> dict[str, Array]:
        """Points, sites and optimisers' states of all leaves, each one after the other."""
        arrays = {
            "leaf_seen": np.array([leaf.seen for leaf in q.leaves]),
            "leaf_points": np.concatenate([Z.ravel() for Z in q.points]),
            "leaf_precision": np.concatenate([own.precision.ravel() for own in q.naturals.leaves]),
            "leaf_shift": np.concatenate([own.shift.ravel() for own in q.naturals.leaves]),
        }
        for each in fields(q.leaves[0].optimizer_state):
            values = [np.ravel(getattr(leaf.optimizer_state, each.name)) for leaf in q.leaves]
            arrays[f"leaf_optimizer_{each.name}"] = np.concatenate(values)
        return arrays

    def from_arrays(self, arrays: dict[str, Array], like: LocalState) -> LocalState:
        """The state of arrays; `like` is one of the same sizes."""
        parts = {name: _Reader(array) for name, array in arrays.items()}
        leaves, naturals = [], []
        points = tuple(parts["leaf_points"].like(Z) for Z in like.points)
        for leaf, own in zip(like.leaves, like.naturals.leaves, strict=True):
            optimizer_state = replace(
                leaf.optimizer_state,
                **{
                    each.name: parts[f"leaf_optimizer_{each.name}"].like(
                        getattr(leaf.optimizer_state, each.name)
                    )
                    for each in fields(leaf.optimizer_state)
                },
            )
            seen = parts["leaf_seen"].like(leaf.seen)
            leaves.append(LeafState(optimizer_state, seen))
            precision = parts["leaf_precision"].like(own.precision)
            naturals.append(NaturalParameters(precision, parts["leaf_shift"].like(own.shift)))
        return LocalState(LocalNaturalParameters.of(naturals, like.naturals.m), points, tuple(leaves))


def _weighted_sum(
    a: float, first: NaturalParameters, b: float, second: NaturalParameters
) -> NaturalParameters:
    """a·first + b·second."""
    precision, shift = a * first.precision, a * first.shift
    precision += b * second.precision
    shift += b * second.shift
    return NaturalParameters(precision, shift)


def _after(leaf: LeafState, share: float) -> LeafState:
    """A leaf after a step with a share of its rows, as far as it counts the rows seen."""
    return replace(leaf, seen=leaf.seen + share)


class _Reader:
    """Reads values of known shapes from one array, one after the other."""

    def __init__(self, values: Array) -> None:
        self._values, self._at = values, 0

    def like(self, value: Any) -> Any:
        """The next value, of the shape of another; a number if that is one."""
        size = np.size(value)
        part = self._values[self._at : self._at + size]
        self._at += size
        return part.reshape(value.shape) if isinstance(value, np.ndarray) else type(value)(part[0])
