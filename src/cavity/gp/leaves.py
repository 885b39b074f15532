"""The prior of local inducing points: f = g + r, where every leaf has points of its own for r.

A row x that falls into leaf k has the latent value f(x) = g(x) + r_k(x). g is a Gaussian process with m
inducing points for all rows. r_k has m_k points of its own, and the r of different leaves are
independent given the kernel. So K leaves have m + Σ m_k points, and a row meets m + m_k of them: its
*view*. A `LocalPrior` is the `Prior` of the global values, with a `view` for each leaf; the posterior is
in `cavity.gp.arrowhead`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np

from cavity.data.routing import Routing
from cavity.gp.kernels import BoundKernel
from cavity.gp.kernels.base import Array64, Tape
from cavity.gp.linalg import (
    BlockLower,
)
from cavity.gp.prior import JITTER, Prior, RowPrior
from cavity.typing import Array, Dtype

if TYPE_CHECKING:
    from sklearn.gaussian_process.kernels import Kernel, Sum

T = TypeVar("T")


@dataclass(frozen=True)
class Leaves:
    """Which leaf a row falls into, and the inducing points of every leaf."""

    routing: Routing
    points: tuple[Array, ...]
    """For each leaf [m_k, d], standardised."""

    def __len__(self) -> int:
        return len(self.points)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Numbers m_k of the points of the leaves."""
        return tuple(map(len, self.points))


class ForEachLeaf(Generic[T]):
    """Makes something for a leaf when it is first asked for; threads may ask at the same time."""

    def __init__(self, n_leaves: int, make: Callable[[int], T]) -> None:
        self._make = make
        self._made: list[T | None] = [None] * n_leaves
        self._lock = Lock()
        self._locks: dict[int, Lock] = {}  # few leaves are asked for in a step

    def __getitem__(self, leaf: int) -> T:
        made = self._made[leaf]
        if made is not None:
            return made
        with self._lock:
            lock = self._locks.setdefault(leaf, Lock())
        with lock:
            made = self._made[leaf]
            if made is None:
                made = self._made[leaf] = self._make(leaf)
        return made


class ViewKernel:
    """The kernels of g and r, bound to global points and to those of a leaf, side by side."""

    def __init__(self, whole: BoundKernel, local: BoundKernel, m: int) -> None:
        self._whole, self._local, self._m = whole, local, m

    def cross(self, X: Array) -> tuple[Array, Tape]:
        """K = [k_g(X, Z), k_r(X, Z_k)]: [n, m + m_k]."""
        (K, tape), (K_local, local_tape) = self._whole.cross(X), self._local.cross(X)
        return np.concatenate([K, K_local], axis=1), (tape, local_tape)

    def pull_back(self, tape: Tape, G: Array) -> tuple[Array64, Array64]:
        """Gradients by the theta of g, then of r; and by the global points, then those of the leaf."""
        theta, Z = self._whole.pull_back(tape[0], G[:, : self._m])
        local_theta, local_Z = self._local.pull_back(tape[1], G[:, self._m :])
        return np.concatenate([theta, local_theta]), np.concatenate([Z, local_Z])

    def diagonal(self, X: Array) -> tuple[Array, Tape]:
        """k_g(x, x) + k_r(x, x): [n]."""
        (k, tape), (k_local, local_tape) = self._whole.diagonal(X), self._local.diagonal(X)
        return k + k_local, (tape, local_tape)

    def pull_back_diagonal(self, tape: Tape, g: Array) -> Array64:
        """Gradient by the theta of g, then of r."""
        parts = self._whole.pull_back_diagonal(tape[0], g), self._local.pull_back_diagonal(tape[1], g)
        return np.concatenate(parts)


class LocalPrior(Prior):
    """The prior of the global inducing values, with the independent ones of every leaf.

    kernel: the sum of the kernels of g and of r.
    """

    kernel: Sum

    def __init__(
        self,
        kernel: Sum,
        Z: Array,
        dtype: Dtype,
        leaves: Leaves,
        jitter: float | None = None,
        leaf_jitter: float | None = None,
    ) -> None:
        super().__init__(kernel, Z, dtype, jitter)
        self.leaf_jitter = JITTER[self.dtype] if leaf_jitter is None else leaf_jitter
        """The relative jitter that leaves begin with."""
        self._set_leaves(leaves)

    def _set_leaves(self, leaves: Leaves) -> None:
        self.leaves = leaves
        self._priors = ForEachLeaf(len(leaves), self._make_prior)
        self._views = ForEachLeaf(len(leaves), self._make_view)

    @property
    def own_kernel(self) -> Kernel:
        """The kernel of g."""
        return self.kernel.k1

    @property
    def width(self) -> int:
        """Number of inducing points of the largest view."""
        return len(self.Z) + max(self.leaves.sizes)

    @property
    def m(self) -> int:
        """Number of global inducing points."""
        return len(self.Z)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Numbers of the points of the leaves."""
        return self.leaves.sizes

    def with_points(self, points: tuple[Array, ...]) -> LocalPrior:
        """The same prior with other points in the leaves."""
        if points is self.leaves.points:
            return self
        other = copy(self)
        other._set_leaves(Leaves(self.leaves.routing, points))
        return other

    def in_precision(self, dtype: Dtype) -> LocalPrior:
        """The same prior, with the same whitened coordinates, for tiles of another precision."""
        return LocalPrior(self.kernel, self.Z, dtype, self.leaves, self.jitter, self.leaf_jitter)

    def at(self, kernel: Sum) -> LocalPrior:
        """The prior of another kernel at the same points."""
        return LocalPrior(kernel, self.Z, self.dtype, self.leaves, self.jitter, self.leaf_jitter)

    def leaf(self, leaf: int) -> Prior:
        """The prior of the inducing values of a leaf."""
        return self._priors[leaf]

    def view(self, leaf: int) -> RowPrior:
        """What a pass over rows of a leaf needs of the prior."""
        return self._views[leaf]

    def _make_prior(self, leaf: int) -> Prior:
        return Prior(self.kernel.k2, self.leaves.points[leaf], self.dtype, self.leaf_jitter)

    def _make_view(self, leaf: int) -> RowPrior:
        m, local = len(self.Z), self._priors[leaf]
        whitener = BlockLower((self.whitener, local.whitener))
        return RowPrior(ViewKernel(self.rows_kernel, local.rows_kernel, m), whitener)


@dataclass(frozen=True)
class PriorViews:
    """What passes over rows of some leaves need of a `LocalPrior`, to be sent to another process."""

    views: Mapping[int, RowPrior]
    """What rows of a leaf meet, by leaf."""
    m: int
    """Number of global inducing points."""
    sizes: tuple[int, ...]
    """Numbers of the points of all leaves."""
    dtype: Dtype

    @property
    def width(self) -> int:
        """Number of inducing points of the largest view of all leaves."""
        return self.m + max(self.sizes)

    def view(self, leaf: int) -> RowPrior:
        """What a pass over rows of a leaf needs of the prior."""
        return self.views[leaf]
