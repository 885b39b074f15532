"""Kernels of a scaled distance: squared exponential, Matérn and rational quadratic.

Write E_ij = −½ Σ_k (x_ik − z_jk)²/l_k², the exponent of an RBF kernel, and K = c f(E). With x and z
scaled by l, W = G∘∂K/∂E and P = WᵀX, the gradients need no array larger than [n, m]:

    ∂F/∂z_jk    = (P_jk − colsum(W)_j z_jk) / l_k
    ∂F/∂log l_k = Σ_i rowsum(W)_i x_ik² + Σ_j colsum(W)_j z_jk² − 2 Σ_j P_jk z_jk     (ARD)

and ∂F/∂log l, one l for all columns, is the sum of the latter over k.

For rows of few columns the norms are part of one product. On *augmented* rows of length d + 2,

    x⁺ = [x_s, −½|x_s|², 1],   z⁺ = [z_s, 1, −½|z_s|²]:   E = X⁺Z⁺ᵀ,   WᵀX⁺ = [WᵀX_s, …, colsum(W)]

For rows of many columns, a scaled copy of them would cost more than two passes over [n, m], so they
stay as they are: E = X(z_s/l)ᵀ − ½|x_s|² − ½|z_s|², with |x_s|² = Σ_k x_k²/l_k² taken in the cache.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from cavity.gp.kernels.base import Array64, Tape, inner, is_fixed, shallow_copy
from cavity.memory import cached_rows
from cavity.typing import Array, Dtype, IntArray

if TYPE_CHECKING:
    from sklearn.gaussian_process.kernels import Kernel

_MANY_COLUMNS = 64
"""Columns from which rows are not copied."""
_FARTHEST = 1.0 / 64.0
"""Largest squared norm of a scaled row, as a share of the largest number: multiples of E stay finite."""

_LARGEST = {np.dtype(kind): float(np.finfo(kind).max) for kind in (np.float32, np.float64)}
_NONE = np.empty(0, dtype=np.intp)


class ScaledPoints:
    """Inducing points Z [m, d] about a centre, divided by lengthscales [d] or [1]."""

    def __init__(self, Z: Array, lengthscales: Array) -> None:
        self.centre = _centre(Z)
        self.rates = (1 / lengthscales).astype(Z.dtype)
        self._set(np.ascontiguousarray(self._centred(Z) * self.rates))

    def in_precision(self, dtype: Dtype) -> ScaledPoints:
        """The same points in another precision; their centre is rounded first, as for the rows."""
        other, Zs = shallow_copy(self), self.Zs
        if self.centre is not None:
            other.centre = self.centre.astype(dtype)
            Zs = Zs + (self.centre - other.centre) * self.rates
        other.rates = self.rates.astype(dtype)
        other._set(Zs.astype(dtype))
        return other

    def _set(self, Zs: Array) -> None:
        self.Zs, norms = Zs, _squared_norms(Zs)
        self.half_norms = -0.5 * norms
        self.partner = self._partner()

    def _partner(self) -> Array:
        if self.Zs.shape[1] >= _MANY_COLUMNS:
            return self.Zs * self.rates
        m, d = self.Zs.shape
        partner = np.empty((m, d + 2), dtype=self.Zs.dtype)
        partner[:, :d], partner[:, d], partner[:, d + 1] = self.Zs, 1, self.half_norms
        return partner

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in vars(self).items() if name != "partner"}

    def __setstate__(self, state: dict[str, object]) -> None:
        # On a cluster every pass sends these points: the partner is cheaper to make than to send.
        vars(self).update(state)
        self.partner = self._partner()

    def rows(self, X: Array) -> ScaledRows:
        """X [n, d], ready for products with these points."""
        return WideRows(self, self._centred(X)) if X.shape[1] >= _MANY_COLUMNS else NarrowRows(self, X)

    def _centred(self, X: Array) -> Array:
        return X if self.centre is None else X - self.centre


class NarrowRows:
    """Rows of few columns, augmented by their norms."""

    def __init__(self, points: ScaledPoints, X: Array) -> None:
        n, d = X.shape
        self._points = points
        self._rows = np.empty((n, d + 2), dtype=X.dtype)
        self.Xs = self._rows[:, :d]
        if points.centre is None:
            np.multiply(X, points.rates, out=self.Xs)
        else:
            np.subtract(X, points.centre, out=self.Xs)
            self.Xs *= points.rates
        self._rows[:, d] = -0.5 * _squared_norms(self.Xs)
        self._rows[:, d + 1] = 1

    @property
    def half_norms(self) -> Array:
        """−½|x_s|² [n]."""
        return np.asarray(self._rows[:, -2])

    def exponent(self) -> Array:
        """E [n, m], a new array."""
        return np.asarray(self._rows @ self._points.partner.T)

    def weighted(self, W: Array) -> tuple[Array, Array]:
        """WᵀX_s [m, d] and the column sums of W [m, 1], for W [n, m]."""
        P = W.T @ self._rows
        return P[:, :-2], P[:, -1:]

    def weighted_squares(self, weights: Array) -> Array64:
        """Σ_i w_i x_ik² [d], x scaled."""
        return np.asarray(weights @ np.square(self.Xs), dtype=np.float64)


class WideRows:
    """Rows of many columns, which are not copied."""

    def __init__(self, points: ScaledPoints, X: Array) -> None:
        self._points = points
        self._X = X
        squared_rates = np.broadcast_to(points.rates**2, X.shape[1:])
        self.half_norms = np.empty(len(X), dtype=X.dtype)
        for rows in cached_rows(len(X), X.shape[1] * X.itemsize):
            np.matmul(np.square(X[rows]), squared_rates, out=self.half_norms[rows])
        far = _too_far(self.half_norms)
        if len(far):
            Xs = _drawn_in(X[far] * points.rates)
            self._X = X.copy()
            self._X[far] = Xs / points.rates
            self.half_norms[far] = _squared_norms(Xs)
        self.half_norms *= -0.5

    def exponent(self) -> Array:
        """E [n, m], a new array."""
        E = self._X @ self._points.partner.T
        E += self.half_norms[:, None]
        E += self._points.half_norms
        return np.asarray(E)

    def weighted(self, W: Array) -> tuple[Array, Array]:
        """WᵀX_s [m, d] and the column sums of W [m, 1], for W [n, m]."""
        P = W.T @ self._X
        P *= self._points.rates
        ones = np.ones(len(W), dtype=W.dtype)
        return P, (ones @ W)[:, None]

    def weighted_squares(self, weights: Array) -> Array64:
        """Σ_i w_i x_ik² [d], x scaled."""
        total = np.zeros(self._X.shape[1])
        for rows in cached_rows(len(self._X), self._X.shape[1] * self._X.itemsize):
            total += weights[rows] @ np.square(self._X[rows])
        return np.asarray(total * self._points.rates.astype(np.float64) ** 2)


ScaledRows: TypeAlias = NarrowRows | WideRows


def _squared_norms(Xs: Array) -> Array:
    """|x_s|² [n] of scaled rows [n, d], after those whose norm is out of range were drawn in."""
    norms = np.einsum("ij,ij->i", Xs, Xs)
    far = _too_far(norms)
    if len(far):
        Xs[far] = _drawn_in(Xs[far])
        norms[far] = np.einsum("ij,ij->i", Xs[far], Xs[far])
    return np.asarray(norms)


def _too_far(norms: Array) -> IntArray:
    """The rows whose squared norm [n] is close to the end of the range of numbers, or beyond."""
    most = _FARTHEST * _LARGEST[norms.dtype]
    if norms.max(initial=0) <= most:  # as it nearly always is
        return _NONE
    return np.flatnonzero(~(norms <= most))


def _drawn_in(Xs: Array) -> Array:
    """Scaled rows [t, d] in their direction, but so near that E stays finite.

    Kernels that vanish with distance are 0 there as well as at the rows themselves.
    """
    largest = _LARGEST[Xs.dtype]
    directions = np.clip(Xs, -largest, largest)
    directions /= np.abs(directions).max(axis=1, keepdims=True)
    return np.asarray(directions * (_FARTHEST * largest / Xs.shape[1]) ** 0.5)


def _centre(Z: Array) -> Array | None:
    """The mean of Z [m, d], to be subtracted from all rows, or None if Z lies about the origin.

    It changes no distance, but avoids cancellation in float32 on data far from 0.
    """
    share = np.full(len(Z), 1 / len(Z), dtype=Z.dtype)
    mean, squares = share @ Z, share @ np.square(Z)
    if np.isinf(squares.sum()):
        largest = np.abs(Z).max()
        centre = _centre(Z / largest)
        return None if centre is None else centre * largest
    # |mean| ≤ 3·deviation, in a form that does not cancel.
    return None if (10 * mean**2 <= 9 * squares).all() else mean


class Curve(NamedTuple):
    """A stationary kernel along its exponent E ≤ 0, evaluated on a tile; all fields are [n, m]."""

    value: Array
    """f(E)"""
    slope: Array
    """∂f/∂E; the same array as `value` where the two are equal"""
    shape: Array | None = None
    """∂f/∂log a for the curve's own free hyperparameter a, if it has one"""


Radial: TypeAlias = Callable[[Array], Curve]
"""Function from E: [n, m] to the curve at E; it may overwrite E."""


class _Tape(NamedTuple):
    rows: ScaledRows
    curve: Curve  # scaled by c


class Stationary:
    """c f(E) for a curve f with f(0) = 1 and the lengthscales ``kernel.length_scale``."""

    def __init__(
        self, kernel: Kernel, Z: Array, radial: Radial, *, kink: bool = False, n_shapes: int = 0
    ) -> None:
        """Bind a kernel with a `length_scale`, one or one per column, to Z: [m, d].

        `radial` is the curve f; `kink` says that its slope at E = 0 is infinite, so that rounding
        errors in E are removed there; `n_shapes` is the number of the curve's free hyperparameters.
        """
        lengthscales = np.ravel(np.asarray(kernel.length_scale, dtype=np.float64))
        if len(lengthscales) not in (1, Z.shape[1]):
            raise ValueError(
                f"length_scale of {kernel} has {len(lengthscales)} entries, but the data have "
                f"{Z.shape[1]} columns; give one number, or one per column"
            )
        self._free = 0 if is_fixed(kernel, "length_scale") else len(lengthscales)
        self._n_theta = n_shapes + self._free
        self._radial = radial
        self._kink = kink
        self._scale = 1.0
        self._rates64 = 1 / lengthscales
        self._ones = np.ones(len(Z), dtype=Z.dtype)
        self._points = ScaledPoints(Z, lengthscales)

    def scaled(self, factor: float) -> Stationary:
        """The same kernel times a positive factor."""
        other = shallow_copy(self)
        other._scale = self._scale * float(factor)
        return other

    def in_precision(self, dtype: Dtype) -> Stationary:
        """The same kernel and points in another precision: cheaper than binding them again."""
        other = shallow_copy(self)
        other._ones, other._points = self._ones.astype(dtype), self._points.in_precision(dtype)
        return other

    def cross(self, X: Array) -> tuple[Array, Tape]:
        """K: [n, m]."""
        rows = self._points.rows(X)
        E = rows.exponent()
        if self._kink:
            self._snap(E, rows)
        np.minimum(E, 0, out=E)  # rounding leaves E > 0 for (nearly) equal rows
        curve = self._radial(E)
        if self._scale != 1.0:
            # By identity, because value and slope may be one array.
            for array in {id(a): a for a in curve if a is not None}.values():
                array *= self._scale
        return curve.value, _Tape(rows, curve)

    def pull_back(self, tape: Tape, G: Array) -> tuple[Array64, Array64]:
        """dtheta: [p], dZ: [m, d]."""
        _, dtheta, dZ = self.pull_back_with_total(tape, G)
        return dtheta, dZ

    def pull_back_with_total(self, tape: Tape, G: Array) -> tuple[float, Array64, Array64]:
        """Like `pull_back`, preceded by Σ G∘K, the derivative by the logarithm of the scale."""
        rows, curve = tape
        W = G * curve.slope
        P, columns = rows.weighted(W)
        Zs = self._points.Zs
        same = curve.slope is curve.value
        total = float(columns.sum(dtype=np.float64)) if same else inner(G, curve.value)

        pull = columns * Zs
        np.subtract(P, pull, out=pull)  # P_jk − colsum(W)_j z_jk
        dlength = np.empty(0)
        if self._free:
            sums = W @ self._ones  # three times as fast as W.sum(axis=1)
            dlength = rows.weighted_squares(sums) - _column_dots(np.add(P, pull, out=P), Zs)
        if self._free == 1:
            dlength = dlength.sum(keepdims=True)
        dshape = np.empty(0) if curve.shape is None else np.array([inner(G, curve.shape)])
        return total, np.concatenate([dshape, dlength]), pull * self._rates64

    def diagonal(self, X: Array) -> tuple[Array, Tape]:
        """k(x, x) = c: [n]."""
        return np.full(len(X), self._scale, dtype=self._ones.dtype), None

    def pull_back_diagonal(self, tape: Tape, g: Array) -> Array64:
        """Zero: [p], for f(0) = 1 whatever theta is."""
        return np.zeros(self._n_theta)

    def _snap(self, E: Array, rows: ScaledRows) -> None:
        """Set to zero the exponents that are zero within rounding.

        E carries a rounding error of the order of ε(|x_s|² + |z_s|²). Behind a square root that is
        √ε: enough to take 4e-4 off the float32 correlation of a point with itself.
        """
        tolerance = float(np.finfo(E.dtype).eps) * (self._points.Zs.shape[1] + 2) ** 0.5
        noise = np.add.outer(rows.half_norms, self._points.half_norms)
        noise *= tolerance
        np.copyto(E, 0, where=noise < E)


def _column_dots(A: Array, B: Array) -> Array64:
    """Σ_j A_jk B_jk: [k]."""
    return np.asarray(np.einsum("jk,jk->k", A, B), dtype=np.float64)


def bind_rbf(kernel: Kernel, Z: Array) -> Stationary:
    """k(x, z) = exp(−½ Σ_k (x_k − z_k)²/l_k²), with one lengthscale or one per column."""
    return Stationary(kernel, Z, squared_exponential)


def squared_exponential(E: Array) -> Curve:
    """f(E) = exp E, its own slope."""
    K = np.exp(E, out=E)
    return Curve(K, K)


def bind_matern(kernel: Kernel, Z: Array) -> Stationary:
    """A function of r = √(Σ_k (x_k − z_k)²/l_k²) whose samples are ⌈ν⌉ − 1 times differentiable."""
    if kernel.nu not in _MATERN:
        options = ", ".join(str(nu) for nu in _MATERN)
        raise ValueError(f"nu={kernel.nu!r} of the Matern kernel must be one of {options}")
    return Stationary(kernel, Z, _MATERN[kernel.nu], kink=kernel.nu == 0.5)


def _half(E: Array) -> Curve:
    """f = exp(−r); ∂f/∂E = f/r, taken as 0 at r = 0, where the kernel has a kink."""
    r = _distance(E, 1.0)
    K = np.exp(-r)
    np.copyto(r, inf, where=r == 0)
    return Curve(K, np.divide(K, r, out=r))


def _three_halves(E: Array) -> Curve:
    """f = (1 + t) exp(−t), ∂f/∂E = 3 exp(−t), with t = √3 r."""
    t = _distance(E, 3.0)
    slope = np.exp(-t)
    t += 1
    t *= slope
    slope *= 3
    return Curve(t, slope)


def _five_halves(E: Array) -> Curve:
    """f = (1 + t + t²/3) exp(−t), ∂f/∂E = 5/3 (1 + t) exp(−t), with t = √5 r."""
    t = _distance(E, 5.0)
    decay = np.exp(-t)
    K = t * t
    K /= 3
    t += 1
    K += t
    K *= decay
    t *= decay
    t *= 5 / 3
    return Curve(K, t)


def _distance(E: Array, factor: float) -> Array:
    """√factor r from E = −½r², in place."""
    E *= -2 * factor
    return np.sqrt(E, out=E)


_MATERN: dict[float, Radial] = {
    0.5: _half,
    1.5: _three_halves,
    2.5: _five_halves,
    inf: squared_exponential,
}


def bind_rational_quadratic(kernel: Kernel, Z: Array) -> Stationary:
    """k(x, z) = (1 + |x − z|²/(2αl²))^(−α).

    With u = −E/α the curve is f = (1 + u)^(−α) and

        ∂f/∂E     = f/(1 + u)
        ∂f/∂log α = αf [u/(1 + u) − log(1 + u)].
    """
    alpha = float(kernel.alpha)
    fixed = is_fixed(kernel, "alpha")

    def radial(E: Array) -> Curve:
        u = np.divide(E, -alpha, out=E)
        log_base = np.log1p(u)
        K = np.multiply(log_base, -alpha)
        np.exp(K, out=K)
        slope = K / (1 + u)
        if fixed:
            return Curve(K, slope)
        # u·slope = f·u/(1 + u), without the cancellation of f − slope when α is large.
        u *= slope
        log_base *= K
        u -= log_base
        u *= alpha
        return Curve(K, slope, u)

    return Stationary(kernel, Z, radial, n_shapes=int(not fixed))
